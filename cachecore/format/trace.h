/* A trace: the chunks of an image that a job read, each once, in the order of their first read
 * (docs/reference/format-trace.md). Warming fetches them in that order. No I/O, any thread.
 */
#ifndef GRANARY_FORMAT_TRACE_H
#define GRANARY_FORMAT_TRACE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"

enum {
    TRACE_FILE_MAX = 64 << 20, /* bytes; enough for 512 GiB in chunks of 128 KiB */
    TRACE_HEADER_SIZE = 112,   /* bytes */
    TRACE_ENTRY_SIZE = 16,     /* bytes */
    TRACE_CHUNKS_MAX = (TRACE_FILE_MAX - TRACE_HEADER_SIZE) / TRACE_ENTRY_SIZE,
    TRACE_ID_SIZE = 12,
};

/* One chunk: its number in the recorded image and the first bytes of its SHA-256, which find the chunk at another place
 * in a later image. 96 bits only select what to fetch; every chunk is verified by its full digest. */
struct trace_entry {
    uint32_t chunk;
    uint8_t id[TRACE_ID_SIZE];
};

struct trace {
    struct digest image, content_root; /* of the recorded image */
    uint64_t size;                     /* bytes of the image */
    uint32_t chunk_size;               /* bytes */
    uint64_t dropped;                  /* first reads that are not listed because the recorder could not keep up */
    uint32_t count;                    /* of entries */
    const uint8_t *entries;            /* encoded, one after another; borrowed from the caller */
};

/* Return the entry of chunk number `chunk` with this digest. */
struct trace_entry trace_entry_of(uint64_t chunk, const struct digest *digest);
/* Encode an entry. */
void trace_entry_put(uint8_t out[TRACE_ENTRY_SIZE], const struct trace_entry *entry);
/* Decode entry i, which is below t->count. */
struct trace_entry trace_entry_at(const struct trace *t, uint32_t i);

/* Can an image of this geometry be traced? -E2BIG: it has more chunks than an entry can number. */
GR_MUST_CHECK int trace_check_geometry(uint64_t size, uint32_t chunk_size);

/* Append the encoded file to *out. -EMSGSIZE: out's maximum is too small; -ENOMEM. */
GR_MUST_CHECK int trace_encode(const struct trace *t, struct bytes *out);
/* Decode a file; any bytes are safe. out->entries points into data. Every entry's chunk lies within the recorded image.
 * -EBADMSG with a sentence; *out means nothing then. */
GR_MUST_CHECK int trace_decode(const void *data, size_t len, struct trace *out);

#endif
