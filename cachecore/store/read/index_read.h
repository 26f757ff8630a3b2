/* Reading chunk indexes from a store: one node (a build upon a parent), or all of them, node by node, without keeping
 * them (gc, verify, inspect, export). */
#ifndef GRANARY_STORE_READ_INDEX_READ_H
#define GRANARY_STORE_READ_INDEX_READ_H

#include "format/index.h"
#include "format/manifest.h"
#include "store/store.h"

/* Fetch the `number`th node of `level` of image m, which stands as child in the node above (or the manifest), and prove
 * it: its bytes against its name, its shape against the image's size, its content hash against the child's entry.
 * *out: index_node_free. -ENOENT, -EBADMSG. Any thread. */
GR_MUST_CHECK int index_read_node(struct store *s, const struct manifest *m, const struct index_child *child,
                                  unsigned level, uint64_t number, struct index_node **out);

/* Who goes through an index has so many of its leaves fetched ahead, 90 KB each when decoded. */
enum { INDEX_AHEAD = 32 };

enum { INDEX_WALK_SKIP = 1 };

/* Any other non-zero result than INDEX_WALK_SKIP ends the walk and is returned. */
struct index_walk_ops {
    /* Every stored node, parents first, before it is fetched, which for leaves is up to INDEX_AHEAD of them before
     * their chunks are reported; may be NULL. INDEX_WALK_SKIP: leave its subtree out. */
    int (*node)(void *arg, const struct index_child *node, unsigned level);
    /* Every leaf's chunks, ascending: chunk numbers first .. first + count - 1, holes included
     * (whole-hole subtrees are reported with chunks NULL); may be NULL. */
    int (*chunks)(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks);
};

/* Also recomputes the content hashes against the manifest's: -EBADMSG when they differ. An error comes when all that
 * lies before its place has been reported. All calls are of the calling thread. */
GR_MUST_CHECK int index_walk(struct store *s, const struct manifest *m, const struct index_walk_ops *ops, void *arg);

#endif
