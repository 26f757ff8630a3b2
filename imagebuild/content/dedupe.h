/* Which bodies are in the image already: a table of fixed size, so that memory does not grow with the dataset. */
#ifndef GRANARY_IMAGEBUILD_CONTENT_DEDUPE_H
#define GRANARY_IMAGEBUILD_CONTENT_DEDUPE_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/digest.h"

/* Files up to this size are looked up (those of one body part are). */
#define DEDUPE_SIZE_MAX (UINT64_C(16) << 20)

enum { DEDUPE_SLOTS = 1 << 18 }; /* of 48 bytes: 12 MiB */

struct dedupe;

struct dedupe *dedupe_new(void); /* NULL: out of memory */
void dedupe_free(struct dedupe *d);
DEFINE_CLEANUP(dedupe, struct dedupe *, dedupe_free)

/* The address of a body with that content, 0: none known. */
uint64_t dedupe_find(const struct dedupe *d, const struct digest *content, uint64_t size);

/* Remember a body, in place of another one if need be. */
void dedupe_add(struct dedupe *d, const struct digest *content, uint64_t size, uint64_t address);

#endif
