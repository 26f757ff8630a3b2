/* The sink upon a parent: what stays, what is the same, snapshots, repacking. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "repository/read/index_read.h"
#include "unit/read_back.h"
#include "unit/sink_world.h"

/* The parent of the tests below: a front, bodies in chunks 1 to 9, metadata in 10 to 12. */
struct generation {
    struct model model;
    struct manifest manifest;
    struct sink_result result;
};

static void write_section(struct pipeline *w, struct model *m, enum sink_section section, uint64_t at, size_t len,
                          int change)
{
    fill(m->data + at, at + (uint64_t)change * 1000000007, len);
    assert_int_equal(sink_write(w->sink, section, at, m->data + at, len), 0);
}

static void check_generation(struct store_fake *store, const struct generation *g)
{
    uint8_t *image = read_back(store, &g->result.index_root, g->result.index_levels, g->model.size, CHUNK);
    assert_memory_equal(image, g->model.data, g->model.size);
    free(image);
}

static void finish_generation(struct pipeline *w, struct generation *g)
{
    assert_int_equal(sink_finish(w->sink, g->model.size, &g->result), 0);
    assert_int_equal(upload_flush(w->upload), 0);
    g->manifest = (struct manifest){.size = g->model.size,
                                    .chunk_size = CHUNK,
                                    .metadata_offset = 10 * CHUNK,
                                    .index_root = g->result.index_root,
                                    .index_levels = g->result.index_levels,
                                    .stored_bytes = g->result.stored_bytes};
}

static void write_generation(struct pipeline *w, struct generation *g, bool bodies, int change)
{
    g->model.size = 12 * CHUNK + 4096;
    g->model.data = g->model.data ? g->model.data : calloc(1, g->model.size);
    if (bodies)
        write_section(w, &g->model, SINK_DATA, CHUNK, 9 * CHUNK, 0);
    write_section(w, &g->model, SINK_METADATA, 10 * CHUNK, CHUNK, 0);
    write_section(w, &g->model, SINK_METADATA, 11 * CHUNK, CHUNK + 4096, change);
    write_section(w, &g->model, SINK_FRONT, 0, 4096, 0);
    finish_generation(w, g);
    check_generation(w->store, g);
}

static bool content_kept(void *arg, uint64_t chunk)
{
    return chunk >= 1 && chunk <= 9;
}

static void test_sink__what_is_the_parents_is_not_packed_again(void **state)
{
    static const struct {
        bool bodies;
        int change;
        uint64_t fresh, kept, reused;
    } cases[] = {{true, 0, 0, 0, 13}, {false, 0, 0, 9, 4}, {true, 1, 2, 0, 11}, {false, 1, 2, 9, 2}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct generation first = {0}, second = {0};
        struct pipeline w = open_pipeline(store, 2, 2, PACK);
        write_generation(&w, &first, true, 0);
        close_pipeline(&w);
        const struct sink_parent parent = {
            .store = store_fake_store(store), .manifest = &first.manifest, .kept = content_kept};
        second.model.data = malloc(first.model.size);
        memcpy(second.model.data, first.model.data, first.model.size);
        w = open_pipeline_upon(store, 2, 2, PACK, &parent);
        write_generation(&w, &second, cases[i].bodies, cases[i].change);
        assert_int_equal(second.result.chunks_new, cases[i].fresh);
        assert_int_equal(second.result.chunks_kept, cases[i].kept);
        assert_int_equal(second.result.chunks_reused, cases[i].reused);
        assert_int_equal(upload_counts(w.upload).objects_new, cases[i].change ? 2 : 0); /* a pack and a leaf */
        bool same = digest_equal(&first.result.index_root.digest, &second.result.index_root.digest);
        assert_int_equal(same, !cases[i].change);
        close_pipeline(&w);
        free(first.model.data);
        free(second.model.data);
    }
}

/* Contents are added and the metadata lies elsewhere, with the same bytes in all chunks but, where `change`, its
 * second. */
