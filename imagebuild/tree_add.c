/* Taking listed paths: names are judged first, so that a path that cannot stand leaves no trace;
 * then its parents are found or made, then the path itself. Where two listed paths exclude each
 * other the outcome does not depend on which came first: a directory wins over a file of its name,
 * the newer of two files (or directories) over the older. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/error.h"
#include "base/le.h"
#include "base/log.h"
#include "format/catalog.h"
#include "imagebuild/tree.h"
#include "imagebuild/tree_internal.h"

enum { COMPONENT_MAX = 255, TARGET_MAX = 4095, WARNINGS_MAX = 20 };

/* One path is left out: an error without skip_bad_names, else counted, the first few with a line.
 */
GR_MUST_CHECK static int skip(struct tree *t, const char *path, size_t len, const char *why)
{
    if (!t->options.skip_bad_names)
        return error_set(-EINVAL, "%s: '%.*s'; rename it, or leave such names out with --skip-bad-names", why,
                         (int)GR_MIN(len, 300u), path);
    t->stats.names_skipped++;
    if (t->warnings++ < WARNINGS_MAX)
        log_warning("left out: %s: '%.*s'%s", why, (int)GR_MIN(len, 300u), path,
                    t->warnings == WARNINGS_MAX ? "; further ones are counted only" : "");
    return 0;
}

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

/* Why a path cannot stand in a file system; NULL: it can. */
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

/* ------------------------------------------------------------------ extended attributes */

struct xattr {
    const uint8_t *start; /* of the whole record */
    const char *name;
    size_t name_len, len;
};

static int compare_xattrs(const void *pa, const void *pb)
{
    const struct xattr *a = pa, *b = pb;
    return tree_bytes_order(a->name, a->name_len, b->name, b->name_len);
}

static bool has_prefix(const struct xattr *x, const char *prefix)
{
    size_t len = strlen(prefix);
    return x->name_len > len && !memcmp(x->name, prefix, len);
}

static bool is_exactly(const struct xattr *x, const char *name)
{
    return x->name_len == strlen(name) && !memcmp(x->name, name, x->name_len);
}

/* Namespaces that both filesystems know. */
static bool supported(const struct xattr *x)
{
    return has_prefix(x, "user.") || has_prefix(x, "trusted.") || has_prefix(x, "security.") ||
           is_exactly(x, "system.posix_acl_access") || is_exactly(x, "system.posix_acl_default");
}

/* The source's list without what cannot be kept (counted), sorted by name: the kernel's order is
 * the file system's whim. */
static int filter_xattrs(struct tree *t, const struct source_entry *e, struct bytes *out)
{
    struct {
        struct xattr *items;
        size_t len, cap;
    } list CLEANUP(cleanup_free_) = {0};
    const uint8_t *p = e->xattrs, *end = p + e->xattrs_len;
    while (p < end) {
        size_t room = (size_t)(end - p);
        struct xattr x = {.start = p, .name = (const char *)p + 6, .name_len = room < 6 ? 0 : le16_get(p)};
        x.len = room < 6 ? 0 : 6 + x.name_len + le32_get(p + 2);
        if (room < 6 || x.len > room)
            return error_set(-EINVAL, "the attributes of '%.*s' are malformed", (int)e->path_len, e->path);
        p += x.len;
        if (vec_push(&list, x))
            return tree_out_of_memory();
    }
    if (list.len)
        qsort(list.items, list.len, sizeof *list.items, compare_xattrs);
    for (size_t i = 0; i < list.len; i++) {
        const struct xattr *x = &list.items[i];
        if (is_exactly(x, "security.selinux"))
            continue;
        if (!supported(x) || x->name_len > COMPONENT_MAX || out->len + x->len > TREE_XATTRS_MAX)
            t->stats.xattrs_skipped++;
        else if (bytes_append(out, x->start, x->len))
            return tree_out_of_memory();
    }
    return 0;
}

/* ------------------------------------------------------------------ nodes from entries */

static uint32_t encode_rdev(uint64_t rdev)
{
    uint32_t maj = major(rdev), min = minor(rdev);
    return (min & 0xff) | maj << 8 | (min & ~0xffu) << 12;
}

static void forget_link(struct tree *t, node_id id)
{
    for (size_t i = t->links.len; i--;)
        if (t->links.items[i].node == id)
            t->links.items[i] = t->links.items[--t->links.len];
}

/* Make the node what e says; it is not counted at this moment. */
static int assign(struct tree *t, node_id id, const struct source_entry *e)
{
    CLEANUP_BYTES xattrs = BYTES_INIT(2 * TREE_XATTRS_MAX);
    struct source_entry kept = *e;
    if (e->xattrs_len) {
        int rc = filter_xattrs(t, e, &xattrs);
        if (rc)
            return rc;
        kept.xattrs = xattrs.data;
        kept.xattrs_len = xattrs.len;
    }
    struct node *n = tree_node(t, id);
    int rc = tree_store_blob(t, n, &kept);
    if (rc)
        return rc;
    n->mode = tree_mode(t, e->mode);
    n->flags = 0;
    n->uid = e->uid;
    n->gid = e->gid;
    n->mtime = e->mtime;
    n->mtime_nsec = e->mtime_nsec;
    n->size = S_ISREG(e->mode) ? e->size : S_ISLNK(e->mode) ? e->target_len : 0;
    n->rdev = S_ISCHR(e->mode) || S_ISBLK(e->mode) ? encode_rdev(e->rdev) : 0;
    if (!S_ISDIR(e->mode) && e->link_ino) {
        struct tree_link link = {.dev = e->link_dev, .ino = e->link_ino, .node = id};
        if (vec_push(&t->links, link))
            return tree_out_of_memory();
    }
    tree_count_node(t, n, true);
    return 0;
}

