/* Builds that end before they are done, and the same builds run again: the image is the one that an undisturbed build
 * makes, and little is read twice.
 */
#include "unit/cmocka_all.h"
#include "unit/counts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/error.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "format/manifest.h"
#include "imagebuild/build.h"
#include "imagebuild/checkpoint.h"
#include "repository/read/catalog_read.h"
#include "repository/repository.h"
#include "unit/read_back.h"
#include "upkeep/upkeep.h"

enum { CHUNK = CHUNK_SIZE_MIN, FILES = 300, LARGEST = 75 << 10, EVERY = 1 << 20 };

struct world {
    struct store_fake *store;
    uint64_t sizes[FILES], total;
    unsigned seeds[FILES];
    unsigned first; /* files before it are not there */
};

static void open_world(struct world *w)
{
    *w = (struct world){.store = store_fake_new()};
    for (unsigned i = 0; i < FILES; i++) {
        w->sizes[i] = i % 17 ? (i * 7919u) % LARGEST : 0;
        w->seeds[i] = i + 1;
        if (i % 23 == 22) { /* equal to one long before */
            w->sizes[i] = w->sizes[i - 20];
            w->seeds[i] = w->seeds[i - 20];
        }
        w->total += w->sizes[i];
    }
}

static void name_file(unsigned i, char out[32])
{
    snprintf(out, 32, "d%u/f%04u", i / 50, i);
}

static struct source *source_of(const struct world *w)
{
    struct source *s = source_fake_new();
    for (unsigned i = w->first; i < FILES; i++) {
        char path[32];
        name_file(i, path);
        source_fake_file(s, path, w->sizes[i], w->seeds[i]);
    }
    return s;
}

static struct build_options options(enum manifest_fs fs)
{
    return (struct build_options){.fs = fs,
                                  .chunk_size = CHUNK,
                                  .zstd_level = 1,
                                  .jobs = 4,
                                  .workers = 2,
                                  .uploads = 2,
                                  .pack_size = 150 << 10,
                                  .read_memory = 1 << 20,
                                  .checkpoint_bytes = EVERY};
}

/* fails: the file that cannot be read; FILES: none. */
static int run(const struct world *w, struct store_fake *store, const struct build_options *o, unsigned fails,
               struct build_result *r)
{
    struct image_ref ref;
    char path[32];
    struct source *source = source_of(w);
    name_file(fails, path);
    if (fails < FILES)
        source_fake_rule(source, path, 0, FAKE_READ_FAIL, -EIO);
    assert_int_equal(image_ref_parse("/store/faces:daily", &ref), 0);
    int rc = build_run(source, store_fake_store(store), &ref, o, r);
    source_close(source);
    return rc;
}

static struct build_result undisturbed(const struct world *w, const struct build_options *o)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_result r;
    assert_int_equal(run(w, store, o, FILES, &r), 0);
    assert_int_equal(r.bytes_resumed, 0);
    return r;
}

/* Every file of the world stands in the image, byte for byte. */
static void check_image(const struct world *w, const struct build_result *r)
{
    struct manifest m;
    struct catalog_cursor *cursor;
    const struct catalog_entry *e;
    unsigned i = w->first;
    struct store *store = store_fake_store(w->store);
    assert_int_equal(repository_manifest(store, &r->image, &m), 0);
    uint8_t *image = read_back(w->store, &m.index_root, m.index_levels, m.size, CHUNK);
    assert_int_equal(catalog_cursor_new(store, &m, NULL, 0, 0, &cursor), 0);
    while (catalog_cursor_next(cursor, &e) == 1) {
        if (!S_ISREG(e->mode))
            continue;
        assert_int_equal(e->size, w->sizes[i]);
        for (uint64_t at = 0; at < e->size; at += 97)
            assert_int_equal(image[e->extents[0].offset + at], source_fake_byte(w->seeds[i], at));
        i++;
    }
    assert_int_equal(i, FILES);
    catalog_cursor_free(cursor);
    free(image);
}

static uint64_t bytes_before(const struct world *w, unsigned file)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < file; i++)
        sum += w->sizes[i];
    return sum;
}

