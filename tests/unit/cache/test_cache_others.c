/* Chunks for other nodes: their stored bytes, kept by the node that is asked for them, fetched once with this node's
 * readers where that is safe, and never at the cost of a reader. */
#include "base/clock.h"
#include "fetch/fetch_internal.h"
#include "unit/cache_world.h"

#define K 1024u
static const uint32_t lens[] = {128 * K, 4096, 40 * K};
enum { CHUNKS = 12 };

/* The world's store as one of several nodes sees it. */
static struct node_store {
    struct store base;
    struct store *origin;
    _Atomic bool own, owner_lacks;
} node;

static int node_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    context->owner_lacks = node.owner_lacks;
    return store_get_until(node.origin, key, off, len, context, sink, arg);
}

static struct store *node_origin(struct store *s)
{
    return node.origin;
}

static void node_report_bad(struct store *s, unsigned proxy, const char *key)
{
}

static bool node_is_own(struct store *s, const char *key, uint64_t off)
{
    return node.own;
}

static void start(struct world *w, bool own, int level)
{
    static const struct store_ops ops = {
        .get = node_get, .origin = node_origin, .report_bad = node_report_bad, .is_own = node_is_own};
    world_init_level(w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20, level);
    node.base = (struct store){.ops = &ops, .url = "node://", .striped = true};
    node.origin = w->store;
    node.own = own;
    node.owner_lacks = false;
    w->store = &node.base;
    w->config.as_stored = true;
    w->config.others = CACHE_OTHERS_NONE;
    world_open(w);
}

/* Until nothing is fetched or written. */
static void settle(struct world *w)
{
    counter_wait_zero(cache_counters, w->cache, "granary_peer_fetch_in_flight");
    world_settle(w);
}

/* Get n chunks for another node, and compare with the pack. */
static int give(struct world *w, unsigned first, unsigned n)
{
    struct cache_piece pieces[CHUNKS];
    CLEANUP_BYTES pack = BYTES_INIT(WORLD_PACK_MAX);
    struct digest name = digest_of("pack", 4);
    char key[OBJECT_KEY_MAX];
    assert_true(store_fake_get(w->fake, object_key(OBJECT_PACK, &name, key), &pack));
    CLEANUP_FREE uint8_t *got = malloc(pack.len);
    for (unsigned i = 0; i < n; i++)
        pieces[i] = world_piece(w, first + i, 0, 0, got + w->refs[first + i].offset);
    int rc = cache_get_stored(w->cache, pieces, n, clock_now_ms() + CACHE_OTHERS_MS);
    for (unsigned i = first; !rc && i < first + n; i++)
        if (memcmp(got + w->refs[i].offset, pack.data + w->refs[i].offset, w->refs[i].stored_len) != 0)
            fail_msg("chunk %u: wrong bytes", i);
    return rc;
}

/* How many chunks are cached as they are stored. */
static unsigned stored(struct world *w)
{
    struct cache_piece pieces[CHUNKS];
    CLEANUP_FREE uint8_t *all = malloc(WORLD_PACK_MAX);
    bool got[CHUNKS];
    unsigned n = 0;
    for (unsigned i = 0; i < CHUNKS; i++)
        pieces[i] = world_piece(w, i, 0, w->refs[i].plain_len, all + w->refs[i].offset);
    cache_read_stored(w->cache, pieces, CHUNKS, got);
    for (unsigned i = 0; i < CHUNKS; i++)
        n += got[i];
    return n;
}

static void *give_first(void *arg)
{
    assert_int_equal(give(arg, 0, 1), 0);
    return NULL;
}

static void *read_first(void *arg)
{
    world_expect(arg, 0);
    return NULL;
}

/* All chunks are given, kept, and not fetched for a reader either. */
static void expect_given_and_kept(struct world *w)
{
    assert_int_equal(give(w, 0, CHUNKS), 0);
    settle(w);
    assert_int_equal(count_of(w, "entries"), CHUNKS);
    int before = gets(w);
    assert_int_equal(stored(w), CHUNKS);
    world_expect_all(w);
    assert_int_equal(gets(w), before);
}

