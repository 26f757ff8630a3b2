/* Indexes written upon a parent, compared chunk by chunk with a model that knows nothing of trees. The chunks are
 * made-up references: no pack exists. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "fake/store_fake.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/sink/sink_internal.h"
#include "repository/read/index_read.h"
#include "unit/counts.h"

enum { CHUNK = CHUNK_SIZE_MIN, TRIALS = 20 };

static uint64_t random_state;

static uint64_t draw(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (random_state >> 24) % below;
}

/* What an image is: a seed for each chunk, 0 for a hole. */
struct image {
    struct manifest manifest;
    uint64_t chunks;
    uint32_t *seeds;
    bool *kept; /* by the next image */
};

static void image_release(struct image *m)
{
    free(m->seeds);
    free(m->kept);
}

static void image_init(struct image *m, uint64_t size)
{
    *m = (struct image){.manifest = {.size = size, .chunk_size = CHUNK}};
    m->chunks = manifest_chunk_count(&m->manifest);
    m->seeds = calloc(m->chunks, sizeof *m->seeds);
    m->kept = calloc(m->chunks, sizeof *m->kept);
    assert_non_null(m->seeds);
    assert_non_null(m->kept);
}

static struct chunk_ref made_up(const struct image *m, uint64_t number)
{
    const uint32_t seed = m->seeds[number], pack = seed / 50;
    struct chunk_ref ref = {.kind = OBJECT_PACK,
                            .digest = digest_of(&seed, sizeof seed),
                            .object = digest_of(&pack, sizeof pack),
                            .flags = CHUNK_ZSTD,
                            .offset = seed % 50 * 1000,
                            .stored_len = 100 + seed % 900,
                            .stored_crc = seed,
                            .plain_len = (uint32_t)GR_MIN((uint64_t)CHUNK, m->manifest.size - number * CHUNK)};
    return seed ? ref : (struct chunk_ref){0};
}

static bool kept(void *arg, uint64_t number)
{
    const struct image *parent = arg;
    return number < parent->chunks && parent->kept[number];
}

static bool kept_all(void *arg, uint64_t first, uint64_t count)
{
    while (count && kept(arg, first))
        first++, count--;
    return !count;
}

/* One index being written. */
struct pipeline {
    struct store_fake *store;
    struct upload *upload;
    struct parent_index *index;
    struct sink_parent parent;
    struct index_writer *writer;
};

static void open_pipeline(struct pipeline *w, struct store_fake *store, struct image *parent, bool ranges,
                          size_t sort_memory)
{
    *w = (struct pipeline){.store = store};
    struct upload_config upload = {.store = store_fake_store(store), .threads = 1, .memory = 1 << 20};
    assert_int_equal(upload_new(&upload, &w->upload), 0);
    struct index_writer_config config = {.upload = w->upload, .chunk_size = CHUNK, .sorter = {.memory = sort_memory}};
    if (parent) {
        w->parent = (struct sink_parent){.store = store_fake_store(store),
                                         .manifest = &parent->manifest,
                                         .kept = kept,
                                         .kept_all = ranges ? kept_all : NULL,
                                         .arg = parent};
        assert_int_equal(parent_index_new(&w->parent, &w->index), 0);
        config.parent = &w->parent;
        config.index = w->index;
    }
    assert_int_equal(index_writer_new(&config, &w->writer), 0);
}

static void close_pipeline(struct pipeline *w)
{
    index_writer_free(w->writer);
    parent_index_free(w->index);
    upload_free(w->upload);
}

static void finish_with(struct pipeline *w, struct image *m, const struct index_writer_result *r)
{
    assert_int_equal(upload_flush(w->upload), 0);
    m->manifest.index_root = r->root;
    m->manifest.index_levels = r->levels;
    m->manifest.stored_bytes = r->stored_bytes;
}

static void finish(struct pipeline *w, struct image *m, struct index_writer_result *r)
{
    int rc = index_writer_finish(w->writer, m->manifest.size, r);
    if (rc)
        fail_msg("%s", error_text());
    finish_with(w, m, r);
}

static void check_leaf(const struct image *m, uint64_t number, const struct chunk_ref *chunks)
{
    for (uint64_t i = 0; i < GR_MIN(m->chunks - number * INDEX_FANOUT, (uint64_t)INDEX_FANOUT); i++) {
        const struct chunk_ref expected = made_up(m, number * INDEX_FANOUT + i), *found = &chunks[i];
        assert_true(digest_equal(&found->digest, &expected.digest));
        if (chunk_is_hole(&expected))
            continue;
        assert_true(digest_equal(&found->object, &expected.object));
        assert_int_equal(found->offset, expected.offset);
        assert_int_equal(found->plain_len, expected.plain_len);
        assert_int_equal(found->stored_len, expected.stored_len);
    }
}