static void write_moved(struct pipeline *w, struct generation *g, const struct generation *parent, int change)
{
    const uint64_t from = 10 * CHUNK, to = 14 * CHUNK, len = parent->model.size - from;
    g->model.size = to + len;
    g->model.data = calloc(1, g->model.size);
    memcpy(g->model.data, parent->model.data, from);
    memcpy(g->model.data + to, parent->model.data + from, len);
    g->model.data[to + CHUNK] ^= (uint8_t)change;
    write_section(w, &g->model, SINK_DATA, from, 2 * CHUNK, 1);
    assert_int_equal(sink_write(w->sink, SINK_METADATA, to, g->model.data + to, len), 0);
    write_section(w, &g->model, SINK_FRONT, 0, 4096, 0);
    finish_generation(w, g);
    check_generation(w->store, g);
}

static void test_sink__metadata_that_moved_is_not_packed_again(void **state)
{
    for (int change = 0; change < 2; change++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct generation first = {0}, second = {0};
        struct pipeline w = open_pipeline(store, 2, 2, PACK);
        write_generation(&w, &first, true, 0);
        close_pipeline(&w);
        const struct sink_parent parent = {
            .store = store_fake_store(store), .manifest = &first.manifest, .kept = content_kept};
        w = open_pipeline_upon(store, 2, 2, PACK, &parent);
        write_moved(&w, &second, &first, change);
        assert_int_equal(second.result.chunks_new, 2 + change);
        assert_int_equal(second.result.chunks_kept, 9);
        assert_int_equal(second.result.chunks_reused, 4 - change); /* the front, too */
        close_pipeline(&w);
        free(first.model.data);
        free(second.model.data);
    }
}

/* The same over the border of a leaf: the index wants the chunks in ascending order there, new and equal ones by turns.
 */
