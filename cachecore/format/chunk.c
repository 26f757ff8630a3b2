/* Encode, decode and verify one chunk. A stored chunk is either the plain bytes or one zstd frame. The index says which
 * (flags), so stored chunks have no header.
 *
 *   plain --SHA-256--> identity
 *     |
 *     +--zstd, if it saves 1/16--> stored --CRC-32C--> stored_crc
 *
 * Decoding checks the CRC first: it is cheap and keeps damaged bytes away from the decompressor. The SHA-256 of the
 * plain bytes then proves that this is the chunk that the index names.
 */
#include "format/chunk.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "format/format_internal.h"

bool chunk_size_valid(uint64_t size)
{
    return size >= CHUNK_SIZE_MIN && size <= CHUNK_SIZE_MAX && (size & (size - 1)) == 0;
}

bool chunk_all_zero(const void *data, size_t len)
{
    /* Compare the first 64 bytes with zeros, then the whole with itself 64 bytes further on: memcmp is vectorized. */
    static const uint8_t zeros[64];
    const uint8_t *p = data;
    if (len <= sizeof zeros)
        return memcmp(p, zeros, len) == 0;
    return memcmp(p, zeros, sizeof zeros) == 0 && memcmp(p, p + sizeof zeros, len - sizeof zeros) == 0;
}

int chunk_encode(const void *plain, uint32_t len, int level, struct bytes *out, struct chunk_ref *ref)
{
    if (len == 0 || len > CHUNK_SIZE_MAX)
        return error_set(-EINVAL, "chunk: a length of %u bytes is outside 1..%d", len, CHUNK_SIZE_MAX);
    bytes_clear(out);
    /* The limit makes zstd give up as soon as the frame would not save 1/16. */
    int rc = level ? zstd_frame_encode(plain, len, level, len - (len + 15) / 16, out) : -EMSGSIZE;
    ref->flags = rc ? 0 : CHUNK_ZSTD;
    if (rc == -EMSGSIZE) {
        rc = bytes_append(out, plain, len);
        if (rc)
            return error_set(rc, "chunk: no room for %u bytes", len);
    }
    if (rc)
        return rc;
    ref->digest = digest_of(plain, len);
    ref->stored_len = (uint32_t)out->len;
    ref->stored_crc = crc32c(out->data, out->len);
    ref->plain_len = len;
    return 0;
}

/* Set the sentence of a failure: which chunk, where it lies, what is wrong with it. */
static int chunk_bad(const struct chunk_ref *ref, const char *what)
{
    char id[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    return error_set(-EBADMSG, "chunk %s in %s at %u+%u: %s", digest_hex(&ref->digest, id),
                     object_key(ref->kind, &ref->object, key), ref->offset, ref->stored_len, what);
}

int chunk_unpack(const void *stored, uint32_t stored_len, void *dst, uint32_t plain_len)
{
    const char *why;
    return zstd_frame_decode(stored, stored_len, dst, plain_len, &why);
}

int chunk_decode(const struct chunk_ref *ref, const void *stored, struct buf **out)
{
    if (ref->plain_len == 0 || ref->plain_len > CHUNK_SIZE_MAX || (ref->flags & ~CHUNK_ZSTD))
        return chunk_bad(ref, "impossible length or unknown flags in its reference");
    if (crc32c(stored, ref->stored_len) != ref->stored_crc)
        return chunk_bad(ref, "checksum of the stored bytes differs");

    CLEANUP_BUF struct buf *plain = buf_new(ref->plain_len);
    if (!plain)
        return error_no_memory();
    if (ref->flags & CHUNK_ZSTD) {
        const char *why;
        int rc = zstd_frame_decode(stored, ref->stored_len, plain->data, ref->plain_len, &why);
        if (rc)
            return rc == -EBADMSG ? chunk_bad(ref, why) : rc;
    } else {
        if (ref->stored_len != ref->plain_len)
            return chunk_bad(ref, "stored plain with another length");
        memcpy(plain->data, stored, ref->plain_len);
    }
    struct digest found = digest_of(plain->data, ref->plain_len);
    if (!digest_equal(&found, &ref->digest))
        return chunk_bad(ref, "digest differs");
    *out = steal_ptr(&plain);
    return 0;
}
