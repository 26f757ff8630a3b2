/* Runs of chunks from a store: as they arrive, whatever the store does. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "fake/store_fake.h"
#include "repository/read/chunk_read.h"
#include "unit/mangle.h"

enum { CHUNKS = 8, LEN = 5000, GAP = 700 };

struct fixture {
    struct store_fake *fake;
    struct store *store;
    uint8_t plain[CHUNKS][LEN];
    struct chunk_ref refs[CHUNKS];
    const struct chunk_ref *list[CHUNKS * 2];
    char key[OBJECT_KEY_MAX];
    /* what done was told */
    unsigned calls[CHUNKS * 2];
    int rcs[CHUNKS * 2];
    char texts[CHUNKS * 2][ERROR_TEXT_MAX];
    size_t order[CHUNKS * 4], order_len;
    uint64_t got_at[CHUNKS * 2]; /* bytes the store had handed on when the chunk came */
};

/* A pack of eight chunks, every second one compressed, GAP other bytes between them. */
static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    CLEANUP_BYTES pack = BYTES_INIT(1 << 20);
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    uint8_t gap[GAP] = {0xee};
    f->fake = store_fake_new();
    f->store = store_fake_store(f->fake);
    for (int i = 0; i < CHUNKS; i++) {
        mangle_noise((uint64_t)i + 1, f->plain[i], i % 2 ? 100 : LEN);
        assert_int_equal(chunk_encode(f->plain[i], LEN, 3, &stored, &f->refs[i]), 0);
        f->refs[i].kind = OBJECT_PACK;
        f->refs[i].offset = (uint32_t)pack.len;
        assert_int_equal(bytes_append(&pack, stored.data, stored.len), 0);
        assert_int_equal(bytes_append(&pack, gap, sizeof gap), 0);
        f->list[i] = &f->refs[i];
    }
    struct digest name = digest_of(pack.data, pack.len);
    store_fake_put(f->fake, object_key(OBJECT_PACK, &name, f->key), pack.data, pack.len);
    for (int i = 0; i < CHUNKS; i++)
        f->refs[i].object = name;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    store_fake_free(f->fake);
    free(f);
    return 0;
}

static void done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct fixture *f = arg;
    const struct chunk_ref *ref = f->list[i];
    f->calls[i]++;
    f->rcs[i] = rc;
    f->order[f->order_len++] = i;
    f->got_at[i] = store_fake_bytes_got(f->fake);
    assert_true((rc == 0) == (plain != NULL));
    assert_true((rc == 0) == (stored != NULL));
    if (rc) {
        strcpy(f->texts[i], error_text());
        /* a callee may fail inside too: the others must not be told of it */
        (void)error_set(-EINVAL, "the callee's own");
        return;
    }
    assert_int_equal(plain->len, LEN);
    assert_memory_equal(plain->data, f->plain[ref - f->refs], LEN);
    assert_int_equal(crc32c(stored, ref->stored_len), ref->stored_crc);
    buf_unref(plain);
}

/* Each was answered once, in order. */
static void assert_answered(const struct fixture *f, size_t n)
{
    assert_int_equal(f->order_len, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(f->calls[i], 1);
        assert_int_equal(f->order[i], i);
    }
}

static void test_chunk_read__one_get_for_a_run_however_it_is_cut(void **state)
{
    struct fixture *f = *state;
    const size_t pieces[] = {0, 1, 7, GAP, GAP + 1, LEN - 1, LEN, LEN + 1, 3 * LEN};
    for (size_t p = 0; p < GR_ARRAY_SIZE(pieces); p++) {
        memset(f->calls, 0, sizeof f->calls);
        f->order_len = 0;
        store_fake_reset_counters(f->fake);
        store_fake_set_piece(f->fake, pieces[p]);
        assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), 0);
        assert_answered(f, CHUNKS);
        for (int i = 0; i < CHUNKS; i++)
            assert_int_equal(f->rcs[i], 0);
        assert_int_equal(store_fake_calls(f->fake, FAKE_GET), 1);
    }
}

static void test_chunk_read__each_chunk_comes_as_soon_as_its_bytes_are_there(void **state)
{
    struct fixture *f = *state;
    store_fake_set_piece(f->fake, 64);
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), 0);
    for (int i = 0; i < CHUNKS; i++) {
        uint64_t end = f->refs[i].offset + f->refs[i].stored_len;
        assert_in_range(f->got_at[i], end, end + 63);
    }
}