static void test_sink__metadata_that_moved_stays_in_order(void **state)
{
    enum { OLD = 10, NEW = 3 * INDEX_FANOUT - 7, LENGTH = 20 };
    static uint8_t bytes[CHUNK];
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct sink_result r;
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    for (unsigned i = 0; i < LENGTH; i++) {
        fill(bytes, i * CHUNK, CHUNK);
        assert_int_equal(sink_write(w.sink, SINK_METADATA, (OLD + i) * CHUNK, bytes, CHUNK), 0);
    }
    assert_int_equal(sink_finish(w.sink, (OLD + LENGTH) * CHUNK, &r), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    close_pipeline(&w);
    const struct manifest m = {.size = (OLD + LENGTH) * CHUNK,
                               .chunk_size = CHUNK,
                               .metadata_offset = OLD * CHUNK,
                               .index_root = r.index_root,
                               .index_levels = r.index_levels,
                               .stored_bytes = r.stored_bytes};
    const struct sink_parent parent = {.store = store_fake_store(store), .manifest = &m, .kept = content_kept};
    static const unsigned one_in[] = {1, 2, 3, LENGTH};
    for (size_t k = 0; k < GR_ARRAY_SIZE(one_in); k++) {
        const unsigned every = one_in[k]; /* of so many chunks the first is new */
        const uint64_t size = (uint64_t)(NEW + LENGTH) * CHUNK;
        w = open_pipeline_upon(store, 2, 2, PACK, &parent);
        /* data in the first leaf, so that all the others are streamed */
        assert_int_equal(sink_write(w.sink, SINK_DATA, 12 * CHUNK, bytes, CHUNK), 0);
        for (unsigned i = 0; i < LENGTH; i++) {
            fill(bytes, (uint64_t)(i + (i % every ? 0 : 1000)) * CHUNK, CHUNK);
            assert_int_equal(sink_write(w.sink, SINK_METADATA, (uint64_t)(NEW + i) * CHUNK, bytes, CHUNK), 0);
        }
        assert_int_equal(sink_finish(w.sink, size, &r), 0);
        assert_int_equal(upload_flush(w.upload), 0);
        assert_int_equal(r.chunks_new, 1 + (LENGTH + every - 1) / every);
        assert_int_equal(r.chunks_reused, 1 + LENGTH - r.chunks_new);
        uint8_t *image = read_back(store, &r.index_root, r.index_levels, size, CHUNK);
        for (unsigned i = 0; i < LENGTH; i++) {
            fill(bytes, (uint64_t)(i + (i % every ? 0 : 1000)) * CHUNK, CHUNK);
            assert_memory_equal(image + (uint64_t)(NEW + i) * CHUNK, bytes, CHUNK);
        }
        free(image);
        close_pipeline(&w);
    }
}

/* Its first chunk is zeros now, and not written: the others are found in their places. */
static void test_sink__metadata_that_begins_later_is_not_packed_again(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct generation first = {0}, second = {0};
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    write_generation(&w, &first, true, 0);
    close_pipeline(&w);
    const struct sink_parent parent = {
        .store = store_fake_store(store), .manifest = &first.manifest, .kept = content_kept};
    second.model.size = first.model.size;
    second.model.data = calloc(1, second.model.size);
    memcpy(second.model.data, first.model.data, 10 * CHUNK);
    w = open_pipeline_upon(store, 2, 2, PACK, &parent);
    write_section(&w, &second.model, SINK_METADATA, 11 * CHUNK, CHUNK + 4096, 0);
    write_section(&w, &second.model, SINK_FRONT, 0, 4096, 0);
    finish_generation(&w, &second);
    check_generation(store, &second);
    assert_int_equal(second.result.chunks_new, 0);
    assert_int_equal(second.result.chunks_reused, 3);
    close_pipeline(&w);
    free(first.model.data);
    free(second.model.data);
}

/* A parent of many leaves, of each of which one chunk is stored and stays. */
enum { LEAVES = 2 * INDEX_AHEAD + 9, KEPT_CHUNK = 5, NEW_CHUNK = 9 };

static bool one_kept(void *arg, uint64_t chunk)
{
    return chunk % INDEX_FANOUT == KEPT_CHUNK;
}

static void write_chunk(struct pipeline *w, enum sink_section section, uint64_t chunk, uint64_t seed)
{
    static uint8_t bytes[CHUNK];
    fill(bytes, chunk * CHUNK + seed, CHUNK);
    assert_int_equal(sink_write(w->sink, section, chunk * CHUNK, bytes, CHUNK), 0);
}

static void write_leaves(struct pipeline *w, enum sink_section section, uint64_t chunk)
{
    for (uint64_t leaf = 0; leaf < LEAVES; leaf++)
        write_chunk(w, section, leaf * INDEX_FANOUT + chunk, 0);
}

static struct sink_result finish_leaves(struct pipeline *w)
{
    struct sink_result r;
    const uint64_t end = (uint64_t)LEAVES * INDEX_FANOUT;
    write_chunk(w, SINK_METADATA, end, 0);
    assert_int_equal(sink_finish(w->sink, (end + 1) * CHUNK, &r), 0);
    assert_int_equal(upload_flush(w->upload), 0);
    return r;
}

static void *write_holes(void *pipeline)
{
    write_leaves(pipeline, SINK_HOLES, NEW_CHUNK);
    return NULL;
}

/* What comes after the root is held. */
static void hold_leaves(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    if (op == FAKE_GET_SMALL && atomic_exchange((atomic_bool *)arg, true))
        store_fake_hold(f, FAKE_GET_SMALL);
}

/* With or without scrubbing, which goes up through the index once before. */
static void test_sink__the_parents_leaves_are_fetched_ahead_of_what_is_written(void **state)
{
    for (int scrub = 0; scrub < 2; scrub++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        atomic_bool root_got = false;
        pthread_t thread;
        struct pipeline w = open_pipeline(store, 2, 2, PACK);
        write_leaves(&w, SINK_DATA, KEPT_CHUNK);
        struct sink_result r = finish_leaves(&w);
        close_pipeline(&w);
        const struct manifest m = {.size = ((uint64_t)LEAVES * INDEX_FANOUT + 1) * CHUNK,
                                   .chunk_size = CHUNK,
                                   .metadata_offset = (uint64_t)LEAVES * INDEX_FANOUT * CHUNK,
                                   .index_root = r.index_root,
                                   .index_levels = r.index_levels,
                                   .stored_bytes = r.stored_bytes};
        const struct sink_parent parent = {.store = store_fake_store(store), .manifest = &m, .kept = one_kept};
        w = open_pipeline_upon(store, 2, 2, PACK, &parent);
        store_fake_reset_counters(store);
        if (scrub) {
            write_chunk(&w, SINK_SCRUB, 40 * INDEX_FANOUT + KEPT_CHUNK, 1);
            write_chunk(&w, SINK_SCRUB, 50 * INDEX_FANOUT + KEPT_CHUNK, 1);
            write_holes(&w);
        } else {
            store_fake_set_hook(store, hold_leaves, &root_got);
            assert_int_equal(pthread_create(&thread, NULL, write_holes, &w), 0);
            store_fake_wait_held(store, INDEX_AHEAD);
            store_fake_set_hook(store, NULL, NULL);
            store_fake_release(store);
            pthread_join(thread, NULL);
        }
        r = finish_leaves(&w);
        assert_int_equal(r.chunks_new, LEAVES + 2 * scrub);
        assert_int_equal(r.chunks_kept, LEAVES - 2 * scrub);
        assert_int_equal(r.chunks_reused, 1); /* the metadata */
        /* the root; each leaf for what is written and for the merge, the last one also for the metadata */
        assert_true(scrub || store_fake_calls(store, FAKE_GET_SMALL) <= 2 * (LEAVES + 1) + 2);
        close_pipeline(&w);
    }
}

/* Bytes that must go are gone although the chunk was to stay. */
static void test_sink__zeros_take_the_place_of_what_would_stay(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct generation first = {0}, second = {0};
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    write_generation(&w, &first, true, 0);
    close_pipeline(&w);
    const struct sink_parent parent = {
        .store = store_fake_store(store), .manifest = &first.manifest, .kept = content_kept};
    second.model.size = first.model.size;
    second.model.data = malloc(first.model.size);
    memcpy(second.model.data, first.model.data, first.model.size);
    memset(second.model.data + 4 * CHUNK, 0, 2 * CHUNK);
    memset(second.model.data + 7 * CHUNK, 0, 100);
    w = open_pipeline_upon(store, 2, 2, PACK, &parent);
    assert_int_equal(sink_write(w.sink, SINK_SCRUB, 4 * CHUNK, second.model.data + 4 * CHUNK, 2 * CHUNK), 0);
    assert_int_equal(sink_write(w.sink, SINK_SCRUB, 7 * CHUNK, second.model.data + 7 * CHUNK, CHUNK), 0);
    write_generation(&w, &second, false, 0);
    assert_int_equal(second.result.chunks_kept, 6);
    assert_int_equal(second.result.chunks_new, 1);
    assert_true(second.result.stored_bytes < first.result.stored_bytes);
    close_pipeline(&w);
    free(first.model.data);
    free(second.model.data);
}

/* A store of many small generations: each day other chunks of a fixed range change, into SINK_HOLES, everything else
 * stays. Returns the stored bytes of the packs that the last image refers to, per cent of its own. */
struct days {
    bool changed[200];
};

static bool day_kept(void *arg, uint64_t chunk)
{
    const struct days *d = arg;
    return chunk >= 1 && chunk < 200 && !d->changed[chunk];
}

struct pack_sum {
    struct store_fake *store;
    struct digest_map packs;
    uint64_t bytes, stored;
};

static void sum_pack(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct pack_sum *sum = arg;
    char key[OBJECT_KEY_MAX];
    CLEANUP_BYTES pack = BYTES_INIT(64 << 20);
    sum->stored += ref->stored_len;
    if (digest_map_add(&sum->packs, &ref->object, 0) != 1)
        return;
    assert_true(store_fake_get(sum->store, object_key(OBJECT_PACK, &ref->object, key), &pack));
    sum->bytes += pack.len;
}

static uint64_t live_through_days(unsigned count, uint64_t budget, uint64_t *out_most_copied)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct generation g = {.model = {.size = 201 * CHUNK, .data = calloc(1, 201 * CHUNK)}};
    struct manifest last;
    struct days days = {0};
    uint64_t random = 7;
    *out_most_copied = 0;
    for (unsigned day = 0; day < count; day++) {
        const struct sink_parent parent = {
            .store = store_fake_store(store), .manifest = &last, .kept = day_kept, .arg = &days};
        struct pipeline w = open_pipeline_full(store, 2, 2, 20 * CHUNK, day ? &parent : NULL, budget);
        for (uint64_t i = 1; i < 200; i++) {
            random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
            days.changed[i] = !day || (random >> 40) % 10 == 0;
            if (days.changed[i])
                write_section(&w, &g.model, day ? SINK_HOLES : SINK_DATA, i * CHUNK, CHUNK, (int)day);
        }
        write_section(&w, &g.model, SINK_METADATA, 200 * CHUNK, 4096, (int)day);
        write_section(&w, &g.model, SINK_FRONT, 0, 4096, (int)day);
        finish_generation(&w, &g);
        last = g.manifest;
        *out_most_copied = GR_MAX(*out_most_copied, g.result.repacked.bytes);
        close_pipeline(&w);
    }
    struct pack_sum sum = {.store = store};
    check_generation(store, &g);
    read_back_node(store, &last.index_root, last.index_levels - 1, 0, sum_pack, &sum);
    assert_int_equal(sum.stored, last.stored_bytes);
    digest_map_release(&sum.packs);
    free(g.model.data);
    return sum.bytes * 100 / sum.stored;
}

