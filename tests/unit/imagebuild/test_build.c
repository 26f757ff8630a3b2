/* Whole builds from a source in memory into a store in memory: what is published, and that nothing is when it must not
 * be.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "base/log.h"
#include "unit/build_world.h"
#include "upkeep/upkeep.h"

static void test_build__image_is_published_under_two_tags(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.paths, 64 + 2 + 7); /* f0 is empty */
    assert_int_equal(c.files, 62);
    assert_int_equal(r.dedupe_files, 1);
    assert_int_equal(r.dedupe_bytes, 50000);
    assert_int_equal(r.packs_new, store_fake_count(store, "packs/"));
    assert_true(r.packs_new > 3);
    assert_int_equal(store_fake_count(store, "images/"), 2);
    assert_int_equal(store_fake_count(store, "builds/"), 0);
    assert_int_equal(r.manifest.metadata_offset % CHUNK, 0);
    source_close(source);
}

static void test_build__digest_does_not_depend_on_parallelism_or_order(void **state)
{
    static const unsigned jobs[] = {1, 16, 5};
    struct digest first;
    for (unsigned i = 0; i < 3; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct build_options o = options();
        struct build_result r;
        o.jobs = o.workers = o.uploads = jobs[i];
        o.jobs = i == 2 ? 0 : o.jobs; /* as many as it finds best */
        o.read_memory = i ? 64 << 20 : 1;
        source_fake_order(source, i);
        assert_int_equal(run(source, store, &o, &r), 0);
        if (!i)
            first = r.image;
        assert_true(digest_equal(&first, &r.image));
        source_close(source);
    }
}

static void test_build__an_empty_source_is_a_root(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = source_fake_new();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.paths, 1);
    assert_int_equal(r.manifest.size, CHUNK + 4096);
    source_close(source);
}

static void test_build__a_source_that_fails_is_named(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_rule(source, "d3/f45", 0, FAKE_READ_FAIL, -EIO);
    assert_int_equal(run(source, store, &o, &r), -EIO);
    assert_non_null(strstr(error_text(), "d3/f45"));
    assert_nothing_published(store);
    source_close(source);
}

/* A put fails at every place in turn: nothing is visible, and the next run goes on with what is there. */
static void test_build__a_store_failing_at_any_put_publishes_nothing(void **state)
{
    struct build_options o = options();
    struct build_result r;
    int rc = -1;
    unsigned skip = 0;
    for (; rc; skip++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        store_fake_add_fault(store,
                             &(struct store_fake_fault){.op = FAKE_PUT, .skip = skip, .count = 1, .code = -EACCES});
        rc = run(source, store, &o, &r);
        if (rc) {
            assert_int_equal(rc, -EACCES);
            assert_nothing_published(store);
            size_t packs = store_fake_count(store, "packs/");
            store_fake_clear_faults(store);
            source_close(source); /* a failed build may have cancelled it */
            source = some_source();
            assert_int_equal(run(source, store, &o, &r), 0);
            assert_int_equal(r.packs_reused, packs);
            check_image(store, &r);
        }
        source_close(source);
    }
    assert_true(skip > 10);
}

static void test_build__a_dead_store_is_reported_at_every_step(void **state)
{
    struct build_options o = options();
    struct build_result r;
    int rc = -1;
    unsigned skip = 0;
    log_to(NULL, LOG_LEVEL_ERROR); /* of leases and tags that cannot be removed */
    for (; rc; skip++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        store_fake_add_fault(store, &(struct store_fake_fault){.op = FAKE_ANY, .skip = skip, .code = -EIO});
        rc = run(source, store, &o, &r);
        struct image_ref ref = reference();
        struct digest image;
        store_fake_clear_faults(store);
        if (rc) /* the asked tag is never there after a failure */
            assert_int_equal(repository_resolve(store_fake_store(store), &ref, &image, NULL), -ENOENT);
        source_close(source);
        assert_true(skip < 1000);
    }
    log_to(NULL, LOG_LEVEL_INFO);
    assert_true(skip > 20);
}

struct canceller {
    volatile int cancel;
    const char *phase;
    unsigned calls;
};

