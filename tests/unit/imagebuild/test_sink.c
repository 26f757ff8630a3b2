/* The write side below the filesystem: chunker, packer, index writer, upload. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/sink/sink_internal.h"
#include "unit/read_back.h"
#include "unit/sink_world.h"

static struct sink_result write_model(struct pipeline *w, struct model *m, size_t piece)
{
    struct sink_result result;
    m->size = 40 * CHUNK + 8192;
    m->data = calloc(1, m->size);
    assert_non_null(m->data);
    write_span(w, m, CHUNK, 10, piece);                       /* the first byte after the front */
    write_span(w, m, CHUNK + 4096, 3 * CHUNK, piece);         /* over borders */
    write_span(w, m, 10 * CHUNK - 1, 1, piece);               /* the last byte of a chunk */
    write_span(w, m, 10 * CHUNK, CHUNK, piece);               /* exactly one */
    write_span(w, m, 20 * CHUNK + 5, 17 * CHUNK + 77, piece); /* many packs */
    write_span(w, m, 40 * CHUNK + 100, 300, piece);           /* in the short last chunk */
    fill(m->data, 0, 4096);
    assert_int_equal(sink_write(w->sink, SINK_FRONT, 0, m->data, 4096), 0);
    assert_int_equal(sink_finish(w->sink, m->size, &result), 0);
    assert_int_equal(upload_flush(w->upload), 0);
    return result;
}

static void test_sink__what_was_written_is_read_back(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    struct model m;
    struct sink_result r = write_model(&w, &m, 5000);
    assert_int_equal(r.index_levels, 1);
    uint8_t *image = read_back(store, &r.index_root, r.index_levels, m.size, CHUNK);
    assert_memory_equal(image, m.data, m.size);
    struct digest content = index_content_root(m.size, CHUNK, &r.index_root.content);
    assert_true(digest_equal(&content, &r.content_root));
    free(image);
    free(m.data);
    close_pipeline(&w);
}

static void test_sink__result_does_not_depend_on_threads_or_pieces(void **state)
{
    static const struct {
        unsigned workers, uploads;
        size_t piece;
    } pipelines[] = {{1, 1, 1 << 20}, {16, 4, 777}, {3, 16, CHUNK}};
    struct sink_result first = {0};
    for (size_t i = 0; i < GR_ARRAY_SIZE(pipelines); i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct pipeline w = open_pipeline(store, pipelines[i].workers, pipelines[i].uploads, PACK);
        struct model m;
        struct sink_result r = write_model(&w, &m, pipelines[i].piece);
        if (!i)
            first = r;
        assert_true(digest_equal(&r.index_root.digest, &first.index_root.digest));
        assert_int_equal(r.stored_bytes, first.stored_bytes);
        free(m.data);
        close_pipeline(&w);
    }
}

/* Every section in pieces, interleaved; two worker counts give the same digest. */
static void test_sink__sections_interleave(void **state)
{
    static const struct {
        enum sink_section section;
        uint64_t at;
    } spans[] = {{SINK_FRONT, 0},
                 {SINK_HOLES, 3 * CHUNK},
                 {SINK_DATA, 20 * CHUNK},
                 {SINK_SCRUB, 8 * CHUNK},
                 {SINK_METADATA, 30 * CHUNK}};
    enum { STEPS = 40, STEP = 4096 };
    struct digest first = {{0}};
    for (unsigned workers = 1; workers <= 4; workers += 3) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct pipeline w = open_pipeline(store, workers, 2, PACK);
        struct sink_result r;
        struct model m = {.size = 40 * CHUNK};
        m.data = calloc(1, m.size);
        for (uint64_t step = 0; step < STEPS; step++)
            for (size_t i = 0; i < GR_ARRAY_SIZE(spans); i++) {
                uint64_t at = spans[i].at + step * STEP;
                if (spans[i].section == SINK_METADATA) /* when the bodies are over */
                    continue;
                fill(m.data + at, at, STEP);
                assert_int_equal(sink_write(w.sink, spans[i].section, at, m.data + at, STEP), 0);
            }
        fill(m.data + spans[4].at, spans[4].at, 2 * CHUNK + 1000);
        assert_int_equal(sink_write(w.sink, SINK_METADATA, spans[4].at, m.data + spans[4].at, 2 * CHUNK + 1000), 0);
        assert_int_equal(sink_finish(w.sink, m.size, &r), 0);
        assert_int_equal(upload_flush(w.upload), 0);
        uint8_t *image = read_back(store, &r.index_root, r.index_levels, m.size, CHUNK);
        assert_memory_equal(image, m.data, m.size);
        if (workers == 1)
            first = r.index_root.digest;
        assert_true(digest_equal(&first, &r.index_root.digest));
        free(image);
        free(m.data);
        close_pipeline(&w);
    }
}

