/* A block is an array of 12-byte entries {inode number, offset of the name, type} followed by the names; the first
 * entry's name offset says how many entries there are, the last name ends at a zero or the end. Blocks are formed
 * greedily, so that the same entries always give the same blocks and nothing about them needs to be remembered.
 */
#include "imagebuild/erofs_dir.h"

#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>

#include "base/le.h"

enum { ENTRIES_MAX = EROFS_BLOCK / (EROFS_DIRENT_SIZE + 1) };

struct entry {
    const char *name;
    uint32_t len;
    node_id node;
    bool dots; /* "." or ".." */
};

void erofs_dir_begin(struct erofs_dir *d, const struct tree *t, node_id dir)
{
    *d = (struct erofs_dir){.tree = t, .dir = dir};
    d->children = tree_children(t, dir, &d->count);
}

/* Is `dots` ("." or "..") to come before the name? */
static bool dots_first(uint32_t dots_len, const char *name, uint32_t len)
{
    int order = memcmp("..", name, GR_MIN(dots_len, len));
    return order < 0 || (order == 0 && dots_len < len);
}

static bool peek(const struct erofs_dir *d, struct entry *out)
{
    if (d->next < d->count) {
        node_id id = d->children[d->next];
        const struct node *n = tree_node(d->tree, id);
        *out = (struct entry){.name = tree_name(d->tree, n), .len = n->name_len, .node = id};
    }
    if (d->dots < 2 && (d->next == d->count || dots_first(d->dots + 1, out->name, out->len))) {
        node_id parent = d->dir == NODE_ROOT ? NODE_ROOT : tree_node(d->tree, d->dir)->parent;
        *out = (struct entry){.name = "..", .len = d->dots + 1, .node = d->dots ? parent : d->dir, .dots = true};
        return true;
    }
    return d->next < d->count;
}

/* The entries of the next block; returns the bytes it uses. */
static uint32_t take(struct erofs_dir *d, struct entry entries[ENTRIES_MAX], uint32_t *out_count)
{
    uint32_t used = 0, n = 0;
    struct entry e;
    while (peek(d, &e) && used + EROFS_DIRENT_SIZE + e.len <= EROFS_BLOCK) {
        used += EROFS_DIRENT_SIZE + e.len;
        entries[n++] = e;
        if (e.dots)
            d->dots++;
        else
            d->next++;
    }
    *out_count = n;
    return used;
}

uint32_t erofs_dir_skip(struct erofs_dir *d)
{
    struct entry entries[ENTRIES_MAX];
    uint32_t n;
    return take(d, entries, &n);
}

uint64_t erofs_dir_size(const struct tree *t, node_id dir)
{
    struct erofs_dir d;
    uint64_t blocks = 0;
    uint32_t last = 0, used;
    erofs_dir_begin(&d, t, dir);
    while ((used = erofs_dir_skip(&d)) > 0) {
        blocks++;
        last = used;
    }
    return (blocks - 1) * EROFS_BLOCK + last;
}

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

uint32_t erofs_dir_block(struct erofs_dir *d, const uint32_t *nids, uint8_t out[EROFS_BLOCK])
{
    struct entry entries[ENTRIES_MAX];
    uint32_t n;
    uint32_t used = take(d, entries, &n), name = n * EROFS_DIRENT_SIZE;
    memset(out, 0, EROFS_BLOCK);
    for (uint32_t i = 0; i < n; i++) {
        const struct node *child = tree_node(d->tree, entries[i].node);
        uint8_t *p = out + (size_t)i * EROFS_DIRENT_SIZE;
        le64_put(p, nids[child->link]);
        le16_put(p + 8, (uint16_t)name);
        p[10] = file_type(child->mode);
        memcpy(out + name, entries[i].name, entries[i].len);
        name += entries[i].len;
    }
    return used;
}