static void cancel_at(void *arg, const struct build_progress *p)
{
    struct canceller *c = arg;
    c->calls++;
    if (!strcmp(p->phase, c->phase))
        c->cancel = 1;
}

static void test_build__cancel_publishes_nothing(void **state)
{
    static const char *const phases[] = {"listing", "reading", "metadata"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(phases); i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct canceller c = {.phase = phases[i]};
        struct build_options o = options();
        struct build_result r;
        o.cancel = &c.cancel;
        o.progress = cancel_at;
        o.progress_arg = &c;
        assert_int_equal(run(source, store, &o, &r), -ECANCELED);
        assert_nothing_published(store);
        c.phase = "never";
        c.cancel = 0;
        source_close(source);
        source = some_source();
        assert_int_equal(run(source, store, &o, &r), 0);
        assert_true(c.calls >= 4);
        check_image(store, &r);
        source_close(source);
    }
}

static void test_build__dry_run_writes_nothing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.dry_run = true;
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(store_fake_calls(store, FAKE_ANY), 2); /* is there a parent: of the tag, of the name? */
    assert_int_equal(store_fake_calls(store, FAKE_GET_SMALL), 1);
    assert_int_equal(r.manifest.counts.files, 63);
    assert_int_equal(source_fake_stats(source).reads, 0);
    source_close(source);
}

static void test_build__strict_tags_asks_before_anything_is_sent(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.strict_tags = true;
    store_fake_set_conditional(store, false);
    assert_int_equal(run(source, store, &o, &r), -ENOTSUP);
    assert_int_equal(store_fake_count(store, ""), 0);
    assert_int_equal(source_fake_stats(source).reads, 0);
    store_fake_set_conditional(store, true);
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
}

static void remove_reused_pack(void *arg, struct store_fake *f, enum store_fake_op op, const char *key)
{
    const char *victim = arg;
    if (op == FAKE_PUT && !strncmp(key, "indexes/", 8)) /* all packs were looked at by then */
        store_fake_remove(f, victim);
}

static void test_build__a_reused_pack_that_vanishes_stops_the_publishing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    o.no_parent = true; /* packs are found again by their names alone */
    struct build_result r;
    char key[OBJECT_KEY_MAX];
    assert_int_equal(run(source, store, &o, &r), 0);
    struct index_child root = r.manifest.index_root;
    CLEANUP_BYTES object = BYTES_INIT(INDEX_NODE_MAX);
    CLEANUP(cleanup_index_node) struct index_node *node = NULL;
    read_back_object(store, OBJECT_INDEX, &root.digest, &object);
    assert_int_equal(index_decode(object.data, object.len, &node), 0);
    object_key(OBJECT_PACK, &node->chunks[1].object, key);
    char index[OBJECT_KEY_MAX], manifest[OBJECT_KEY_MAX];
    assert_true(store_fake_remove(store, object_key(OBJECT_INDEX, &root.digest, index)));
    assert_true(store_fake_remove(store, object_key(OBJECT_MANIFEST, &r.image, manifest)));
    store_fake_set_hook(store, remove_reused_pack, key);
    assert_int_equal(run(source, store, &o, &r), -EAGAIN);
    assert_non_null(strstr(error_text(), key));
    assert_false(store_fake_has(store, manifest));
    store_fake_set_hook(store, NULL, NULL);
    assert_int_equal(run(source, store, &o, &r), 0);
    check_image(store, &r);
    source_close(source);
}

/* Else a gc that comes when the new image is gone again would sweep at once what servers still read. */
static void test_build__what_it_reuses_loses_its_marks(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    struct gc_result gc;
    struct image_ref ref = reference();
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(store), ref.name, ref.tag), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(store), ref.name, r.unique_tag), 0);
    store_fake_put(store, "trash/strange", "x", 1);
    const struct gc_options old = {.grace_s = 100, .now = time(NULL) + 1000};
    assert_int_equal(gc_run(store_fake_store(store), &old, &gc), 0);
    assert_int_equal(gc.marked, gc.objects);
    assert_int_equal(store_fake_count(store, "trash/"), gc.objects + 1);
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.objects_new, 0);
    assert_int_equal(store_fake_count(store, "trash/"), 1);
    source_close(source);
}