static void test_chunk_read__a_bad_chunk_does_not_stop_the_others(void **state)
{
    struct fixture *f = *state;
    assert_true(store_fake_flip(f->fake, f->key, f->refs[3].offset + 5));
    store_fake_set_piece(f->fake, 999);
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), 0);
    assert_answered(f, CHUNKS);
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(f->rcs[i], i == 3 ? -EBADMSG : 0);
    assert_non_null(strstr(f->texts[3], f->key));
    assert_non_null(strstr(f->texts[3], f->store->url));
}

static void test_chunk_read__a_get_that_dies_answers_all(void **state)
{
    struct fixture *f = *state;
    for (uint64_t cut = 0; cut < f->refs[CHUNKS - 1].offset + LEN; cut += 333) {
        memset(f->calls, 0, sizeof f->calls);
        f->order_len = 0;
        store_fake_clear_faults(f->fake);
        store_fake_add_fault(
            f->fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_CUT, .code = -EAGAIN, .bytes = cut});
        assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), -EAGAIN);
        assert_non_null(strstr(error_text(), "injected"));
        assert_answered(f, CHUNKS);
        for (int i = 0; i < CHUNKS; i++) {
            bool whole = f->refs[i].offset + f->refs[i].stored_len <= cut;
            assert_int_equal(f->rcs[i], whole ? 0 : -EAGAIN);
            if (!whole)
                assert_non_null(strstr(f->texts[i], "injected"));
        }
    }
}

static void test_chunk_read__a_get_that_ends_early_without_a_word(void **state)
{
    struct fixture *f = *state;
    store_fake_add_fault(f->fake,
                         &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_CUT, .bytes = f->refs[2].offset + 1});
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), -EIO);
    assert_answered(f, CHUNKS);
    assert_int_equal(f->rcs[1], 0);
    assert_int_equal(f->rcs[2], -EIO);
}

static void test_chunk_read__an_absent_pack(void **state)
{
    struct fixture *f = *state;
    assert_true(store_fake_remove(f->fake, f->key));
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), -ENOENT);
    assert_answered(f, CHUNKS);
    struct buf *plain = NULL;
    assert_int_equal(chunk_read_one(f->store, f->list[0], &plain), -ENOENT);
    assert_null(plain);
}