/* Every chunk, read through the parent's reader, which proves every node. */
static void check_image(struct store_fake *store, const struct image *m)
{
    struct parent_index *index;
    uint64_t stored = 0;
    assert_int_equal(m->manifest.index_levels, index_levels(m->chunks));
    const struct sink_parent parent = {.store = store_fake_store(store), .manifest = &m->manifest};
    assert_int_equal(parent_index_new(&parent, &index), 0);
    for (uint64_t leaf = 0; leaf * INDEX_FANOUT < m->chunks; leaf++) {
        const struct chunk_ref *chunks;
        assert_int_equal(parent_index_leaf(index, leaf, &chunks), 0);
        if (chunks)
            check_leaf(m, leaf, chunks);
        for (uint64_t i = leaf * INDEX_FANOUT; i < GR_MIN(m->chunks, (leaf + 1) * INDEX_FANOUT); i++) {
            assert_true(chunks || !m->seeds[i]);
            stored += m->seeds[i] ? made_up(m, i).stored_len : 0;
        }
    }
    assert_int_equal(m->manifest.stored_bytes, stored);
    parent_index_free(index);
}

static uint64_t random_size(void)
{
    static const uint64_t borders[] = {1, 2, 1023, 1024, 1025, 2047, 2048, 2049, 3000, 5000};
    uint64_t chunks = draw(2) ? borders[draw(GR_ARRAY_SIZE(borders))] : 1 + draw(4000);
    return chunks * CHUNK - (draw(2) ? draw(15) * 4096 : 0);
}

/* Which of the parent's chunks stay in an image of `chunks`: runs, short and long. The last of either may have a length
 * of its own. */
static uint64_t choose_kept(struct image *parent, uint64_t chunks)
{
    const uint64_t end = GR_MIN(parent->chunks, chunks) - 1;
    uint64_t last = 0;
    for (uint64_t i = 1; i < end;) {
        uint64_t run = draw(3) ? 1 + draw(30) : 1 + draw(3000);
        bool stays = draw(3);
        for (; run && i < end; run--, i++)
            if ((parent->kept[i] = stays))
                last = i;
    }
    return last;
}

/* Write some chunks: below `border` in disorder, from it on ascending. */
static void write_random(struct pipeline *w, struct image *m, const struct image *parent, uint64_t border,
                         uint32_t *seed)
{
    const struct chunk_ref hole = {0};
    for (uint64_t i = 0; i < border; i++) {
        const uint64_t number = border % 7 ? i * 7 % border : i; /* 7 does not divide it: each once */
        const bool stays = parent && kept((void *)parent, number);
        m->seeds[number] = stays ? parent->seeds[number] : 0;
        if (draw(stays ? 20 : 3))
            continue;
        m->seeds[number] = draw(10) ? ++*seed : 0;
        const struct chunk_ref ref = made_up(m, number);
        assert_int_equal(index_writer_add(w->writer, number, m->seeds[number] ? &ref : &hole), 0);
    }
    if (border >= m->chunks)
        return;
    index_writer_stream(w->writer, border);
    for (uint64_t number = border; number < m->chunks; number++) {
        if (!draw(3))
            continue;
        m->seeds[number] = ++*seed;
        const struct chunk_ref ref = made_up(m, number);
        assert_int_equal(index_writer_add(w->writer, number, &ref), 0);
    }
}

static void test_index_writer__generations_against_a_model(void **state)
{
    for (random_state = 1; random_state <= full_or(TRIALS, 5);) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        const uint64_t trial = random_state;
        uint32_t seed = 0;
        struct image images[4] = {0};
        for (int g = 0; g < 4; g++) {
            struct image *m = &images[g], *parent = g ? &images[g - 1] : NULL;
            struct index_writer_result r;
            struct pipeline w;
            image_init(m, random_size());
            uint64_t border = parent ? choose_kept(parent, m->chunks) + 1 : 1, stay = 0;
            border = draw(8) ? border + draw(200) : m->chunks;
            border = GR_MIN(border, m->chunks);
            open_pipeline(&w, store, parent, draw(2), 0);
            write_random(&w, m, parent, border, &seed);
            finish(&w, m, &r);
            check_image(store, m);
            for (uint64_t i = 0; parent && i < m->chunks; i++)
                stay += kept(parent, i) && m->seeds[i] == parent->seeds[i];
            assert_true(r.kept <= stay + m->chunks / 10 && stay <= r.kept + m->chunks / 2);
            close_pipeline(&w);
        }
        for (int g = 0; g < 4; g++)
            image_release(&images[g]);
        random_state = trial + 1;
    }
}

