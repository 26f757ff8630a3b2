/* An earlier image's directories: which inode a path has there.
 *
 * Paths are asked for in ascending order. As in a walk (erofs_walk.c), the directories whose paths are prefixes of the
 * current path form a stack. The names in each ascend, as those asked for do, so each is read once, block by block:
 *
 *   asked for:  a       a-b     a/x     b
 *   open:       "" a    "" a    "" a    "" b      (all of them directories of the earlier image)
 *
 * Blocks come through a small cache, since neighbouring inodes share them. No bytes are trusted: what cannot be read as
 * a directory has no entries.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "base/vec.h"
#include "imagebuild/fs/erofs/erofs_internal.h"

enum { TREE_BLOCKS = 64 };

struct tree_block {
    bool filled;
    uint64_t number;
    uint8_t data[EROFS_BLOCK];
};

/* An open directory, and its current block. */
struct tree_dir {
    size_t path_len;
    uint64_t size, whole;      /* bytes; of these, before the tail */
    uint64_t first, tail;      /* positions */
    uint64_t next;             /* offset of the block after the current one */
    uint32_t entries, at, len; /* of the current block: number of entries, the next one; bytes */
    uint8_t block[EROFS_BLOCK];
};

struct erofs_tree {
    struct scratch *from;
    uint64_t metadata, len;      /* address and bytes of the region */
    uint64_t root;               /* number of its inode in the region, unchecked */
    bool wide;                   /* 48-bit block numbers; inodes count from the image's beginning */
    VEC(struct tree_dir *) dirs; /* by depth; those from `open` on are kept to reuse their memory */
    size_t open;
    struct bytes path; /* that was asked for last */
    struct tree_block cache[TREE_BLOCKS];
};

uint64_t erofs_super_root(const uint8_t super[EROFS_SUPER_SIZE], uint64_t metadata)
{
    return erofs_super_is_wide(super) ? le64_get(super + 112) - metadata / EROFS_NID_UNIT : le16_get(super + 14);
}

int erofs_tree_new(struct scratch *from, uint64_t metadata, struct erofs_tree **out)
{
    uint8_t super[EROFS_SUPER_SIZE];
    *out = NULL;
    int rc = scratch_len(from) < EROFS_BLOCK ? 0 : scratch_read(from, EROFS_SUPER_OFFSET, super, sizeof super);
    if (rc || scratch_len(from) < EROFS_BLOCK || le32_get(super) != EROFS_MAGIC)
        return rc;
    struct erofs_tree *t = calloc(1, sizeof *t);
    if (!t)
        return error_no_memory();
    t->from = from;
    t->len = scratch_len(from) - EROFS_BLOCK;
    t->metadata = metadata;
    t->wide = erofs_super_is_wide(super);
    t->root = erofs_super_root(super, metadata);
    t->path = (struct bytes)BYTES_INIT(64 << 10);
    *out = t;
    return 0;
}

void erofs_tree_free(struct erofs_tree *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->dirs.len; i++)
        free(t->dirs.items[i]);
    vec_release(&t->dirs);
    bytes_release(&t->path);
    free(t);
}

uint64_t erofs_tree_len(const struct erofs_tree *t)
{
    return t->len;
}

/* ------------------------------------------------------------------ bytes */

/* Point *out at a block of the region; zeros after its end. */
static int tree_block(struct erofs_tree *t, uint64_t number, const uint8_t **out)
{
    struct tree_block *b = &t->cache[number % TREE_BLOCKS];
    *out = b->data;
    if (b->filled && b->number == number)
        return 0;
    const uint64_t at = number < t->len / EROFS_BLOCK + 1 ? number * EROFS_BLOCK : t->len;
    const size_t n = (size_t)GR_MIN(t->len - GR_MIN(at, t->len), (uint64_t)EROFS_BLOCK);
    b->filled = false;
    memset(b->data, 0, sizeof b->data);
    int rc = n ? scratch_read(t->from, EROFS_BLOCK + at, b->data, n) : 0;
    b->filled = !rc;
    b->number = number;
    return rc;
}

