/* Compares files with their digests while an image's chunks pass by in address order. Memory is bounded whatever the
 * number of files (sorter.h): 64 MiB, and 56 bytes for each damaged content. One thread.
 *
 *   verify_files_new, _add ..., _begin, _feed or _skip ... (ascending), _is_bad ..., _free
 */
#ifndef GRANARY_UPKEEP_VERIFY_FILES_H
#define GRANARY_UPKEEP_VERIFY_FILES_H

#include "format/catalog.h"

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
