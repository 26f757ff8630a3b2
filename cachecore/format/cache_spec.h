/* Parse the settings of a cache as users write them: a directory with a size, a quota, watermarks, a shared tier.
 *
 * All functions return 0, or -EINVAL with a sentence that shows the right form. `what` is the option as the user writes
 * it, with its separator: "cache=" or "--cache ". Any thread.
 */
#ifndef GRANARY_FORMAT_CACHE_SPEC_H
#define GRANARY_FORMAT_CACHE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* A cache directory. */
struct cache_spec {
    size_t dir_len;   /* the first dir_len bytes of the text are the directory */
    uint64_t size;    /* bytes; 0: percent is set instead */
    unsigned percent; /* 1 to 99, of the space on its filesystem that is free or already the cache's */
    bool hdd;         /* marked as slow by ":hdd" */
};

/* Parse "DIR:SIZE" or "DIR:PERCENT%", then ":ssd", ":hdd" or nothing. DIR may contain colons. Also -ENOMEM. */
GR_MUST_CHECK int cache_spec_parse(const char *what, const char *text, struct cache_spec *out);

/* Parse a quota "NAME:SIZE", where NAME is an image; *size in bytes. The first *name_len bytes of text are NAME. */
GR_MUST_CHECK int quota_spec_parse(const char *what, const char *text, size_t *name_len, uint64_t *size);

/* Parse watermarks "HIGH:LOW" in percent: 99 >= high > low >= 1. */
GR_MUST_CHECK int watermark_spec_parse(const char *what, const char *text, unsigned *high, unsigned *low);

/* Check the address of a shared cache proxy: http:// or https://. The sentence does not show it, since it may contain a
 * password. */
GR_MUST_CHECK int tier_spec_check(const char *what, const char *text);

#endif
