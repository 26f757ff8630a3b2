/* Shell patterns for one component of a path. They match bytes, not characters, whatever the locale: `*` any number of
 * bytes, `?` one byte, `[a-z]` and `[!a-z]` sets, `[[:digit:]]` classes, `\c` the byte c itself. Neither pattern nor
 * text may contain a slash. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_GLOB_H
#define GRANARY_IMAGEBUILD_SOURCE_GLOB_H

#include <stdbool.h>
#include <stddef.h>

/* Return what is wrong with the pattern, as part of a sentence, or NULL if it is valid. */
const char *glob_fault(const char *pattern, size_t len);
/* Return whether the pattern, which must be valid, matches the whole text. At most pattern_len * text_len steps. */
bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len);

#endif