static size_t left(const struct world *w)
{
    return store_fake_count(w->store, "builds/");
}

static void test_checkpoint__a_build_that_failed_goes_on(void **state)
{
    static const unsigned fails[] = {20, 60, 150, 298};
    for (int fs = MANIFEST_EROFS; fs <= MANIFEST_EXT4; fs++)
        for (size_t i = 0; i < GR_ARRAY_SIZE(fails); i += full_or(1, 2)) {
            struct world w;
            struct build_result r;
            open_world(&w);
            const struct build_options o = options((enum manifest_fs)fs);
            struct build_result whole = undisturbed(&w, &o);
            assert_true(whole.checkpoints > 5);
            assert_int_equal(run(&w, w.store, &o, fails[i], &r), -EIO);
            bool due = bytes_before(&w, fails[i]) > 2 * EVERY;
            assert_true(left(&w) == 1 || !due);
            assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
            assert_true(digest_equal(&r.image, &whole.image));
            assert_int_equal(r.bytes_resumed + r.bytes_read, w.total);
            /* what lay after the last checkpoint is read again, and equal files are in it */
            if (due)
                assert_true(r.bytes_resumed + EVERY + 10 * LARGEST >= bytes_before(&w, fails[i]));
            assert_int_equal(r.checkpoints + r.bytes_resumed / (EVERY + 10 * LARGEST) >= whole.checkpoints / 2, 1);
            assert_int_equal(left(&w), 0);
            check_image(&w, &r);
            store_fake_free(w.store);
        }
}

/* A build that reads everything because its parent is damaged is one without a parent. */
static void test_checkpoint__a_build_without_its_damaged_parent_goes_on(void **state)
{
    struct world w;
    struct build_result first, r;
    char key[OBJECT_KEY_MAX];
    open_world(&w);
    const struct build_options o = options(MANIFEST_EROFS);
    assert_int_equal(run(&w, w.store, &o, FILES, &first), 0);
    assert_true(store_fake_flip(w.store, object_key(OBJECT_CATALOG, &first.manifest.catalog_root, key), 40));
    assert_int_equal(run(&w, w.store, &o, 150, &r), -EIO);
    assert_true(r.rebuild.parent_damaged);
    assert_int_equal(left(&w), 1);
    assert_int_equal(store_fake_count(w.store, "images/"), 2);
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_true(r.rebuild.parent_damaged && r.bytes_resumed > 0);
    assert_true(digest_equal(&r.image, &first.image));
    assert_int_equal(left(&w), 0);
    check_image(&w, &r);
    store_fake_free(w.store);
}

/* Whatever happens on the way, as long as it gets on. */
static void test_checkpoint__a_build_may_fail_often(void **state)
{
    struct world w;
    struct build_result r;
    open_world(&w);
    const struct build_options o = options(MANIFEST_EROFS);
    struct build_result whole = undisturbed(&w, &o);
    for (unsigned fails = 40; fails < FILES; fails += full_or(40, 80))
        assert_int_equal(run(&w, w.store, &o, fails, &r), -EIO);
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_true(digest_equal(&r.image, &whole.image));
    assert_true(r.bytes_resumed > w.total - (full_or(40, 80) + 5) * LARGEST);
    store_fake_free(w.store);
}

/* The store goes away in the middle: the lease stays behind too, as after a SIGKILL. */
static void test_checkpoint__a_store_that_dies_and_comes_back(void **state)
{
    for (unsigned puts = 30; puts < 100; puts += full_or(13, 26)) {
        struct world w;
        struct build_result r;
        open_world(&w);
        const struct build_options o = options(MANIFEST_EROFS);
        struct build_result whole = undisturbed(&w, &o);
        store_fake_add_fault(w.store, &(struct store_fake_fault){.op = FAKE_PUT, .skip = puts, .code = -EACCES});
        store_fake_add_fault(w.store, &(struct store_fake_fault){.op = FAKE_REMOVE, .code = -EACCES});
        assert_int_equal(run(&w, w.store, &o, FILES, &r), -EACCES);
        store_fake_clear_faults(w.store);
        assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
        assert_true(digest_equal(&r.image, &whole.image));
        assert_true(r.bytes_resumed > 0);
        store_fake_free(w.store);
    }
}

