/* How many stores share the gets in flight: one that is silent holds its share and no more, whatever their number. */
#include "unit/cmocka_all.h"

#include <time.h>

#include "unit/fetch_world.h"

enum { WORKERS = 64, STORES_MAX = 1000 };

/* Another store with the same objects. */
struct twin {
    struct store base;
    struct store *inner;
};

static int twin_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    struct store *inner = ((struct twin *)s)->inner;
    return store_get_until(inner, key, off, len, context, sink, arg);
}

static void make_twins(struct world *w, struct twin *twins, unsigned n)
{
    static const struct store_ops ops = {.get = twin_get};
    for (unsigned i = 0; i < n; i++)
        twins[i] = (struct twin){.base = {.ops = &ops, .url = w->store->url}, .inner = w->store};
}

/* Chunk 0 of every store comes. */
static void read_each(const struct world *w, struct twin *twins, unsigned n)
{
    struct world other = *w;
    for (unsigned i = 0; i < n; i++) {
        other.store = &twins[i].base;
        expect_bytes(&other, start_one(&other, 0, PRIORITY_DEMAND), 0);
    }
}

/* Longer than silent_ms in these tests, so that no look for work comes too early and the next one is waited for. */
static void let_it_be_silent(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
}

static void ask_for_all(struct world *w, enum fetch_priority priority, struct inflight **inflights)
{
    unsigned chunks[CHUNKS];
    for (unsigned i = 0; i < CHUNKS; i++)
        chunks[i] = i;
    start(w, chunks, CHUNKS, priority, inflights);
}

/* A store that leaves what is asked of it without an answer, in w's fetch. */
static void init_silent(struct world *silent, const struct world *w, uint64_t pack_chunks)
{
    world_init(silent, &(struct fetch_config){.workers = 1}, pack_chunks);
    fetch_free(silent->fetch);
    silent->fetch = w->fetch;
    store_fake_hold(silent->fake, FAKE_GET);
}

static void release_silent(struct world *silent, struct inflight **inflights)
{
    store_fake_release(silent->fake);
    for (unsigned i = 0; i < CHUNKS; i++)
        expect_bytes(silent, inflights[i], i);
    image_fake_release(&silent->img);
}

/* known: of the others how many have been read from before; the silent one, if all have. */
static void one_of(unsigned stores, unsigned known)
{
    static struct twin twins[STORES_MAX];
    struct world w, silent;
    struct inflight *inflights[CHUNKS];
    world_init(&w, &(struct fetch_config){.workers = WORKERS}, 1); /* a pack a chunk: no runs */
    make_twins(&w, twins, stores - 1);
    init_silent(&silent, &w, 1);
    read_each(&w, twins, known);
    if (known == stores - 1) {
        store_fake_release(silent.fake);
        expect_bytes(&silent, start_one(&silent, 0, PRIORITY_DEMAND), 0);
        store_fake_hold(silent.fake, FAKE_GET);
    }
    ask_for_all(&silent, PRIORITY_DEMAND, inflights);
    store_fake_wait_held(silent.fake, 1);
    read_each(&w, twins, stores - 1);
    release_silent(&silent, inflights);
    world_release(&w);
    store_fake_free(silent.fake);
}

static void test_fetch_share__a_silent_store_delays_no_other(void **state)
{
    static const unsigned stores[] = {2, 6, 17, 100, STORES_MAX};
    for (size_t i = 0; i < GR_ARRAY_SIZE(stores); i++) {
        one_of(stores[i], stores[i] - 1);
        one_of(stores[i], 1);
    }
}

/* Many that never answered hold little each, and are not counted when they are known to be silent. */
static void test_fetch_share__nor_do_many_silent_stores(void **state)
{
    enum { SILENT = 12, HEALTHY = 5 };
    struct twin twins[HEALTHY];
    struct world w, silent[SILENT];
    struct inflight *inflights[SILENT][CHUNKS];
    world_init(&w, &(struct fetch_config){.workers = WORKERS, .silent_ms = 1}, 1);
    make_twins(&w, twins, HEALTHY);
    read_each(&w, twins, 1);
    for (unsigned i = 0; i < SILENT; i++) {
        init_silent(&silent[i], &w, 1);
        ask_for_all(&silent[i], PRIORITY_DEMAND, inflights[i]);
    }
    let_it_be_silent();
    read_each(&w, twins, HEALTHY);
    for (unsigned i = 0; i < SILENT; i++)
        release_silent(&silent[i], inflights[i]);
    world_release(&w);
    for (unsigned i = 0; i < SILENT; i++)
        store_fake_free(silent[i].fake);
}

/* The window of readahead holds less than the one get of the silent store. */
static void test_fetch_share__what_a_silent_store_is_to_bring_does_not_count_in_the_windows(void **state)
{
    struct twin twin;
    struct world w, silent;
    struct inflight *inflights[CHUNKS], *inflight;
    world_init(&w, &(struct fetch_config){.workers = WORKERS, .silent_ms = 1}, 1);
    make_twins(&w, &twin, 1);
    read_each(&w, &twin, 1);
    init_silent(&silent, &w, CHUNKS);
    ask_for_all(&silent, PRIORITY_READAHEAD, inflights);
    store_fake_wait_held(silent.fake, 1);
    assert_true(count_of(&w, "readahead_inflight_bytes") > count_of(&w, "readahead_window_bytes"));
    let_it_be_silent();
    struct world other = w;
    other.store = &twin.base;
    inflight = start_one(&other, 3, PRIORITY_READAHEAD);
    expect_bytes(&other, inflight, 3);
    release_silent(&silent, inflights);
    world_release(&w);
    store_fake_free(silent.fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_share__a_silent_store_delays_no_other),
        cmocka_unit_test(test_fetch_share__nor_do_many_silent_stores),
        cmocka_unit_test(test_fetch_share__what_a_silent_store_is_to_bring_does_not_count_in_the_windows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