/* A write that must fail after another that is right. */
static void check_misuse(enum sink_section section, uint64_t at, enum sink_section wrong_section, uint64_t wrong_at,
                         const char *sentence)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    assert_int_equal(sink_write(w.sink, section, at, "right", 5), 0);
    assert_int_equal(sink_write(w.sink, wrong_section, wrong_at, "wrong", 5), -EIO);
    assert_non_null(strstr(error_text(), sentence));
    close_pipeline(&w);
}

static void test_sink__the_sections_rules_are_checked(void **state)
{
    check_misuse(SINK_DATA, 9 * CHUNK, SINK_DATA, 9 * CHUNK + 4, "before the end of its last write");
    check_misuse(SINK_FRONT, CHUNK, SINK_HOLES, CHUNK + 4096, "in a chunk of another section");
    check_misuse(SINK_DATA, CHUNK, SINK_METADATA, CHUNK + 4096, "in a chunk of another section");
    check_misuse(SINK_DATA, 2 * CHUNK, SINK_METADATA, CHUNK, "before the end of the contents");
    check_misuse(SINK_METADATA, 2 * CHUNK, SINK_DATA, 3 * CHUNK, "after the metadata has begun");
    check_misuse(SINK_HOLES, 5 * CHUNK, SINK_DATA, 4 * CHUNK, "before the end of what stays");
    check_misuse(SINK_DATA, 4 * CHUNK, SINK_SCRUB, 5 * CHUNK, "after the contents");
}

/* Not noticed at once, but before anything could be published. */
static void test_sink__a_chunk_written_twice_is_noticed(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    struct sink_result r;
    assert_int_equal(sink_write(w.sink, SINK_HOLES, 2 * CHUNK, "one", 3), 0);
    assert_int_equal(sink_write(w.sink, SINK_HOLES, 3 * CHUNK, "two", 3), 0);
    assert_int_equal(sink_write(w.sink, SINK_SCRUB, 2 * CHUNK, "three", 5), 0);
    assert_int_equal(sink_finish(w.sink, 9 * CHUNK, &r), -EIO);
    assert_non_null(strstr(error_text(), "chunk 2 was written twice"));
    close_pipeline(&w);
}

static void count_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    ++*(unsigned *)arg;
}

