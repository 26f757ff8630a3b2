/* An image compared with its source: what is damage, what is only another version. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/source_fake.h"
#include "fake/store_fake.h"
#include "imagebuild/check/check.h"

enum { FILES = 200, SIZE = 3000 };

struct fixture {
    struct store_fake *store;
    struct source *source;
    struct image_fake image;
    struct catalog_entry entries[FILES + 1];
    char paths[FILES][16];
    struct source_version versions[FILES];
    struct verify_source_result result;
    unsigned problems;
    char problem[ERROR_TEXT_MAX];
};

static uint64_t size_of(int i)
{
    return i == 5 ? 3 * VERIFY_SOURCE_PIECE + 17 : i % 10 ? SIZE + (uint64_t)i : 0;
}

static struct digest content_of(int i)
{
    uint64_t size = size_of(i);
    uint8_t *bytes = malloc(size + 1);
    source_fake_bytes((unsigned)i, 0, bytes, size);
    struct digest d = digest_of(bytes, size);
    free(bytes);
    return d;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->store = store_fake_new();
    f->source = source_fake_new();
    f->entries[0] = (struct catalog_entry){.path = "", .mode = S_IFDIR | 0755};
    for (int i = 0; i < FILES; i++) {
        struct catalog_entry *e = &f->entries[i + 1];
        snprintf(f->paths[i], sizeof f->paths[i], "file-%03d", i);
        source_fake_file(f->source, f->paths[i], size_of(i), (unsigned)i);
        assert_int_equal(source_stat(f->source, f->paths[i], 8, &f->versions[i]), 0);
        *e = (struct catalog_entry){.path = f->paths[i],
                                    .path_len = 8,
                                    .mode = S_IFREG | 0644,
                                    .size = size_of(i),
                                    .validator = f->versions[i].validator,
                                    .validator_len = f->versions[i].validator_len};
        if (e->size)
            e->content = content_of(i);
    }
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    image_fake_release(&f->image);
    store_fake_free(f->store);
    source_close(f->source);
    free(f);
    return 0;
}

static void on_problem(void *arg, const char *sentence)
{
    struct fixture *f = arg;
    f->problems++;
    snprintf(f->problem, sizeof f->problem, "%s", sentence);
}

static int compare(struct fixture *f, uint64_t sample)
{
    const struct verify_source_options options = {.sample = sample, .threads = 4, .problem = on_problem, .arg = f};
    f->image =
        (struct image_fake){.size = 1 << 20, .chunk_size = 64 << 10, .entries = f->entries, .entry_count = FILES + 1};
    image_fake_put(&f->image, f->store, NULL);
    f->image.manifest.counts.files = FILES;
    return verify_source(store_fake_store(f->store), &f->image.manifest, f->source, &options, &f->result);
}

static void test_verify_source__an_untouched_source_agrees(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(compare(f, 0), 0);
    assert_int_equal(f->result.files, FILES);
    assert_true(f->result.bytes > 3 * VERIFY_SOURCE_PIECE);
    assert_int_equal(f->result.changed + f->result.removed + f->result.damaged, 0);
}

static void test_verify_source__tells_damage_from_another_version(void **state)
{
    struct fixture *f = *state;
    f->entries[8].content.b[0] ^= 1;
    source_fake_version(f->source, f->paths[20], 0, 3);
    source_fake_version(f->source, f->paths[21], 50, 3);
    source_fake_change(f->source, f->paths[20]);
    source_fake_change(f->source, f->paths[21]);
    source_fake_vanish(f->source, f->paths[30]);
    source_fake_vanish(f->source, f->paths[31]);
    assert_int_equal(compare(f, 0), 0);
    assert_int_equal(f->result.damaged, 1);
    assert_int_equal(f->result.changed, 2);
    assert_int_equal(f->result.removed, 2);
    assert_int_equal(f->result.files, FILES - 4);
    assert_int_equal(f->problems, 1);
    assert_non_null(strstr(f->problem, "file-007"));
}

static void test_verify_source__a_sample_is_about_that_large_and_always_the_same(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(compare(f, 50), 0);
    uint64_t files = f->result.files, bytes = f->result.bytes;
    assert_in_range(files, 20, 90);
    image_fake_release(&f->image);
    assert_int_equal(compare(f, 50), 0);
    assert_int_equal(f->result.files, files);
    assert_int_equal(f->result.bytes, bytes);
}

static void test_verify_source__a_source_that_fails_ends_it(void **state)
{
    struct fixture *f = *state;
    source_fake_rule(f->source, f->paths[50], 0, FAKE_READ_FAIL, -EACCES);
    for (int i = 51; i < 60; i++)
        source_fake_rule(f->source, f->paths[i], 0, FAKE_READ_FAIL, -EACCES);
    assert_int_equal(compare(f, 0), -EACCES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_verify_source__an_untouched_source_agrees, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify_source__tells_damage_from_another_version, setup, teardown),
        cmocka_unit_test_setup_teardown(test_verify_source__a_sample_is_about_that_large_and_always_the_same, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_verify_source__a_source_that_fails_ends_it, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
