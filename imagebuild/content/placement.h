/* Allocate addresses for the file data that a build writes: in the parent's free chunks while it fits, otherwise
 * behind everything kept. The same files in the same order get the same addresses. One thread. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_PLACEMENT_H
#define GRANARY_IMAGEBUILD_CONTENT_PLACEMENT_H

#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/sink/sink.h"

struct alloc_config {
    const struct live_map *live; /* blocks kept of a parent; NULL: none. The caller's; not changed */
    uint32_t chunk_size;
    uint64_t data_begin, data_max; /* as in struct fs: the first address, and the one that no file may pass */
    /* Data was written up to here with the listing (content_stream.h), perhaps also into free chunks before it. None of
     * this space is used again; it lies behind everything kept. 0: nothing was written. */
    uint64_t written_end;
    const char *limit; /* data_max in words, for the error */
};

/* Lives in the caller's memory; there is nothing to release. */
struct alloc {
    struct alloc_config config;
    uint64_t end;              /* of the data behind everything kept */
    uint64_t hole, hole_end;   /* the current free range */
    bool no_hole;              /* there are no more free ranges */
    uint64_t placed, given_up; /* bytes: of all files placed; of free ranges skipped because a file did not fit */
};

void alloc_init(struct alloc *a, const struct alloc_config *config);

/* Place the next file of `size` bytes (not 0). *out_section is SINK_HOLES or SINK_DATA; addresses ascend in each.
 * -EFBIG: beyond data_max. */
GR_MUST_CHECK int alloc_data(struct alloc *a, uint64_t size, enum sink_section *out_section, uint64_t *out_address);

/* Continue at `end` with data behind everything kept: the start of a chunk, not before alloc_end. */
void alloc_go_on(struct alloc *a, uint64_t end);

/* Return the address behind all data, kept and new. It is the start of a chunk until new data is placed there. */
uint64_t alloc_end(const struct alloc *a);

#endif