static void test_chunk_read__references_that_lie(void **state)
{
    struct fixture *f = *state;
    /* overlapping, backwards, twice the same, of another object, too long, wrapping: never more than their own
     * failure */
    struct chunk_ref overlap = f->refs[1], elsewhere = f->refs[1], longer = f->refs[1], wrapping = f->refs[1],
                     empty = f->refs[1];
    overlap.offset = f->refs[0].offset + 1;
    elsewhere.object = digest_of("elsewhere", 9);
    longer.stored_len = CHUNK_SIZE_MAX + 1;
    wrapping.offset = UINT32_MAX - 5;
    empty.stored_len = 0;
    const struct chunk_ref *list[] = {&f->refs[0], &overlap, &f->refs[2], &f->refs[2], &f->refs[1],
                                      &elsewhere,  &longer,  &wrapping,   &empty,      &f->refs[5]};
    const int codes[] = {0, -EBADMSG, 0, 0, 0, -ENOENT, -EBADMSG, -EBADMSG, -EBADMSG, 0};
    const size_t n = GR_ARRAY_SIZE(list);
    memcpy(f->list, list, sizeof list);
    assert_int_not_equal(chunk_read_run(f->store, f->list, n, done, f), 0);
    assert_answered(f, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(f->rcs[i], codes[i]);
    assert_int_equal(chunk_read_run(f->store, f->list, 0, done, f), 0);
}

static void test_chunk_read__one(void **state)
{
    struct fixture *f = *state;
    CLEANUP_BUF struct buf *plain = NULL;
    struct buf *none = NULL;
    assert_int_equal(chunk_read_one(f->store, f->list[4], &plain), 0);
    assert_memory_equal(plain->data, f->plain[4], LEN);
    assert_true(store_fake_flip(f->fake, f->key, f->refs[4].offset));
    assert_int_equal(chunk_read_one(f->store, f->list[4], &none), -EBADMSG);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ------------------------------------------------------------------ deltas */

/* Make chunks 1, 2, 4, 5 and 7 deltas of the chunks of another pack, in another order, with the bytes that the fixture
 * has for them. Returns the key of that pack. */
static void put_deltas(struct fixture *f, char base_key[OBJECT_KEY_MAX])
{
    static const int which[] = {5, 1, 7, 2, 4};
    CLEANUP_BYTES bases = BYTES_INIT(1 << 20);
    CLEANUP_BYTES pack = BYTES_INIT(1 << 20);
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    struct chunk_ref base[CHUNKS] = {0};
    uint8_t plain[CHUNKS][LEN];
    for (size_t k = 0; k < GR_ARRAY_SIZE(which); k++) {
        const int i = which[k];
        mangle_noise((uint64_t)i + 50, f->plain[i], LEN);
        memcpy(plain[i], f->plain[i], LEN);
        plain[i][LEN / 2] ^= 1;
        assert_int_equal(chunk_encode(plain[i], LEN, 3, &stored, &base[i]), 0);
        base[i].kind = OBJECT_PACK;
        base[i].offset = (uint32_t)bases.len;
        assert_int_equal(bytes_append(&bases, stored.data, stored.len), 0);
    }
    const struct digest base_pack = digest_of(bases.data, bases.len);
    store_fake_put(f->fake, object_key(OBJECT_PACK, &base_pack, base_key), bases.data, bases.len);
    for (int i = 0; i < CHUNKS; i++) {
        base[i].object = base_pack;
        const struct chunk_base of = chunk_as_base(&base[i]);
        if (base[i].plain_len)
            assert_int_equal(chunk_encode_upon(&of, plain[i], f->plain[i], LEN, 3, &stored, &f->refs[i]), 0);
        else
            assert_int_equal(chunk_encode(f->plain[i], LEN, 3, &stored, &f->refs[i]), 0);
        f->refs[i].kind = OBJECT_PACK;
        f->refs[i].offset = (uint32_t)pack.len;
        assert_int_equal(bytes_append(&pack, stored.data, stored.len), 0);
    }
    const struct digest name = digest_of(pack.data, pack.len);
    store_fake_put(f->fake, object_key(OBJECT_PACK, &name, f->key), pack.data, pack.len);
    for (int i = 0; i < CHUNKS; i++)
        f->refs[i].object = name;
}

/* Each was answered once. */
static void assert_all_answered(struct fixture *f, size_t n)
{
    assert_int_equal(f->order_len, n);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(f->calls[i], 1);
    memset(f->calls, 0, sizeof f->calls);
    f->order_len = 0;
}

static void test_chunk_read__the_bases_of_a_run_come_by_one_get(void **state)
{
    struct fixture *f = *state;
    char base_key[OBJECT_KEY_MAX];
    put_deltas(f, base_key);
    store_fake_set_piece(f->fake, 77);
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), 0);
    assert_all_answered(f, CHUNKS);
    for (int i = 0; i < CHUNKS; i++)
        assert_int_equal(f->rcs[i], 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_GET), 2);
    /* one twice: one base for both */
    f->list[0] = f->list[1] = &f->refs[4];
    store_fake_reset_counters(f->fake);
    (void)chunk_read_run(f->store, f->list, 2, done, f);
    assert_all_answered(f, 2);
    assert_int_equal(f->rcs[0] | f->rcs[1], 0);
    assert_int_equal(store_fake_calls(f->fake, FAKE_GET), 3);
    CLEANUP_BUF struct buf *one = NULL;
    assert_int_equal(chunk_read_one(f->store, &f->refs[7], &one), 0);
    assert_memory_equal(one->data, f->plain[7], LEN);
}

static void test_chunk_read__bases_far_apart_come_by_more_gets(void **state)
{
    struct chunk_ref a = {.stored_len = 1000}, b = {.offset = 1000, .stored_len = 1};
    assert_true(chunk_reads_on(&a, &b));
    b.offset = 1000 + CHUNK_READ_GAP;
    assert_true(chunk_reads_on(&a, &b));
    const struct chunk_ref *refs[] = {&a, &b};
    assert_int_equal(chunk_reads_end(refs, 0, 2, 1000 + CHUNK_READ_GAP + 1), 2);
    assert_int_equal(chunk_reads_end(refs, 0, 2, 1000 + CHUNK_READ_GAP), 1);
    assert_int_equal(chunk_reads_end(refs, 0, 1, UINT64_MAX), 1);
    assert_int_equal(chunk_reads_end(refs, 1, 2, 0), 2); /* one at least */
    b.offset++;
    assert_false(chunk_reads_on(&a, &b));
    b.offset = 999;
    assert_false(chunk_reads_on(&a, &b));
    a.offset = STORE_STRIPE - 1000;
    b.offset = STORE_STRIPE;
    assert_false(chunk_reads_on(&a, &b));
    a = (struct chunk_ref){.stored_len = 1000};
    b = (struct chunk_ref){.offset = 1000, .stored_len = 1, .object = digest_of("b", 1)};
    assert_false(chunk_reads_on(&a, &b));
}