/* An image in which every `step`th chunk is stored. */
static void write_sparse(struct store_fake *store, struct image *m, uint64_t chunks, uint64_t step)
{
    struct index_writer_result r;
    struct pipeline w;
    image_init(m, chunks * CHUNK);
    open_pipeline(&w, store, NULL, false, 0);
    index_writer_stream(w.writer, 0);
    for (uint64_t i = 0; i < chunks; i += step) {
        m->seeds[i] = (uint32_t)(i + 1);
        const struct chunk_ref ref = made_up(m, i);
        assert_int_equal(index_writer_add(w.writer, i, &ref), 0);
    }
    finish(&w, m, &r);
    close_pipeline(&w);
}

/* Three levels: what stays is not fetched, what comes out the same is not put. */
static void test_index_writer__unchanged_leaves_are_neither_read_nor_put(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    enum { LEAVES = 1200 };
    struct image parent, m;
    struct index_writer_result r;
    struct pipeline w;
    write_sparse(store, &parent, LEAVES * INDEX_FANOUT, 300);
    memset(parent.kept, 1, parent.chunks);
    parent.kept[0] = false;
    parent.manifest.deltas = CHUNK_DELTA;
    image_init(&m, parent.manifest.size);
    memcpy(m.seeds, parent.seeds, m.chunks * sizeof *m.seeds);
    store_fake_reset_counters(store);
    open_pipeline(&w, store, &parent, true, 0);
    const struct chunk_ref ref = made_up(&m, 0);
    assert_int_equal(index_writer_add(w.writer, 0, &ref), 0);
    finish(&w, &m, &r);
    assert_memory_equal(&r.root, &parent.manifest.index_root, sizeof r.root);
    assert_int_equal(r.kept, m.chunks - 1);
    assert_int_equal(r.deltas, CHUNK_DELTA); /* in what is not read */
    assert_int_equal(store_fake_calls(store, FAKE_PUT), 0);
    assert_true(store_fake_calls(store, FAKE_ANY) <= 4); /* the root, two inner nodes, leaf 0 */
    close_pipeline(&w);
    check_image(store, &m);

    /* one chunk changes: its leaf and what is above it are put */
    image_release(&m);
    image_init(&m, parent.manifest.size);
    memcpy(m.seeds, parent.seeds, m.chunks * sizeof *m.seeds);
    m.seeds[0] = 7000000;
    open_pipeline(&w, store, &parent, true, 0);
    const struct chunk_ref other = made_up(&m, 0);
    assert_int_equal(index_writer_add(w.writer, 0, &other), 0);
    finish(&w, &m, &r);
    assert_int_equal(upload_counts(w.upload).objects_new, 3);
    close_pipeline(&w);
    check_image(store, &m);
    image_release(&m);
    image_release(&parent);
}

struct finishing {
    struct pipeline *w;
    struct image *m;
    struct index_writer_result result;
    int rc;
};

static void *finish_in_thread(void *arg)
{
    struct finishing *f = arg;
    f->rc = index_writer_finish(f->w->writer, f->m->manifest.size, &f->result);
    return NULL;
}

/* Leaves that are merged are fetched ahead, those that stay whole not at all. */
static void test_index_writer__merged_leaves_are_fetched_ahead(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    enum { LEAVES = 3 * INDEX_AHEAD };
    struct image parent, m;
    struct index_child entry;
    struct pipeline w;
    struct finishing f = {.w = &w, .m = &m};
    pthread_t thread;
    write_sparse(store, &parent, LEAVES * INDEX_FANOUT, 300);
    memset(parent.kept, 1, parent.chunks);
    image_init(&m, parent.manifest.size);
    memcpy(m.seeds, parent.seeds, m.chunks * sizeof *m.seeds);
    open_pipeline(&w, store, &parent, true, 0);
    for (uint64_t i = 0; i < LEAVES; i += 2) { /* every other leaf: one chunk goes, or another one comes */
        const uint64_t number = i * INDEX_FANOUT + (i % 4 ? 300 - i * INDEX_FANOUT % 300 : 1);
        m.seeds[number] = i % 4 ? 0 : (uint32_t)(9000000 + i);
        parent.kept[number] = false;
        const struct chunk_ref ref = made_up(&m, number);
        if (m.seeds[number])
            assert_int_equal(index_writer_add(w.writer, number, &ref), 0);
    }
    assert_int_equal(parent_index_child(w.index, 0, 0, &entry), 0); /* the root is held from here on */
    store_fake_reset_counters(store);
    store_fake_hold(store, FAKE_GET_SMALL);
    assert_int_equal(pthread_create(&thread, NULL, finish_in_thread, &f), 0);
    store_fake_wait_held(store, INDEX_AHEAD);
    assert_int_equal(store_fake_peak(store), INDEX_AHEAD);
    store_fake_release(store);
    pthread_join(thread, NULL);
    assert_int_equal(f.rc, 0);
    assert_int_equal(store_fake_calls(store, FAKE_GET_SMALL), LEAVES / 2);
    finish_with(&w, &m, &f.result);
    close_pipeline(&w);
    check_image(store, &m);
    image_release(&m);
    image_release(&parent);
}

