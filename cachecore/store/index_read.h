/* Walking a whole chunk index, node by node, without keeping it (gc, verify, inspect, export). */
#ifndef GRANARY_STORE_INDEX_READ_H
#define GRANARY_STORE_INDEX_READ_H

#include "format/index.h"
#include "format/manifest.h"
#include "store/store.h"

enum { INDEX_WALK_SKIP = 1 };

/* Any other non-zero result than INDEX_WALK_SKIP ends the walk and is returned. */
struct index_walk_ops {
    /* Every stored node, parents first, before it is fetched; may be NULL. INDEX_WALK_SKIP: leave
     * its subtree out. */
    int (*node)(void *arg, const struct index_child *node, unsigned level);
    /* Every leaf's chunks, ascending: chunk numbers first .. first + count - 1, holes included
     * (whole-hole subtrees are reported with chunks NULL); may be NULL. */
    int (*chunks)(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks);
};

/* Also recomputes the content hashes against the manifest's: -EBADMSG when they differ. */
GR_MUST_CHECK int index_walk(struct store *s, const struct manifest *m, const struct index_walk_ops *ops, void *arg);

#endif