/* Old packs are given up within the budget, so that what an image needs of a store stays bounded. */
static void test_repack__packs_do_not_live_on_for_a_few_chunks(void **state)
{
    enum { DAYS = 25 };
    uint64_t copied;
    uint64_t without = live_through_days(DAYS, 0, &copied);
    assert_int_equal(copied, 0);
    const uint64_t budget = 8 * CHUNK;
    uint64_t with = live_through_days(DAYS, budget, &copied);
    assert_true(copied > 0 && copied <= budget);
    assert_true(without > 200);
    assert_true(with < 170);
}

static void test_repack__little_dead_is_left_alone(void **state)
{
    uint64_t copied;
    (void)live_through_days(2, UINT64_MAX / 2, &copied);
    assert_int_equal(copied, 0);
}

static void find_the_fourth(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    if (number == 4)
        *(struct chunk_ref *)arg = *ref;
}

static bool third_kept(void *arg, uint64_t chunk)
{
    return chunk % 3 == 1 && chunk < 10;
}

/* What else is in the store, an earlier run's packs perhaps, has no say in what an image is. */
static void test_repack__other_packs_do_not_count(void **state)
{
    struct sink_result r[2];
    for (int others = 0; others < 2; others++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct generation first = {0};
        struct pipeline w = open_pipeline(store, 2, 2, PACK);
        write_generation(&w, &first, true, 0);
        close_pipeline(&w);
        if (others)
            store_fake_put(store, "packs/other", first.model.data, first.model.size);
        const struct sink_parent parent = {
            .store = store_fake_store(store), .manifest = &first.manifest, .kept = third_kept};
        w = open_pipeline_full(store, 2, 2, PACK, &parent, UINT64_MAX);
        assert_int_equal(sink_write(w.sink, SINK_METADATA, 10 * CHUNK, "m", 1), 0);
        assert_int_equal(sink_finish(w.sink, 11 * CHUNK, &r[others]), 0);
        assert_int_equal(upload_flush(w.upload), 0);
        assert_int_equal(r[others].repacked.chunks, 3);
        close_pipeline(&w);
        free(first.model.data);
    }
    assert_true(digest_equal(&r[0].index_root.digest, &r[1].index_root.digest));
}

