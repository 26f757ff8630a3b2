/* Reads chunk indexes from a store: one node (for a build upon a parent), or all of them, node by node, without
 * keeping them (for gc, verify, inspect, export). */
#ifndef GRANARY_REPOSITORY_READ_INDEX_READ_H
#define GRANARY_REPOSITORY_READ_INDEX_READ_H

#include "format/index.h"
#include "format/manifest.h"
#include "store/store.h"

/* Fetch and verify the `number`th node of `level` of image m; `child` is its entry in the parent node or the manifest.
 * Verified are its bytes against its name, its shape against the image's size, and its content hash against `child`.
 * The caller frees *out with index_node_free. -ENOENT: missing; -EBADMSG: damaged; otherwise the store's errors. Any
 * thread. */
GR_MUST_CHECK int index_read_node(struct store *s, const struct manifest *m, const struct index_child *child,
                                  unsigned level, uint64_t number, struct index_node **out);

/* Leaves that a walk fetches ahead, of 170 KB each when decoded. */
enum { INDEX_AHEAD = 32 };

enum { INDEX_WALK_SKIP = 1 };

/* The callbacks of a walk; both run in the calling thread, with its arg. A non-zero result other than INDEX_WALK_SKIP
 * ends the walk and is returned. */
struct index_walk_ops {
    /* Called for every stored node before it is fetched, parents first; a leaf is visited up to INDEX_AHEAD leaves
     * before its chunks are reported. INDEX_WALK_SKIP leaves out its subtree. May be NULL. */
    int (*node)(void *arg, const struct index_child *node, unsigned level);
    /* Called for every leaf in ascending order: the chunks with numbers first .. first + count - 1, holes included.
     * chunks is NULL for a subtree of holes. May be NULL. */
    int (*chunks)(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks);
};

/* Walk the index of m. Each node is verified as by index_read_node; -EBADMSG if one differs. An error is returned
 * after everything before its place was reported. */
GR_MUST_CHECK int index_walk(struct store *s, const struct manifest *m, const struct index_walk_ops *ops, void *arg);

#endif
