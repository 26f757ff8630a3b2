/* Encode, decode and verify one chunk. A stored chunk is either the plain bytes or one zstd frame, perhaps upon the
 * plain bytes of another chunk. The index says which (flags), so stored chunks have no header.
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

struct chunk_ref chunk_base_ref(const struct chunk_ref *delta)
{
    return (struct chunk_ref){.digest = delta->base.digest,
                              .object = delta->base.object,
                              .kind = OBJECT_PACK,
                              .flags = delta->base.flags,
                              .offset = delta->base.offset,
                              .stored_len = delta->base.stored_len,
                              .stored_crc = delta->base.stored_crc,
                              .plain_len = delta->plain_len};
}

struct chunk_base chunk_as_base(const struct chunk_ref *ref)
{
    return (struct chunk_base){.digest = ref->digest,
                               .object = ref->object,
                               .offset = ref->offset,
                               .stored_len = ref->stored_len,
                               .stored_crc = ref->stored_crc,
                               .flags = ref->flags};
}

static int check_len(uint32_t len)
{
    if (len == 0 || len > CHUNK_SIZE_MAX)
        return error_set(-EINVAL, "chunk: a length of %u bytes is outside 1..%d", len, CHUNK_SIZE_MAX);
    return 0;
}

/* Describe an encoded chunk. */
static void describe(const void *plain, uint32_t len, const struct bytes *stored, struct chunk_ref *ref)
{
    ref->digest = digest_of(plain, len);
    ref->stored_len = (uint32_t)stored->len;
    ref->stored_crc = crc32c(stored->data, stored->len);
    ref->plain_len = len;
}

int chunk_encode(const void *plain, uint32_t len, int level, struct bytes *out, struct chunk_ref *ref)
{
    int rc = check_len(len);
    if (rc)
        return rc;
    bytes_clear(out);
    /* The limit makes zstd give up as soon as the frame would not save 1/16. */
    rc = level ? zstd_frame_encode(plain, len, level, len - (len + 15) / 16, out) : -EMSGSIZE;
    ref->flags = rc ? 0 : CHUNK_ZSTD;
    ref->base = (struct chunk_base){.offset = 0};
    if (rc == -EMSGSIZE) {
        rc = bytes_append(out, plain, len);
        if (rc)
            return error_set(rc, "chunk: no room for %u bytes", len);
    }
    if (!rc)
        describe(plain, len, out, ref);
    return rc;
}

int chunk_encode_upon(const struct chunk_base *base, const void *base_plain, const void *plain, uint32_t len, int level,
                      struct bytes *out, struct chunk_ref *ref)
{
    int rc = check_len(len);
    if (rc)
        return rc;
    bytes_clear(out);
    /* The base's stored length stands for what the chunk would take by itself, which is not known. */
    const struct zstd_prefix prefix = {base_plain, len};
    rc = zstd_frame_encode_upon(prefix, plain, len, level, base->stored_len / 4, out);
    if (rc)
        return rc == -EMSGSIZE ? 1 : rc;
    ref->flags = CHUNK_DELTA;
    ref->base = *base;
    describe(plain, len, out, ref);
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

/* Decode the stored bytes into plain; prefix: those of a delta's base. */
static int unpack(const struct chunk_ref *ref, struct zstd_prefix prefix, const void *stored, struct buf *plain)
{
    if (ref->flags) {
        const char *why;
        int rc = zstd_frame_decode_upon(prefix, stored, ref->stored_len, plain->data, ref->plain_len, &why);
        return rc == -EBADMSG ? chunk_bad(ref, why) : rc;
    }
    if (ref->stored_len != ref->plain_len)
        return chunk_bad(ref, "stored plain with another length");
    memcpy(plain->data, stored, ref->plain_len);
    return 0;
}

/* Decode and verify a chunk that is stored in one of the forms that `allowed` has. */
static int decode(const struct chunk_ref *ref, unsigned allowed, struct zstd_prefix prefix, const void *stored,
                  struct buf **out)
{
    if (ref->plain_len == 0 || ref->plain_len > CHUNK_SIZE_MAX || (ref->flags & ~allowed))
        return chunk_bad(ref, "impossible length or unknown flags in its reference");
    if (crc32c(stored, ref->stored_len) != ref->stored_crc)
        return chunk_bad(ref, "checksum of the stored bytes differs");

    CLEANUP_BUF struct buf *plain = buf_new(ref->plain_len);
    int rc = plain ? unpack(ref, prefix, stored, plain) : error_no_memory();
    if (rc)
        return rc;
    struct digest found = digest_of(plain->data, ref->plain_len);
    if (!digest_equal(&found, &ref->digest))
        return chunk_bad(ref, "digest differs");
    *out = steal_ptr(&plain);
    return 0;
}

int chunk_decode(const struct chunk_ref *ref, const void *stored, struct buf **out)
{
    return decode(ref, CHUNK_ZSTD, (struct zstd_prefix){0}, stored, out);
}

int chunk_decode_upon(const struct chunk_ref *ref, const struct buf *base, const void *stored, struct buf **out)
{
    if (!chunk_is_delta(ref) || base->len != ref->plain_len)
        return chunk_bad(ref, "not a delta of the chunk that is taken as its base");
    return decode(ref, CHUNK_DELTA, (struct zstd_prefix){base->data, base->len}, stored, out);
}
