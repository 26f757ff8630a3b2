/* Finds which bytes of an image belong to a file or to the filesystem: the catalog's extents are sorted by address and
 * passed over once in step with the index. Memory is bounded whatever their number (sorter.h). One thread. */
#ifndef GRANARY_UPKEEP_EXTENT_SWEEP_H
#define GRANARY_UPKEEP_EXTENT_SWEEP_H

#include "base/cleanup.h"
#include "format/manifest.h"

enum { EXTENT_BLOCK = 4096 }; /* extents begin at its multiples; the rest of an extent's last block is padding */

/* Sums over all extents. */
struct extent_totals {
    uint64_t contents, content_bytes; /* distinct extents; one that several files share counts once */
    uint64_t padding;                 /* bytes between an extent's end and the next block */
};

struct extent_sweep;

/* m is borrowed and must outlive *out, which the caller frees. -ENOMEM, or the errors of a temporary file. */
GR_MUST_CHECK int extent_sweep_new(const struct manifest *m, struct extent_sweep **out);
void extent_sweep_free(struct extent_sweep *s); /* NULL is allowed */
DEFINE_CLEANUP(extent_sweep, struct extent_sweep *, extent_sweep_free)

/* Add an extent, in any order. -EBADMSG: it lies outside the image; errors of the temporary file. */
GR_MUST_CHECK int extent_sweep_add(struct extent_sweep *s, uint64_t offset, uint64_t len);
/* Sort, after the last extent. */
GR_MUST_CHECK int extent_sweep_sort(struct extent_sweep *s);
/* Set *out to how many of the bytes [begin, end) are in use: by a file's data or its padding, or as part of a chunk
 * with metadata (the filesystem's front with the superblock, and the metadata region). Ranges ascend from call to
 * call. */
GR_MUST_CHECK int extent_sweep_live(struct extent_sweep *s, uint64_t begin, uint64_t end, uint64_t *out);
/* Pass over the remaining extents, after the last range, and report the totals. */
GR_MUST_CHECK int extent_sweep_end(struct extent_sweep *s, struct extent_totals *out);

#endif