static void test_sink__zeros_are_holes(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    uint8_t *zeros = calloc(1, 3 * CHUNK);
    struct sink_result r;
    unsigned chunks = 0;
    assert_int_equal(sink_write(w.sink, SINK_DATA, CHUNK, zeros, 3 * CHUNK), 0);
    assert_int_equal(sink_write(w.sink, SINK_DATA, 8 * CHUNK, zeros, 1000), 0);
    assert_int_equal(sink_write(w.sink, SINK_FRONT, 0, "front", 5), 0);
    assert_int_equal(sink_finish(w.sink, 9 * CHUNK, &r), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    read_back_node(store, &r.index_root, 0, 0, count_chunk, &chunks);
    assert_int_equal(chunks, 1);
    assert_int_equal(store_fake_count(store, "packs/"), 1);
    free(zeros);
    close_pipeline(&w);
}

static void test_sink__packs_keep_to_their_size(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    struct model m;
    struct sink_result r = write_model(&w, &m, 1 << 20);
    struct upload_counts counts = upload_counts(w.upload);
    assert_true(counts.packs_new > 1);
    assert_int_equal(counts.packs_new, store_fake_count(store, "packs/"));
    assert_true(r.stored_bytes <= counts.packs_new * PACK);
    assert_true(r.stored_bytes > (counts.packs_new - 1) * (PACK - CHUNK));
    free(m.data);
    close_pipeline(&w);
}

/* Chunks seen by number, in order. */
struct seen {
    uint64_t numbers[16];
    size_t count;
};

static void remember_chunk(void *arg, uint64_t number, const struct chunk_ref *ref, const struct buf *plain)
{
    struct seen *s = arg;
    assert_true(s->count < 16);
    s->numbers[s->count++] = number;
    if (number)
        assert_int_equal(plain->data[0], number % 251 + 1);
}

static void check_sparse(const uint64_t *numbers, size_t count, uint64_t chunk_count, unsigned levels)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    struct sink_result r;
    struct seen seen = {0};
    for (size_t i = 0; i < count; i++) {
        uint8_t mark = (uint8_t)(numbers[i] % 251 + 1);
        if (numbers[i])
            assert_int_equal(sink_write(w.sink, SINK_DATA, numbers[i] * CHUNK, &mark, 1), 0);
    }
    assert_int_equal(sink_write(w.sink, SINK_FRONT, 0, "front", 5), 0);
    assert_int_equal(sink_finish(w.sink, chunk_count * CHUNK - 4096, &r), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    assert_int_equal(r.index_levels, levels);
    read_back_node(store, &r.index_root, levels - 1, 0, remember_chunk, &seen);
    assert_int_equal(seen.count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(seen.numbers[i], numbers[i]);
    close_pipeline(&w);
}

static void test_index_writer__leaf_borders(void **state)
{
    static const uint64_t numbers[] = {0, 1, 1023, 1024, 2047, 2048, 9999};
    check_sparse(numbers, 1, 1, 1);
    check_sparse(numbers, 2, 2, 1);
    check_sparse(numbers, 3, 1024, 1);
    check_sparse(numbers, 4, 1025, 2);
    check_sparse(numbers, 5, 2048, 2);
    check_sparse(numbers, 6, 2049, 2);
    check_sparse(numbers, 7, 10000, 2);
    check_sparse(numbers, 3, 5000, 2); /* a tail of holes */
}

static void test_index_writer__node_borders(void **state)
{
    static const uint64_t numbers[] = {0, 1, (1 << 20) - 1, 1 << 20, 3 << 20, (4 << 20) - 1};
    check_sparse(numbers, 3, 1 << 20, 2);
    check_sparse(numbers, 4, (1 << 20) + 1, 3);
    check_sparse(numbers, 6, 4 << 20, 3);
    check_sparse(numbers, 4, 4 << 20, 3);                          /* a tail of holes */
    static const uint64_t far[] = {0, 5, (UINT64_C(1) << 28) - 1}; /* 16 TiB at this chunk size */
    check_sparse(far, 3, UINT64_C(1) << 28, 3);
}

static void test_packer__bounds_the_chunks_of_a_pack(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, 64 << 20);
    struct sink_result r;
    for (uint64_t i = 1; i <= PACK_CHUNKS + 1; i++)
        assert_int_equal(sink_write(w.sink, SINK_DATA, i * CHUNK, &i, sizeof i), 0);
    assert_int_equal(sink_write(w.sink, SINK_FRONT, 0, "front", 5), 0);
    assert_int_equal(sink_finish(w.sink, (PACK_CHUNKS + 2) * (uint64_t)CHUNK, &r), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    assert_int_equal(store_fake_count(store, "packs/"), 2);
    close_pipeline(&w);
}

static void test_upload__what_is_there_is_not_sent_again(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct model m;
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    write_model(&w, &m, 1 << 20);
    struct upload_counts once = upload_counts(w.upload);
    assert_int_equal(once.packs_reused, 0);
    free(m.data);
    close_pipeline(&w);
    store_fake_reset_counters(store);
    w = open_pipeline(store, 2, 2, PACK);
    write_model(&w, &m, 1 << 20);
    struct upload_counts again = upload_counts(w.upload);
    assert_int_equal(again.packs_reused, once.packs_new);
    assert_int_equal(again.objects_new, 0);
    assert_int_equal(again.bytes, 0);
    assert_int_equal(upload_check_present(w.upload, false), 0);
    free(m.data);
    close_pipeline(&w);
}

static void test_upload__reused_objects_that_vanish_are_noticed(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    static const char data[] = "an object";
    struct digest name = digest_of(data, sizeof data);
    char key[OBJECT_KEY_MAX];
    store_fake_put(store, object_key(OBJECT_PACK, &name, key), data, sizeof data);
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    CLEANUP_BYTES bytes = BYTES_INIT(100);
    assert_int_equal(bytes_append(&bytes, data, sizeof data), 0);
    assert_int_equal(upload_put(w.upload, OBJECT_PACK, &bytes, &name), 0);
    assert_int_equal(upload_flush(w.upload), 0);
    assert_int_equal(upload_counts(w.upload).packs_reused, 1);
    assert_int_equal(upload_check_present(w.upload, false), 0);
    assert_true(store_fake_remove(store, key));
    assert_int_equal(upload_check_present(w.upload, false), -EAGAIN);
    assert_non_null(strstr(error_text(), key));
    close_pipeline(&w);
}

static void test_upload__the_memory_of_a_stored_pack_is_given_back_once(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    for (uint8_t i = 0; i < 4; i++) {
        enum object_kind kind = i == 2 ? OBJECT_INDEX : OBJECT_PACK;
        CLEANUP_BYTES bytes = BYTES_INIT(100);
        assert_int_equal(bytes_append(&bytes, &i, 1), 0);
        struct digest name = digest_of(&i, 1);
        assert_int_equal(upload_put(w.upload, kind, &bytes, &name), 0);
        assert_int_equal(bytes.len, 0);
        assert_int_equal(bytes.max, 100);
        assert_int_equal(bytes.cap > 0, i == 1 || i == 3);
        assert_int_equal(upload_flush(w.upload), 0);
    }
    close_pipeline(&w);
}

static void put_numbered(struct upload *u, unsigned i, int expected)
{
    CLEANUP_BYTES bytes = BYTES_INIT(100);
    assert_int_equal(bytes_append(&bytes, &i, sizeof i), 0);
    struct digest name = digest_of(bytes.data, bytes.len);
    int rc = upload_put(u, OBJECT_PACK, &bytes, &name);
    assert_true(rc == expected || (expected && !rc));
}

/* After a lease has lapsed what this build sent may be gone as well. */
static void test_upload__new_objects_that_vanish_are_noticed_when_asked(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 1, PACK);
    put_numbered(w.upload, 1, 0);
    assert_int_equal(upload_flush(w.upload), 0);
    assert_int_equal(upload_check_present(w.upload, true), 0);
    unsigned one = 1;
    struct digest name = digest_of(&one, sizeof one);
    char key[OBJECT_KEY_MAX];
    assert_true(store_fake_remove(store, object_key(OBJECT_PACK, &name, key)));
    assert_int_equal(upload_check_present(w.upload, false), 0);
    assert_int_equal(upload_check_present(w.upload, true), -EAGAIN);
    close_pipeline(&w);
}

static int take_steps(void *arg)
{
    unsigned *steps = arg;
    return ++*steps >= 3 ? error_set(-ECANCELED, "enough") : 0;
}

/* Waiting must not keep the caller from renewing its lease or from being stopped. */
static void test_upload__steps_go_on_while_it_waits(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    unsigned steps = 0;
    struct upload *u;
    struct upload_config config = {
        .store = store_fake_store(store), .threads = 1, .memory = PACK, .step = {.call = take_steps, .arg = &steps}};
    assert_int_equal(upload_new(&config, &u), 0);
    store_fake_hold(store, FAKE_PUT);
    put_numbered(u, 1, 0);
    store_fake_wait_held(store, 1);
    assert_int_equal(upload_flush(u), -ECANCELED);
    assert_int_equal(steps, 3);
    store_fake_release(store);
    upload_free(u);
}

static void test_upload__the_first_error_stays(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 3, PACK);
    store_fake_add_fault(store, &(struct store_fake_fault){.op = FAKE_PUT, .skip = 4, .code = -EACCES});
    for (unsigned i = 0; i < 50; i++)
        put_numbered(w.upload, i, -EACCES);
    assert_int_equal(upload_flush(w.upload), -EACCES);
    store_fake_clear_faults(store);
    CLEANUP_BYTES bytes = BYTES_INIT(100);
    assert_int_equal(bytes_append(&bytes, "x", 1), 0);
    struct digest name = digest_of("x", 1);
    assert_int_equal(upload_put(w.upload, OBJECT_PACK, &bytes, &name), -EACCES);
    assert_int_equal(bytes.len, 1); /* still the caller's */
    assert_int_equal(store_fake_count(store, "packs/"), 4);
    close_pipeline(&w);
}

