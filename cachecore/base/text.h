/* Numbers, sizes and names between people and the program. */
#ifndef GRANARY_BASE_TEXT_H
#define GRANARY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* "4096", "128K", "128KiB", "10G", "1.5T": binary multiples in either spelling. -EINVAL with a
 * sentence naming what. */
GR_MUST_CHECK int text_parse_size(const char *what, const char *text, uint64_t *out);

/* A decimal number within [min, max]. -EINVAL with a sentence naming what and the range. */
GR_MUST_CHECK int text_parse_uint(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* "90%" within [min, max]. -EINVAL with a sentence naming what and the range. */
GR_MUST_CHECK int text_parse_percent(const char *what, const char *text, uint64_t min, uint64_t max, unsigned *out);

/* A mode as octal digits, at most max. -EINVAL with a sentence naming what. */
GR_MUST_CHECK int text_parse_mode(const char *what, const char *text, uint32_t max, uint32_t *out);

/* A length of time in whole seconds: "90", "90s", "30m", "12h", "14d". -EINVAL with a sentence
 * naming what. */
GR_MUST_CHECK int text_parse_duration(const char *what, const char *text, uint64_t *out_s);

enum { TEXT_SIZE_MAX = 32, TEXT_TIME_MAX = 32 };
/* "1.9 GiB"; returns out. */
char *text_format_size(uint64_t bytes, char out[TEXT_SIZE_MAX]);
/* A time in seconds since the epoch as "2026-11-20T23:01:02Z"; returns out. */
char *text_format_time(int64_t seconds, char out[TEXT_TIME_MAX]);
/* The opposite. -EINVAL without a sentence. */
GR_MUST_CHECK int text_parse_time(const char *text, int64_t *out);

/* "1 file", "2 files", "2 directories": the noun is given in the singular, in at most 30 bytes; returns out. */
enum { TEXT_COUNT_MAX = 56 };
char *text_format_count(uint64_t n, const char *noun, char out[TEXT_COUNT_MAX]);

/* Edits (a byte added, removed, changed, or two neighbours exchanged) from one word to another of at most
 * TEXT_DISTANCE_MAX bytes each; longer ones are TEXT_DISTANCE_MAX apart. */
enum { TEXT_DISTANCE_MAX = 32 };
unsigned text_distance(const char *a, size_t a_len, const char *b, size_t b_len);
/* May a be b, mistyped? At most a third of its bytes are edited, and one byte of a short word. */
bool text_resembles(const char *a, size_t a_len, const char *b);

/* Length of the UTF-8 character at p, 0 when these bytes are none: overlong forms, surrogates and
 * what lies above U+10FFFF included. */
size_t text_utf8_length(const void *p, size_t left);
bool text_is_utf8(const char *text, size_t len);

#endif