static void test_cache_others__gives_what_is_stored_and_keeps_its_own(void **state)
{
    for (int level = 0; level <= 3; level += 3) {
        struct world w;
        start(&w, true, level);
        expect_given_and_kept(&w);
        world_release(&w);
    }
}

static void test_cache_others__what_is_cached_uncompressed_is_fetched_once(void **state)
{
    struct world w;
    start(&w, true, 3);
    world_close(&w);
    w.config.as_stored = false;
    world_open(&w);
    world_expect_all(&w);
    world_settle(&w);
    world_close(&w);
    w.config.as_stored = true;
    world_open(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    assert_int_equal(give(&w, 0, CHUNKS), 0);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    assert_int_equal(stored(&w), CHUNKS);
    world_release(&w);
}

static void test_cache_others__what_is_anothers_is_not_kept(void **state)
{
    struct world w;
    start(&w, false, 3);
    world_expect_all(&w);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), 0);
    assert_int_equal(count_of(&w, "others_total"), CHUNKS);
    world_release(&w);
}

/* Its owner is down, as the node that asks knows, and this one need not. */
static void test_cache_others__what_is_asked_for_is_kept_whoever_owns_it(void **state)
{
    struct world w;
    start(&w, false, 3);
    expect_given_and_kept(&w);
    world_release(&w);
}

static void test_cache_others__what_is_fetched_again_is_hot_and_kept(void **state)
{
    struct world w;
    start(&w, false, 3);
    world_close(&w);
    w.config.others = CACHE_OTHERS_HOT;
    world_open(&w);
    world_expect_all(&w);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), 0);
    assert_int_equal(count_of(&w, "others_total"), CHUNKS);
    world_expect(&w, 1); /* this one alone is fetched again */
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), 1);
    int before = gets(&w);
    world_expect(&w, 1);
    assert_int_equal(gets(&w), before);
    world_expect_all(&w);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    before = gets(&w);
    world_expect_all(&w);
    assert_int_equal(gets(&w), before);
    assert_int_equal(count_of(&w, "others_total"), CHUNKS);
    world_release(&w);
}

/* Else each read of it would go to the store as long as its owner has no answer. */
static void test_cache_others__what_its_owner_lacks_is_kept(void **state)
{
    struct world w;
    start(&w, false, 3);
    node.owner_lacks = true;
    world_expect_all(&w);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    assert_int_equal(count_of(&w, "others_total"), 0);
    world_release(&w);
}

/* A chunk that a reader fetches from the store is not fetched again. */
static void test_cache_others__joins_a_reader_at_the_store(void **state)
{
    struct world w;
    pthread_t reader, other;
    start(&w, true, 3);
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, read_first, &w), 0);
    store_fake_wait_held(w.fake, 1);
    struct inflight *inflight = fetch_find(w.cache->fetch, w.store, &w.refs[0]);
    assert_non_null(inflight);
    unsigned refs = atomic_load(&inflight->refs);
    assert_int_equal(pthread_create(&other, NULL, give_first, &w), 0);
    while (atomic_load(&inflight->refs) == refs) /* until it has joined */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    store_fake_release(w.fake);
    pthread_join(reader, NULL);
    pthread_join(other, NULL);
    inflight_unref(inflight);
    settle(&w);
    assert_int_equal(gets(&w), 1);
    assert_int_equal(count_of(&w, "entries"), 1);
    world_release(&w);
}

/* Nor the other way round. */
static void test_cache_others__a_reader_joins_at_the_store(void **state)
{
    struct world w;
    pthread_t reader, other;
    start(&w, true, 3);
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&other, NULL, give_first, &w), 0);
    store_fake_wait_held(w.fake, 1);
    struct inflight *inflight = fetch_find(w.cache->for_others, node.origin, &w.refs[0]);
    assert_non_null(inflight);
    unsigned refs = atomic_load(&inflight->refs);
    assert_int_equal(pthread_create(&reader, NULL, read_first, &w), 0);
    for (uint64_t since_ms = 0; atomic_load(&inflight->refs) == refs;)
        counter_pause(&since_ms, "the second reader");
    store_fake_release(w.fake);
    pthread_join(reader, NULL);
    pthread_join(other, NULL);
    inflight_unref(inflight);
    assert_int_equal(gets(&w), 1);
    world_release(&w);
}