static void test_sink__a_failing_store_ends_the_writing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 2, 2, PACK);
    uint8_t *data = malloc(CHUNK);
    int rc = 0;
    store_fake_add_fault(store, &(struct store_fake_fault){.op = FAKE_PUT, .skip = 1, .code = -ENOSPC});
    for (uint64_t i = 1; i < 1000 && !rc; i++) {
        fill(data, i * CHUNK, CHUNK);
        rc = sink_write(w.sink, SINK_DATA, i * CHUNK, data, CHUNK);
    }
    assert_int_equal(rc, -ENOSPC);
    free(data);
    close_pipeline(&w);
}

struct feeder {
    struct upload *upload;
    _Atomic unsigned done;
};

static void *feed(void *arg)
{
    struct feeder *f = arg;
    for (unsigned i = 0; i < 20; i++) {
        CLEANUP_BYTES bytes = BYTES_INIT(PACK);
        uint8_t *p;
        if (bytes_extend(&bytes, PACK / 2, &p))
            abort();
        memcpy(p, &i, sizeof i);
        struct digest name = digest_of(bytes.data, bytes.len);
        if (upload_put(f->upload, OBJECT_PACK, &bytes, &name))
            abort();
        f->done++;
    }
    return NULL;
}

static void test_upload__bytes_in_the_air_are_bounded(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct pipeline w = open_pipeline(store, 1, 2, PACK); /* room for two packs: four of these objects */
    struct feeder f = {.upload = w.upload};
    pthread_t t;
    store_fake_hold(store, FAKE_ANY);
    assert_int_equal(pthread_create(&t, NULL, feed, &f), 0);
    store_fake_wait_held(store, 2);
    assert_true(f.done <= 4);
    store_fake_release(store);
    pthread_join(t, NULL);
    assert_int_equal(upload_flush(w.upload), 0);
    assert_true(store_fake_peak(store) <= 2);
    assert_int_equal(store_fake_count(store, "packs/"), 20);
    close_pipeline(&w);
}

