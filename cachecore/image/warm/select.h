/* A part of an image, chosen by path, as chunks: what tools that look at or change the cache work on.
 * Nothing here keeps a list of what was chosen: 100 million files cost a page of the catalog, a node
 * of the index and a bit a chunk.
 */
#ifndef GRANARY_IMAGE_WARM_SELECT_H
#define GRANARY_IMAGE_WARM_SELECT_H

#include "base/error.h"
#include "format/catalog.h"
#include "image/image.h"
#include "image/node_cache.h"

enum { SELECT_GLOB_MAX = 1024 };

/* Visit, in order, the regular files whose full path the glob matches ('*' also matches '/'; what
 * lies below a directory that matches is matched too; slashes in front and behind do not count). The catalog
 * is read from `store`, only the pages that can hold such paths. visit's non-zero result ends the
 * walk and is returned. -EINVAL: the glob is empty or longer than SELECT_GLOB_MAX. */
typedef int select_visit(void *arg, const struct catalog_entry *file);
GR_MUST_CHECK int select_files(struct image *img, struct store *store, const char *glob, select_visit *visit,
                               void *arg);

/* The chunks that extent `i` of a file touches: [*out_first, *out_end). -EBADMSG: outside of the image. */
GR_MUST_CHECK int select_extent(const struct image *img, const struct catalog_entry *file, uint32_t i,
                                uint64_t *out_first, uint64_t *out_end);

/* A set of an image's chunk numbers. */
struct chunk_set {
    uint64_t *bits, count;
};
GR_MUST_CHECK int chunk_set_init(struct chunk_set *set, const struct image *img);
void chunk_set_release(struct chunk_set *set);
/* true: it was not in the set. */
bool chunk_set_add(struct chunk_set *set, uint64_t chunk);
/* The first member from `from` on; UINT64_MAX: none. */
uint64_t chunk_set_next(const struct chunk_set *set, uint64_t from);
/* Is any of [first, end) a member? Looks no further than there. */
bool chunk_set_meets(const struct chunk_set *set, uint64_t first, uint64_t end);

/* From chunk numbers to chunks, best asked in ascending order. Index nodes come from memory, from
 * the cache, or else from `store` (NULL: not at all), and are not kept. When the store fails once it
 * is not asked again: what is below nodes that are not at hand is unknown. */
struct image_cursor {
    struct image *img;
    struct store *store;
    struct node *leaf; /* of [first, end); NULL: holes, or unknown */
    uint64_t first, end;
    bool unknown;
    struct error store_error; /* code 0: it has not failed */
    /* Stored bytes of the nodes passed that are not cached; each is counted once where chunks are asked in ascending
     * order. */
    uint64_t missing_bytes;
    uint64_t passed[INDEX_LEVELS_MAX]; /* of each level: the number of the last one counted, plus one */
};

void image_cursor_init(struct image_cursor *c, struct image *img, struct store *store);
void image_cursor_release(struct image_cursor *c);
/* The chunk's reference into *out, valid until the next call; NULL: a hole, or unknown (c->unknown).
 * *out_run: of how many chunks from this one on the same is true (1 for chunks). */
GR_MUST_CHECK int image_cursor_at(struct image_cursor *c, uint64_t chunk, const struct chunk_ref **out,
                                  uint64_t *out_run);

#endif
