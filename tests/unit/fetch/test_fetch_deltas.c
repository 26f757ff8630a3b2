/* Deltas: their bases come from the cache or by few gets of the worker that needs them, and by whose nodes they are. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "unit/fetch_world.h"

enum { SILENT_MS = 800 };

/* A world whose chunks are deltas of those of another image in the same store. */
struct deltas {
    struct world w;
    struct image_fake first;
    char base_key[OBJECT_KEY_MAX];
    /* the cache: a bit for each base that it has */
    uint32_t has;
    atomic_uint asked;
};

static struct buf *find_base(void *arg, struct store *store, const struct chunk_ref *base)
{
    struct deltas *d = arg;
    atomic_fetch_add(&d->asked, 1);
    assert_ptr_equal(store, d->w.store);
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (!(d->has >> i & 1) || !digest_equal(&base->digest, &d->first.refs[i].digest))
            continue;
        struct buf *plain = buf_new(CHUNK);
        image_fake_bytes(&d->first, (uint64_t)i * CHUNK, plain->data, CHUNK);
        return plain;
    }
    return NULL;
}

static void init_with(struct deltas *d, const struct fetch_config *config)
{
    *d = (struct deltas){.first = {.seed = 3, .size = CHUNKS * CHUNK, .chunk_size = CHUNK}};
    d->w.fake = store_fake_new();
    d->w.store = store_fake_store(d->w.fake);
    image_fake_put(&d->first, d->w.fake, NULL);
    d->w.img = (struct image_fake){
        .seed = 7, .size = CHUNKS * CHUNK, .chunk_size = CHUNK, .pack_chunks = CHUNKS, .deltas_of = &d->first};
    image_fake_put(&d->w.img, d->w.fake, NULL);
    object_key(OBJECT_PACK, &d->first.refs[0].object, d->base_key);
    assert_int_equal(fetch_new(config, &d->w.fetch), 0);
    assert_int_equal(fetch_start_threads(d->w.fetch), 0);
}

static void init(struct deltas *d, bool cache)
{
    init_with(d, &(struct fetch_config){.workers = 1, .find_base = cache ? find_base : NULL, .arg = d});
}

static void release(struct deltas *d)
{
    world_release(&d->w);
    image_fake_release(&d->first);
}

static void fetch_all(struct deltas *d, unsigned n)
{
    unsigned chunks[CHUNKS];
    struct inflight *inflights[CHUNKS];
    for (unsigned i = 0; i < n; i++)
        chunks[i] = i;
    start(&d->w, chunks, n, PRIORITY_WARM, inflights);
    for (unsigned i = 0; i < n; i++)
        expect_bytes(&d->w, inflights[i], i);
}

static void test_fetch__bases_come_by_one_get_for_each_pack(void **state)
{
    struct deltas d;
    init(&d, false);
    fetch_all(&d, CHUNKS);
    /* all deltas; the bases, which lie in two packs of 16 chunks */
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 3);
    assert_int_equal(count_of(&d.w, "requests_total"), 3);
    release(&d);
}

static void test_fetch__a_base_at_hand_is_not_requested(void **state)
{
    struct deltas d;
    init(&d, true);
    fetch_all(&d, 16);
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 2);
    assert_int_equal(d.asked, 16);
    release(&d);
    init(&d, true);
    d.has = UINT32_MAX;
    fetch_all(&d, 16);
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 1);
    release(&d);
    /* a gap of what is at hand is read over if it is small: one base of 33 KB, but not twelve */
    init(&d, true);
    d.has = 0x0ffd;
    fetch_all(&d, 16);
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 3);
    release(&d);
}

static void test_fetch__a_wrong_base_is_requested_again(void **state)
{
    struct deltas d;
    init(&d, false);
    store_fake_add_fault(d.w.fake, &(struct store_fake_fault){.op = FAKE_GET,
                                                              .kind = FAKE_FLIP,
                                                              .key_prefix = d.base_key,
                                                              .count = 1,
                                                              .bytes = d.first.refs[2].offset + 9});
    fetch_all(&d, 4);
    assert_int_equal(count_of(&d.w, "refetches_total"), 1);
    assert_int_equal(count_of(&d.w, "errors_total"), 0);
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 4); /* the delta again, and its base */
    release(&d);
}

static void test_fetch__a_base_that_is_wrong_or_gone_fails_its_delta_alone(void **state)
{
    struct deltas d;
    const unsigned chunks[] = {0, 1, 2};
    struct inflight *inflights[3];
    init(&d, false);
    assert_true(store_fake_flip(d.w.fake, d.base_key, d.first.refs[1].offset + 9));
    start(&d.w, chunks, 3, PRIORITY_DEMAND, inflights);
    expect_bytes(&d.w, inflights[0], 0);
    expect_error(inflights[1], -EBADMSG, d.base_key);
    expect_bytes(&d.w, inflights[2], 2);
    assert_true(store_fake_remove(d.w.fake, d.base_key));
    expect_error(start_one(&d.w, 3, PRIORITY_DEMAND), -ENOENT, "the base of a delta cannot be used");
    expect_bytes(&d.w, start_one(&d.w, 20, PRIORITY_DEMAND), 20); /* its base is in the other pack */
    release(&d);
}

