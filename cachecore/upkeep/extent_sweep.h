/* Which bytes of an image belong to a file or to the filesystem: the catalog's extents, sorted by address, passed over
 * once beside the index. Memory is bounded whatever their number (sorter.h). One thread.
 *
 *   extent_sweep_new, _add ..., _sort, _live ... (ascending), _end, _free
 */
#ifndef GRANARY_UPKEEP_EXTENT_SWEEP_H
#define GRANARY_UPKEEP_EXTENT_SWEEP_H

#include "base/cleanup.h"
#include "format/manifest.h"

enum { EXTENT_BLOCK = 4096 }; /* extents begin on its multiples; the rest of the last one is padding */

struct extent_totals {
    uint64_t contents, content_bytes; /* distinct extents: what several files share counts once */
    uint64_t padding;                 /* behind them, to the next block */
};

struct extent_sweep;

GR_MUST_CHECK int extent_sweep_new(const struct manifest *m, struct extent_sweep **out);
void extent_sweep_free(struct extent_sweep *s); /* NULL is allowed */
DEFINE_CLEANUP(extent_sweep, struct extent_sweep *, extent_sweep_free)

/* -EBADMSG: no extent of that image. */
GR_MUST_CHECK int extent_sweep_add(struct extent_sweep *s, uint64_t offset, uint64_t len);
/* Nothing more comes. */
GR_MUST_CHECK int extent_sweep_sort(struct extent_sweep *s);
/* How many of the bytes [begin, end) are in use: by a body or its padding, or as part of a chunk with metadata (the
 * superblock and what else a filesystem begins with, and the metadata region). Ranges ascend. */
GR_MUST_CHECK int extent_sweep_live(struct extent_sweep *s, uint64_t begin, uint64_t end, uint64_t *out);
/* After the last range. */
GR_MUST_CHECK int extent_sweep_end(struct extent_sweep *s, struct extent_totals *out);

#endif
