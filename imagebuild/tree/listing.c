/* Take listed paths. Each is judged and goes into a sorter under its path, and so does every directory above it.
 *
 *   listed:   a/b/c            records:  a/b/c (as listed), a/b (mode 0), a (mode 0)
 *             a/b/d                      a/b/d              (a/b was met before: nothing above it is added)
 *
 * A directory may get several such records: the last path and a small table avoid most of them, and the merge folds the
 * rest. Only the merge decides how listed paths relate to each other (listing_seal.c), so nothing depends on their
 * order.
 */
#include "imagebuild/tree/listing.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "imagebuild/tree/listing_internal.h"

enum { WARNINGS_MAX = 20, KNOWN_PATH_MAX = 4096 };

/* Add a record for a directory that may not be listed. */
static int add_implicit(struct listing *l, const char *path, size_t len)
{
    struct listing_record r;
    memset(&r, 0, sizeof r);
    return sorter_add(l->sorter, path, len, &r, sizeof r);
}

int listing_new(const struct listing_options *options, struct listing **out)
{
    CLEANUP(cleanup_listing) struct listing *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->options = *options;
    l->value.max = SORTER_RECORD_MAX;
    l->last.max = CATALOG_PATH_MAX + 1;
    if (options->dir && !(l->options.dir = l->dir = strdup(options->dir)))
        return error_no_memory();
    struct sorter_config config = {.dir = l->options.dir, .memory = options->sort_memory};
    int rc = sorter_new(&config, &l->sorter);
    if (!rc)
        rc = add_implicit(l, "", 0); /* the root always exists */
    if (rc)
        return rc;
    *out = steal_ptr(&l);
    return 0;
}

void listing_free(struct listing *l)
{
    if (!l)
        return;
    for (size_t i = 0; i < LISTING_KNOWN; i++)
        free(l->known[i].path);
    sorter_free(l->sorter);
    bytes_release(&l->value);
    bytes_release(&l->last);
    free(l->dir);
    free(l);
}

struct listing_stats listing_stats(const struct listing *l)
{
    return l->stats;
}

int listing_skip(struct listing *l, const char *path, size_t len, const char *why)
{
    int shown = (int)GR_MIN(len, 300u);
    if (!l->options.skip_bad_names)
        return error_set(-EINVAL, "%s: '%.*s'; %s", why, shown, path,
                         l->options.remedy ? l->options.remedy
                                           : "rename it, or leave such names out with --skip-bad-names");
    l->stats.names_skipped++;
    if (l->warnings++ < WARNINGS_MAX)
        log_warning("left out: %s: '%.*s'%s", why, shown, path,
                    l->warnings == WARNINGS_MAX ? "; further ones are counted only" : "");
    return 0;
}

/* ------------------------------------------------------------------ what a filesystem can hold */

/* The limits are those that erofs and ext4 share: components of 255 bytes, symbolic links of less than a block, and the
 * namespaces of extended attributes that both have numbers for. */
enum { COMPONENT_MAX = 255, TARGET_MAX = 4095, XATTR_HEADER = 6 }; /* bytes */

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

/* Return why no filesystem can hold the entry's path, or the symbolic link's text; NULL: it can. Not for the root. */
static const char *entry_fault(const struct source_entry *e)
{
    const char *fault = path_fault(e->path, e->path_len);
    if (!fault && S_ISLNK(e->mode) && (!e->target_len || e->target_len > TARGET_MAX))
        fault = "a symbolic link's text must have 1 to 4095 bytes";
    return fault;
}

/* Return a dev_t in the kernel's new_encode_dev form. */
static uint32_t encode_rdev(uint64_t rdev)
{
    uint32_t maj = major(rdev), min = minor(rdev);
    /* low 8 bits of the minor number, 12 bits of the major one, then the other 12 of the minor */
    return (min & 0xff) | maj << 8 | (min & ~0xffu) << 12;
}

