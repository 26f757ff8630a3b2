/* A trace: the chunks that a job read of an image, each once, in the order of first touch
 * (docs/reference/format-trace.md).
 *
 * A pure value, no I/O.
 */
#ifndef GRANARY_FORMAT_TRACE_H
#define GRANARY_FORMAT_TRACE_H

#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"

enum {
    TRACE_FILE_MAX = 64 << 20, /* bytes; 512 GiB at chunks of 128 KiB */
    TRACE_HEADER_SIZE = 112,
    TRACE_ENTRY_SIZE = 16,
    TRACE_CHUNKS_MAX = (TRACE_FILE_MAX - TRACE_HEADER_SIZE) / TRACE_ENTRY_SIZE,
    TRACE_ID_SIZE = 12,
};

/* One chunk: its number in the image that was recorded, and the beginning of its SHA-256, by which an image built later
 * has it elsewhere. 96 bits are no proof; nobody reads a chunk by them. */
struct trace_entry {
    uint32_t chunk;
    uint8_t id[TRACE_ID_SIZE];
};

struct trace {
    struct digest image, content_root; /* of what was recorded */
    uint64_t size;                     /* of the image */
    uint32_t chunk_size;
    uint64_t dropped;       /* first touches that are not listed, for who recorded was behind */
    uint32_t count;         /* of entries */
    const uint8_t *entries; /* encoded, one after another; the caller's, never copied */
};

struct trace_entry trace_entry_of(uint64_t chunk, const struct digest *digest);
void trace_entry_put(uint8_t out[TRACE_ENTRY_SIZE], const struct trace_entry *entry);
struct trace_entry trace_entry_at(const struct trace *t, uint32_t i);

/* Can an image of that geometry be traced? -E2BIG: its chunks have numbers that no entry holds. */
GR_MUST_CHECK int trace_check_geometry(uint64_t size, uint32_t chunk_size);

/* Append the file to *out. -ENOMEM or -EMSGSIZE without a sentence. */
GR_MUST_CHECK int trace_encode(const struct trace *t, struct bytes *out);
/* Any bytes are safe; out->entries points into them. Every entry's chunk is of an image of that size. -EBADMSG. */
GR_MUST_CHECK int trace_decode(const void *data, size_t len, struct trace *out);

#endif
