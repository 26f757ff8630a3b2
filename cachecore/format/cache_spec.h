/* How people say what a cache is to be: a directory, "DIR:SIZE" or "DIR:PERCENT%", then ":ssd", ":hdd" or nothing; a
 * quota, "NAME:SIZE"; and so on. `what` is "cache=" or "--cache ", and stands in the sentence of -EINVAL, which shows
 * the right form. */
#ifndef GRANARY_FORMAT_CACHE_SPEC_H
#define GRANARY_FORMAT_CACHE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct cache_spec {
    size_t dir_len;   /* the directory is the first so many bytes of the text */
    uint64_t size;    /* bytes; 0: percent counts */
    unsigned percent; /* of what is free on its filesystem or the cache's own, 1 to 99 */
    bool hdd;         /* named slow */
};

/* DIR may hold colons. */
GR_MUST_CHECK int cache_spec_parse(const char *what, const char *text, struct cache_spec *out);

/* "NAME:SIZE" of a quota: *name_len bytes of the text are NAME. */
GR_MUST_CHECK int quota_spec_parse(const char *what, const char *text, size_t *name_len, uint64_t *size);

/* "HIGH:LOW" in percent: 99 >= high > low >= 1. */
GR_MUST_CHECK int watermark_spec_parse(const char *what, const char *text, unsigned *high, unsigned *low);

/* The address of a shared tier. The sentence does not show it. */
GR_MUST_CHECK int tier_spec_check(const char *what, const char *text);

#endif
