/* In path order, the directories that may still get entries are those whose paths are byte prefixes of the current
 * path: "a" is open while "a-b" passes, since "a/x" comes behind it. They form a stack. A directory is left when the
 * next path does not begin with its path. Its children come in the order of their names, though not side by side.
 *
 *   path:     ""       a        a-b      a/x      b
 *   open:     ""       "" a     "" a     "" a     "" b      (a-b a file; before b, a is left)
 */
#include "imagebuild/fs/erofs/erofs_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_dir.h"
#include "imagebuild/fs/erofs/erofs_xattr.h"

struct walk;

/* An open directory. */
struct open_dir {
    struct walk *walk;
    struct erofs_inode inode;
    size_t path_len;
    struct erofs_dir entries;
};

struct walk {
    const uint32_t *nids;
    const struct erofs_walk_ops *ops;
    void *arg;
    VEC(struct open_dir *) dirs; /* by depth; those from `open` on are kept to re-use their memory */
    size_t open;
    struct bytes path; /* of the last node */
};

static void walk_release(struct walk *w)
{
    for (size_t i = 0; i < w->dirs.len; i++) {
        erofs_dir_release(&w->dirs.items[i]->entries);
        free(w->dirs.items[i]);
    }
    vec_release(&w->dirs);
    bytes_release(&w->path);
}

static struct open_dir *top(const struct walk *w)
{
    return w->dirs.items[w->open - 1];
}

/* Return an inode number; 0 in a walk that forms no blocks. */
static uint32_t nid_of(const struct walk *w, uint32_t rank)
{
    return w->nids ? w->nids[rank] : 0;
}

/* Divide a directory or symbolic link into blocks and a tail. The tail stays behind the inode only if inode,
 * attributes and tail fit into one block together; else it gets a block. */
static void set_parts(struct erofs_inode *i)
{
    uint32_t tail = (uint32_t)(i->size % EROFS_BLOCK);
    if (EROFS_INODE_SIZE + i->xattr_size + tail <= EROFS_BLOCK)
        i->tail = tail;
    i->blocks = (i->size - i->tail + EROFS_BLOCK - 1) / EROFS_BLOCK;
}

/* Return the inode of a node, as far as the node tells. */
static struct erofs_inode inode_of(const struct node *n)
{
    struct erofs_inode i = {.rank = n->rank,
                            .parent = n->parent,
                            .mode = n->mode,
                            .uid = n->uid,
                            .gid = n->gid,
                            .rdev = n->rdev,
                            .nlink = 1,
                            .mtime_nsec = n->mtime_nsec,
                            .mtime = n->mtime,
                            .xattr_size = erofs_xattr_size(n->xattrs, n->xattrs_len)};
    if (S_ISREG(n->mode)) {
        i.size = n->size;
        i.address = n->address;
    } else if (S_ISLNK(n->mode)) {
        i.size = n->target_len;
        set_parts(&i);
    }
    return i;
}

/* ------------------------------------------------------------------ directories */

/* Pass a directory's block on to the walk's callback. */
static int erofs_walk_write_block(void *arg, uint64_t number, const uint8_t block[EROFS_BLOCK])
{
    struct open_dir *d = arg;
    return d->walk->ops->block(d->walk->arg, &d->inode, number, block);
}

/* Open a directory, re-using the memory of one at the same depth. */
static int erofs_walk_enter(struct walk *w, const struct node *n)
{
    if (w->open == w->dirs.len) {
        struct open_dir *fresh = calloc(1, sizeof *fresh);
        if (!fresh || vec_push(&w->dirs, fresh)) {
            free(fresh);
            return error_no_memory();
        }
        fresh->walk = w;
    }
    struct open_dir *d = w->dirs.items[w->open++];
    d->inode = inode_of(n);
    d->inode.nlink = 2;
    d->path_len = n->path_len;
    erofs_dir_begin(&d->entries, nid_of(w, n->rank), nid_of(w, n->parent),
                    w->ops->block ? erofs_walk_write_block : NULL, d);
    return w->ops->enter(w->arg, &d->inode, n);
}

/* Complete the directory on top of the stack, and pop it. */
static int leave(struct walk *w)
{
    struct open_dir *d = top(w);
    uint8_t last[EROFS_BLOCK];
    int rc = erofs_dir_end(&d->entries);
    if (rc)
        return rc;
    d->inode.size = erofs_dir_size(&d->entries);
    set_parts(&d->inode);
    if (w->ops->block)
        erofs_dir_last(&d->entries, last);
    w->open--;
    return w->ops->leave(w->arg, &d->inode, w->ops->block ? last : NULL);
}

/* Leave the directories that cannot hold n or anything behind it. The root stays until the end. */
static int leave_before(struct walk *w, const struct node *n)
{
    size_t max = GR_MIN(w->path.len, n->path_len), same = 0;
    int rc = 0;
    while (same < max && w->path.data[same] == (uint8_t)n->path[same])
        same++;
    while (w->open > 1 && top(w)->path_len > same && !rc)
        rc = leave(w);
    return rc;
}

/* Add n to its directory. That is near the top of the stack: above it lie only directories whose names are prefixes
 * of n's name. */
static int add_entry(struct walk *w, const struct node *n)
{
    for (size_t i = w->open; i-- > 0;) {
        struct open_dir *d = w->dirs.items[i];
        if (d->inode.rank != n->parent)
            continue;
        d->inode.nlink += S_ISDIR(n->mode);
        struct erofs_entry entry = {
            .name = n->name, .len = (uint32_t)n->name_len, .nid = nid_of(w, n->link), .mode = n->mode};
        return erofs_dir_add(&d->entries, &entry);
    }
    return error_set(-EIO, "erofs: a path without its directory: a bug, nothing was published");
}

/* ------------------------------------------------------------------ all of them */

/* Visit one node: leave directories, add its entry, and call back. */
static int visit(struct walk *w, const struct node *n)
{
    int rc = leave_before(w, n);
    if (!rc && n->rank != NODE_ROOT)
        rc = add_entry(w, n);
    if (rc)
        return rc;
    bytes_clear(&w->path);
    rc = bytes_append(&w->path, n->path, n->path_len);
    if (rc)
        return rc;
    if (S_ISDIR(n->mode))
        return erofs_walk_enter(w, n);
    if (n->link != n->rank)
        return w->ops->again(w->arg, n);
    struct erofs_inode inode = inode_of(n);
    return w->ops->leaf(w->arg, &inode, n);
}

int erofs_walk(const struct nodes *nodes, const uint32_t *nids, const struct erofs_walk_ops *ops, void *arg)
{
    struct walk w CLEANUP(walk_release) = {.nids = nids, .ops = ops, .arg = arg, .path = BYTES_INIT(64 << 10)};
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *cursor = NULL;
    struct node n;
    int rc = nodes_cursor_new(nodes, &cursor);
    if (rc)
        return rc;
    while ((rc = nodes_next(cursor, &n)) > 0) {
        rc = visit(&w, &n);
        if (rc)
            return rc;
    }
    /* the root, and what is open below it */
    while (w.open && !rc)
        rc = leave(&w);
    return rc;
}
