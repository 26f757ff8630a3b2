/* The floor: errors, buffers, checksums, sizes, whole-length I/O, queues. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/bytes.h"
#include "base/counter.h"
#include "base/crc32c.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/io.h"
#include "base/le.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/text.h"
#include "base/vec.h"
#include "unit/scratch.h"

static void test_error__control_bytes_cannot_break_a_line(void **state)
{
    assert_int_equal(error_set(-EINVAL, "name %s", "a\nb\x1b[31m"), -EINVAL);
    assert_string_equal(error_text(), "name a?b?[31m");
}

static void test_error__prefix_keeps_the_sentence(void **state)
{
    assert_int_equal(error_set(-EIO, "disk gone"), -EIO);
    assert_int_equal(error_prefix(-EIO, "image %d", 7), -EIO);
    assert_string_equal(error_text(), "image 7: disk gone");
}

static void *other_thread_fails(void *arg)
{
    error_take(arg, error_set(-ETIMEDOUT, "worker saw it"));
    return NULL;
}

static void test_error__travels_between_threads(void **state)
{
    struct error e;
    pthread_t t;
    (void)error_set(-EINVAL, "mine");
    assert_int_equal(pthread_create(&t, NULL, other_thread_fails, &e), 0);
    pthread_join(t, NULL);
    assert_string_equal(error_text(), "mine");
    assert_int_equal(error_restore(&e), -ETIMEDOUT);
    assert_string_equal(error_text(), "worker saw it");
}

static void test_bytes__refuse_to_pass_their_maximum(void **state)
{
    CLEANUP_BYTES b = BYTES_INIT(100);
    char block[60] = {0};
    assert_int_equal(bytes_append(&b, block, 60), 0);
    assert_int_equal(bytes_append(&b, block, 41), -EMSGSIZE);
    assert_int_equal(b.len, 60);
    assert_int_equal(bytes_append(&b, block, 40), 0);
    assert_int_equal(bytes_append(&b, block, SIZE_MAX), -EMSGSIZE);
    uint8_t *room;
    assert_int_equal(bytes_reserve(&b, 1, &room), -EMSGSIZE);
    b.len = 60;
    assert_int_equal(bytes_reserve(&b, 40, &room), 0);
    assert_ptr_equal(room, b.data + 60);
    assert_int_equal(b.len, 60);
}

static void test_crc32c__known_answers(void **state)
{
    assert_int_equal(crc32c("123456789", 9), 0xE3069283u);
    assert_int_equal(crc32c("", 0), 0);
    uint32_t reg = crc32c_raw(~0u, "1234", 4);
    assert_int_equal(~crc32c_raw(reg, "56789", 5), 0xE3069283u);
}

/* The definition: one bit at a time. */
static uint32_t crc32c_append(uint32_t reg, uint8_t byte)
{
    reg ^= byte;
    for (int bit = 0; bit < 8; bit++)
        reg = reg & 1 ? reg >> 1 ^ 0x82F63B78u : reg >> 1;
    return reg;
}

static void test_crc32c__is_its_definition_at_every_length_and_alignment(void **state)
{
    enum { LEN_MAX = 9000 }; /* two rounds of its lanes and a rest */
    static uint8_t data[LEN_MAX + 8];
    for (size_t shift = 0; shift < 8; shift++) {
        uint8_t *p = data + shift;
        uint32_t reg = ~0u;
        for (size_t len = 0; len < LEN_MAX; len++) {
            assert_int_equal(crc32c(p, len), ~reg);
            p[len] = (uint8_t)(len * 131 + (len >> 8) + shift);
            reg = crc32c_append(reg, p[len]);
        }
    }
}

