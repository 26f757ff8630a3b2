/* The tree's memory, shared by tree.c (storage), tree_add.c (judging and taking paths) and
 * tree_order.c (sealing, walking). Nobody else includes this. */
#ifndef GRANARY_IMAGEBUILD_TREE_INTERNAL_H
#define GRANARY_IMAGEBUILD_TREE_INTERNAL_H

#include "base/vec.h"
#include "imagebuild/tree.h"

enum {
    NODE_CHUNK_BITS = 13, /* nodes are allocated 8,192 at a time and never move */
    NODE_CHUNK = 1 << NODE_CHUNK_BITS,
    ARENA_CHUNK_BITS = 20, /* bytes likewise, 1 MiB at a time; no item is longer */
    ARENA_CHUNK = 1 << ARENA_CHUNK_BITS,
};

enum node_flags {
    NODE_IMPLICIT = 1, /* a directory nobody listed: its mtime comes from its children */
    NODE_DROPPED = 2,
};

/* A listed path that may be one of several names of a file. */
struct tree_link {
    uint64_t dev, ino;
    node_id node;
    uint32_t rank; /* place in path order, once sealed */
};

/* A further name of a hard-linked file. */
struct tree_alias {
    node_id link, name;
};

struct tree {
    struct tree_options options;
    struct tree_stats stats;
    VEC(struct node *) nodes;
    uint32_t count;
    VEC(uint8_t *) arena;
    size_t arena_used; /* in the last chunk */
    uint32_t *slots;   /* node_id + 1, by hash of (parent, name); freed at seal */
    size_t slot_count; /* a power of two */
    uint64_t seed;
    VEC(struct tree_link) links;
    VEC(struct tree_alias) aliases; /* sealed: sorted by link */
    node_id *order;                 /* sealed: the children of each directory, by name */
    node_id *walk;                  /* sealed: every node in path order */
    bool sealed;
    unsigned warnings;
};

GR_MUST_CHECK int tree_out_of_memory(void);

/* The child of that name, or NODE_NONE. Not after seal. */
node_id tree_lookup(const struct tree *t, node_id parent, const char *name, size_t len);
/* A new node with nothing but parent, name and link set. */
GR_MUST_CHECK int tree_create(struct tree *t, node_id parent, const char *name, size_t len, node_id *out);
/* Copy what e says of validator, target and xattrs into the arena; sets n->blob. */
GR_MUST_CHECK int tree_store_blob(struct tree *t, struct node *n, const struct source_entry *e);
/* Count a node into the statistics (once) or out of them again. */
void tree_count_node(struct tree *t, const struct node *n, bool in);
/* The mode a node gets: type and permissions, setuid and setgid only by option. */
uint16_t tree_mode(const struct tree *t, uint32_t mode);

static inline int tree_bytes_order(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t common = GR_MIN(a_len, b_len);
    int order = common ? memcmp(a, b, common) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

#endif