/* A chunk that is damaged in the parent stays where it is; the build goes on. */
static void test_repack__a_damaged_chunk_ends_it_and_not_the_build(void **state)
{
    for (int damaged = 0; damaged < 2; damaged++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct generation first = {0};
        struct sink_result r;
        struct pipeline w = open_pipeline(store, 2, 2, PACK);
        write_generation(&w, &first, true, 0);
        close_pipeline(&w);
        struct chunk_ref fourth;
        char key[OBJECT_KEY_MAX];
        read_back_node(store, &first.result.index_root, 0, 0, find_the_fourth, &fourth);
        if (damaged)
            store_fake_flip(store, object_key(OBJECT_PACK, &fourth.object, key), fourth.offset + 20);
        const struct sink_parent parent = {
            .store = store_fake_store(store), .manifest = &first.manifest, .kept = third_kept};
        w = open_pipeline_full(store, 2, 2, PACK, &parent, UINT64_MAX);
        assert_int_equal(sink_write(w.sink, SINK_METADATA, 10 * CHUNK, "m", 1), 0);
        assert_int_equal(sink_finish(w.sink, 11 * CHUNK, &r), 0);
        assert_int_equal(upload_flush(w.upload), 0);
        assert_int_equal(r.chunks_new, 1);
        assert_int_equal(r.repacked.chunks != 3, damaged);
        close_pipeline(&w);
        free(first.model.data);
    }
}

