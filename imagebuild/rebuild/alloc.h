/* Addresses of the bodies a build writes: in the parent's free chunks as long as they fit, else behind everything that
 * is kept. The same bodies in the same order get the same addresses.
 */
#ifndef GRANARY_IMAGEBUILD_REBUILD_ALLOC_H
#define GRANARY_IMAGEBUILD_REBUILD_ALLOC_H

#include "imagebuild/rebuild/live_map.h"
#include "imagebuild/sink/sink.h"

struct alloc_config {
    const struct live_map *live; /* what is kept of a parent; NULL: nothing. The caller's; it stays as it is */
    uint32_t chunk_size;
    uint64_t data_begin, data_max; /* as in struct fs: the first address, no body may end behind the last */
    uint64_t written_end; /* bodies up to here, behind all that is kept, are written already, and so may the free
                             chunks before be; 0: none are */
    const char *limit;    /* data_max in words */
};

/* In the caller's memory; there is nothing to release. */
struct alloc {
    struct alloc_config config;
    uint64_t end;              /* of the bodies behind what is kept */
    uint64_t hole, hole_end;   /* the free range in use */
    bool no_hole;              /* the last one is behind */
    uint64_t placed, given_up; /* bytes of bodies placed anywhere, of free ranges passed over */
};

void alloc_init(struct alloc *a, const struct alloc_config *config);

/* Where the next body of `size` bytes (not 0) lies, and through which region it is written: SINK_HOLES or SINK_DATA,
 * addresses ascend in each. -EFBIG: beyond data_max, with a sentence. */
GR_MUST_CHECK int alloc_data(struct alloc *a, uint64_t size, enum sink_region *out_region, uint64_t *out_address);

/* What comes behind all bodies begins at `end`, a chunk's begin, not before alloc_end. */
void alloc_go_on(struct alloc *a, uint64_t end);

/* Behind all bodies, kept and new: a chunk's begin as long as none was placed there. */
uint64_t alloc_end(const struct alloc *a);

#endif
