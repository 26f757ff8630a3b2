/* Builds whose source, store or temporary space fails: the right image, or a sentence and nothing published; the next
 * run uses what is there. tests/flow/build-faults.sh has a server that misbehaves, kills and a full disk.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/log.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/build.h"
#include "unit/counts.h"

enum { FILES = 60 };

static struct build_options options(void)
{
    return (struct build_options){
        .chunk_size = CHUNK_SIZE_MIN, .zstd_level = 1, .jobs = 4, .workers = 2, .uploads = 2, .pack_size = 200 << 10};
}

/* 1.4 MB in some packs. */
static struct source *some_source(void)
{
    struct source *s = source_fake_new();
    char path[64];
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "d%u/f%u", i % 7, i);
        source_fake_file(s, path, (uint64_t)i * i * 20, i);
    }
    return s;
}

static int build(struct source *source, struct store *store, const struct build_options *o, struct build_result *r)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse("/store/faces:v1", &ref), 0);
    int rc = build_run(source, store, &ref, o, r);
    source_close(source);
    return rc;
}

static struct digest clean_digest(void)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_options o = options();
    struct build_result r;
    assert_int_equal(build(some_source(), store_fake_store(store), &o, &r), 0);
    return r.image;
}

static void assert_right(struct source *source, struct store_fake *store, struct build_result *r)
{
    struct digest clean = clean_digest();
    struct build_options o = options();
    assert_int_equal(build(source, store_fake_store(store), &o, r), 0);
    assert_true(digest_equal(&r->image, &clean));
}

static void assert_nothing_published(struct store_fake *store)
{
    assert_int_equal(store_fake_count(store, "images/"), 0);
    assert_int_equal(store_fake_count(store, "manifests/"), 0);
}

/* One in twenty of all requests fails, one in forty is carried out and its answer lost, some gets end early. */
static void test_build_faults__a_soak_gives_the_right_digest(void **state)
{
    const struct digest clean = clean_digest();
    const unsigned rounds = full_or(200, 8);
    log_to(NULL, LOG_LEVEL_ERROR);
    for (unsigned seed = 1; seed <= rounds; seed++) {
        CLEANUP(cleanup_store_fake) struct store_fake *fake = store_fake_new();
        struct store *store;
        struct build_options o = options();
        struct build_result r;
        store_fake_seed(fake, seed);
        store_fake_add_fault(
            fake, &(struct store_fake_fault){.op = FAKE_ANY, .kind = FAKE_FAIL, .permille = 50, .code = -EAGAIN});
        store_fake_add_fault(
            fake, &(struct store_fake_fault){.op = FAKE_ANY, .kind = FAKE_LOSE, .permille = 25, .code = -ETIMEDOUT});
        store_fake_add_fault(fake, &(struct store_fake_fault){
                                       .op = FAKE_GET, .kind = FAKE_CUT, .permille = 50, .code = -EAGAIN, .bytes = 9});
        assert_int_equal(store_retry_open(store_fake_store(fake), 60000, NULL, &store), 0);
        assert_int_equal(build(some_source(), store, &o, &r), 0);
        assert_true(digest_equal(&r.image, &clean));
        assert_int_equal(store_fake_count(fake, "images/"), 2);
        store_close(store);
    }
    log_to(NULL, LOG_LEVEL_INFO);
}

/* What a server says of credentials that expired, at every file in turn. */
static void test_build_faults__a_source_refused_in_the_middle(void **state)
{
    for (unsigned i = 1; i < FILES; i += 7) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct build_options o = options();
        struct build_result r;
        char path[64];
        snprintf(path, sizeof path, "d%u/f%u", i % 7, i);
        struct source *source = some_source();
        source_fake_rule(source, path, 0, FAKE_READ_FAIL, -EACCES);
        assert_int_equal(build(source, store_fake_store(store), &o, &r), -EACCES);
        assert_non_null(strstr(error_text(), path));
        assert_nothing_published(store);
        size_t packs = store_fake_count(store, "packs/");
        assert_right(some_source(), store, &r);
        assert_int_equal(r.packs_reused, packs);
    }
}

/* A source that repeats itself: the same entries, in any order. */
static void test_build_faults__a_listing_that_repeats_is_refused_by_name_or_left_out(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_options o = options();
    struct build_result r;
    struct source *source = some_source();
    source_fake_file(source, "d3/f10", 2000, 10);
    source_fake_order(source, 5);
    assert_int_equal(build(source, store_fake_store(store), &o, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "listed twice: 'd3/f10'"));
    assert_nothing_published(store);
    source = some_source();
    source_fake_file(source, "d3/f10", 2000, 10);
    o.skip_bad_names = true;
    log_to(NULL, LOG_LEVEL_ERROR);
    assert_int_equal(build(source, store_fake_store(store), &o, &r), 0);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(r.names_skipped, 1);
    struct digest clean = clean_digest();
    assert_true(digest_equal(&r.image, &clean));
}

/* ------------------------------------------------------------------ temporary space */

enum { LONG_PATHS = 1800, LONG_PATH = 60000 };

/* Paths of more bytes than stay in memory. */
static int list_long_paths(struct source *s, source_visit *visit, void *arg)
{
    static char path[LONG_PATH + 1];
    (void)s;
    int rc = 0;
    for (int i = 0; i < LONG_PATHS && !rc; i++) {
        for (int at = 0; at < LONG_PATH; at += 200) {
            memset(path + at, 'p', 199);
            path[at + 199] = '/';
        }
        snprintf(path + LONG_PATH - 20, 20, "x%08d", i * 7919 % LONG_PATHS);
        struct source_entry e = {.path = path, .path_len = strlen(path), .mode = S_IFREG | 0644};
        rc = visit(arg, &e);
    }
    return rc;
}

static void test_build_faults__no_temporary_space_is_a_sentence_that_names_it(void **state)
{
    static const struct source_ops ops = {.list = list_long_paths};
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source source = {.ops = &ops, .url = "long paths"};
    struct build_options o = options();
    struct build_result r;
    struct image_ref ref;
    o.tmpdir = "/no/such/directory";
    assert_int_equal(image_ref_parse("/store/faces:v1", &ref), 0);
    assert_true(build_run(&source, store_fake_store(store), &ref, &o, &r) < 0);
    assert_non_null(strstr(error_text(), "/no/such/directory"));
    assert_non_null(strstr(error_text(), "--tmpdir"));
    assert_nothing_published(store);
    o.tmpdir = NULL;
    assert_int_equal(build_run(&source, store_fake_store(store), &ref, &o, &r), 0);
    assert_int_equal(r.manifest.counts.files, LONG_PATHS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build_faults__a_soak_gives_the_right_digest),
        cmocka_unit_test(test_build_faults__a_source_refused_in_the_middle),
        cmocka_unit_test(test_build_faults__a_listing_that_repeats_is_refused_by_name_or_left_out),
        cmocka_unit_test(test_build_faults__no_temporary_space_is_a_sentence_that_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
