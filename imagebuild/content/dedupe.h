/* Find files with equal bytes in the image: a table of fixed size, so that memory does not grow with the dataset. One
 * thread. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_DEDUPE_H
#define GRANARY_IMAGEBUILD_CONTENT_DEDUPE_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/digest.h"

/* Larger files are not looked up: they come in several parts, and the digest is known only after the last. */
#define DEDUPE_SIZE_MAX (UINT64_C(16) << 20)

enum { DEDUPE_SLOTS = 1 << 18 }; /* of 48 bytes each: 12 MiB */

struct dedupe;

struct dedupe *dedupe_new(void); /* NULL: out of memory */
void dedupe_free(struct dedupe *d);
DEFINE_CLEANUP(dedupe, struct dedupe *, dedupe_free)

/* Return the address of a file with this content and size; 0: none is known. */
uint64_t dedupe_find(const struct dedupe *d, const struct digest *content, uint64_t size);

/* Remember a file. It may replace another one. */
void dedupe_add(struct dedupe *d, const struct digest *content, uint64_t size, uint64_t address);

#endif
