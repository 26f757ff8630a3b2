/* A part of an image, chosen by path, as chunks: for tools that look at or change the cache. Nothing here keeps a
 * list of what was chosen: 100 million files cost one page of the catalog, one node of the index and one bit a chunk.
 */
#ifndef GRANARY_IMAGE_WARM_SELECT_H
#define GRANARY_IMAGE_WARM_SELECT_H

#include "base/error.h"
#include "format/catalog.h"
#include "format/index.h"
#include "image/image.h"

/* Visit, in order, the regular files whose full path the glob matches (repository/read/catalog_glob.h). The catalog is
 * read from `store`, only the pages that can hold matching paths. visit's non-zero result ends the walk and is
 * returned. -EINVAL: the glob is empty or too long; -ENOMEM; else the error of reading the catalog.
 */
typedef int select_visit(void *arg, const struct catalog_entry *file);
GR_MUST_CHECK int select_files(struct image *img, struct store *store, const char *glob, select_visit *visit,
                               void *arg);

/* Compute the chunks [*out_first, *out_end) that extent `i` of a file touches. -EBADMSG: it lies outside of the
 * image. */
GR_MUST_CHECK int select_extent(const struct image *img, const struct catalog_entry *file, uint32_t i,
                                uint64_t *out_first, uint64_t *out_end);

/* A set of an image's chunk numbers: one bit each. The caller locks. */
struct chunk_set {
    uint64_t *bits, count;
};
GR_MUST_CHECK int chunk_set_init(struct chunk_set *set, const struct image *img);
void chunk_set_release(struct chunk_set *set);
/* Add a chunk. true: it was not in the set. */
bool chunk_set_add(struct chunk_set *set, uint64_t chunk);
/* Return the first member that is not below `from`; UINT64_MAX: none. */
uint64_t chunk_set_next(const struct chunk_set *set, uint64_t from);
/* Is any of [first, end) a member? */
bool chunk_set_meets(const struct chunk_set *set, uint64_t first, uint64_t end);

struct node;

/* From chunk numbers to chunk references, best in ascending order. Index nodes come from memory, from the cache, or
 * else from `store` (NULL: not at all), and are not kept. After the first error the store is not used again: chunks
 * below nodes that are not available are unknown. */
struct image_cursor {
    struct image *img;
    struct store *store;
    struct node *leaf; /* covers [first, end); holds a reference; NULL: holes, or unknown */
    uint64_t first, end;
    struct chunk_ref chunk;   /* found last */
    bool unknown;             /* the node that covers [first, end) is not available */
    struct error store_error; /* the store's first error; code 0: none */
    /* Stored bytes of the visited nodes that are not cached. Each is counted once if chunks are visited in ascending
     * order. */
    uint64_t missing_bytes;
    uint64_t passed[INDEX_LEVELS_MAX]; /* for each level: the number of the last node counted, plus one */
};

void image_cursor_init(struct image_cursor *c, struct image *img, struct store *store);
void image_cursor_release(struct image_cursor *c);
/* Get a chunk's reference, valid until the next call; NULL: a hole, or unknown (c->unknown). *out_run: for how many
 * chunks, from this one on, the same holds (1 for a chunk with a reference). -ENOMEM. */
GR_MUST_CHECK int image_cursor_at(struct image_cursor *c, uint64_t chunk, const struct chunk_ref **out,
                                  uint64_t *out_run);

#endif
