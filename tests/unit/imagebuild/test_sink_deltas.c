/* The sink upon a parent, whose chunks of metadata are bases of new ones. */
#include "unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "imagebuild/rebuild/parent.h"
#include "unit/read_back.h"
#include "unit/sink_world.h"

/* Images with a front in chunk 0, file data in chunks 1 to 9, and 200 chunks of metadata after that. */
enum { DATA_END = 10, METADATA = 200, CHUNKS = DATA_END + METADATA, DAYS = 30 };

struct generation {
    uint8_t *data;
    struct manifest manifest;
    struct sink_result result;
    struct chunk_ref refs[CHUNKS];
};

/* A few days in one store, each upon the day before. */
struct world {
    struct store_fake *store;
    struct digest_map damaged;
    struct sink_config config; /* of the next day */
    struct generation days[DAYS];
    unsigned count;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->store = store_fake_new();
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    for (unsigned i = 0; i < w->count; i++)
        free(w->days[i].data);
    digest_map_release(&w->damaged);
    store_fake_free(w->store);
    free(w);
    return 0;
}

static bool data_stays(void *arg, uint64_t chunk)
{
    return chunk >= 1 && chunk < DATA_END;
}

static void note_ref(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct generation *g = arg;
    g->refs[number] = *ref;
    assert_memory_equal(plain->data, g->data + number * CHUNK, plain->len);
}

/* Change `bytes` bytes in every `every`th chunk of metadata of a copy of the last day, and in the front. */
static struct generation *next_day(struct world *w, unsigned every, size_t bytes)
{
    struct generation *g = &w->days[w->count];
    g->data = malloc(CHUNKS * CHUNK);
    if (w->count)
        memcpy(g->data, g[-1].data, CHUNKS * CHUNK);
    else
        fill(g->data, 0, CHUNKS * CHUNK);
    for (unsigned i = 0; w->count && i < CHUNKS; i++)
        if (i == 0 || (i >= DATA_END && i % every == 0))
            fill(g->data + i * CHUNK + 700 * w->count % (CHUNK - bytes), 1000000007 * (uint64_t)w->count, bytes);
    w->count++;
    return g;
}

/* Build the day in w->config's way. */
static void build(struct world *w, struct generation *g)
{
    const bool upon = g != w->days;
    const struct sink_parent parent = {.store = store_fake_store(w->store),
                                       .manifest = upon ? &g[-1].manifest : NULL,
                                       .kept = data_stays,
                                       .damaged = &w->damaged};
    struct sink_config config = w->config;
    config.workers = config.workers ? config.workers : 2;
    config.pack_size = PACK;
    config.parent = upon ? &parent : NULL;
    struct pipeline p = open_pipeline_as(w->store, 2, config);
    if (!upon)
        assert_int_equal(sink_write(p.sink, SINK_DATA, CHUNK, g->data + CHUNK, (DATA_END - 1) * CHUNK), 0);
    for (size_t at = DATA_END * CHUNK; at < CHUNKS * CHUNK; at += CHUNK / 4)
        assert_int_equal(sink_write(p.sink, SINK_METADATA, at, g->data + at, CHUNK / 4), 0);
    assert_int_equal(sink_write(p.sink, SINK_FRONT, 0, g->data, CHUNK), 0);
    assert_int_equal(sink_finish(p.sink, CHUNKS * CHUNK, &g->result), 0);
    assert_int_equal(upload_flush(p.upload), 0);
    g->manifest = (struct manifest){.size = CHUNKS * CHUNK,
                                    .chunk_size = CHUNK,
                                    .metadata_offset = DATA_END * CHUNK,
                                    .index_root = g->result.index_root,
                                    .index_levels = g->result.index_levels,
                                    .stored_bytes = g->result.stored_bytes,
                                    .deltas = g->result.deltas};
    close_pipeline(&p);
}

/* Read the image back, and compare it. */
static void check(struct world *w, struct generation *g)
{
    unsigned deltas = 0;
    read_back_node(w->store, &g->result.index_root, 0, 0, note_ref, g);
    for (unsigned i = 0; i < CHUNKS; i++)
        deltas |= g->refs[i].flags & CHUNK_DELTA_FLAGS;
    assert_int_equal(g->result.deltas, deltas);
}

static struct generation *build_day(struct world *w, unsigned every, size_t bytes)
{
    struct generation *g = next_day(w, every, bytes);
    build(w, g);
    check(w, g);
    return g;
}

static unsigned count_deltas(const struct generation *g)
{
    unsigned n = 0;
    for (unsigned i = 0; i < CHUNKS; i++)
        n += chunk_is_delta(&g->refs[i]);
    return n;
}

static void test_sink__metadata_becomes_deltas_of_the_parents(void **state)
{
    struct world *w = *state;
    w->config.deltas = true;
    struct generation *first = build_day(w, 1, 0), *second;
    assert_int_equal(count_deltas(first), 0);
    uint64_t before = store_fake_bytes_put(w->store);
    second = build_day(w, 2, 300);
    assert_int_equal(count_deltas(second), METADATA / 2 + 1);
    assert_int_equal(second->result.chunks_delta, METADATA / 2 + 1);
    assert_int_equal(second->result.chunks_new, METADATA / 2 + 1);
    assert_true(store_fake_bytes_put(w->store) - before < METADATA * CHUNK / 100);
    for (unsigned i = 0; i < CHUNKS; i++) {
        const struct chunk_ref base = chunk_base_ref(&second->refs[i]);
        assert_int_equal(chunk_is_delta(&second->refs[i]), i == 0 || (i >= DATA_END && i % 2 == 0));
        assert_true(!chunk_is_delta(&second->refs[i]) || !memcmp(&base, &first->refs[i], sizeof base));
    }
}