static void test_digest__known_answer_and_hex(void **state)
{
    struct digest d = digest_of("abc", 3), parsed;
    char hex[DIGEST_HEX_SIZE];
    assert_string_equal(digest_hex(&d, hex), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    assert_int_equal(digest_parse(hex, 64, &parsed), 0);
    assert_true(digest_equal(&d, &parsed));
    hex[3] = 'G';
    assert_int_equal(digest_parse(hex, 64, &parsed), -EINVAL);
    hex[3] = 'A';
    assert_int_equal(digest_parse(hex, 64, &parsed), -EINVAL);
    assert_int_equal(digest_parse(hex, 63, &parsed), -EINVAL);
    struct hasher *h = hasher_new();
    hasher_update(h, "a", 1);
    hasher_update(h, "bc", 2);
    struct digest running = hasher_finish(h);
    assert_true(digest_equal(&d, &running));
    hasher_free(h);
}

static void test_text__sizes_in_both_spellings(void **state)
{
    uint64_t v;
    assert_int_equal(text_parse_size("cache", "128KiB", &v), 0);
    assert_int_equal(v, 131072);
    assert_int_equal(text_parse_size("cache", "1.5G", &v), 0);
    assert_int_equal(v, 1610612736);
    assert_int_equal(text_parse_size("cache", "4096", &v), 0);
    assert_int_equal(v, 4096);
    static const char *const bad[] = {"",     "-1",  "x",   "10Q",  "0x10", "1e30", "nan", "10GG",
                                      "10 G", "inf", "1e3", "1E3K", " 1",   "\t1K", ".",   "1.5.5"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++)
        assert_int_equal(text_parse_size("cache", bad[i], &v), -EINVAL);
    assert_int_equal(text_parse_uint("jobs", "17", 1, 16, &v), -EINVAL);
    assert_string_equal(error_text(), "jobs: '17' is not a number from 1 to 16");
}

static void test_text__counts_agree_with_their_nouns(void **state)
{
    char out[TEXT_COUNT_MAX];
    assert_string_equal(text_format_count(0, "file", out), "0 files");
    assert_string_equal(text_format_count(1, "file", out), "1 file");
    assert_string_equal(text_format_count(2, "file", out), "2 files");
    assert_string_equal(text_format_count(1, "directory", out), "1 directory");
    assert_string_equal(text_format_count(2, "directory", out), "2 directories");
    assert_string_equal(text_format_count(2, "key", out), "2 keys");
    assert_string_equal(text_format_count(UINT64_MAX, "damaged object", out), "18446744073709551615 damaged objects");
}

static void test_text__times_round_trip(void **state)
{
    char out[TEXT_TIME_MAX];
    int64_t t;
    assert_string_equal(text_format_time(-5, out), "1969-12-31T23:59:55Z");
    assert_int_equal(text_parse_time(out, &t), 0);
    assert_int_equal(t, -5);
    assert_int_equal(text_parse_time("2026-11-20", &t), -EINVAL);
}

static void test_io__owned_write_leaves_alone_what_a_link_leads_to(void **state)
{
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 8], temporary[SCRATCH_MAX + 16], victim[SCRATCH_MAX + 8];
    CLEANUP_BYTES got = BYTES_INIT(16);
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/file", dir);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    snprintf(victim, sizeof victim, "%s/victim", dir);
    assert_int_equal(io_write_file_atomic(victim, "mine", 4, false), 0);
    assert_int_equal(link(victim, temporary), 0);
    assert_int_equal(io_write_file_owned(path, "fresh", 5), 0);
    assert_int_equal(symlink(victim, temporary), 0);
    assert_int_equal(io_write_file_owned(path, "fresh", 5), 0);
    assert_int_equal(io_read_file(victim, &got), 0);
    assert_true(got.len == 4 && !memcmp(got.data, "mine", 4));
    got.len = 0;
    assert_int_equal(io_read_file(path, &got), 0);
    assert_true(got.len == 5 && !memcmp(got.data, "fresh", 5));
    scratch_remove(dir);
}

static void test_io__atomic_write_replaces_and_leaves_nothing_behind(void **state)
{
    char dir[] = "/tmp/granary-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    CLEANUP_FREE char *path = NULL, *deep = NULL, *command = NULL;
    assert_true(asprintf(&deep, "%s/a/b/c", dir) > 0 && asprintf(&path, "%s/f", deep) > 0);
    assert_int_equal(io_mkdirs(deep), 0);
    assert_int_equal(io_mkdirs(deep), 0);
    assert_int_equal(io_write_file_atomic(path, "one", 3, true), 0);
    assert_int_equal(io_write_file_atomic(path, "three", 5, false), 0);
    CLEANUP_BYTES b = BYTES_INIT(5);
    assert_int_equal(io_read_file(path, &b), 0);
    assert_memory_equal(b.data, "three", 5);
    bytes_clear(&b);
    b.max = 4;
    assert_int_equal(io_read_file(path, &b), -EMSGSIZE);
    assert_int_equal(io_read_file("/nonexistent/x", &b), -ENOENT);
    assert_true(asprintf(&command, "test $(ls -A %s | wc -l) = 1 && rm -r %s", deep, dir) > 0);
    assert_int_equal(system(command), 0);
}

static void *push_thousand(void *arg)
{
    for (uintptr_t i = 1; i <= 1000; i++)
        if (!queue_push(arg, (void *)i))
            break;
    return NULL;
}

static void test_queue__bounded_ordered_and_drained_after_close(void **state)
{
    struct queue *q = queue_new(4);
    pthread_t t;
    assert_int_equal(pthread_create(&t, NULL, push_thousand, q), 0);
    for (uintptr_t i = 1; i <= 998; i++)
        assert_int_equal((uintptr_t)queue_pop(q), i);
    pthread_join(t, NULL);
    queue_close(q);
    assert_false(queue_push(q, q));
    assert_false(queue_try_push(q, q));
    assert_int_equal((uintptr_t)queue_pop(q), 999);
    assert_int_equal((uintptr_t)queue_pop(q), 1000);
    assert_null(queue_pop(q));
    queue_free(q);
}

static void test_vec__grows(void **state)
{
    VEC(int) v = {0};
    for (int i = 0; i < 1000; i++)
        assert_int_equal(vec_push(&v, i), 0);
    assert_int_equal(v.items[999], 999);
    vec_release(&v);
    assert_null(v.items);
}