/* Bodies in the order of the listing, by no read at all; equal ones once. */
static void test_build__bodies_may_come_with_the_listing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r, again;
    source_fake_file(source, "huge", (16 << 20) + 12345, 5);
    source_fake_stream(source, 0);
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.files, 63);
    assert_int_equal(r.dedupe_files, 1);
    assert_int_equal(source_fake_stats(source).reads, 0);
    assert_int_equal(r.bytes_read, r.manifest.counts.bytes);
    o.no_parent = true;
    assert_int_equal(run(source, store, &o, &again), 0);
    assert_true(digest_equal(&r.image, &again.image));
    assert_int_equal(again.packs_new, 0);
    source_close(source);
}

/* One of these files fits into a chunk. The gap behind each is worth it only where zeros cost nothing. */
static void test_build__files_touch_few_chunks_if_these_are_compressed(void **state)
{
    enum { FILES = 4 };
    for (unsigned i = 0; i < 4; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = source_fake_new();
        struct build_options o = options();
        struct build_result r;
        char path[8];
        o.zstd_level = i / 2;
        add_directory(source, "");
        for (unsigned f = 0; f < FILES; f++) {
            snprintf(path, sizeof path, "f%u", f);
            source_fake_file(source, path, 40000, f);
        }
        if (i % 2)
            source_fake_stream(source, 0);
        assert_int_equal(run(source, store, &o, &r), 0);
        (void)check_image(store, &r);
        assert_int_equal(r.manifest.metadata_offset, CHUNK * (o.zstd_level ? 1 + FILES : FILES));
        source_close(source);
    }
}

/* A source that cannot be told what the parent has is built as if there were none. */
static void test_build__streamed_bodies_upon_a_parent(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(run(source, store, &o, &r), 0); /* read, not streamed */
    source_fake_stream(source, 0);
    source_fake_file(source, "one more", 100000, 55);
    assert_int_equal(run(source, store, &o, &r), 0);
    struct check c = check_image(store, &r);
    assert_int_equal(c.files, 63);
    source_close(source);
}

static void test_build__a_streamed_body_of_another_length_is_refused(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_stream(source, 1);
    assert_int_equal(run(source, store, &o, &r), -EBADMSG);
    assert_non_null(strstr(error_text(), "does not have the"));
    assert_nothing_published(store);
    o.fs = MANIFEST_EXT4;
    assert_int_equal(run(source, store, &o, &r), -EBADMSG);
    assert_nothing_published(store);
    o.fs = MANIFEST_EROFS;
    o.dry_run = true;
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
}

static void test_build__wrong_options_are_refused(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.chunk_size = 100000;
    assert_int_equal(run(source, store, &o, &r), -EINVAL);
    o = options();
    struct image_ref ref = reference();
    ref.by_digest = true;
    assert_int_equal(build_run(source, store_fake_store(store), &ref, &o, &r), -EINVAL);
    assert_int_equal(store_fake_calls(store, FAKE_ANY), 0);
    source_close(source);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build__image_is_published_under_two_tags),
        cmocka_unit_test(test_build__digest_does_not_depend_on_parallelism_or_order),
        cmocka_unit_test(test_build__an_empty_source_is_a_root),
        cmocka_unit_test(test_build__a_source_that_fails_is_named),
        cmocka_unit_test(test_build__a_store_failing_at_any_put_publishes_nothing),
        cmocka_unit_test(test_build__a_dead_store_is_reported_at_every_step),
        cmocka_unit_test(test_build__cancel_publishes_nothing),
        cmocka_unit_test(test_build__dry_run_writes_nothing),
        cmocka_unit_test(test_build__strict_tags_asks_before_anything_is_sent),
        cmocka_unit_test(test_build__a_reused_pack_that_vanishes_stops_the_publishing),
        cmocka_unit_test(test_build__what_it_reuses_loses_its_marks),
        cmocka_unit_test(test_build__bodies_may_come_with_the_listing),
        cmocka_unit_test(test_build__files_touch_few_chunks_if_these_are_compressed),
        cmocka_unit_test(test_build__streamed_bodies_upon_a_parent),
        cmocka_unit_test(test_build__a_streamed_body_of_another_length_is_refused),
        cmocka_unit_test(test_build__wrong_options_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
