/* Deltas and the cache: a base that is cached is not fetched, one that was fetched is not cached, and all are read
 * right.
 */
#include "unit/cache_world.h"

#include "cache/index/space_internal.h"
#include "cache/policy/evict_internal.h"

enum { FIRST = 8, LEN = 64 << 10 };
static const uint32_t lens[] = {LEN};

/* Chunks FIRST to 2 * FIRST - 1 are deltas of the others, in a pack of their own. */
static void start(struct world *w, uint64_t budget, bool memory, bool as_stored)
{
    CLEANUP_BYTES pack = BYTES_INIT(WORLD_PACK_MAX);
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    const struct digest name = digest_of("deltas", 6);
    char key[OBJECT_KEY_MAX];
    world_init_level(w, FIRST, lens, 1, budget, 3);
    w->config.as_stored = as_stored;
    w->config.memory = memory ? 16 << 20 : 0;
    for (unsigned i = 0; i < FIRST; i++) {
        struct chunk_ref *ref = &w->refs[FIRST + i];
        const struct chunk_base base = chunk_as_base(&w->refs[i]);
        uint8_t *plain = malloc(LEN);
        memcpy(plain, w->plain[i], LEN);
        plain[5000] ^= 0x55;
        assert_int_equal(chunk_encode_upon(&base, w->plain[i], plain, LEN, 3, &stored, ref), 0);
        ref->kind = OBJECT_PACK;
        ref->object = name;
        ref->offset = (uint32_t)pack.len;
        assert_int_equal(bytes_append(&pack, stored.data, stored.len), 0);
        w->plain[w->count++] = plain;
    }
    store_fake_put(w->fake, object_key(OBJECT_PACK, &name, key), pack.data, pack.len);
    world_open(w);
}

/* Read FIRST chunks, beginning with that one. */
static void expect_chunks(struct world *w, unsigned first)
{
    for (unsigned i = 0; i < FIRST; i++)
        world_expect(w, first + i);
    world_settle(w);
}

static void warm_deltas(struct world *w)
{
    struct cache_piece pieces[FIRST];
    for (unsigned i = 0; i < FIRST; i++)
        pieces[i] = world_piece(w, FIRST + i, 0, 0, NULL);
    assert_int_equal(cache_ensure(w->cache, pieces, FIRST, PRIORITY_WARM), 0);
    world_settle(w);
}

static void test_cache__a_cached_base_is_not_fetched(void **state)
{
    for (int how = 0; how < 3; how++) { /* on disk, compressed on disk, in memory alone */
        struct world w;
        start(&w, how == 2 ? 0 : 64 << 20, how == 2, how == 1);
        expect_chunks(&w, 0);
        assert_int_equal(gets(&w), FIRST);
        expect_chunks(&w, FIRST);
        assert_int_equal(gets(&w), 2 * FIRST); /* the deltas */
        expect_chunks(&w, FIRST);
        assert_int_equal(gets(&w), 2 * FIRST);
        world_release(&w);
    }
}

/* Bases are in no image that is warmed, and take no room from it. No reader asks for them, so the eviction policy does
 * not hear of them. */
static void test_cache__a_base_that_was_fetched_is_not_kept(void **state)
{
    struct world w;
    start(&w, 64 << 20, false, false);
    warm_deltas(&w);
    for (unsigned i = 0; i < FIRST; i++) {
        assert_false(cache_has(w.cache, &w.refs[i].digest));
        assert_true(cache_has(w.cache, &w.refs[FIRST + i].digest));
        assert_int_equal(evict_missed_part(w.cache->space.evict, space_key_of(&w.refs[i].digest).word[1]), 0);
    }
    world_release(&w);
}

static void test_cache__warming_brings_deltas_and_bases_by_two_gets(void **state)
{
    struct world w;
    start(&w, 64 << 20, false, true);
    warm_deltas(&w);
    assert_int_equal(gets(&w), 2);
    /* and they are there after a restart */
    world_close(&w);
    world_open(&w);
    expect_chunks(&w, FIRST);
    assert_int_equal(gets(&w), 2);
    world_release(&w);
}

/* Without any cache, too. */
static void test_cache__deltas_come_without_a_cache(void **state)
{
    struct world w;
    start(&w, 0, false, false);
    expect_chunks(&w, FIRST);
    assert_int_equal(gets(&w), 2 * FIRST);
    world_release(&w);
}

/* A cached base whose bytes went bad is no reason for wrong ones. */
static void test_cache__a_base_that_rotted_is_fetched(void **state)
{
    struct world w;
    struct stat st;
    start(&w, 64 << 20, false, false);
    expect_chunks(&w, 0);
    CLEANUP_FD int fd = world_open_file(&w, "data");
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t off = 0; off < st.st_size; off += 4096) /* a byte of every block */
        assert_int_equal(pwrite(fd, "\xA5", 1, off + 100), 1);
    expect_chunks(&w, FIRST);
    assert_true(count_of(&w, "crc_errors_total") > 0);
    assert_int_equal(gets(&w), 3 * FIRST);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__a_cached_base_is_not_fetched),
        cmocka_unit_test(test_cache__a_base_that_was_fetched_is_not_kept),
        cmocka_unit_test(test_cache__warming_brings_deltas_and_bases_by_two_gets),
        cmocka_unit_test(test_cache__deltas_come_without_a_cache),
        cmocka_unit_test(test_cache__a_base_that_rotted_is_fetched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
