/* Comparing files' digests while an image's chunks pass by in address order. */
#ifndef GRANARY_STORE_VERIFY_FILES_H
#define GRANARY_STORE_VERIFY_FILES_H

#include "format/catalog.h"

struct verify_files;

struct verify_files *verify_files_new(void); /* NULL: out of memory */
void verify_files_free(struct verify_files *f);

/* Take the next entry of the catalog, in its order. -EBADMSG with a sentence when what it says of
 * the file cannot be; -ENOMEM. */
GR_MUST_CHECK int verify_files_add(struct verify_files *f, const struct catalog_entry *e);
/* No more entries. */
void verify_files_begin(struct verify_files *f);

/* Bytes [off, off+len) of the image; data NULL: zeros. Every call continues the one before. */
GR_MUST_CHECK int verify_files_feed(struct verify_files *f, uint64_t off, uint64_t len, const uint8_t *data);
/* The same for bytes that could not be read: their files are bad. */
GR_MUST_CHECK int verify_files_skip(struct verify_files *f, uint64_t off, uint64_t len);

uint64_t verify_files_compared(const struct verify_files *f);
uint64_t verify_files_bad(const struct verify_files *f);
/* Whether the entry of that number (in the order of adding, from 0) was found bad. Ascending calls. */
bool verify_files_is_bad(struct verify_files *f, uint64_t entry);

#endif
