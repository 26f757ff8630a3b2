/* Shell patterns within one component of a path, over bytes: `*` (any, also none), `?` (one byte), `[a-z]`, `[!a-z]`,
 * `[[:digit:]]`, `\c` (c itself). No slash stands in pattern or text. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_GLOB_H
#define GRANARY_IMAGEBUILD_SOURCE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* What is wrong with the pattern, as part of a sentence, or NULL. */
const char *glob_fault(const char *pattern, size_t len);
/* The pattern has no fault. Takes at most pattern_len * text_len steps. */
bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len);

#endif
