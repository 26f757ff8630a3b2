/* Walk the nodes, and form directories' blocks and attributes on the way.
 *
 * In path order, the directories that may still get entries are those whose paths are byte prefixes of the current
 * path: "a" is open while "a-b" passes, since "a/x" comes after it. They form a stack. A directory is left when the
 * next path does not begin with its path. Its children come in the order of their names, though not side by side.
 *
 *   path:     ""       a        a-b      a/x      b
 *   open:     ""       "" a     "" a     "" a     "" b      (a-b a file; before b, a is left)
 */
#include "imagebuild/fs/erofs/erofs_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/le.h"
#include "base/vec.h"
#include "imagebuild/tree/nodes.h"

/* ------------------------------------------------------------------ extended attributes */

/* A header of 12 bytes (no shared attributes, no name filter), then the attributes, each padded to 4 bytes:
 *
 *   | name length, prefix number, le16 value length | name without prefix | value |
 *
 * They stay in the listing's order, by name.
 */

/* Return the encoded size of an attribute, padding included. */
static uint32_t entry_size(const struct xattr *x)
{
    return GR_ALIGN_UP((uint32_t)(EROFS_XATTR_ENTRY + x->name_len + x->value_len), 4u);
}

uint32_t erofs_xattr_size(const void *xattrs, size_t len)
{
    if (!len)
        return 0;
    const uint8_t *p = xattrs, *end = p + len;
    uint32_t size = 0;
    struct xattr x;
    while (xattr_next(&p, end, &x))
        size += entry_size(&x);
    return size ? EROFS_XATTR_HEADER + size : 0;
}

int erofs_xattr_encode(const void *xattrs, size_t len, struct bytes *out)
{
    uint32_t size = erofs_xattr_size(xattrs, len);
    struct xattr x;
    uint8_t *at;
    if (!size)
        return 0;
    int rc = bytes_extend(out, size, &at);
    if (rc)
        return rc;
    const uint8_t *p = xattrs, *end = p + len;
    at += EROFS_XATTR_HEADER;
    while (xattr_next(&p, end, &x)) {
        at[0] = (uint8_t)x.name_len;
        at[1] = x.prefix;
        le16_put(at + 2, (uint16_t)x.value_len);
        memcpy(at + EROFS_XATTR_ENTRY, x.name, x.name_len);
        memcpy(at + EROFS_XATTR_ENTRY + x.name_len, x.value, x.value_len);
        at += entry_size(&x);
    }
    return 0;
}

uint16_t erofs_xattr_count_field(uint32_t size)
{
    return (uint16_t)(size ? (size - EROFS_XATTR_HEADER) / 4 + 1 : 0);
}

uint32_t erofs_xattr_bytes(const uint8_t *inode)
{
    const uint32_t count = le16_get(inode + 2);
    return count ? EROFS_XATTR_HEADER + 4 * (count - 1) : 0;
}

/* ------------------------------------------------------------------ a directory's blocks */

/* A block is an array of entries, followed by their names:
 *
 *   | nid, name offset, type | nid, name offset, type | ... | name | name | ... | zeros
 *     12 bytes each                                       ^ the first entry's name offset: gives the number of entries
 *
 * A name ends where the next begins; the last one ends at a zero or at the block's end. The number of entries is
 * known only when the block is full, so entries and names are collected apart, with offsets counted from the first
 * name.
 */

struct erofs_entry {
    const char *name;
    uint32_t len;
    uint64_t nid;
    uint16_t mode; /* the file type is taken from it */
};

/* Receive the complete block `number` of a directory. A non-zero result ends the directory with that value. */
typedef int erofs_dir_write(void *arg, uint64_t number, const uint8_t block[EROFS_BLOCK]);

/* Begin with zeros and the members up to arg; the others are for these functions alone. */
struct erofs_dir {
    uint64_t self, up;      /* inode numbers of "." and ".." */
    erofs_dir_write *write; /* NULL: only count */
    void *arg;
    uint64_t blocks;      /* complete blocks */
    uint32_t used;        /* bytes in the block in progress */
    unsigned dots;        /* how many of "." and ".." have been added */
    struct bytes entries; /* of the block in progress */
    struct bytes names;
};

/* Return erofs' file type (EROFS_FT_*), which has the values of the kernel's common fs_types.h. */
static uint8_t file_type(uint32_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return 1;
    case S_IFDIR:
        return 2;
    case S_IFCHR:
        return 3;
    case S_IFBLK:
        return 4;
    case S_IFIFO:
        return 5;
    case S_IFSOCK:
        return 6;
    default:
        return 7; /* a symbolic link */
    }
}

/* Begin another directory, re-using the memory of the last. */
static void erofs_dir_begin(struct erofs_dir *d, uint64_t self, uint64_t up, erofs_dir_write *write, void *arg)
{
    struct bytes entries = d->entries, names = d->names;
    bytes_clear(&entries);
    bytes_clear(&names);
    entries.max = names.max = EROFS_BLOCK;
    *d = (struct erofs_dir){.self = self, .up = up, .write = write, .arg = arg, .entries = entries, .names = names};
}