static void test_checkpoint__a_source_that_changed_meanwhile(void **state)
{
    for (unsigned how = 0; how < 4; how++) {
        struct world w;
        struct build_result r;
        open_world(&w);
        const struct build_options o = options(how % 2 ? MANIFEST_EXT4 : MANIFEST_EROFS);
        assert_int_equal(run(&w, w.store, &o, 200, &r), -EIO);
        for (unsigned i = 0; i < FILES; i++)
            if (how == 3 || i % 10 == how) { /* how 3: all of them */
                w.sizes[i] = (w.sizes[i] + 12345) % LARGEST;
                w.seeds[i] += 1000;
            }
        w.first = how == 2 ? 100 : 0;
        assert_int_equal(run(&w, w.store, &o, how == 1 ? 290 : FILES, &r), how == 1 ? -EIO : 0);
        assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
        check_image(&w, &r);
        store_fake_free(w.store);
    }
}

/* It may hold bytes of files that went since, which must not come into this image. */
static void test_checkpoint__scrub_begins_anew(void **state)
{
    struct world w;
    struct build_result r;
    open_world(&w);
    struct build_options o = options(MANIFEST_EROFS);
    assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
    w.first = 33;
    o.scrub = true;
    struct build_result whole = undisturbed(&w, &o);
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_int_equal(r.bytes_resumed, 0);
    assert_true(digest_equal(&r.image, &whole.image));
    store_fake_free(w.store);
}

/* Nobody signs a checkpoint. */
static void test_checkpoint__with_trust_begins_anew(void **state)
{
    struct world w;
    struct build_result r;
    const struct trust trust = {.count = 1};
    open_world(&w);
    struct build_options o = options(MANIFEST_EROFS);
    assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
    o.trust = &trust;
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_int_equal(r.bytes_resumed, 0);
    store_fake_free(w.store);
}

static int take_key(void *arg, const struct store_item *item)
{
    snprintf(arg, 256, "%s", item->key);
    return 0;
}

/* A key below the prefix. */
static bool find_key(struct store_fake *f, const char *prefix, char out[256])
{
    struct store *s = store_fake_store(f);
    out[0] = 0;
    assert_int_equal(store_list(s, prefix, take_key, out), 0);
    return out[0];
}

/* What cannot be used is as good as none. */
static void test_checkpoint__damage_costs_time_alone(void **state)
{
    for (int how = 0; how < 3; how++) {
        struct world w;
        struct build_result r;
        char key[256];
        open_world(&w);
        const struct build_options o = options(MANIFEST_EROFS);
        struct build_result whole = undisturbed(&w, &o);
        assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
        assert_true(find_key(w.store, "builds/", key));
        if (how == 0)
            assert_true(store_fake_flip(w.store, key, 100));
        else if (how == 1)
            store_fake_put(w.store, key, "{}", 2);
        else
            while (find_key(w.store, "catalogs/", key))
                assert_true(store_fake_remove(w.store, key));
        assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
        assert_true(digest_equal(&r.image, &whole.image));
        assert_int_equal(r.bytes_resumed, 0);
        check_image(&w, &r);
        store_fake_free(w.store);
    }
}

static void test_checkpoint__is_the_builds_own(void **state)
{
    struct world w;
    struct build_result r;
    open_world(&w);
    struct build_options o = options(MANIFEST_EROFS);
    assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
    struct build_options other = o;
    other.zstd_level = 2;
    assert_int_equal(run(&w, w.store, &other, FILES, &r), 0);
    assert_int_equal(r.bytes_resumed, 0);
    assert_int_equal(left(&w), 1);
    /* there is a parent now, which is better */
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_int_equal(r.bytes_resumed, 0);
    assert_false(digest_is_zero(&r.rebuild.parent));
    o.no_parent = true;
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_true(r.bytes_resumed > 0);
    assert_int_equal(left(&w), 0);
    store_fake_free(w.store);
}