struct listed_xattr {
    const uint8_t *start; /* of the whole attribute */
    const char *name;
    size_t name_len, len;
};

static int compare_xattrs(const void *pa, const void *pb)
{
    const struct listed_xattr *a = pa, *b = pb;
    return catalog_path_compare(a->name, a->name_len, b->name, b->name_len);
}

/* A name that is nothing but the prefix does not have it. */
static bool has_prefix(const struct listed_xattr *x, const char *prefix)
{
    size_t len = strlen(prefix);
    return x->name_len > len && !memcmp(x->name, prefix, len);
}

static bool is_exactly(const struct listed_xattr *x, const char *name)
{
    return x->name_len == strlen(name) && !memcmp(x->name, name, x->name_len);
}

/* Return whether both filesystems know the attribute's namespace. */
static bool supported(const struct listed_xattr *x)
{
    return has_prefix(x, "user.") || has_prefix(x, "trusted.") || has_prefix(x, "security.") ||
           is_exactly(x, "system.posix_acl_access") || is_exactly(x, "system.posix_acl_default");
}

/* Append e's attributes, without those that cannot be kept (added to *skipped), sorted by name, because the kernel
 * lists them in any order. The lengths in the sequence come from outside, so they are checked here, once; all later
 * readers rely on it (xattr_next). -EINVAL: malformed; -ENOMEM. */
static int filter_xattrs(const struct source_entry *e, struct bytes *out, uint64_t *skipped)
{
    struct {
        struct listed_xattr *items;
        size_t len, cap;
    } list CLEANUP(cleanup_free_) = {0};
    const uint8_t *p = e->xattrs, *end = p + e->xattrs_len;
    while (p < end) {
        size_t room = (size_t)(end - p);
        struct listed_xattr x = {.start = p, .name = (const char *)p + XATTR_HEADER};
        x.name_len = room < XATTR_HEADER ? 0 : le16_get(p);
        x.len = room < XATTR_HEADER ? 0 : XATTR_HEADER + x.name_len + le32_get(p + 2);
        /* x.len cannot overflow: it adds a 16-bit and a 32-bit length in 64 bits */
        if (room < XATTR_HEADER || x.len > room)
            return error_set(-EINVAL, "the attributes of '%.*s' are malformed", (int)e->path_len, e->path);
        p += x.len;
        if (vec_push(&list, x))
            return -ENOMEM;
    }
    if (list.len)
        qsort(list.items, list.len, sizeof *list.items, compare_xattrs);
    for (size_t i = 0; i < list.len; i++) {
        const struct listed_xattr *x = &list.items[i];
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

/* ------------------------------------------------------------------ directories above */

static struct listing_known *known_slot(struct listing *l, const char *path, size_t len)
{
    uint64_t h = 0xCBF29CE484222325u; /* FNV-1a: colliding paths cost extra records, nothing else */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)path[i]) * 0x100000001B3u;
    return &l->known[(h ^ h >> 32) % LISTING_KNOWN];
}

/* Remember a directory. The slot's former one is forgotten: it may get another record. */
static int remember(struct listing_known *k, const char *path, size_t len)
{
    char *copy = realloc(k->path, GR_MAX(len, (size_t)1));
    if (!copy)
        return error_no_memory();
    memcpy(copy, path, len);
    *k = (struct listing_known){copy, len};
    return 0;
}

/* Return how many leading bytes the path has in common with the last one. */
static size_t shared_with_last(const struct listing *l, const char *path, size_t len)
{
    size_t n = 0, common = GR_MIN(len, l->last.len);
    while (n < common && path[n] == (char)l->last.data[n])
        n++;
    return n;
}

