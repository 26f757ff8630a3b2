/* Comparing files' digests while an image's chunks pass by in address order. Memory is bounded whatever the number of
 * files (sorter.h): 64 MiB, and 56 bytes for each damaged body.
 */
#ifndef GRANARY_UPKEEP_VERIFY_FILES_H
#define GRANARY_UPKEEP_VERIFY_FILES_H

#include "format/catalog.h"

/* More damaged bodies than that are counted but not told apart. */
enum { VERIFY_FILES_NAMED_MAX = 1 << 20 };

struct verify_files;

GR_MUST_CHECK int verify_files_new(struct verify_files **out);
void verify_files_free(struct verify_files *f); /* NULL is allowed */

/* Take an entry of the catalog. -EBADMSG with a sentence when what it says of the file cannot be. */
GR_MUST_CHECK int verify_files_add(struct verify_files *f, const struct catalog_entry *e);
/* No more entries. */
GR_MUST_CHECK int verify_files_begin(struct verify_files *f);

/* Bytes [off, off+len) of the image; data NULL: zeros. Every call continues the one before. */
GR_MUST_CHECK int verify_files_feed(struct verify_files *f, uint64_t off, uint64_t len, const uint8_t *data);
/* The same for bytes that could not be read: their files are bad. */
GR_MUST_CHECK int verify_files_skip(struct verify_files *f, uint64_t off, uint64_t len);

uint64_t verify_files_compared(const struct verify_files *f);
uint64_t verify_files_bad(const struct verify_files *f);
/* After the last bytes: was this entry, one of those added, found bad? */
bool verify_files_is_bad(struct verify_files *f, const struct catalog_entry *e);

#endif
