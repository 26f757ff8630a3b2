/* What several verbs share, and their larger parts. */
#ifndef GRANARY_UPKEEP_UPKEEP_INTERNAL_H
#define GRANARY_UPKEEP_UPKEEP_INTERNAL_H

#include "base/vec.h"
#include "format/catalog.h"
#include "format/chunk.h"
#include "upkeep/upkeep.h"

/* ---- the packs of an image (pack_set.c) ----
 *
 * The packs that an image refers to, and the least length that each must have. */

/* A pack. */
struct pack_need {
    struct digest pack;
    uint64_t len; /* end of the last chunk that the image uses */
};

/* Starts as all zero; released by pack_set_release. */
struct pack_set {
    VEC(struct pack_need) needs;
    size_t merged; /* needs[0..merged) are distinct and ascend */
};

/* Add a chunk's pack; ref is not a hole. -ENOMEM. */
GR_MUST_CHECK int pack_set_add(struct pack_set *set, const struct chunk_ref *ref);
/* Finish, after the last add: set->needs are then distinct and ascend by name. */
void pack_set_finish(struct pack_set *set);
void pack_set_release(struct pack_set *set);

/* ---- which bytes are in use (extent_sweep.c) ----
 *
 * Finds which bytes of an image belong to a file or to the filesystem: the catalog's extents are sorted by address and
 * passed over once in step with the index. Memory is bounded whatever their number (sorter.h). One thread. */

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

/* ---- files against their digests (verify_files.c) ----
 *
 * Compares files with their digests while an image's chunks pass by in address order. Memory is bounded whatever the
 * number of files (sorter.h): 64 MiB, and 56 bytes for each damaged content. One thread.
 *
 *   verify_files_new, _add ..., _begin, _feed or _skip ... (ascending), _is_bad ..., _free */

/* Damaged contents after this many are counted but not named. */
enum { VERIFY_FILES_NAMED_MAX = 1 << 20 };

struct verify_files;

/* -ENOMEM, or the errors of a temporary file. */
GR_MUST_CHECK int verify_files_new(struct verify_files **out);
void verify_files_free(struct verify_files *f); /* NULL is allowed */

/* Add an entry of the catalog; all but regular files with data are ignored. -EBADMSG: its size and extents do not
 * fit. */
GR_MUST_CHECK int verify_files_add(struct verify_files *f, const struct catalog_entry *e);
/* Sort, after the last entry. */
GR_MUST_CHECK int verify_files_begin(struct verify_files *f);

/* Process bytes [off, off+len) of the image; data NULL: zeros. Each call continues where the previous one ended.
 * -EBADMSG: files overlap in a way that no build makes. */
GR_MUST_CHECK int verify_files_feed(struct verify_files *f, uint64_t off, uint64_t len, const uint8_t *data);
/* The same for bytes that could not be read: their files count as bad. */
GR_MUST_CHECK int verify_files_skip(struct verify_files *f, uint64_t off, uint64_t len);

/* Files compared so far, and those of them that were bad. */
uint64_t verify_files_compared(const struct verify_files *f);
uint64_t verify_files_bad(const struct verify_files *f);
/* After the last bytes: was this entry, which was added, found bad? */
bool verify_files_is_bad(struct verify_files *f, const struct catalog_entry *e);

#endif
