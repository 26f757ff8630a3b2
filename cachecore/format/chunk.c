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
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "format/format_internal.h"

/* Deltas of longer chunks get a level with which zstd takes no more memory in each thread than with ZSTD_UPON_LEVEL and
 * this length, 3.5 MiB; it would be 13. They are a little longer for it. */
enum { UPON_LEVEL_LEN = 128 << 10, UPON_LEVEL_LONG = 6 };

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

/* The split form of a chunk. */
struct form {
    uint8_t *data; /* room for the chunk, too */
    size_t len;
};

static void form_release(struct form *f)
{
    free(f->data);
}

static int form_make(struct form *f, const void *plain, size_t len)
{
    f->data = malloc(chunk_split_max(len));
    if (!f->data)
        return error_no_memory();
    f->len = chunk_split(plain, len, f->data);
    return 0;
}

/* Encode a chunk's split form upon that of its base. 1: that takes over a quarter of the chunk, or does not come back.
 */
static int encode_delta(const void *base_plain, const void *plain, uint32_t len, int level, struct bytes *out)
{
    struct form upon CLEANUP(form_release) = {0}, own CLEANUP(form_release) = {0};
    level = GR_MAX(level, len <= UPON_LEVEL_LEN ? (int)ZSTD_UPON_LEVEL : (int)UPON_LEVEL_LONG);
    int rc = form_make(&upon, base_plain, len);
    if (!rc)
        rc = form_make(&own, plain, len);
    if (!rc)
        rc = zstd_frame_encode_upon((struct zstd_prefix){upon.data, upon.len}, own.data, own.len, level, len / 4, out);
    if (rc)
        return rc == -EMSGSIZE ? 1 : rc;
    /* A form that does not come back would be an image that nobody can read. The base's form is not needed any more. */
    return chunk_join(own.data, own.len, upon.data, len) && !memcmp(upon.data, plain, len) ? 0 : 1;
}

int chunk_encode_upon(const struct chunk_base *base, const void *base_plain, const void *plain, uint32_t len, int level,
                      struct bytes *out, struct chunk_ref *ref)
{
    CLEANUP_BYTES delta = BYTES_INIT(len / 4);
    int rc = check_len(len);
    const int none = rc ? rc : encode_delta(base_plain, plain, len, level, &delta);
    if (none < 0)
        return none;
    /* The base's stored length mostly stands for what the chunk takes by itself, which need not be found out then. */
    if (none || delta.len > base->stored_len / 4) {
        rc = chunk_encode(plain, len, level, out, ref);
        if (rc || none || delta.len > ref->stored_len / 4)
            return rc;
    }
    bytes_clear(out);
    rc = bytes_append(out, delta.data, delta.len);
    if (rc)
        return error_set(rc, "chunk: no room for %zu bytes", delta.len);
    ref->flags = CHUNK_DELTA | CHUNK_SPLIT;
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

/* The same for a delta in the split form. */
static int unpack_split(const struct chunk_ref *ref, const struct buf *base, const void *stored, struct buf *plain)
{
    const size_t len = zstd_frame_announced(stored, ref->stored_len);
    if (len > chunk_split_max(ref->plain_len))
        return chunk_bad(ref, "no split form of a chunk");
    struct form upon CLEANUP(form_release) = {0};
    CLEANUP_FREE uint8_t *split = malloc(len);
    int rc = split ? form_make(&upon, base->data, base->len) : error_no_memory();
    if (rc)
        return rc;
    const char *why;
    rc = zstd_frame_decode_upon((struct zstd_prefix){upon.data, upon.len}, stored, ref->stored_len, split, len, &why);
    if (rc)
        return rc == -EBADMSG ? chunk_bad(ref, why) : rc;
    return chunk_join(split, len, plain->data, plain->len) ? 0 : chunk_bad(ref, "no split form of a chunk");
}

/* Decode and verify a chunk that is stored in one of the forms that `allowed` has. base: of a delta. */
static int decode(const struct chunk_ref *ref, unsigned allowed, const struct buf *base, const void *stored,
                  struct buf **out)
{
    if (ref->plain_len == 0 || ref->plain_len > CHUNK_SIZE_MAX || (ref->flags & ~allowed))
        return chunk_bad(ref, "impossible length or unknown flags in its reference");
    if (crc32c(stored, ref->stored_len) != ref->stored_crc)
        return chunk_bad(ref, "checksum of the stored bytes differs");

    CLEANUP_BUF struct buf *plain = buf_new(ref->plain_len);
    if (!plain)
        return error_no_memory();
    const struct zstd_prefix prefix = {base ? base->data : NULL, base ? base->len : 0};
    int rc = ref->flags & CHUNK_SPLIT ? unpack_split(ref, base, stored, plain) : unpack(ref, prefix, stored, plain);
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
    return decode(ref, CHUNK_ZSTD, NULL, stored, out);
}

int chunk_decode_upon(const struct chunk_ref *ref, const struct buf *base, const void *stored, struct buf **out)
{
    if (!chunk_is_delta(ref) || base->len != ref->plain_len)
        return chunk_bad(ref, "not a delta of the chunk that is taken as its base");
    return decode(ref, CHUNK_DELTA | CHUNK_SPLIT, base, stored, out);
}
