/* What a scratch promises: the same bytes in memory and in its file, zeros between, no name left behind, and an error
 * that says what to do when there is no room. */
#include "base/spill/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

static struct scratch *make(const char *dir, size_t memory)
{
    struct scratch *s = NULL;
    assert_int_equal(scratch_new(&(struct scratch_config){.dir = dir, .memory = memory}, &s), 0);
    return s;
}

static unsigned names_in(const char *dir)
{
    DIR *d = opendir(dir);
    unsigned n = 0;
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

/* Random writes against an array, at memories that never spill, spill at once, and spill between. */
static void test_scratch__holds_what_was_written(void **state)
{
    static const size_t memories[] = {0, 1, 5000};
    static uint8_t model[100000], got[sizeof model], data[3000];
    char dir[SCRATCH_MAX];
    scratch_make(dir);
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_scratch) struct scratch *s = make(dir, memories[m]);
        assert_int_equal(scratch_len(s), 0);
        memset(model, 0, sizeof model);
        size_t end = 0;
        srand(7);
        for (int i = 0; i < 300; i++) {
            size_t len = (size_t)rand() % sizeof data, at = (size_t)rand() % (100 + (size_t)i * 300);
            for (size_t j = 0; j < len; j++)
                data[j] = (uint8_t)rand();
            assert_int_equal(scratch_write(s, at, data, len), 0);
            memcpy(model + at, data, len);
            end = len ? GR_MAX(end, at + len) : end;
            assert_int_equal(scratch_len(s), end);
        }
        assert_int_equal(scratch_read(s, 0, got, end), 0);
        assert_memory_equal(got, model, end);
        assert_int_equal(scratch_read(s, end / 2, got, 10), 0);
        assert_memory_equal(got, model + end / 2, 10);
        assert_int_equal(scratch_read(s, end, got, 0), 0);
        assert_int_equal(names_in(dir), 0);
    }
    scratch_remove(dir);
}

static void test_scratch__a_gap_is_zeros(void **state)
{
    static const size_t memories[] = {0, 1};
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_scratch) struct scratch *s = make(NULL, memories[m]);
        assert_int_equal(scratch_write(s, 4999, "x", 1), 0);
        uint8_t got[5000];
        memset(got, 7, sizeof got);
        assert_int_equal(scratch_read(s, 0, got, sizeof got), 0);
        for (int i = 0; i < 4999; i++)
            assert_int_equal(got[i], 0);
        assert_int_equal(got[4999], 'x');
    }
}

static void test_scratch__tmpdir_names_the_directory(void **state)
{
    const char *before = getenv("TMPDIR");
    CLEANUP_FREE char *kept = before ? strdup(before) : NULL;
    setenv("TMPDIR", "/nonexistent-granary", 1);
    CLEANUP(cleanup_scratch) struct scratch *s = make(NULL, 10);
    assert_int_equal(scratch_write(s, 0, "12345678", 8), 0);
    assert_int_equal(scratch_write(s, 8, "12345678", 8), -ENOENT);
    assert_non_null(strstr(error_text(), "/nonexistent-granary"));
    assert_non_null(strstr(error_text(), "--tmpdir"));
    char got[8];
    assert_int_equal(scratch_read(s, 0, got, 8), 0); /* what was in memory is not lost */
    assert_memory_equal(got, "12345678", 8);
    setenv("TMPDIR", "", 1);
    CLEANUP(cleanup_scratch) struct scratch *other = make(NULL, 1);
    assert_int_equal(scratch_write(other, 0, "12345678", 8), 0);
    if (kept)
        setenv("TMPDIR", kept, 1);
    else
        unsetenv("TMPDIR");
}

static void test_scratch__no_room_is_an_error_with_a_remedy(void **state)
{
    char dir[SCRATCH_MAX];
    scratch_make(dir);
    CLEANUP(cleanup_scratch) struct scratch *s = make(dir, 1);
    static char block[64 << 10];
    assert_int_equal(scratch_write(s, 0, "begin", 5), 0);
    const struct rlimit old = scratch_limit(100 << 10);
    int rc = 0;
    for (uint64_t at = 5; !rc && at < 10 * sizeof block; at += sizeof block)
        rc = scratch_write(s, at, block, sizeof block);
    scratch_unlimit(&old);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(error_text(), dir));
    assert_non_null(strstr(error_text(), "--tmpdir"));
    char got[5];
    assert_int_equal(scratch_read(s, 0, got, 5), 0);
    assert_memory_equal(got, "begin", 5);
    scratch_remove(dir);
}

static void *read_all(void *arg)
{
    struct scratch *s = arg;
    for (uint32_t i = 0; i < 10000; i++) {
        uint32_t got;
        if (scratch_read(s, i * sizeof got, &got, sizeof got) || got != i)
            return s;
    }
    return NULL;
}

static void test_scratch__many_threads_read(void **state)
{
    static const size_t memories[] = {0, 1000};
    for (size_t m = 0; m < GR_ARRAY_SIZE(memories); m++) {
        CLEANUP(cleanup_scratch) struct scratch *s = make(NULL, memories[m]);
        for (uint32_t i = 0; i < 10000; i++)
            assert_int_equal(scratch_write(s, i * sizeof i, &i, sizeof i), 0);
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            assert_int_equal(thread_start(&threads[i], read_all, s), 0);
        for (int i = 0; i < 4; i++) {
            void *wrong;
            pthread_join(threads[i], &wrong);
            assert_null(wrong);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scratch__holds_what_was_written),
        cmocka_unit_test(test_scratch__a_gap_is_zeros),
        cmocka_unit_test(test_scratch__tmpdir_names_the_directory),
        cmocka_unit_test(test_scratch__no_room_is_an_error_with_a_remedy),
        cmocka_unit_test(test_scratch__many_threads_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
