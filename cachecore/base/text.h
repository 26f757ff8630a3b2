/* Parse and format numbers, sizes, times and names as people write them. Any thread.
 *
 * Parsers return 0, or -EINVAL with a sentence that begins with `what`, the name of the option or setting.
 */
#ifndef GRANARY_BASE_TEXT_H
#define GRANARY_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Parse a size in bytes: "4096", "128K", "128KiB", "10G", "1.5T". All units are binary multiples, up to P. */
GR_MUST_CHECK int text_parse_size(const char *what, const char *text, uint64_t *out);

/* Parse a decimal number within [min, max]. */
GR_MUST_CHECK int text_parse_uint(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *out);

/* Parse a percentage such as "90%" within [min, max]. */
GR_MUST_CHECK int text_parse_percent(const char *what, const char *text, uint64_t min, uint64_t max, unsigned *out);

/* Parse a file mode: one to five octal digits, at most max. *out may be changed on failure. */
GR_MUST_CHECK int text_parse_mode(const char *what, const char *text, uint32_t max, uint32_t *out);

/* Parse a duration into seconds: "90", "90s", "30m", "12h", "14d". */
GR_MUST_CHECK int text_parse_duration(const char *what, const char *text, uint64_t *out_s);

enum { TEXT_SIZE_MAX = 32, TEXT_TIME_MAX = 32 };
/* Format a size: "512 B", "1.9 GiB". Returns out. */
char *text_format_size(uint64_t bytes, char out[TEXT_SIZE_MAX]);
/* Format seconds since the epoch: "2026-11-20T23:01:02Z", or "@SECONDS" for a year that does not fit. Returns out. */
char *text_format_time(int64_t seconds, char out[TEXT_TIME_MAX]);
/* Parse the form that text_format_time writes. -EINVAL without a sentence. */
GR_MUST_CHECK int text_parse_time(const char *text, int64_t *out);

/* Format a count: "1 file", "2 files", "2 directories". noun: the singular, at most 30 bytes. Returns out. */
enum { TEXT_COUNT_MAX = 56 };
char *text_format_count(uint64_t n, const char *noun, char out[TEXT_COUNT_MAX]);

/* Cut white space off both ends of one line, in place; returns its new start. */
char *text_trim(char *line);

/* Does text begin with `with`? */
bool text_begins_with(const char *text, const char *with);

/* Return the value of an environment variable; NULL: not set, or empty. */
const char *text_of_environment(const char *name);

/* Zero the string *secret, free it and leave NULL. *secret may be NULL. */
void text_wipe(char **secret);

/* Return the number of edits from one word to the other: a byte added, removed or changed, or two neighbours swapped. A
 * word of more than TEXT_DISTANCE_MAX bytes is TEXT_DISTANCE_MAX away from any other. */
enum { TEXT_DISTANCE_MAX = 32 };
unsigned text_distance(const char *a, size_t a_len, const char *b, size_t b_len);
/* Is a likely a mistyped b? At most a third of a's bytes may be edited, and one byte of a word shorter than six. */
bool text_resembles(const char *a, size_t a_len, const char *b);

/* Return the length in bytes of the UTF-8 character at p; 0 when the bytes are not valid UTF-8 (RFC 3629), which
 * excludes overlong forms, surrogates and numbers above U+10FFFF. left: the bytes at p, at least 1. */
size_t text_utf8_length(const void *p, size_t left);
/* Are all len bytes of text valid UTF-8? */
bool text_is_utf8(const char *text, size_t len);

#endif
