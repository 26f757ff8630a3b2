/* The limits are those that erofs and ext4 share: components of 255 bytes, symbolic links of less than a block, and
 * the namespaces of extended attributes that both have numbers for. */
#include "imagebuild/tree/listing_judge.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/le.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "imagebuild/tree/nodes.h"

enum { COMPONENT_MAX = 255, TARGET_MAX = 4095, XATTR_HEADER = 6 }; /* bytes */

/* ------------------------------------------------------------------ names */

/* Return what is wrong with one component; NULL: nothing. */
static const char *component_fault(const char *name, size_t len)
{
    if (!len)
        return "an empty component cannot be a file name";
    if (len > COMPONENT_MAX)
        return "a component over 255 bytes cannot be a file name";
    if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
        return "'.' and '..' cannot be file names";
    return NULL;
}

/* Return what is wrong with a path; NULL: nothing. */
static const char *path_fault(const char *path, size_t len)
{
    if (len > CATALOG_PATH_MAX)
        return "a path over 65535 bytes cannot be kept";
    if (memchr(path, 0, len))
        return "a NUL byte cannot be in a file name";
    for (const char *p = path, *end = path + len;;) {
        const char *slash = memchr(p, '/', (size_t)(end - p));
        const char *fault = component_fault(p, (size_t)((slash ? slash : end) - p));
        if (fault || !slash)
            return fault;
        p = slash + 1;
    }
}

const char *listing_fault(const struct source_entry *e)
{
    const char *fault = path_fault(e->path, e->path_len);
    if (!fault && S_ISLNK(e->mode) && (!e->target_len || e->target_len > TARGET_MAX))
        fault = "a symbolic link's text must have 1 to 4095 bytes";
    return fault;
}

uint32_t listing_encode_rdev(uint64_t rdev)
{
    uint32_t maj = major(rdev), min = minor(rdev);
    /* low 8 bits of the minor number, 12 bits of the major one, then the other 12 of the minor */
    return (min & 0xff) | maj << 8 | (min & ~0xffu) << 12;
}

/* ------------------------------------------------------------------ extended attributes */

struct xattr {
    const uint8_t *start; /* of the whole attribute */
    const char *name;
    size_t name_len, len;
};

static int compare_xattrs(const void *pa, const void *pb)
{
    const struct xattr *a = pa, *b = pb;
    return catalog_path_compare(a->name, a->name_len, b->name, b->name_len);
}

/* A name that is nothing but the prefix does not have it. */
static bool has_prefix(const struct xattr *x, const char *prefix)
{
    size_t len = strlen(prefix);
    return x->name_len > len && !memcmp(x->name, prefix, len);
}

static bool is_exactly(const struct xattr *x, const char *name)
{
    return x->name_len == strlen(name) && !memcmp(x->name, name, x->name_len);
}

/* Return whether both filesystems know the attribute's namespace. */
static bool supported(const struct xattr *x)
{
    return has_prefix(x, "user.") || has_prefix(x, "trusted.") || has_prefix(x, "security.") ||
           is_exactly(x, "system.posix_acl_access") || is_exactly(x, "system.posix_acl_default");
}

/* xattr layout: le16 name length, le32 value length, name, value. The lengths come from outside, so they are checked
 * here, once; all later readers rely on it. */
int listing_filter_xattrs(const struct source_entry *e, struct bytes *out, uint64_t *skipped)
{
    struct {
        struct xattr *items;
        size_t len, cap;
    } list CLEANUP(cleanup_free_) = {0};
    const uint8_t *p = e->xattrs, *end = p + e->xattrs_len;
    while (p < end) {
        size_t room = (size_t)(end - p);
        struct xattr x = {.start = p, .name = (const char *)p + XATTR_HEADER};
        x.name_len = room < XATTR_HEADER ? 0 : le16_get(p);
        x.len = room < XATTR_HEADER ? 0 : XATTR_HEADER + x.name_len + le32_get(p + 2);
        /* x.len cannot overflow: it adds a 16-bit and a 32-bit length in 64 bits */
        if (room < XATTR_HEADER || x.len > room)
            return error_set(-EINVAL, "the attributes of '%.*s' are malformed", (int)e->path_len, e->path);
        p += x.len;
        if (vec_push(&list, x))
            return error_no_memory();
    }
    if (list.len)
        qsort(list.items, list.len, sizeof *list.items, compare_xattrs);
    for (size_t i = 0; i < list.len; i++) {
        const struct xattr *x = &list.items[i];
        /* a label of the machine that the source lies on; the machine that mounts the image labels it itself */
        if (is_exactly(x, "security.selinux"))
            continue;
        /* the first ones that fit are kept, in the order of names, so the outcome does not depend on the source's
         * order */
        if (!supported(x) || x->name_len > COMPONENT_MAX || out->len + x->len > NODE_XATTRS_MAX) {
            ++*skipped;
            continue;
        }
        int rc = bytes_append(out, x->start, x->len);
        if (rc)
            return rc;
    }
    return 0;
}
