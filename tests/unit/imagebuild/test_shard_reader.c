/* Files read ahead, one after the other: in order, in bounded memory, ended early. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "fake/source_fake.h"
#include "imagebuild/tar/tar_internal.h"

enum { FILES = 5 };

static const uint64_t sizes[FILES] = {3 * SHARD_BLOCK + 17, 0, 1, SHARD_BLOCK, 9 * SHARD_BLOCK - 1};

struct world {
    struct source *source;
    struct shard shards[FILES];
    char paths[FILES][8];
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->source = source_fake_new();
    for (unsigned i = 0; i < FILES; i++) {
        snprintf(w->paths[i], sizeof w->paths[i], "f%u", i);
        source_fake_file(w->source, w->paths[i], sizes[i], i);
        w->shards[i].path = w->paths[i];
        w->shards[i].path_len = strlen(w->paths[i]);
        assert_int_equal(source_stat(w->source, w->paths[i], 2, &w->shards[i].version), 0);
    }
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    source_close(w->source);
    free(w);
    return 0;
}

static struct shard_reader *reader(struct world *w, unsigned threads)
{
    struct shard_reader_config config = {.source = w->source, .shards = w->shards, .count = FILES, .threads = threads};
    struct shard_reader *r;
    assert_int_equal(shard_reader_start(&config, &r), 0);
    return r;
}

/* All of file i, checked here and there. */
static void assert_file(struct shard_reader *r, unsigned i)
{
    const uint8_t *data;
    uint64_t done = 0;
    size_t len;
    do {
        if (shard_reader_next(r, (const void **)&data, &len))
            fail_msg("%s", error_text());
        for (size_t at = 0; at < len; at += 4099)
            assert_int_equal(data[at], source_fake_byte(i, done + at));
        done += len;
    } while (len);
    assert_int_equal(done, sizes[i]);
}

static void test_shard_reader__files_come_in_order(void **state)
{
    struct world *w = *state;
    const struct shard *shard;
    for (unsigned threads = 1; threads <= 16; threads *= 4) {
        struct shard_reader *r = reader(w, threads);
        for (unsigned i = 0; i < FILES; i++) {
            assert_int_equal(shard_reader_begin(r, &shard), 1);
            assert_ptr_equal(shard, &w->shards[i]);
            assert_file(r, i);
        }
        assert_int_equal(shard_reader_begin(r, &shard), 0);
        shard_reader_stop(r);
    }
    assert_int_equal(source_fake_stats(w->source).cancels, 0);
    assert_true(source_fake_stats(w->source).bytes_in_reads_max <= (uint64_t)16 * SHARD_BLOCK);
}

static void test_shard_reader__what_is_left_of_a_file_is_passed_over(void **state)
{
    struct world *w = *state;
    const struct shard *shard;
    const void *data;
    size_t len;
    struct shard_reader *r = reader(w, 2);
    assert_int_equal(shard_reader_begin(r, &shard), 1);
    assert_int_equal(shard_reader_next(r, &data, &len), 0);
    assert_int_equal(len, SHARD_BLOCK);
    for (unsigned i = 1; i < FILES; i++)
        assert_int_equal(shard_reader_begin(r, &shard), 1);
    assert_file(r, FILES - 1);
    shard_reader_stop(r);
}

static void test_shard_reader__stops_at_any_moment(void **state)
{
    struct world *w = *state;
    const struct shard *shard;
    source_fake_hold(w->source);
    struct shard_reader *r = reader(w, 8);
    assert_int_equal(shard_reader_begin(r, &shard), 1);
    shard_reader_stop(r);
    assert_int_equal(source_fake_stats(w->source).cancels, 1);
}

static void test_shard_reader__a_failure_comes_in_its_place(void **state)
{
    struct world *w = *state;
    const struct shard *shard;
    const void *data;
    size_t len;
    source_fake_rule(w->source, "f4", 5 * SHARD_BLOCK, FAKE_READ_FAIL, -EIO);
    struct shard_reader *r = reader(w, 8);
    for (unsigned i = 0; i < FILES; i++)
        assert_int_equal(shard_reader_begin(r, &shard), 1);
    for (unsigned i = 0; i < 5; i++) {
        assert_int_equal(shard_reader_next(r, &data, &len), 0);
        assert_int_equal(len, SHARD_BLOCK);
    }
    assert_int_equal(shard_reader_next(r, &data, &len), -EIO);
    shard_reader_stop(r);
}

static void test_shard_set__kinds_by_name(void **state)
{
    size_t stem;
    assert_int_equal(shard_kind("a/b.tar", 7, &stem), SHARD_TAR);
    assert_int_equal(stem, 3);
    assert_int_equal(shard_kind("b.tar.gz", 8, &stem), SHARD_GZIP);
    assert_int_equal(stem, 1);
    assert_int_equal(shard_kind("b.tgz", 5, &stem), SHARD_GZIP);
    assert_int_equal(shard_kind("b.tar.zst", 9, &stem), SHARD_ZSTD);
    assert_int_equal(shard_kind("a/.tar", 6, &stem), SHARD_NONE);
    assert_int_equal(shard_kind("b.tar.bz2", 9, &stem), SHARD_NONE);
}

static void test_shard_set__braces_must_be_a_range(void **state)
{
    static const char *const wrong[] = {"/d/x-{a,b}.tar",  "/d/x-{1..}.tar", "/d/{1..2}-{1..2}.tar",
                                        "/d/x-{2..1}.tar", "/d/x-{1..2.tar", "/d/{0..9999999}.tar",
                                        "/d/{-1..2}.tar"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        struct shard_set set;
        if (shard_set_open(wrong[i], &(struct source_options){0}, source_open, &set) != -EINVAL)
            fail_msg("taken: %s", wrong[i]);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_shard_reader__files_come_in_order),    TEST(test_shard_reader__what_is_left_of_a_file_is_passed_over),
        TEST(test_shard_reader__stops_at_any_moment),    TEST(test_shard_reader__a_failure_comes_in_its_place),
        cmocka_unit_test(test_shard_set__kinds_by_name), cmocka_unit_test(test_shard_set__braces_must_be_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