/* gc sweeps nothing while a checkpoint is young, and forgets an old one before it sweeps. */
static void test_checkpoint__gc_leaves_what_it_names(void **state)
{
    struct world w;
    struct build_result r;
    struct gc_result gc;
    struct gc_options old = {.grace_s = 3600, .now = time(NULL) + 3000};
    open_world(&w);
    const struct build_options o = options(MANIFEST_EROFS);
    struct build_result whole = undisturbed(&w, &o);
    assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
    assert_int_equal(gc_run(store_fake_store(w.store), &old, &gc), 0);
    assert_int_equal(gc.live_leases, 1);
    assert_int_equal(gc.swept, 0);
    for (int round = 0; round < 2; round++) { /* marks, sweeps */
        old.now += 4000;
        assert_int_equal(gc_run(store_fake_store(w.store), &old, &gc), 0);
    }
    assert_true(gc.swept > 0);
    assert_int_equal(left(&w), 0);
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_true(digest_equal(&r.image, &whole.image));
    check_image(&w, &r);
    store_fake_free(w.store);
}

/* A gc marks what the first run put, and the second one publishes it. */
static void test_checkpoint__what_an_earlier_run_put_has_its_grace_period(void **state)
{
    struct world w;
    struct build_result r;
    struct gc_result gc;
    char key[256];
    struct gc_options old = {.grace_s = 3600, .now = time(NULL) + 4000};
    open_world(&w);
    const struct build_options o = options(MANIFEST_EROFS);
    assert_int_equal(run(&w, w.store, &o, 250, &r), -EIO);
    assert_true(find_key(w.store, "builds/", key) && store_fake_set_mtime(w.store, key, old.now));
    assert_int_equal(gc_run(store_fake_store(w.store), &old, &gc), 0);
    assert_int_equal(gc.live_leases, 1);
    assert_true(gc.marked > 0);
    assert_int_equal(run(&w, w.store, &o, FILES, &r), 0);
    assert_true(r.bytes_resumed > 0);
    assert_int_equal(repository_remove_tag(store_fake_store(w.store), "faces", "daily"), 0);
    assert_int_equal(repository_remove_tag(store_fake_store(w.store), "faces", r.unique_tag), 0);
    old.now += 4000;
    assert_int_equal(gc_run(store_fake_store(w.store), &old, &gc), 0);
    check_image(&w, &r); /* what the checkpoint alone named is gone */
    store_fake_free(w.store);
}

/* Whose lease has lapsed goes by whether the document is still there. */
static void test_checkpoint__is_held_while_it_is_there(void **state)
{
    struct world w;
    struct manifest m;
    char key[256];
    open_world(&w);
    const struct checkpoint_identity id = {.name = "faces", .tag = "daily", .source = "fake", .bytes = EVERY};
    const struct digest name = checkpoint_key(&id);
    assert_int_equal(checkpoint_find(store_fake_store(w.store), &id, CHUNK, &m), 0);
    assert_int_equal(checkpoint_hold(store_fake_store(w.store), &id), -EAGAIN);
    assert_non_null(strstr(error_text(), "run the build again"));
    store_fake_put(w.store, checkpoint_doc_key(&name, key), "{}", 2);
    assert_int_equal(checkpoint_hold(store_fake_store(w.store), &id), 0);
    store_fake_free(w.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checkpoint__a_build_that_failed_goes_on),
        cmocka_unit_test(test_checkpoint__a_build_without_its_damaged_parent_goes_on),
        cmocka_unit_test(test_checkpoint__a_build_may_fail_often),
        cmocka_unit_test(test_checkpoint__a_store_that_dies_and_comes_back),
        cmocka_unit_test(test_checkpoint__a_source_that_changed_meanwhile),
        cmocka_unit_test(test_checkpoint__scrub_begins_anew),
        cmocka_unit_test(test_checkpoint__with_trust_begins_anew),
        cmocka_unit_test(test_checkpoint__damage_costs_time_alone),
        cmocka_unit_test(test_checkpoint__is_the_builds_own),
        cmocka_unit_test(test_checkpoint__is_held_while_it_is_there),
        cmocka_unit_test(test_checkpoint__gc_leaves_what_it_names),
        cmocka_unit_test(test_checkpoint__what_an_earlier_run_put_has_its_grace_period),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
