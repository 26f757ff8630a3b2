/* What one read of an image means for the reads to come: chunks ahead of the run it belongs to, or the one behind what
 * a page fault misses, are chosen before it goes to the cache, so that they come in the same get, and what it came to
 * is noted in the image's demand.
 */
#ifndef GRANARY_IMAGE_READAHEAD_READAHEAD_H
#define GRANARY_IMAGE_READAHEAD_READAHEAD_H

#include "image/span.h"

enum { READAHEAD_CHUNKS = 64 }; /* of one read */

struct readahead {
    struct image *img;
    uint64_t off, len;
    bool in_streams; /* the read is counted as part of a run */
    bool next;       /* the pieces are the chunk behind the read's */
    size_t count;
    struct cache_piece pieces[READAHEAD_CHUNKS];
    struct demand_leaf *leaf;          /* theirs, */
    uint32_t chunks[READAHEAD_CHUNKS]; /* and their numbers in it */
};

void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len);

/* Fill in the pieces. span: of the read's end. They end at the leaf: its successor may have to be fetched. Nothing is
 * chosen where nothing was missed lately. */
void readahead_choose(struct readahead *r, const struct span *span);
/* cache_read has had the pieces: those that it took are counted. */
void readahead_started(struct readahead *r);
/* len bytes of a chunk were read; missed: some of the read were not in the cache. */
void readahead_note(struct readahead *r, uint64_t chunk, uint32_t len, bool missed);

#endif