/* A delta's delta has the same base; in the end a chunk is written in full again. */
static void test_sink__deltas_form_no_chains(void **state)
{
    struct world *w = *state;
    w->config.deltas = true;
    bool again = false;
    build_day(w, 1, 0);
    for (unsigned day = 1; day < DAYS; day++) {
        const struct generation *g = build_day(w, 1, 700), *last = g - 1;
        assert_true(day > 5 || count_deltas(g) == METADATA + 1);
        for (unsigned i = 0; i < CHUNKS; i++) {
            const struct chunk_ref base = chunk_base_ref(&g->refs[i]);
            const struct chunk_ref wanted =
                chunk_is_delta(&last->refs[i]) ? chunk_base_ref(&last->refs[i]) : last->refs[i];
            if (i >= 1 && i < DATA_END)
                assert_memory_equal(&g->refs[i], &last->refs[i], sizeof wanted);
            else if (chunk_is_delta(&g->refs[i]))
                assert_memory_equal(&base, &wanted, sizeof base);
            else
                again = true;
        }
    }
    assert_true(again);
}

static void test_sink__the_result_does_not_depend_on_the_workers(void **state)
{
    struct world *w = *state;
    w->config.deltas = true;
    build_day(w, 1, 0);
    struct generation *g = build_day(w, 3, 500);
    const struct digest digest = g->result.index_root.digest;
    for (unsigned workers = 1; workers < 9; workers += 3) {
        w->config.workers = workers;
        build(w, g);
        assert_true(digest_equal(&g->result.index_root.digest, &digest));
    }
}

static void test_sink__what_saves_too_little_is_no_delta(void **state)
{
    struct world *w = *state;
    w->config.deltas = true;
    build_day(w, 1, 0);
    assert_int_equal(count_deltas(build_day(w, 1, CHUNK / 3)), 0);
}

/* Without `deltas`, and when it erases, a build leaves none in its image. */
static void test_sink__no_deltas_are_written_or_taken_where_there_may_be_none(void **state)
{
    for (int erase = 0; erase < 2; erase++) {
        struct world *w = *state;
        w->config.deltas = true;
        build_day(w, 1, 0);
        assert_int_equal(count_deltas(build_day(w, 2, 300)), METADATA / 2 + 1);
        w->config.deltas = w->config.erase = erase;
        const struct generation *g = build_day(w, 1000, 0);
        assert_int_equal(count_deltas(g), 0);
        assert_int_equal(g->result.chunks_new, METADATA / 2 + 1);
        teardown(state);
        setup(state);
    }
}

/* A base that is missing, damaged or known to be in a damaged pack: the chunk is stored in full. */
static void test_sink__bases_that_cannot_be_read_are_not_used(void **state)
{
    for (int how = 0; how < 3; how++) {
        struct world *w = *state;
        char key[OBJECT_KEY_MAX];
        w->config.deltas = true;
        const struct generation *first = build_day(w, 1, 0);
        const struct chunk_ref bad = first->refs[100];
        object_key(OBJECT_PACK, &bad.object, key);
        if (how == 0)
            assert_true(store_fake_flip(w->store, key, bad.offset + 50));
        else if (how == 1)
            assert_true(store_fake_remove(w->store, key));
        else
            assert_int_equal(digest_map_add(&w->damaged, &bad.object, 0), 1);
        struct generation *g = next_day(w, 1, 300);
        build(w, g);
        if (how == 0)
            assert_true(store_fake_flip(w->store, key, bad.offset + 50));
        check(w, g);
        for (unsigned i = DATA_END; i < CHUNKS; i++) {
            bool lost = how ? digest_equal(&first->refs[i].object, &bad.object) : i == 100;
            assert_int_equal(chunk_is_delta(&g->refs[i]), !lost);
        }
        teardown(state);
        setup(state);
    }
}

/* Only chunks that differ need bases: they are read, with few others. */
static void test_sink__little_is_read_for_few_changes(void **state)
{
    struct world *w = *state;
    w->config.deltas = true;
    build_day(w, 1, 0);
    struct generation *g = next_day(w, METADATA, 300);
    store_fake_reset_counters(w->store);
    uint64_t before = store_fake_bytes_got(w->store);
    build(w, g);
    before = store_fake_bytes_got(w->store) - before;
    g = next_day(w, 1, 300);
    store_fake_reset_counters(w->store);
    build(w, g);
    assert_int_equal(w->days[1].result.chunks_delta, 2);
    assert_int_equal(g->result.chunks_delta, METADATA + 1);
    assert_true(before < store_fake_bytes_got(w->store) / 3);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_sink__metadata_becomes_deltas_of_the_parents),
        RUN(test_sink__deltas_form_no_chains),
        RUN(test_sink__the_result_does_not_depend_on_the_workers),
        RUN(test_sink__what_saves_too_little_is_no_delta),
        RUN(test_sink__no_deltas_are_written_or_taken_where_there_may_be_none),
        RUN(test_sink__bases_that_cannot_be_read_are_not_used),
        RUN(test_sink__little_is_read_for_few_changes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