/* Damage in the middle of a large pack goes unseen, unless packs are sent in any case. */
static void test_upload__packs_are_sent_although_the_store_has_them(void **state)
{
    static uint8_t pack[5 << 20] = {1};
    const struct digest name = digest_of(pack, sizeof pack);
    struct store_fake *store = store_fake_new();
    const struct upload_config config = {.store = store_fake_store(store), .threads = 1, .memory = sizeof pack};
    char key[OBJECT_KEY_MAX];
    for (int i = 0; i < 3; i++) {
        CLEANUP_BYTES bytes = BYTES_INIT(sizeof pack), found = BYTES_INIT(sizeof pack);
        struct upload *upload;
        assert_int_equal(upload_new(&config, &upload), 0);
        if (i == 2)
            upload_send_packs(upload);
        assert_int_equal(bytes_append(&bytes, pack, sizeof pack), 0);
        assert_int_equal(upload_put(upload, OBJECT_PACK, &bytes, &name), 0);
        assert_int_equal(upload_flush(upload), 0);
        upload_free(upload);
        assert_true(store_fake_get(store, object_key(OBJECT_PACK, &name, key), &found));
        assert_true((found.data[0] == 1) == (i != 1));
        if (i == 0)
            assert_true(store_fake_flip(store, key, 0));
    }
    store_fake_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink__what_was_written_is_read_back),
        cmocka_unit_test(test_sink__result_does_not_depend_on_threads_or_pieces),
        cmocka_unit_test(test_sink__sections_interleave),
        cmocka_unit_test(test_sink__the_sections_rules_are_checked),
        cmocka_unit_test(test_sink__a_chunk_written_twice_is_noticed),
        cmocka_unit_test(test_sink__zeros_are_holes),
        cmocka_unit_test(test_sink__packs_keep_to_their_size),
        cmocka_unit_test(test_sink__a_failing_store_ends_the_writing),
        cmocka_unit_test(test_index_writer__leaf_borders),
        cmocka_unit_test(test_index_writer__node_borders),
        cmocka_unit_test(test_packer__bounds_the_chunks_of_a_pack),
        cmocka_unit_test(test_upload__what_is_there_is_not_sent_again),
        cmocka_unit_test(test_upload__reused_objects_that_vanish_are_noticed),
        cmocka_unit_test(test_upload__the_memory_of_a_stored_pack_is_given_back_once),
        cmocka_unit_test(test_upload__new_objects_that_vanish_are_noticed_when_asked),
        cmocka_unit_test(test_upload__steps_go_on_while_it_waits),
        cmocka_unit_test(test_upload__the_first_error_stays),
        cmocka_unit_test(test_upload__bytes_in_the_air_are_bounded),
        cmocka_unit_test(test_upload__packs_are_sent_although_the_store_has_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