/* A reader's fetch of what belongs to another node may wait for that node, which may wait for this one. */
static void test_cache_others__does_not_join_a_reader_at_another_node(void **state)
{
    struct world w;
    pthread_t reader, other;
    start(&w, false, 3);
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, read_first, &w), 0);
    store_fake_wait_held(w.fake, 1);
    assert_int_equal(pthread_create(&other, NULL, give_first, &w), 0);
    store_fake_wait_held(w.fake, 2);
    store_fake_release(w.fake);
    pthread_join(reader, NULL);
    pthread_join(other, NULL);
    world_release(&w);
}

/* What another node says of a chunk is no concern of a reader's. */
static void test_cache_others__a_false_reference_fails_alone(void **state)
{
    struct world w;
    pthread_t reader;
    start(&w, true, 3);
    struct chunk_ref right = w.refs[0];
    uint8_t got[128 * K];
    struct chunk_ref wrong = right;
    wrong.stored_crc ^= 1;
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&reader, NULL, read_first, &w), 0);
    store_fake_wait_held(w.fake, 1);
    assert_null(fetch_find(w.cache->fetch, w.store, &wrong));
    store_fake_release(w.fake);
    pthread_join(reader, NULL);
    world_settle(&w); /* what is cached is not fetched: the answer would be another */
    assert_int_equal(cache_evict(w.cache, &right.digest, false), 0);
    const struct cache_piece piece = {.ref = wrong, .store = w.store, .dst = got};
    int before = gets(&w);
    assert_int_equal(cache_get_stored(w.cache, &piece, 1, clock_now_ms() + CACHE_OTHERS_MS), -EBADMSG);
    assert_int_equal(gets(&w), before + 1); /* it is not worth a second one */
    world_expect(&w, 0);
    world_release(&w);
}

/* The node that asks must hear in time that there is no answer. */
static void test_cache_others__waits_for_a_slow_store_no_longer_than_told(void **state)
{
    struct world w;
    uint8_t got[128 * K];
    start(&w, true, 3);
    const struct cache_piece piece = world_piece(&w, 0, 0, 0, got);
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(cache_get_stored(w.cache, &piece, 1, clock_now_ms()), -ETIMEDOUT);
    store_fake_wait_held(w.fake, 1);
    store_fake_release(w.fake);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), 1); /* it is there for the next one */
    assert_int_equal(give(&w, 0, 1), -EAGAIN);
    assert_int_equal(gets(&w), 1);
    world_release(&w);
}

/* What is taken from nodes that leave is kept, and what they do not have is passed over. */
static void test_cache_others__takes_what_there_is(void **state)
{
    struct world w;
    struct cache_piece pieces[CHUNKS];
    start(&w, true, 3);
    for (unsigned i = 0; i < CHUNKS; i++) {
        pieces[i] = world_piece(&w, i, 0, 0, NULL);
        pieces[i].store = node.origin; /* a store by itself, as that of leaving nodes is */
    }
    assert_int_equal(cache_take(w.cache, pieces, CHUNKS), 0);
    settle(&w);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    store_fake_set_dead(w.fake, -ENOENT);
    world_expect_all(&w);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_others__gives_what_is_stored_and_keeps_its_own),
        cmocka_unit_test(test_cache_others__what_is_cached_uncompressed_is_fetched_once),
        cmocka_unit_test(test_cache_others__what_is_anothers_is_not_kept),
        cmocka_unit_test(test_cache_others__what_is_asked_for_is_kept_whoever_owns_it),
        cmocka_unit_test(test_cache_others__what_is_fetched_again_is_hot_and_kept),
        cmocka_unit_test(test_cache_others__what_its_owner_lacks_is_kept),
        cmocka_unit_test(test_cache_others__joins_a_reader_at_the_store),
        cmocka_unit_test(test_cache_others__a_reader_joins_at_the_store),
        cmocka_unit_test(test_cache_others__does_not_join_a_reader_at_another_node),
        cmocka_unit_test(test_cache_others__a_false_reference_fails_alone),
        cmocka_unit_test(test_cache_others__waits_for_a_slow_store_no_longer_than_told),
        cmocka_unit_test(test_cache_others__takes_what_there_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