/* Read all chunks; only chunk i fails, with rc and these words. */
static void expect_failure(struct fixture *f, int i, int rc, const char *words)
{
    (void)chunk_read_run(f->store, f->list, CHUNKS, done, f);
    assert_all_answered(f, CHUNKS);
    for (int k = 0; k < CHUNKS; k++)
        assert_int_equal(f->rcs[k], k == i ? rc : 0);
    if (!strstr(f->texts[i], words))
        fail_msg("%s", f->texts[i]);
}

/* What a base or a delta may be but must not: one clear error each, and the other chunks come. */
static void test_chunk_read__no_wrong_base_gets_through(void **state)
{
    struct fixture *f = *state;
    char base_key[OBJECT_KEY_MAX];
    put_deltas(f, base_key);
    const struct chunk_ref good = f->refs[4];
    const uint32_t at = good.base.offset + 20;
    assert_true(store_fake_flip(f->fake, base_key, at));
    expect_failure(f, 4, -EBADMSG, "the base of a delta cannot be used");
    assert_non_null(strstr(f->texts[4], base_key));
    assert_true(store_fake_flip(f->fake, base_key, at));
    /* another digest than the base's */
    f->refs[4].base.digest.b[0] ^= 1;
    expect_failure(f, 4, -EBADMSG, "digest differs");
    assert_non_null(strstr(f->texts[4], base_key));
    /* another base, whole in itself */
    f->refs[4].base = f->refs[5].base;
    expect_failure(f, 4, -EBADMSG, "digest differs");
    assert_non_null(strstr(f->texts[4], f->key));
    /* a base that is a delta, and one in no pack */
    f->refs[4] = good;
    f->refs[4].base.flags = CHUNK_DELTA;
    expect_failure(f, 4, -EBADMSG, "cannot be used");
    f->refs[4] = good;
    f->refs[4].base.object.b[5] ^= 1;
    expect_failure(f, 4, -ENOENT, "cannot be used");
    f->refs[4] = good;
    f->refs[4].base.stored_len = UINT32_MAX;
    expect_failure(f, 4, -EBADMSG, "impossible");
    /* the delta itself: cut, and changed */
    f->refs[4] = good;
    f->refs[4].stored_len--;
    expect_failure(f, 4, -EBADMSG, "checksum");
    f->refs[4] = good;
    assert_true(store_fake_flip(f->fake, f->key, good.offset + 9));
    expect_failure(f, 4, -EBADMSG, "checksum");
}

static void test_chunk_read__without_their_pack_all_deltas_fail_and_others_do_not(void **state)
{
    struct fixture *f = *state;
    char base_key[OBJECT_KEY_MAX];
    put_deltas(f, base_key);
    assert_true(store_fake_remove(f->fake, base_key));
    assert_int_equal(chunk_read_run(f->store, f->list, CHUNKS, done, f), 0);
    assert_all_answered(f, CHUNKS);
    for (int i = 0; i < CHUNKS; i++) {
        assert_int_equal(f->rcs[i], chunk_is_delta(&f->refs[i]) ? -ENOENT : 0);
        assert_true(!f->rcs[i] || strstr(f->texts[i], base_key));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_chunk_read__one_get_for_a_run_however_it_is_cut),
        RUN(test_chunk_read__each_chunk_comes_as_soon_as_its_bytes_are_there),
        RUN(test_chunk_read__a_bad_chunk_does_not_stop_the_others),
        RUN(test_chunk_read__a_get_that_dies_answers_all),
        RUN(test_chunk_read__a_get_that_ends_early_without_a_word),
        RUN(test_chunk_read__an_absent_pack),
        RUN(test_chunk_read__references_that_lie),
        RUN(test_chunk_read__one),
        RUN(test_chunk_read__the_bases_of_a_run_come_by_one_get),
        RUN(test_chunk_read__bases_far_apart_come_by_more_gets),
        RUN(test_chunk_read__no_wrong_base_gets_through),
        RUN(test_chunk_read__without_their_pack_all_deltas_fail_and_others_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
