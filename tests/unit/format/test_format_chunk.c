/* Chunks: what is stored comes back, what is damaged does not. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "format/chunk.h"
#include "unit/mangle.h"

enum { LEN = 64 << 10 };

struct stored {
    struct bytes bytes;
    struct chunk_ref ref;
};

static void encode(struct stored *s, const void *plain, uint32_t len, int level)
{
    memset(s, 0, sizeof *s);
    s->bytes.max = CHUNK_SIZE_MAX;
    s->ref.kind = OBJECT_PACK;
    s->ref.object = digest_of("pack", 4);
    assert_int_equal(chunk_encode(plain, len, level, &s->bytes, &s->ref), 0);
}

static void text(uint8_t *out, size_t len)
{
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)("granary "[i % 8] + (i / 1000) % 7);
}

static void assert_comes_back(const struct stored *s, const void *plain, uint32_t len)
{
    CLEANUP_BUF struct buf *out = NULL;
    assert_int_equal(chunk_decode(&s->ref, s->bytes.data, &out), 0);
    assert_int_equal(out->len, len);
    assert_memory_equal(out->data, plain, len);
}

static void test_chunk__round_trip_at_every_level(void **state)
{
    static uint8_t plain[LEN];
    text(plain, LEN);
    const int levels[] = {0, 1, 3, 9, 19};
    for (size_t i = 0; i < GR_ARRAY_SIZE(levels); i++) {
        struct stored s;
        encode(&s, plain, LEN, levels[i]);
        assert_int_equal(s.ref.flags, levels[i] ? CHUNK_ZSTD : 0);
        assert_int_equal(s.ref.plain_len, LEN);
        assert_int_equal(s.ref.stored_len, s.bytes.len);
        assert_int_equal(s.ref.stored_crc, crc32c(s.bytes.data, s.bytes.len));
        struct digest d = digest_of(plain, LEN);
        assert_true(digest_equal(&d, &s.ref.digest));
        assert_comes_back(&s, plain, LEN);
        bytes_release(&s.bytes);
    }
}

static void test_chunk__limits_of_length(void **state)
{
    static uint8_t plain[CHUNK_SIZE_MAX];
    mangle_noise(7, plain, sizeof plain);
    const uint32_t lengths[] = {1, 2, 15, 16, 17, 4096, CHUNK_SIZE_MAX};
    for (size_t i = 0; i < GR_ARRAY_SIZE(lengths); i++) {
        struct stored s;
        encode(&s, plain, lengths[i], 3);
        assert_comes_back(&s, plain, lengths[i]);
        bytes_release(&s.bytes);
    }
    CLEANUP_BYTES out = BYTES_INIT(CHUNK_SIZE_MAX);
    struct chunk_ref ref = {.kind = OBJECT_PACK};
    assert_int_equal(chunk_encode(plain, 0, 3, &out, &ref), -EINVAL);
    assert_int_equal(chunk_encode(plain, CHUNK_SIZE_MAX + 1, 3, &out, &ref), -EINVAL);
}

static void test_chunk__is_stored_plain_unless_a_sixteenth_is_saved(void **state)
{
    static uint8_t plain[LEN];
    /* noise with a growing run of zeros at its end: somewhere the saving passes 1/16 */
    bool was_plain = false, was_zstd = false;
    for (size_t zeros = 0; zeros <= LEN / 8; zeros += 256) {
        struct stored s;
        mangle_noise(3, plain, LEN);
        memset(plain + LEN - zeros, 0, zeros);
        encode(&s, plain, LEN, 3);
        if (s.ref.flags & CHUNK_ZSTD)
            assert_true(s.ref.stored_len <= LEN - LEN / 16);
        else
            assert_int_equal(s.ref.stored_len, LEN);
        assert_false(was_zstd && !(s.ref.flags & CHUNK_ZSTD));
        was_plain |= !(s.ref.flags & CHUNK_ZSTD);
        was_zstd |= s.ref.flags & CHUNK_ZSTD;
        assert_comes_back(&s, plain, LEN);
        bytes_release(&s.bytes);
    }
    assert_true(was_plain && was_zstd);
}