static int replace(struct tree *t, node_id id, const struct source_entry *e)
{
    tree_count_node(t, tree_node(t, id), false);
    forget_link(t, id);
    return assign(t, id, e);
}

/* A directory that nobody listed (yet). */
static void make_implicit(struct tree *t, node_id id)
{
    struct node *n = tree_node(t, id);
    n->mode = S_IFDIR | 0755;
    n->flags = NODE_IMPLICIT;
    n->mtime = INT64_MIN;
    n->mtime_nsec = n->uid = n->gid = n->rdev = 0;
    n->size = n->blob = 0;
    tree_count_node(t, n, true);
}

/* A listed file stands where a directory must be: the directory wins. */
static int file_yields(struct tree *t, node_id id, const char *path, size_t len)
{
    int rc = skip(t, path, len, "a file has the name of a directory");
    if (rc)
        return rc;
    tree_count_node(t, tree_node(t, id), false);
    forget_link(t, id);
    make_implicit(t, id);
    return 0;
}

/* The node of path's parent, made with all above it when missing; *out_name is the last component.
 */
static int find_parent(struct tree *t, const char *path, size_t len, node_id *out_parent, const char **out_name)
{
    node_id parent = NODE_ROOT;
    const char *p = path, *end = path + len;
    for (const char *slash; (slash = memchr(p, '/', (size_t)(end - p))); p = slash + 1) {
        size_t name_len = (size_t)(slash - p);
        node_id child = tree_lookup(t, parent, p, name_len);
        int rc = 0;
        if (child == NODE_NONE) {
            rc = tree_create(t, parent, p, name_len, &child);
            if (!rc)
                make_implicit(t, child);
        } else if (!S_ISDIR(tree_node(t, child)->mode)) {
            rc = file_yields(t, child, path, (size_t)(slash - path));
        }
        if (rc)
            return rc;
        parent = child;
    }
    *out_parent = parent;
    *out_name = p;
    return 0;
}

/* Is the listed entry the newer version of what the node holds? */
static bool is_newer(const struct tree *t, const struct node *n, const struct source_entry *e)
{
    if (e->mtime != n->mtime)
        return e->mtime > n->mtime;
    if (e->mtime_nsec != n->mtime_nsec)
        return e->mtime_nsec > n->mtime_nsec;
    size_t len;
    const char *validator = tree_validator(t, n, &len);
    return tree_bytes_order(e->validator, e->validator_len, validator, len) > 0;
}

/* The path is there already. */
static int add_again(struct tree *t, node_id id, const struct source_entry *e)
{
    struct node *n = tree_node(t, id);
    bool was_directory = S_ISDIR(n->mode), is_directory = S_ISDIR(e->mode);
    if (was_directory && is_directory)
        return n->flags & NODE_IMPLICIT || is_newer(t, n, e) ? replace(t, id, e) : 0;
    if (was_directory)
        return skip(t, e->path, e->path_len, "a file has the name of a directory");
    if (is_directory) {
        int rc = file_yields(t, id, e->path, e->path_len);
        return rc ? rc : replace(t, id, e);
    }
    int rc = skip(t, e->path, e->path_len, "a path is listed twice");
    return rc || !is_newer(t, n, e) ? rc : replace(t, id, e);
}

int tree_add(struct tree *t, const struct source_entry *e)
{
    bool is_directory = S_ISDIR(e->mode);
    if (!e->path_len && is_directory)
        return add_again(t, NODE_ROOT, e);
    const char *fault = path_fault(e->path, e->path_len);
    if (!fault && S_ISLNK(e->mode) && (!e->target_len || e->target_len > TARGET_MAX))
        fault = "a symbolic link's text must have 1 to 4095 bytes";
    if (fault)
        return skip(t, e->path, e->path_len, fault);
    if (!is_directory && !S_ISREG(e->mode) && !S_ISLNK(e->mode) && !t->options.keep_special) {
        t->stats.special_skipped++;
        return 0;
    }
    node_id parent;
    const char *name;
    int rc = find_parent(t, e->path, e->path_len, &parent, &name);
    if (rc)
        return rc;
    size_t name_len = e->path_len - (size_t)(name - e->path);
    node_id id = tree_lookup(t, parent, name, name_len);
    if (id != NODE_NONE)
        return add_again(t, id, e);
    rc = tree_create(t, parent, name, name_len, &id);
    return rc ? rc : assign(t, id, e);
}