static void test_buf__is_aligned_and_padded_with_zeros(void **state)
{
    struct buf *b = buf_new(5000);
    assert_int_equal((uintptr_t)b->data % BUF_ALIGN, 0);
    assert_int_equal(b->cap, 8192);
    for (size_t i = 5000; i < 8192; i++)
        assert_int_equal(b->data[i], 0);
    buf_ref(b);
    buf_unref(b);
    buf_unref(b);
}

/* ---- histogram ---- */

static void keep_row(void *arg, const struct histogram_row *row)
{
    *(struct histogram_row *)arg = *row;
}

static void test_histogram__a_duration_is_in_the_first_bucket_that_holds_it(void **state)
{
    static struct histogram h;
    struct histogram_row row;
    uint64_t sum = 0;
    for (unsigned i = 0; i < HISTOGRAM_BOUNDS; i++) {
        histogram_add(&h, histogram_bounds_us[i]);     /* in bucket i */
        histogram_add(&h, histogram_bounds_us[i] + 1); /* in the next */
        sum += 2 * histogram_bounds_us[i] + 1;
    }
    const struct histogram_row named = {.name = "n", .help = "h"};
    histogram_show(&h, named, keep_row, &row);
    assert_string_equal(row.name, "n");
    assert_int_equal(row.counts[0], 1);
    for (unsigned i = 1; i < HISTOGRAM_BOUNDS; i++)
        assert_int_equal(row.counts[i], 2);
    assert_int_equal(row.counts[HISTOGRAM_BOUNDS], 1);
    assert_int_equal(row.sum_us, sum);
}

/* ---- log_limit ---- */

static void test_log_limit__a_storm_is_a_hundred_lines_then_one_a_second(void **state)
{
    struct log_limit l = LOG_LIMIT_INIT;
    uint64_t over = 99;
    for (unsigned i = 0; i < LOG_LIMIT_BURST; i++) {
        assert_true(log_limit_pass(&l, 5000 + i % 900, &over));
        assert_int_equal(over, 0);
    }
    for (unsigned i = 0; i < 7; i++)
        assert_false(log_limit_pass(&l, 5999, &over));
    assert_true(log_limit_pass(&l, 6000, &over));
    assert_int_equal(over, 7);
    assert_false(log_limit_pass(&l, 6999, &over));
    assert_true(log_limit_pass(&l, 8500, &over));
    assert_int_equal(over, 1);
    assert_true(log_limit_pass(&l, 8999, &over));
    assert_false(log_limit_pass(&l, 8999, &over));
    for (unsigned i = 0; i < LOG_LIMIT_BURST; i++)
        assert_true(log_limit_pass(&l, 10000000, &over));
    assert_false(log_limit_pass(&l, 10000000, &over));
}

static unsigned distance(const char *a, const char *b)
{
    return text_distance(a, strlen(a), b, strlen(b));
}

static void test_text__distance_counts_edits(void **state)
{
    assert_int_equal(distance("status", "status"), 0);
    assert_int_equal(distance("stauts", "status"), 1);
    assert_int_equal(distance("", "gc"), 2);
    assert_int_equal(distance("bulid", "build"), 1);
    assert_int_equal(distance("kitten", "sitting"), 3);
    assert_int_equal(distance("a-word-of-more-bytes-than-are-looked-at", "a"), TEXT_DISTANCE_MAX);
    assert_true(text_resembles("timeuot=3", 7, "timeout"));
    assert_false(text_resembles("frobnicate", 10, "export"));
    assert_false(text_resembles("ls", 2, "gc"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__distance_counts_edits),
        cmocka_unit_test(test_error__control_bytes_cannot_break_a_line),
        cmocka_unit_test(test_error__prefix_keeps_the_sentence),
        cmocka_unit_test(test_error__travels_between_threads),
        cmocka_unit_test(test_bytes__refuse_to_pass_their_maximum),
        cmocka_unit_test(test_crc32c__known_answers),
        cmocka_unit_test(test_crc32c__is_its_definition_at_every_length_and_alignment),
        cmocka_unit_test(test_digest__known_answer_and_hex),
        cmocka_unit_test(test_text__sizes_in_both_spellings),
        cmocka_unit_test(test_text__counts_agree_with_their_nouns),
        cmocka_unit_test(test_text__times_round_trip),
        cmocka_unit_test(test_io__owned_write_leaves_alone_what_a_link_leads_to),
        cmocka_unit_test(test_io__atomic_write_replaces_and_leaves_nothing_behind),
        cmocka_unit_test(test_queue__bounded_ordered_and_drained_after_close),
        cmocka_unit_test(test_vec__grows),
        cmocka_unit_test(test_buf__is_aligned_and_padded_with_zeros),
        cmocka_unit_test(test_histogram__a_duration_is_in_the_first_bucket_that_holds_it),
        cmocka_unit_test(test_log_limit__a_storm_is_a_hundred_lines_then_one_a_second),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