static void test_chunk__encoding_is_the_same_again(void **state)
{
    static uint8_t plain[LEN], other[LEN];
    struct stored a, between, b;
    text(plain, LEN);
    mangle_noise(9, other, LEN / 2);
    encode(&a, plain, LEN, 3);
    encode(&between, other, LEN, 19);
    encode(&b, plain, LEN, 3);
    assert_int_equal(a.bytes.len, b.bytes.len);
    assert_memory_equal(a.bytes.data, b.bytes.data, a.bytes.len);
    bytes_release(&a.bytes);
    bytes_release(&between.bytes);
    bytes_release(&b.bytes);
}

struct damage {
    struct chunk_ref ref;
    bool fix_crc; /* the damage came with a matching CRC */
};

static int decode_damaged(void *arg, const void *data, size_t len)
{
    const struct damage *d = arg;
    struct chunk_ref ref = d->ref;
    CLEANUP_BUF struct buf *out = NULL;
    ref.stored_len = (uint32_t)len;
    if (d->fix_crc)
        ref.stored_crc = crc32c(data, len);
    int rc = chunk_decode(&ref, data, &out);
    assert_true(rc ? out == NULL : out->len == ref.plain_len);
    return rc;
}

static void test_chunk__no_damage_gets_through(void **state)
{
    static uint8_t plain[4096];
    text(plain, sizeof plain);
    for (int level = 0; level <= 3; level += 3)
        for (int fix = 0; fix <= 1; fix++) {
            struct stored s;
            encode(&s, plain, sizeof plain, level);
            struct damage d = {.ref = s.ref, .fix_crc = fix};
            mangle_truncate(decode_damaged, &d, s.bytes.data, s.bytes.len, -EBADMSG);
            size_t refused = mangle_flip(decode_damaged, &d, s.bytes.data, s.bytes.len, 1, -EBADMSG);
            /* A flip that changes nothing decoded (an unused header bit) may pass when the CRC says so; all others
             * are caught. */
            assert_true(refused + (level && fix ? 8 : 0) >= s.bytes.len * 8);
            bytes_release(&s.bytes);
        }
}

static void test_chunk__a_frame_must_be_one_and_whole(void **state)
{
    static uint8_t plain[4096];
    text(plain, sizeof plain);
    struct stored s;
    encode(&s, plain, sizeof plain, 3);
    CLEANUP_BYTES two = BYTES_INIT(1 << 20);
    uint8_t empty[64];
    size_t n = ZSTD_compress(empty, sizeof empty, "", 0, 1);
    assert_int_equal(bytes_append(&two, s.bytes.data, s.bytes.len), 0);
    assert_int_equal(bytes_append(&two, empty, n), 0);
    struct damage d = {.ref = s.ref, .fix_crc = true};
    assert_int_equal(decode_damaged(&d, two.data, two.len), -EBADMSG);
    /* a frame of another length than the index says */
    d.ref.plain_len--;
    assert_int_equal(decode_damaged(&d, s.bytes.data, s.bytes.len), -EBADMSG);
    d.ref.plain_len = CHUNK_SIZE_MAX + 1u;
    assert_int_equal(decode_damaged(&d, s.bytes.data, s.bytes.len), -EBADMSG);
    d.ref.plain_len = 0;
    assert_int_equal(decode_damaged(&d, s.bytes.data, s.bytes.len), -EBADMSG);
    d.ref = s.ref;
    d.ref.flags |= 2;
    assert_int_equal(decode_damaged(&d, s.bytes.data, s.bytes.len), -EBADMSG);
    bytes_release(&s.bytes);
}

/* A chunk of noise, and the same with a few other bytes as a delta of it. */
struct delta {
    struct stored base, delta;
    struct buf *base_plain;
    uint8_t plain[LEN];
};

static void make_delta(struct delta *d)
{
    d->base_plain = buf_new(LEN);
    mangle_noise(5, d->base_plain->data, LEN);
    encode(&d->base, d->base_plain->data, LEN, 3);
    memcpy(d->plain, d->base_plain->data, LEN);
    for (size_t i = 0; i < LEN; i += 5000)
        d->plain[i] ^= 1;
    d->delta = (struct stored){.bytes = BYTES_INIT(CHUNK_SIZE_MAX), .ref = d->base.ref};
    const struct chunk_base base = chunk_as_base(&d->base.ref);
    assert_int_equal(chunk_encode_upon(&base, d->base_plain->data, d->plain, LEN, 3, &d->delta.bytes, &d->delta.ref),
                     0);
}

