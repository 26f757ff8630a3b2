/* Chunks that images of different stores have in common: held once, and served whichever store is dead. */
#include "unit/cache_world.h"

#define K 1024u
static const uint32_t lens[] = {128 * K, 4096, 40 * K};
enum { CHUNKS = 30 };

/* A world and a second store with the very same pack. */
struct pair {
    struct world w;
    struct store_fake *other;
};

static void start(struct pair *p)
{
    struct digest name = digest_of("pack", 4);
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES pack = BYTES_INIT(WORLD_PACK_MAX);
    world_init(&p->w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20);
    object_key(OBJECT_PACK, &name, key);
    assert_true(store_fake_get(p->w.fake, key, &pack));
    p->other = store_fake_new();
    store_fake_put(p->other, key, pack.data, pack.len);
    world_open(&p->w);
}

static void finish(struct pair *p)
{
    world_check(&p->w);
    world_close(&p->w);
    store_fake_free(p->other);
    world_release(&p->w);
}

/* Read a chunk as an image of the other store asks for it. */
static int read_other(struct pair *p, unsigned chunk)
{
    uint32_t len = p->w.refs[chunk].plain_len;
    CLEANUP_FREE uint8_t *got = malloc(len);
    struct cache_piece piece = world_piece(&p->w, chunk, 0, len, got);
    piece.store = store_fake_store(p->other);
    int rc = cache_read(p->w.cache, &piece, 1, NULL, 0, PRIORITY_DEMAND);
    if (!rc && memcmp(got, p->w.plain[chunk], len))
        fail_msg("wrong bytes: chunk %u", (unsigned)chunk);
    return rc;
}

static void test_cache_sharing__a_chunk_of_two_stores_is_held_once(void **state)
{
    struct pair p;
    start(&p);
    world_expect_all(&p.w);
    world_settle_fills(&p.w, CHUNKS);
    uint64_t used = count_of(&p.w, "used_bytes");
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_int_equal(read_other(&p, i), 0);
    assert_int_equal(store_fake_calls(p.other, FAKE_GET), 0);
    assert_int_equal(count_of(&p.w, "entries"), CHUNKS);
    assert_int_equal(count_of(&p.w, "used_bytes"), used);
    finish(&p);
}

static void test_cache_sharing__a_dead_store_matters_only_for_what_is_not_cached(void **state)
{
    struct pair p;
    start(&p);
    for (unsigned i = 0; i < CHUNKS / 2; i++)
        assert_int_equal(read_other(&p, i), 0);
    world_settle_fills(&p.w, CHUNKS / 2);
    store_fake_set_dead(p.other, -ETIMEDOUT);
    for (unsigned i = 0; i < CHUNKS / 2; i++) {
        assert_int_equal(read_other(&p, i), 0);
        world_expect(&p.w, i);
    }
    for (unsigned i = CHUNKS / 2; i < CHUNKS; i++) {
        assert_int_equal(read_other(&p, i), -ETIMEDOUT);
        world_expect(&p.w, i); /* the living one has it; from now on both have */
        world_settle(&p.w);
        assert_int_equal(read_other(&p, i), 0);
    }
    assert_int_equal(count_of(&p.w, "entries"), CHUNKS);
    finish(&p);
}

static void *read_other_held(void *arg)
{
    assert_int_equal(read_other(arg, 0), 0);
    return NULL;
}

static void test_cache_sharing__nobody_waits_for_the_others_slow_store(void **state)
{
    struct pair p;
    pthread_t reader;
    start(&p);
    store_fake_hold(p.other, FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, read_other_held, &p), 0);
    store_fake_wait_held(p.other, 1);
    world_expect(&p.w, 0); /* though a fetch of it hangs elsewhere */
    wait_for(&p.w, "fills_total", 1);
    world_expect(&p.w, 0);
    store_fake_release(p.other);
    pthread_join(reader, NULL);
    world_settle(&p.w);
    assert_int_equal(count_of(&p.w, "entries"), 1);
    finish(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_sharing__a_chunk_of_two_stores_is_held_once),
        cmocka_unit_test(test_cache_sharing__a_dead_store_matters_only_for_what_is_not_cached),
        cmocka_unit_test(test_cache_sharing__nobody_waits_for_the_others_slow_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