/* From one level to three and back, and to nothing but chunk 0. */
static void test_index_writer__images_grow_and_shrink(void **state)
{
    const uint64_t sizes[] = {
        10, UINT64_C(1) * INDEX_FANOUT * full_or(1100, 100), 1500, 1, INDEX_FANOUT, INDEX_FANOUT + 1};
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct image images[GR_ARRAY_SIZE(sizes)];
    uint32_t seed = 0;
    random_state = 5;
    for (size_t g = 0; g < GR_ARRAY_SIZE(sizes); g++) {
        struct index_writer_result r;
        struct pipeline w;
        struct image *m = &images[g], *parent = g ? &images[g - 1] : NULL;
        image_init(m, sizes[g] * CHUNK);
        uint64_t border = parent ? choose_kept(parent, m->chunks) + 1 : 1;
        open_pipeline(&w, store, parent, true, 0);
        write_random(&w, m, parent, border, &seed);
        finish(&w, m, &r);
        check_image(store, m);
        close_pipeline(&w);
    }
    for (size_t g = 0; g < GR_ARRAY_SIZE(sizes); g++)
        image_release(&images[g]);
}

static void test_index_writer__a_spilled_sorter_gives_the_same(void **state)
{
    struct digest roots[2];
    for (int i = 0; i < 2; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct image m;
        struct index_writer_result r;
        struct pipeline w;
        uint32_t seed = 0;
        random_state = 9;
        image_init(&m, UINT64_C(9001) * CHUNK);
        open_pipeline(&w, store, NULL, false, i ? 64 << 10 : 0);
        write_random(&w, &m, NULL, m.chunks, &seed);
        finish(&w, &m, &r);
        check_image(store, &m);
        roots[i] = r.root.digest;
        close_pipeline(&w);
        image_release(&m);
    }
    assert_true(digest_equal(&roots[0], &roots[1]));
}

/* The chunks [from, to) of m, some of them holes, as bodies one after another. */
static void stream(struct pipeline *w, const struct image *m, uint64_t from, uint64_t to)
{
    for (uint64_t i = from; i < to; i++) {
        const struct chunk_ref ref = made_up(m, i);
        if (m->seeds[i])
            assert_int_equal(index_writer_add(w->writer, i, &ref), 0);
    }
}

/* The first `chunks` of m, all of which the next image keeps. */
static void take_snapshot(struct pipeline *w, const struct image *m, uint64_t chunks, struct image *out)
{
    struct index_writer_result r;
    image_init(out, chunks * CHUNK);
    memcpy(out->seeds, m->seeds, chunks * sizeof *m->seeds);
    memset(out->kept, 1, chunks);
    assert_int_equal(index_writer_snapshot(w->writer, chunks * CHUNK, &r), 1);
    assert_int_equal(upload_flush(w->upload), 0);
    out->manifest.index_root = r.root;
    out->manifest.index_levels = r.levels;
    out->manifest.stored_bytes = r.stored_bytes;
    check_image(w->store, out);
}

/* Snapshots disturb nothing, describe what they should, and a build that continues from one ends up with the same
 * index. */