static void release_delta(struct delta *d)
{
    bytes_release(&d->base.bytes);
    bytes_release(&d->delta.bytes);
    buf_unref(d->base_plain);
}

static void test_chunk__a_delta_comes_back_upon_its_base(void **state)
{
    static struct delta d;
    make_delta(&d);
    CLEANUP_BUF struct buf *out = NULL;
    const struct chunk_ref *ref = &d.delta.ref, base = chunk_base_ref(ref);
    assert_true(d.delta.bytes.len < 300);
    assert_int_equal(ref->flags, CHUNK_DELTA | CHUNK_SPLIT);
    assert_int_equal(ref->stored_len, d.delta.bytes.len);
    assert_int_equal(ref->stored_crc, crc32c(d.delta.bytes.data, d.delta.bytes.len));
    assert_memory_equal(&base, &d.base.ref, sizeof base);
    assert_int_equal(chunk_decode_upon(ref, d.base_plain, d.delta.bytes.data, &out), 0);
    assert_memory_equal(out->data, d.plain, LEN);
    /* by itself it is nothing, and what is no delta has no base */
    CLEANUP_BUF struct buf *none = NULL;
    assert_int_equal(chunk_decode(ref, d.delta.bytes.data, &none), -EBADMSG);
    assert_int_equal(chunk_decode_upon(&d.base.ref, d.base_plain, d.base.bytes.data, &none), -EBADMSG);
    release_delta(&d);
}

static void test_chunk__a_delta_that_saves_too_little_is_none(void **state)
{
    static struct delta d;
    static uint8_t other[LEN];
    make_delta(&d);
    const struct chunk_base base = chunk_as_base(&d.base.ref);
    for (size_t noise = 0; noise <= LEN; noise += LEN / 16) {
        memcpy(other, d.plain, LEN);
        mangle_noise(6, other, noise);
        CLEANUP_BUF struct buf *out = NULL;
        assert_int_equal(chunk_encode_upon(&base, d.base_plain->data, other, LEN, 3, &d.delta.bytes, &d.delta.ref), 0);
        const bool delta = chunk_is_delta(&d.delta.ref);
        assert_true(delta == (noise < LEN / 4));
        assert_true(!delta || d.delta.bytes.len <= d.base.bytes.len / 4);
        assert_int_equal(delta ? chunk_decode_upon(&d.delta.ref, d.base_plain, d.delta.bytes.data, &out)
                               : chunk_decode(&d.delta.ref, d.delta.bytes.data, &out),
                         0);
        assert_memory_equal(out->data, other, LEN);
    }
    release_delta(&d);
}

static int decode_damaged_delta(void *arg, const void *data, size_t len)
{
    const struct delta *d = arg;
    struct chunk_ref ref = d->delta.ref;
    CLEANUP_BUF struct buf *out = NULL;
    ref.stored_len = (uint32_t)len;
    ref.stored_crc = crc32c(data, len);
    int rc = chunk_decode_upon(&ref, d->base_plain, data, &out);
    assert_true(rc ? out == NULL : !memcmp(out->data, d->plain, LEN));
    return rc;
}

static void test_chunk__no_damage_of_a_delta_gets_through(void **state)
{
    static struct delta d;
    make_delta(&d);
    mangle_truncate(decode_damaged_delta, &d, d.delta.bytes.data, d.delta.bytes.len, -EBADMSG);
    (void)mangle_flip(decode_damaged_delta, &d, d.delta.bytes.data, d.delta.bytes.len, 1, -EBADMSG);
    /* upon other bytes, and upon fewer */
    CLEANUP_BUF struct buf *out = NULL, *other = buf_new(LEN), *shorter = buf_new(LEN - 1);
    memcpy(other->data, d.base_plain->data, LEN);
    memcpy(shorter->data, d.base_plain->data, LEN - 1);
    other->data[LEN / 2] ^= 1;
    assert_int_equal(chunk_decode_upon(&d.delta.ref, other, d.delta.bytes.data, &out), -EBADMSG);
    assert_non_null(strstr(error_text(), "digest differs"));
    assert_int_equal(chunk_decode_upon(&d.delta.ref, shorter, d.delta.bytes.data, &out), -EBADMSG);
    d.delta.bytes.data[20] ^= 1;
    assert_int_equal(chunk_decode_upon(&d.delta.ref, d.base_plain, d.delta.bytes.data, &out), -EBADMSG);
    assert_non_null(strstr(error_text(), "checksum of the stored bytes"));
    release_delta(&d);
}

