/* How people name a cache directory, "DIR:SIZE" or "DIR:PERCENT%", then ":ssd", ":hdd" or nothing, and a quota. */
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

/* DIR may hold colons. what: the option's name, for the sentence. -EINVAL shows the right form. */
GR_MUST_CHECK int cache_spec_parse(const char *what, const char *text, struct cache_spec *out);

/* "NAME:SIZE" of a quota: *name_len bytes of the text are NAME. -EINVAL shows the right form. */
GR_MUST_CHECK int quota_spec_parse(const char *what, const char *text, size_t *name_len, uint64_t *size);

#endif