/* After the end: write the last block, padded with zeros. */
static void erofs_dir_last(const struct erofs_dir *d, uint8_t out[EROFS_BLOCK])
{
    memset(out, 0, EROFS_BLOCK);
    memcpy(out, d->entries.data, d->entries.len);
    memcpy(out + d->entries.len, d->names.data, d->names.len);
    for (uint8_t *p = out; p < out + d->entries.len; p += EROFS_DIRENT_SIZE)
        le16_put(p + 8, (uint16_t)(le16_get(p + 8) + d->entries.len));
}

/* Write the block in progress, which is full, and begin the next. */
static int next_block(struct erofs_dir *d)
{
    int rc = 0;
    if (d->write) {
        uint8_t block[EROFS_BLOCK];
        erofs_dir_last(d, block);
        rc = d->write(d->arg, d->blocks, block);
    }
    bytes_clear(&d->entries);
    bytes_clear(&d->names);
    d->used = 0;
    d->blocks++;
    return rc;
}

/* Append an entry to the block in progress. */
static int erofs_dir_keep(struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint8_t *p;
    int rc = bytes_extend(&d->entries, EROFS_DIRENT_SIZE, &p);
    if (rc)
        return rc;
    le64_put(p, entry->nid);
    le16_put(p + 8, (uint16_t)d->names.len);
    p[10] = file_type(entry->mode);
    return bytes_append(&d->names, entry->name, entry->len);
}

/* Add an entry to the block in progress, or to the next if that is full. Without `write`, only sizes are counted. */
static int erofs_dir_put(struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint32_t more = EROFS_DIRENT_SIZE + entry->len;
    int rc = d->used + more > EROFS_BLOCK ? next_block(d) : 0;
    if (!rc && d->write)
        rc = erofs_dir_keep(d, entry);
    d->used += more;
    return rc;
}

/* Add the next of "." and "..". */
static int put_dots(struct erofs_dir *d)
{
    struct erofs_entry entry = {.name = "..", .len = ++d->dots, .mode = S_IFDIR};
    entry.nid = d->dots == 1 ? d->self : d->up;
    return erofs_dir_put(d, &entry);
}

/* Return whether the next of "." and ".." comes before the entry's name. */
static bool dots_first(const struct erofs_dir *d, const struct erofs_entry *entry)
{
    uint32_t len = d->dots + 1;
    int order = memcmp("..", entry->name, GR_MIN(len, entry->len));
    return order < 0 || (order == 0 && len < entry->len);
}

/* Add the next entry; names ascend, "." and ".." are added by themselves. -ENOMEM; what `write` returns. */
static int erofs_dir_add(struct erofs_dir *d, const struct erofs_entry *entry)
{
    int rc = 0;
    while (d->dots < 2 && !rc && dots_first(d, entry))
        rc = put_dots(d);
    return rc ? rc : erofs_dir_put(d, entry);
}

/* End the directory: the block in progress is the last. Errors as from erofs_dir_add. */
static int erofs_dir_end(struct erofs_dir *d)
{
    int rc = 0;
    while (d->dots < 2 && !rc)
        rc = put_dots(d);
    return rc;
}

/* After the end: return the directory's bytes, full blocks of 4096 and the used part of the last one. */
static uint64_t erofs_dir_size(const struct erofs_dir *d)
{
    return d->blocks * EROFS_BLOCK + d->used;
}

/* ------------------------------------------------------------------ the walk */

struct walk;

/* An open directory. */
struct open_dir {
    struct walk *walk;
    struct erofs_inode inode;
    size_t path_len;
    struct erofs_dir entries;
};

struct walk {
    struct erofs_nids nids;
    const struct erofs_walk_ops *ops;
    void *arg;
    VEC(struct open_dir *) dirs; /* by depth; those from `open` on are kept to reuse their memory */
    size_t open;
    struct bytes path; /* of the last node */
};

static void walk_release(struct walk *w)
{
    for (size_t i = 0; i < w->dirs.len; i++) {
        bytes_release(&w->dirs.items[i]->entries.entries);
        bytes_release(&w->dirs.items[i]->entries.names);
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
static uint64_t nid_of(const struct walk *w, uint32_t rank)
{
    return w->nids.by_rank ? w->nids.base + w->nids.by_rank[rank] : 0;
}

/* Divide a directory or symbolic link into blocks and a tail. The tail stays after the inode only if inode,
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

/* ------------------------------------------------------------------ the walk: directories */

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

/* Leave the directories that cannot hold n or anything after it. The root stays until the end. */
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

/* ------------------------------------------------------------------ the walk: all nodes */

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

int erofs_walk(const struct nodes *nodes, struct erofs_nids nids, const struct erofs_walk_ops *ops, void *arg)
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
