/* How people say what a cache is to be: a directory, "DIR:SIZE" or "DIR:PERCENT%", then ":ssd", ":hdd" or nothing; a
 * quota, "NAME:SIZE"; and so on. The plugin's parameters and the options of `granary serve` are parsed here, so that
 * both refuse the same words, each by its own name: `what` is "cache=" or "--cache ", and stands in the sentence of
 * -EINVAL, which shows the right form. */
#ifndef GRANARY_FORMAT_CACHE_SPEC_H
#define GRANARY_FORMAT_CACHE_SPEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct cache_spec {
    size_t dir_len;   /* the directory is the first so many bytes of the text */
    uint64_t size;    /* bytes; 0: percent counts */
    unsigned percent; /* of the directory's filesystem, 1 to 99 */
    bool hdd;         /* named slow */
};

/* DIR may hold colons. */
GR_MUST_CHECK int cache_spec_parse(const char *what, const char *text, struct cache_spec *out);

/* "NAME:SIZE" of a quota: *name_len bytes of the text are NAME. */
GR_MUST_CHECK int quota_spec_parse(const char *what, const char *text, size_t *name_len, uint64_t *size);

/* "HIGH:LOW" in percent: 99 >= high > low >= 1. */
GR_MUST_CHECK int watermark_spec_parse(const char *what, const char *text, unsigned *high, unsigned *low);

/* The bytes of the memory tier; 0: none. */
GR_MUST_CHECK int memory_spec_parse(const char *what, const char *text, uint64_t *size);

/* How long a read waits for a disk: 1 s to 10 m. */
GR_MUST_CHECK int disk_timeout_spec_parse(const char *what, const char *text, uint32_t *out_ms);

/* How long a chunk's fetch is repeated: 1 s to 7 d. */
GR_MUST_CHECK int timeout_spec_parse(const char *what, const char *text, uint64_t *out_ms);

/* What is a slow read: 1 s to 7 d; 0: none is. */
GR_MUST_CHECK int slow_read_spec_parse(const char *what, const char *text, uint64_t *out_ms);

/* Bytes fetched ahead of a sequential reader: 32M at most; 0: none. */
GR_MUST_CHECK int readahead_spec_parse(const char *what, const char *text, uint64_t *size);

/* Is what shuffled reads touch completed in the background: "auto", or "off". */
GR_MUST_CHECK int fill_spec_parse(const char *what, const char *text, bool *out_on);

/* Second gets in a hundred: 0 to 50. */
GR_MUST_CHECK int hedge_spec_parse(const char *what, const char *text, unsigned *out_percent);

/* Requests to stores at a time: 1 to 256. */
GR_MUST_CHECK int connections_spec_parse(const char *what, const char *text, unsigned *out);

/* What readers are given: "none" (everything), or "warmed": what is cached. */
GR_MUST_CHECK int fence_spec_parse(const char *what, const char *text, bool *out_fenced);

/* What a server warms by itself: "none", or "metadata". */
GR_MUST_CHECK int warm_spec_parse(const char *what, const char *text, bool *out_metadata);

/* The address of a shared tier. The sentence does not show it. */
GR_MUST_CHECK int tier_spec_check(const char *what, const char *text);

#endif
