/* A chunk: a fixed-size span of an image's address space, stored by itself in a pack
 * (docs/reference/format-store.md, "Chunks").
 *
 * A chunk_ref says where one stored object-part lies and what it must be once decoded. Index nodes
 * are fetched with the same type (kind OBJECT_INDEX, object == digest, offset 0), so that one path
 * reads and verifies both.
 */
#ifndef GRANARY_FORMAT_CHUNK_H
#define GRANARY_FORMAT_CHUNK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/digest.h"
#include "format/object.h"

enum {
    CHUNK_SIZE_MIN = 64 << 10,
    CHUNK_SIZE_MAX = 4 << 20,
    CHUNK_SIZE_DEFAULT = 64 << 10, /* docs/reference/format-store.md, "Chunk size", has the measurement */
};

enum chunk_flags {
    CHUNK_ZSTD = 1, /* stored as one zstd frame; else stored plain */
};

struct chunk_ref {
    struct digest digest; /* SHA-256 of the plain bytes: the chunk's identity; all zero: a hole */
    struct digest object; /* name of the object it is stored in */
    enum object_kind kind;
    uint8_t flags;
    uint32_t offset; /* in the object */
    uint32_t stored_len;
    uint32_t stored_crc; /* CRC-32C of the stored bytes */
    uint32_t plain_len;  /* <= CHUNK_SIZE_MAX */
};

static inline bool chunk_is_hole(const struct chunk_ref *ref)
{
    return digest_is_zero(&ref->digest);
}

/* Valid chunk size: a power of two within the limits above. */
bool chunk_size_valid(uint64_t size);

/* Prepare plain for storage: *out (cleared first, max at least len) receives the stored bytes, zstd
 * at level when that saves at least 1/16 (level 0: never), else plain. Fills every field of *ref
 * but object, kind and offset. Deterministic for one zstd version. Any thread; keeps a compression
 * context per thread. */
GR_MUST_CHECK int chunk_encode(const void *plain, uint32_t len, int level, struct bytes *out, struct chunk_ref *ref);

/* Decode and verify stored (ref->stored_len bytes): CRC first, then the frame, its exact length and
 * the SHA-256. On success *out is a new buffer of ref->plain_len bytes. -EBADMSG with a sentence
 * naming chunk and object; -ENOMEM. Any bytes are safe as input. */
GR_MUST_CHECK int chunk_decode(const struct chunk_ref *ref, const void *stored, struct buf **out);

/* Decode one stored zstd frame into dst[0..plain_len) without proving the result: for bytes whose
 * checksums the caller has compared. Never writes beyond. -EBADMSG (no sentence) or -ENOMEM. */
GR_MUST_CHECK int chunk_unpack(const void *stored, uint32_t stored_len, void *dst, uint32_t plain_len);

/* True when all len bytes are zero. */
bool chunk_all_zero(const void *data, size_t len);

#endif