static bool all_kept(void *arg, uint64_t chunk)
{
    return true;
}

static void write_rest(struct pipeline *w, struct model *m, uint64_t from, struct sink_result *r)
{
    write_section(w, m, SINK_DATA, from, 11 * CHUNK + 5000, 0);
    uint64_t end = GR_ALIGN_UP(from + 11 * CHUNK + 5000, (uint64_t)CHUNK);
    write_section(w, m, SINK_METADATA, end, 100, 0);
    write_section(w, m, SINK_FRONT, 0, 100, 0);
    m->size = end + 4096;
    assert_int_equal(sink_finish(w->sink, m->size, r), 0);
    assert_int_equal(upload_flush(w->upload), 0);
}

/* A build that continues from a snapshot makes the same packs and the same index. */
static void test_sink__a_snapshot_is_gone_on_from(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    enum { AT = 8 * CHUNK };
    struct sink_result snap, whole, resumed;
    struct model m = {.data = calloc(1, 40 * CHUNK)};
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    write_section(&w, &m, SINK_DATA, CHUNK, 6 * CHUNK + 777, 0);
    assert_int_equal(sink_snapshot(w.sink, AT, &snap), 1);
    assert_int_equal(upload_flush(w.upload), 0);
    uint8_t *part = read_back(store, &snap.index_root, snap.index_levels, AT, CHUNK);
    assert_memory_equal(part, m.data, AT);
    free(part);
    assert_int_equal(sink_write(w.sink, SINK_DATA, AT - 1, "x", 1), -EIO);
    write_rest(&w, &m, AT, &whole);
    close_pipeline(&w);
    uint8_t *image = read_back(store, &whole.index_root, whole.index_levels, m.size, CHUNK);
    assert_memory_equal(image, m.data, m.size);
    free(image);

    const struct manifest manifest = {.size = AT,
                                      .chunk_size = CHUNK,
                                      .index_root = snap.index_root,
                                      .index_levels = snap.index_levels,
                                      .stored_bytes = snap.stored_bytes};
    const struct sink_parent parent = {.store = store_fake_store(store), .manifest = &manifest, .kept = all_kept};
    w = open_pipeline_upon(store, 2, 2, PACK, &parent);
    write_rest(&w, &m, AT, &resumed);
    assert_int_equal(upload_counts(w.upload).objects_new, 0);
    assert_true(digest_equal(&whole.index_root.digest, &resumed.index_root.digest));
    assert_int_equal(whole.stored_bytes, resumed.stored_bytes);
    close_pipeline(&w);
    free(m.data);
}

static void test_sink__no_snapshot_beside_other_sections(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    struct sink_result r;
    assert_int_equal(sink_write(w.sink, SINK_HOLES, CHUNK, "x", 1), 0);
    assert_int_equal(sink_write(w.sink, SINK_DATA, 2 * CHUNK, "x", 1), 0);
    assert_int_equal(sink_snapshot(w.sink, 3 * CHUNK, &r), 0);
    assert_int_equal(sink_snapshot(w.sink, 2 * CHUNK, &r), -EIO);
    close_pipeline(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink__what_is_the_parents_is_not_packed_again),
        cmocka_unit_test(test_sink__metadata_that_moved_is_not_packed_again),
        cmocka_unit_test(test_sink__metadata_that_begins_later_is_not_packed_again),
        cmocka_unit_test(test_sink__metadata_that_moved_stays_in_order),
        cmocka_unit_test(test_sink__the_parents_leaves_are_fetched_ahead_of_what_is_written),
        cmocka_unit_test(test_sink__zeros_take_the_place_of_what_would_stay),
        cmocka_unit_test(test_repack__packs_do_not_live_on_for_a_few_chunks),
        cmocka_unit_test(test_repack__little_dead_is_left_alone),
        cmocka_unit_test(test_repack__other_packs_do_not_count),
        cmocka_unit_test(test_repack__a_damaged_chunk_ends_it_and_not_the_build),
        cmocka_unit_test(test_sink__a_snapshot_is_gone_on_from),
        cmocka_unit_test(test_sink__no_snapshot_beside_other_sections),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
