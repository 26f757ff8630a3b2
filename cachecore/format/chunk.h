/* A chunk: a fixed-size piece of an image, compressed and stored separately in a pack (docs/reference/format-store.md,
 * "Chunks").
 *
 * A chunk_ref says where a chunk's stored bytes lie and what they must decode to. Index nodes use the same type (kind
 * OBJECT_INDEX, object == digest, offset 0), so that the same code fetches and verifies both.
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
    CHUNK_SIZE_MIN = 64 << 10, /* bytes */
    CHUNK_SIZE_MAX = 4 << 20,
    CHUNK_SIZE_DEFAULT = 64 << 10, /* measured in docs/reference/format-store.md, "Chunk size" */
};

/* How a chunk is stored; 0: plain. At most one of the first two. */
enum chunk_flags {
    CHUNK_ZSTD = 1,  /* as one zstd frame */
    CHUNK_DELTA = 2, /* as one zstd frame upon another chunk, its base, whose plain bytes a reader needs too */
    CHUNK_SPLIT = 4, /* of a delta: the frame has the split form, upon that of the base (chunk_split.c) */
    CHUNK_DELTA_FLAGS = CHUNK_DELTA | CHUNK_SPLIT,
};

/* The chunk that a delta is stored upon: as long as the delta when decoded, in a pack, and no delta itself. The fields
 * mean what they mean in struct chunk_ref. */
struct chunk_base {
    struct digest digest, object;
    uint32_t offset, stored_len, stored_crc;
    uint8_t flags;
};

struct chunk_ref {
    struct digest digest;   /* SHA-256 of the plain bytes: the chunk's identity; all zero: a hole */
    struct digest object;   /* name of the object that contains it */
    enum object_kind kind;  /* of that object */
    uint8_t flags;          /* enum chunk_flags */
    uint32_t offset;        /* in the object, in bytes */
    uint32_t stored_len;    /* bytes in the object */
    uint32_t stored_crc;    /* CRC-32C of the stored bytes */
    uint32_t plain_len;     /* bytes when decoded, at most CHUNK_SIZE_MAX */
    struct chunk_base base; /* of a delta; else zero */
};

static inline bool chunk_is_delta(const struct chunk_ref *ref)
{
    return ref->flags & CHUNK_DELTA;
}

/* Return the reference by which a delta's base is fetched, and make a base of a chunk that is no delta. */
struct chunk_ref chunk_base_ref(const struct chunk_ref *delta);
struct chunk_base chunk_as_base(const struct chunk_ref *ref);

static inline bool chunk_is_hole(const struct chunk_ref *ref)
{
    return digest_is_zero(&ref->digest);
}

/* Is this a valid chunk size: a power of two within the limits above? */
bool chunk_size_valid(uint64_t size);

/* Encode the len bytes of plain for storage. *out, whose max is at least len, is cleared and receives the stored bytes:
 * a zstd frame if that saves at least 1/16, else the plain bytes (level 0: always). Sets every field of *ref except
 * object, kind and offset. The same input gives the same bytes for one version of zstd. -EINVAL: len is 0 or above
 * CHUNK_SIZE_MAX; -EMSGSIZE, -ENOMEM. Any thread; keeps a compression context per thread. */
GR_MUST_CHECK int chunk_encode(const void *plain, uint32_t len, int level, struct bytes *out, struct chunk_ref *ref);

/* The same upon base, whose len plain bytes are at base_plain: a delta, if that takes at most a quarter of the base's
 * stored bytes, or of what the chunk takes by itself; *ref names the base then. Else in full. */
GR_MUST_CHECK int chunk_encode_upon(const struct chunk_base *base, const void *base_plain, const void *plain,
                                    uint32_t len, int level, struct bytes *out, struct chunk_ref *ref);

/* Decode and verify the ref->stored_len bytes at stored: their CRC, then the frame and its exact length, then the
 * SHA-256. *out is a new buffer of ref->plain_len bytes; the caller owns its reference. Any bytes are safe. -EBADMSG
 * with a sentence that names chunk and object, and for a delta, which chunk_decode_upon decodes; -ENOMEM. Any thread.
 */
GR_MUST_CHECK int chunk_decode(const struct chunk_ref *ref, const void *stored, struct buf **out);
/* The same for a delta. base: the verified plain bytes of its base. */
GR_MUST_CHECK int chunk_decode_upon(const struct chunk_ref *ref, const struct buf *base, const void *stored,
                                    struct buf **out);

/* Decode one stored zstd frame into dst, which holds plain_len bytes, without checking CRC or SHA-256: for bytes that
 * the caller has verified. Never writes beyond dst. -EBADMSG (no sentence) or -ENOMEM. */
GR_MUST_CHECK int chunk_unpack(const void *stored, uint32_t stored_len, void *dst, uint32_t plain_len);

/* Are all len bytes zero? */
bool chunk_all_zero(const void *data, size_t len);

#endif