static void test_index_writer__snapshots_can_be_gone_on_from(void **state)
{
    static const uint64_t ends[][3] = {
        {2, 3, 9}, {1023, 1024, 1025}, {1024, 2048, 5000}, {700, 2500, 2501}, {1500, 1501, 4096}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(ends); i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        const uint64_t *end = ends[i];
        struct image m, snap[3], whole;
        struct index_writer_result r, again;
        struct pipeline w;
        random_state = i;
        image_init(&m, end[2] * CHUNK);
        for (uint64_t c = 0; c < m.chunks; c++)
            m.seeds[c] = c == 1 || draw(9) ? (uint32_t)c + 1 : 0;
        m.seeds[0] = 0; /* written at the end */
        open_pipeline(&w, store, NULL, true, 0);
        index_writer_stream(w.writer, 1);
        stream(&w, &m, 1, end[0]);
        take_snapshot(&w, &m, end[0], &snap[0]);
        stream(&w, &m, end[0], end[1]);
        take_snapshot(&w, &m, end[1], &snap[1]);
        stream(&w, &m, end[1], end[2]);
        finish(&w, &m, &r);
        close_pipeline(&w);
        check_image(store, &m);

        open_pipeline(&w, store, &snap[0], true, 0);
        index_writer_stream(w.writer, end[0]);
        stream(&w, &m, end[0], end[1]);
        take_snapshot(&w, &m, end[1], &snap[2]);
        assert_true(digest_equal(&snap[1].manifest.index_root.digest, &snap[2].manifest.index_root.digest));
        stream(&w, &m, end[1], end[2]);
        image_init(&whole, m.manifest.size);
        memcpy(whole.seeds, m.seeds, m.chunks * sizeof *m.seeds);
        finish(&w, &whole, &again);
        close_pipeline(&w);
        assert_true(digest_equal(&r.root.digest, &again.root.digest));
        assert_int_equal(r.stored_bytes, again.stored_bytes);
        for (int k = 0; k < 3; k++)
            image_release(&snap[k]);
        image_release(&whole);
        image_release(&m);
    }
}

/* A snapshot that could lack something is refused. */
static void test_index_writer__no_snapshot_of_what_came_in_disorder(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct image m;
    struct index_writer_result r;
    struct pipeline w;
    write_sparse(store, &m, 3000, 1);
    open_pipeline(&w, store, NULL, true, 0);
    assert_int_equal(index_writer_snapshot(w.writer, 5 * CHUNK, &r), 0); /* nothing is streamed yet */
    const struct chunk_ref ref = made_up(&m, 2);
    assert_int_equal(index_writer_add(w.writer, 2, &ref), 0);
    index_writer_stream(w.writer, 5);
    stream(&w, &m, 5, 10);
    assert_int_equal(index_writer_snapshot(w.writer, 10 * CHUNK, &r), 0);
    close_pipeline(&w);
    /* upon a checkpoint of which not all stays: bodies begin before its end */
    open_pipeline(&w, store, &m, true, 0);
    index_writer_stream(w.writer, 5);
    stream(&w, &m, 5, 3000);
    assert_int_equal(index_writer_snapshot(w.writer, 3000 * CHUNK, &r), 0);
    close_pipeline(&w);
    image_release(&m);
}

static void test_index_writer__what_stays_must_have_its_length(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct image parent, m;
    struct index_writer_result r;
    struct pipeline w;
    write_sparse(store, &parent, 5, 1);
    parent.kept[3] = true;
    image_init(&m, 4 * CHUNK - 4096);
    open_pipeline(&w, store, &parent, true, 0);
    assert_int_equal(index_writer_finish(w.writer, m.manifest.size, &r), -EIO);
    assert_non_null(strstr(error_text(), "chunk 3 of the parent"));
    close_pipeline(&w);
    image_release(&m);
    image_release(&parent);
}

static void test_index_writer__a_damaged_parent_ends_it(void **state)
{
    for (int lost = 0; lost < 2; lost++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct image parent;
        struct index_writer_result r;
        struct pipeline w;
        char key[OBJECT_KEY_MAX];
        write_sparse(store, &parent, 5, 1);
        parent.kept[2] = true;
        object_key(OBJECT_INDEX, &parent.manifest.index_root.digest, key);
        assert_true(lost ? store_fake_remove(store, key) : store_fake_flip(store, key, 100));
        open_pipeline(&w, store, &parent, true, 0);
        assert_int_equal(index_writer_finish(w.writer, 5 * CHUNK, &r), PARENT_DAMAGED);
        assert_non_null(strstr(error_text(), key));
        close_pipeline(&w);
        image_release(&parent);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_index_writer__generations_against_a_model),
        cmocka_unit_test(test_index_writer__unchanged_leaves_are_neither_read_nor_put),
        cmocka_unit_test(test_index_writer__merged_leaves_are_fetched_ahead),
        cmocka_unit_test(test_index_writer__images_grow_and_shrink),
        cmocka_unit_test(test_index_writer__a_spilled_sorter_gives_the_same),
        cmocka_unit_test(test_index_writer__snapshots_can_be_gone_on_from),
        cmocka_unit_test(test_index_writer__no_snapshot_of_what_came_in_disorder),
        cmocka_unit_test(test_index_writer__what_stays_must_have_its_length),
        cmocka_unit_test(test_index_writer__a_damaged_parent_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