int erofs_tree_read(struct erofs_tree *t, uint64_t at, void *dst, size_t len)
{
    uint8_t *to = dst;
    while (len) {
        const uint8_t *block;
        const size_t skip = (size_t)(at % EROFS_BLOCK), n = GR_MIN(len, EROFS_BLOCK - skip);
        int rc = tree_block(t, at / EROFS_BLOCK, &block);
        if (rc)
            return rc;
        memcpy(to, block + skip, n);
        to += n;
        at += n;
        len -= n;
    }
    return 0;
}

/* Return whether an inode can have this number. */
static bool tree_has(const struct erofs_tree *t, uint64_t nid)
{
    const uint64_t at = nid * EROFS_NID_UNIT;
    return nid && nid <= UINT32_MAX && at + EROFS_INODE_SIZE <= t->len &&
           at % EROFS_BLOCK + EROFS_INODE_SIZE <= EROFS_BLOCK;
}

/* Return the position of the block that a directory's or symbolic link's inode states; the end if there is none. */
static uint64_t tree_first_block(const struct erofs_tree *t, const uint8_t inode[EROFS_INODE_SIZE])
{
    const uint64_t upper = t->wide ? (uint64_t)le16_get(inode + 6) << 32 : 0;
    const uint64_t address = (upper | le32_get(inode + 16)) * EROFS_BLOCK;
    return address < t->metadata ? t->len : GR_MIN(address - t->metadata, t->len);
}

int erofs_tree_need(struct erofs_tree *t, uint32_t nid, uint32_t *out)
{
    uint8_t inode[EROFS_INODE_SIZE];
    int rc = erofs_tree_read(t, (uint64_t)nid * EROFS_NID_UNIT, inode, sizeof inode);
    const bool has_tail = le16_get(inode) >> 1 == EROFS_FLAT_INLINE;
    const uint32_t tail = has_tail ? (uint32_t)(le64_get(inode + 8) % EROFS_BLOCK) : 0;
    *out = EROFS_INODE_SIZE + erofs_xattr_bytes(inode) + tail;
    return rc;
}

int erofs_tree_blocks(struct erofs_tree *t, uint32_t nid, uint64_t *out)
{
    uint8_t inode[EROFS_INODE_SIZE];
    int rc = erofs_tree_read(t, (uint64_t)nid * EROFS_NID_UNIT, inode, sizeof inode);
    *out = 0;
    if (rc || (!S_ISDIR(le16_get(inode + 4)) && !S_ISLNK(le16_get(inode + 4))))
        return rc;
    const uint64_t first = tree_first_block(t, inode);
    *out = first < t->len ? first / EROFS_BLOCK : 0;
    return 0;
}

/* ------------------------------------------------------------------ the stack */

/* Leave the directories whose path is no prefix of this one. */
static void tree_leave_before(struct erofs_tree *t, const char *path, size_t len)
{
    const size_t max = GR_MIN(t->path.len, len);
    size_t same = 0;
    while (same < max && t->path.data[same] == (uint8_t)path[same])
        same++;
    while (t->open && t->dirs.items[t->open - 1]->path_len > same)
        t->open--;
}

/* Enter an inode if it is a directory. */
static int tree_enter(struct erofs_tree *t, uint32_t nid, size_t path_len)
{
    const uint64_t at = (uint64_t)nid * EROFS_NID_UNIT;
    uint8_t inode[EROFS_INODE_SIZE];
    int rc = erofs_tree_read(t, at, inode, sizeof inode);
    const unsigned format = le16_get(inode);
    if (rc || !S_ISDIR(le16_get(inode + 4)) || !(format & 1))
        return rc;
    if (t->open == t->dirs.len) {
        struct tree_dir *fresh = malloc(sizeof *fresh);
        if (!fresh || vec_push(&t->dirs, fresh)) {
            free(fresh);
            return error_no_memory();
        }
    }
    struct tree_dir *d = t->dirs.items[t->open++];
    const uint64_t size = le64_get(inode + 8);
    d->path_len = path_len;
    d->size = size;
    d->whole = format >> 1 == EROFS_FLAT_INLINE ? size - size % EROFS_BLOCK : size;
    d->first = tree_first_block(t, inode);
    d->tail = at + EROFS_INODE_SIZE + erofs_xattr_bytes(inode);
    d->next = 0;
    d->entries = d->at = d->len = 0;
    return 0;
}