/* The store as one of several nodes sees it. */
struct node_store {
    struct store base;
    struct store *origin;
    const char *delta_key;
    atomic_uint gets;
};

static int node_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct node_store *n = (struct node_store *)s;
    assert_string_not_equal(key, n->delta_key);
    assert_non_null(context->header);
    atomic_fetch_add(&n->gets, 1);
    return store_get_until(n->origin, key, off, len, context, sink, arg);
}

static struct store *node_origin(struct store *s)
{
    return ((struct node_store *)s)->origin;
}

static void report_bad(struct store *s, unsigned proxy, const char *key)
{
}

static bool is_own(struct store *s, const char *key, uint64_t off)
{
    return false;
}

/* A node has no delta for another one: deltas come from the store, and their bases from nodes like any chunk. */
static void test_fetch__nodes_are_asked_for_bases_alone(void **state)
{
    static const struct store_ops ops = {
        .get = node_get, .origin = node_origin, .report_bad = report_bad, .is_own = is_own};
    struct deltas d;
    char delta_key[OBJECT_KEY_MAX];
    init(&d, false);
    struct node_store node = {.base = {.ops = &ops, .url = "node://", .striped = true},
                              .origin = d.w.store,
                              .delta_key = object_key(OBJECT_PACK, &d.w.img.refs[0].object, delta_key)};
    d.w.store = &node.base;
    fetch_all(&d, 16);
    assert_int_equal(node.gets, 1);
    assert_int_equal(store_fake_calls(d.w.fake, FAKE_GET), 2);
    struct inflight *inflight = start_one(&d.w, 30, PRIORITY_DEMAND);
    CLEANUP_BUF struct buf *plain = NULL;
    assert_int_equal(inflight_wait(inflight, &plain), 0);
    assert_true(inflight_is_own(inflight));
    inflight_unref(inflight);
    release(&d);
}

/* A GET for bases that is silent is hedged as any other. */
static void test_fetch__a_silent_get_for_bases_is_hedged(void **state)
{
    struct deltas d;
    init_with(&d, &(struct fetch_config){.workers = 4, .hedge_percent = 50});
    for (unsigned i = 0; i < 250; i++) /* how fast the store is */
        expect_bytes(&d.w, start_one(&d.w, i % CHUNKS, PRIORITY_DEMAND), i % CHUNKS);
    const uint64_t before = count_of(&d.w, "hedge_wins_total");
    store_fake_add_fault(
        d.w.fake, &(struct store_fake_fault){
                      .op = FAKE_GET, .kind = FAKE_DELAY, .key_prefix = d.base_key, .count = 1, .bytes = SILENT_MS});
    const uint64_t begun_ms = clock_now_ms();
    expect_bytes(&d.w, start_one(&d.w, 3, PRIORITY_DEMAND), 3);
    assert_true(clock_now_ms() - begun_ms < SILENT_MS);
    assert_int_equal(count_of(&d.w, "hedge_wins_total"), before + 1);
    release(&d);
}

/* Bases that warming needs count in its bytes in flight. */
static void test_fetch__bases_are_in_flight(void **state)
{
    struct deltas d;
    init(&d, false);
    store_fake_add_fault(
        d.w.fake,
        &(struct store_fake_fault){
            .op = FAKE_GET, .kind = FAKE_DELAY, .key_prefix = d.base_key, .count = 1, .bytes = SILENT_MS / 4});
    struct inflight *inflight = start_one(&d.w, 3, PRIORITY_WARM);
    wait_for(&d.w, "warm_inflight_bytes", d.first.refs[3].stored_len);
    expect_bytes(&d.w, inflight, 3);
    counter_wait_zero(fetch_counters, d.w.fetch, "granary_fetch_warm_inflight_bytes");
    release(&d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch__bases_come_by_one_get_for_each_pack),
        cmocka_unit_test(test_fetch__a_base_at_hand_is_not_requested),
        cmocka_unit_test(test_fetch__a_wrong_base_is_requested_again),
        cmocka_unit_test(test_fetch__a_base_that_is_wrong_or_gone_fails_its_delta_alone),
        cmocka_unit_test(test_fetch__nodes_are_asked_for_bases_alone),
        cmocka_unit_test(test_fetch__a_silent_get_for_bases_is_hedged),
        cmocka_unit_test(test_fetch__bases_are_in_flight),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