/* Add records for the directories above a path, bottom up, until one that has a record: so have all above it. */
static int add_parents(struct listing *l, const char *path, size_t len)
{
    size_t shared = shared_with_last(l, path, len);
    for (const char *slash; (slash = memrchr(path, '/', len));) {
        len = (size_t)(slash - path);
        /* the last path lies below this directory, so this one and all above it have records */
        if (len <= shared && len < l->last.len && l->last.data[len] == '/')
            return 0;
        struct listing_known *k = known_slot(l, path, len);
        if (k->path && k->len == len && !memcmp(k->path, path, len))
            return 0;
        int rc = add_implicit(l, path, len);
        if (!rc && len <= KNOWN_PATH_MAX)
            rc = remember(k, path, len);
        if (rc)
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ entries */

/* Encode the record of e into l->value. */
static int make_record(struct listing *l, const struct source_entry *e, const struct listing_written *written)
{
    CLEANUP_BYTES xattrs = BYTES_INIT(NODE_XATTRS_MAX);
    int rc = e->xattrs_len ? filter_xattrs(e, &xattrs, &l->stats.xattrs_skipped) : 0;
    if (rc)
        return rc;
    size_t target_len = S_ISLNK(e->mode) ? e->target_len : 0;
    if (e->validator_len > CATALOG_VALIDATOR_MAX)
        return error_set(-EINVAL, "what the source says of '%.*s' is too long", (int)GR_MIN(e->path_len, 300u),
                         e->path);
    struct listing_record r;
    memset(&r, 0, sizeof r); /* records are compared as bytes, padding included */
    r.size = S_ISREG(e->mode) ? e->size : target_len;
    r.mode = l->options.keep_special ? e->mode : e->mode & ~(uint32_t)(S_ISUID | S_ISGID);
    r.uid = e->uid;
    r.gid = e->gid;
    r.mtime = e->mtime;
    r.mtime_nsec = e->mtime_nsec;
    r.rdev = S_ISCHR(e->mode) || S_ISBLK(e->mode) ? encode_rdev(e->rdev) : 0;
    r.link_dev = S_ISDIR(e->mode) ? 0 : e->link_dev;
    r.link_ino = S_ISDIR(e->mode) ? 0 : e->link_ino;
    r.archive = e->archive;
    r.member = e->member;
    r.validator_len = (uint16_t)e->validator_len;
    r.target_len = (uint16_t)target_len;
    r.xattrs_len = (uint32_t)xattrs.len;
    if (written)
        r.written = *written;
    bytes_clear(&l->value);
    rc = bytes_append(&l->value, &r, sizeof r);
    if (!rc)
        rc = bytes_append(&l->value, e->validator, e->validator_len);
    if (!rc)
        rc = bytes_append(&l->value, e->target, target_len);
    return rc ? rc : bytes_append(&l->value, xattrs.data, xattrs.len);
}

/* Judge an entry and add its record, and those of the directories above it. */
int listing_add_written(struct listing *l, const struct source_entry *e, const struct listing_written *written)
{
    bool is_directory = S_ISDIR(e->mode), is_root = is_directory && !e->path_len;
    const char *fault = is_root ? NULL : entry_fault(e);
    if (fault)
        return listing_skip(l, e->path, e->path_len, fault);
    bool special = !is_directory && !S_ISREG(e->mode) && !S_ISLNK(e->mode);
    /* a mode without a type is no file that could be kept */
    if (special && (!l->options.keep_special || !(e->mode & S_IFMT))) {
        l->stats.special_skipped++;
        return 0;
    }
    int rc = make_record(l, e, written);
    if (!rc)
        rc = add_parents(l, e->path, e->path_len);
    if (!rc)
        rc = sorter_add(l->sorter, e->path, e->path_len, l->value.data, l->value.len);
    /* only now: all directories above the path have their records */
    bytes_clear(&l->last);
    if (!rc)
        rc = bytes_append(&l->last, e->path, e->path_len);
    return rc ? rc : bytes_append(&l->last, "/", is_directory);
}

int listing_add(struct listing *l, const struct source_entry *e)
{
    return listing_add_written(l, e, NULL);
}

bool listing_refuses(const struct source_entry *e)
{
    return entry_fault(e) != NULL;
}