/* Return the open directory that a path is in, with the place of its name; NULL: the earlier image lacks it. */
static struct tree_dir *tree_parent(const struct erofs_tree *t, const char *path, size_t len, size_t *out_name)
{
    const char *slash = memrchr(path, '/', len);
    const size_t parent = slash ? (size_t)(slash - path) : 0;
    *out_name = slash ? parent + 1 : 0;
    for (size_t i = t->open; i-- > 0;)
        if (t->dirs.items[i]->path_len == parent)
            return t->dirs.items[i];
    return NULL;
}

/* ------------------------------------------------------------------ entries */

/* Read a directory's next block. No entries: it has ended. */
static int tree_dir_next(struct erofs_tree *t, struct tree_dir *d)
{
    d->entries = d->at = 0;
    if (d->next >= d->size)
        return 0;
    const uint64_t position = d->next < d->whole ? d->first + d->next : d->tail;
    d->len = (uint32_t)GR_MIN(d->size - d->next, (uint64_t)EROFS_BLOCK);
    int rc = position < t->len ? erofs_tree_read(t, position, d->block, d->len) : 0;
    const uint32_t names = le16_get(d->block + 8);
    if (rc || position >= t->len || d->len < EROFS_DIRENT_SIZE || names % EROFS_DIRENT_SIZE || names > d->len)
        return rc;
    d->next += EROFS_BLOCK;
    d->entries = names / EROFS_DIRENT_SIZE;
    return 0;
}

/* Compare the current entry's name with another. An entry that cannot be read comes after all names. */
static int tree_dir_compare(const struct tree_dir *d, const char *name, size_t len)
{
    const uint8_t *entry = d->block + (size_t)d->at * EROFS_DIRENT_SIZE;
    const uint32_t from = le16_get(entry + 8);
    const uint32_t to = d->at + 1 < d->entries ? le16_get(entry + EROFS_DIRENT_SIZE + 8) : d->len;
    if (from >= to || to > d->len)
        return 1;
    const size_t n = strnlen((const char *)d->block + from, to - from);
    const int order = memcmp(d->block + from, name, GR_MIN(n, len));
    return order ? order : (n > len) - (n < len);
}

/* Find a name; names ascend. *out 0: there is none. */
static int tree_dir_find(struct erofs_tree *t, struct tree_dir *d, const char *name, size_t len, uint32_t *out)
{
    for (;;) {
        if (d->at == d->entries) {
            int rc = tree_dir_next(t, d);
            if (rc || !d->entries)
                return rc;
        }
        const int order = tree_dir_compare(d, name, len);
        if (order > 0)
            return 0;
        if (!order)
            break;
        d->at++;
    }
    const uint64_t base = t->wide ? t->metadata / EROFS_NID_UNIT : 0;
    const uint64_t nid = le64_get(d->block + (size_t)d->at * EROFS_DIRENT_SIZE) - base;
    *out = tree_has(t, nid) ? (uint32_t)nid : 0;
    return 0;
}

int erofs_tree_find(struct erofs_tree *t, const char *path, size_t len, uint32_t *out)
{
    size_t name;
    int rc = 0;
    *out = !len && tree_has(t, t->root) ? (uint32_t)t->root : 0;
    tree_leave_before(t, path, len);
    struct tree_dir *parent = len ? tree_parent(t, path, len, &name) : NULL;
    if (parent)
        rc = tree_dir_find(t, parent, path + name, len - name, out);
    bytes_clear(&t->path);
    if (!rc)
        rc = bytes_append(&t->path, path, len);
    return rc || !*out ? rc : tree_enter(t, *out, len);
}
