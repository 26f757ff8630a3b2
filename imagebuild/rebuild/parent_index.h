/* The chunk index of the image that a build is made upon: single entries and leaves, fetched and proved when they are
 * asked for, or leaves in ascending order, fetched ahead. Holds the last PARENT_INDEX_NODES nodes, 90 KB each. One
 * thread.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_PARENT_INDEX_H
#define GRANARY_IMAGEBUILD_REBUILD_PARENT_INDEX_H

#include "format/index.h"
#include "format/manifest.h"
#include "store/read/digest_map.h"
#include "store/store.h"

enum { PARENT_INDEX_NODES = 16 };

/* The parent, and what of it stays. */
struct sink_parent {
    struct store *store;             /* the caller's, as all that follows */
    const struct manifest *manifest; /* its chunk size is the new image's */
    /* Does a body that stays where it is lie in this chunk of the parent? Then the chunk stays, unless it is written.
     * The answer to a number does not change. */
    bool (*kept)(void *arg, uint64_t chunk);
    /* Is that so for all of `count` chunks from `first` on? May say no when it is. May be NULL. */
    bool (*kept_all)(void *arg, uint64_t first, uint64_t count);
    void *arg;
    const struct digest_map *damaged; /* packs that no new index may refer to; NULL: none */
};

struct parent_index;

GR_MUST_CHECK int parent_index_new(struct store *store, const struct manifest *manifest, struct parent_index **out);
void parent_index_free(struct parent_index *p); /* NULL is allowed */

/* The entry by which the `number`th node of `level` is known; zero where there is none. */
GR_MUST_CHECK int parent_index_child(struct parent_index *p, unsigned level, uint64_t number, struct index_child *out);
/* The chunks of a leaf, as many as the parent has there, valid until the next call; *out NULL: holes only, or behind
 * the end. */
GR_MUST_CHECK int parent_index_leaf(struct parent_index *p, uint64_t number, const struct chunk_ref **out);

/* Leaves in ascending order, INDEX_AHEAD (store/read/index_read.h) of them fetched before they are asked for. */
struct parent_leaves;

/* wanted: will this leaf be asked for? A guess: what is fetched for nothing, or one after the other, if it is wrong.
 * NULL: all will. p and arg are the caller's and stay. */
GR_MUST_CHECK int parent_leaves_new(struct parent_index *p, bool (*wanted)(void *arg, uint64_t leaf), void *arg,
                                    struct parent_leaves **out);
/* Waits for the fetches in flight. NULL is allowed. */
void parent_leaves_free(struct parent_leaves *l);
DEFINE_CLEANUP(parent_leaves, struct parent_leaves *, parent_leaves_free)

/* As parent_index_leaf; *out is valid until the next call of either. Not lower than the last one asked for, of which
 * the same may be asked again. */
GR_MUST_CHECK int parent_leaves_get(struct parent_leaves *l, uint64_t number, const struct chunk_ref **out);

#endif