static void test_chunk__the_sentence_names_chunk_and_pack(void **state)
{
    uint8_t plain[100] = {1};
    struct stored s;
    encode(&s, plain, sizeof plain, 0);
    CLEANUP_BUF struct buf *out = NULL;
    s.bytes.data[50] ^= 1;
    assert_int_equal(chunk_decode(&s.ref, s.bytes.data, &out), -EBADMSG);
    char id[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    assert_non_null(strstr(error_text(), digest_hex(&s.ref.digest, id)));
    assert_non_null(strstr(error_text(), object_key(OBJECT_PACK, &s.ref.object, key)));
    bytes_release(&s.bytes);
}

static void test_chunk__zeros_are_recognized(void **state)
{
    static uint8_t block[100000];
    const size_t lengths[] = {1, 63, 64, 65, 4096, sizeof block};
    assert_true(chunk_all_zero(block, 0));
    for (size_t i = 0; i < GR_ARRAY_SIZE(lengths); i++) {
        assert_true(chunk_all_zero(block, lengths[i]));
        for (size_t at = 0; at < lengths[i]; at += 1 + lengths[i] / 7) {
            block[at] = 1;
            assert_false(chunk_all_zero(block, lengths[i]));
            block[at] = 0;
        }
        block[lengths[i] - 1] = 0x80;
        assert_false(chunk_all_zero(block, lengths[i]));
        block[lengths[i] - 1] = 0;
    }
}

static void test_chunk__sizes(void **state)
{
    for (uint64_t size = 1; size; size <<= 1) {
        assert_int_equal(chunk_size_valid(size), size >= (64 << 10) && size <= (4 << 20));
        assert_false(chunk_size_valid(size + 1) && size > 1);
    }
    assert_false(chunk_size_valid(0));
    assert_false(chunk_size_valid((64 << 10) * 3));
}

enum { THREADS = 6, ROUNDS = 60 };

static void *work(void *arg)
{
    uint64_t seed = (uint64_t)(uintptr_t)arg;
    uint8_t *plain = malloc(LEN);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        struct stored s;
        text(plain, LEN);
        mangle_noise(seed * 1000 + round + 1, plain, LEN / 4);
        encode(&s, plain, LEN, (int)(round % 4));
        assert_comes_back(&s, plain, LEN);
        if (s.bytes.len) {
            struct buf *out = NULL;
            s.bytes.data[s.bytes.len / 2] ^= 1;
            assert_int_equal(chunk_decode(&s.ref, s.bytes.data, &out), -EBADMSG);
        }
        bytes_release(&s.bytes);
    }
    free(plain);
    return NULL;
}

static void test_chunk__threads_do_not_meet(void **state)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunk__round_trip_at_every_level),
        cmocka_unit_test(test_chunk__limits_of_length),
        cmocka_unit_test(test_chunk__is_stored_plain_unless_a_sixteenth_is_saved),
        cmocka_unit_test(test_chunk__encoding_is_the_same_again),
        cmocka_unit_test(test_chunk__no_damage_gets_through),
        cmocka_unit_test(test_chunk__a_frame_must_be_one_and_whole),
        cmocka_unit_test(test_chunk__a_delta_comes_back_upon_its_base),
        cmocka_unit_test(test_chunk__a_delta_that_saves_too_little_is_none),
        cmocka_unit_test(test_chunk__no_damage_of_a_delta_gets_through),
        cmocka_unit_test(test_chunk__the_sentence_names_chunk_and_pack),
        cmocka_unit_test(test_chunk__zeros_are_recognized),
        cmocka_unit_test(test_chunk__sizes),
        cmocka_unit_test(test_chunk__threads_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
