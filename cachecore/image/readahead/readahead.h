/* Readahead for one read of an image. Before the read goes to the cache, it chooses chunks ahead of the sequential run,
 * or the chunk after a page fault's, so that they come with the same GET. Afterwards the result is recorded in the
 * image's demand (demand.h).
 *
 *   readahead_init -> readahead_choose -> cache_read with the pieces -> readahead_started -> readahead_note, per chunk
 *
 * One struct per read, on the reader's stack. The shared state is in struct image.
 */
#ifndef GRANARY_IMAGE_READAHEAD_READAHEAD_H
#define GRANARY_IMAGE_READAHEAD_READAHEAD_H

#include "image/span.h"

enum { READAHEAD_CHUNKS = 64 }; /* fetched ahead by one read at most */

/* What one read may fetch ahead, and what is known of the read so far. */
struct readahead {
    struct image *img;
    uint64_t off, len; /* the read, in bytes */
    bool in_streams;   /* the read has been counted as part of a run */
    bool next;         /* the pieces are the single chunk after the read's */
    size_t count;
    struct cache_piece pieces[READAHEAD_CHUNKS];
    struct demand_leaf *leaf;          /* of the pieces */
    uint32_t chunks[READAHEAD_CHUNKS]; /* the pieces' numbers in the leaf */
};

/* Prepare for a read of [off, off + len). */
void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len);

/* Fill in the pieces. span is the leaf at the end of the read; no piece lies beyond it, because the next leaf might
 * have to be fetched. Nothing is chosen in a leaf without recent misses. */
void readahead_choose(struct readahead *r, const struct span *span);
/* cache_read has returned: count the pieces that it started to fetch, and release the others. Clears the pieces. */
void readahead_started(struct readahead *r);
/* len bytes of a chunk were read. missed: some bytes of the read were not cached. */
void readahead_note(struct readahead *r, uint64_t chunk, uint32_t len, bool missed);

#endif
