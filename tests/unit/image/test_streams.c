/* Runs of reads: what is given ahead of them, and that it is never more than they have read. */
#include "unit/cmocka_all.h"

#include "base/compiler.h"
#include "image/image_internal.h"

enum { K = 1 << 10, M = 1 << 20 };

static const struct stream_limits wide = {.most = M, .stop = UINT64_MAX / 2, .align = 64 * K};

static uint64_t given(struct streams *s, uint64_t off, uint64_t len)
{
    struct stream_window w = streams_read(s, off, len, &wide);
    return w.to - w.from;
}

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 33;
}

static void test_streams__random_reads_are_given_nothing(void **state)
{
    static struct streams s;
    uint64_t seed = 1, bytes = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t len = 4096 + next_random(&seed) % (128 * K);
        bytes += given(&s, next_random(&seed) % (2048 * (uint64_t)M), len);
    }
    assert_true(bytes <= 64 * M); /* what falls beside a run by accident, of 640 MB */
}

static void test_streams__the_window_grows_with_what_was_read_up_to_the_most(void **state)
{
    static struct streams s;
    struct stream_window w;
    uint64_t at = 1000 * (uint64_t)M, ahead = at;
    for (uint64_t read = 0; read < 16 * M; read += 128 * K) {
        w = streams_read(&s, at + read, 128 * K, &wide);
        uint64_t done = read + 128 * K;
        if (w.from != w.to) {
            assert_true(w.from >= at + done && w.from >= ahead && w.from % (64 * K) == 0);
            assert_true(w.to <= at + done + GR_MIN(done, (uint64_t)M) + 64 * K);
            ahead = w.to;
        }
        assert_true(done <= STREAM_FREE || ahead > at + done); /* it never catches up */
        assert_true(done <= 2 * M || ahead >= at + done + M / 2);
    }
}

static void test_streams__a_file_of_a_few_requests_costs_little(void **state)
{
    static struct streams s;
    assert_int_equal(given(&s, 5 * M, 128 * K), 0);
    assert_int_equal(given(&s, 5 * M + 128 * K, 128 * K), 0);
    assert_int_equal(given(&s, 5 * M + 256 * K, 128 * K), 128 * K);
}

static void test_streams__a_read_by_itself_is_given_nothing_however_long(void **state)
{
    static struct streams s;
    assert_int_equal(given(&s, 5 * M, M), 0);
    assert_int_equal(given(&s, 6 * M, 128 * K), 896 * K);
}

static void test_streams__a_directory_read_in_order_is_a_run_whatever_the_order_of_requests(void **state)
{
    static struct streams s;
    uint64_t at = 77 * M, seed = 3, bytes = 0, end = at + 64 * M;
    while (at < end) { /* pairs of files, the later one first, small gaps between */
        uint64_t a = 4 * K * (1 + next_random(&seed) % 30), b = 4 * K * (1 + next_random(&seed) % 30);
        bytes += given(&s, at + a, b);
        bytes += given(&s, at, a);
        at += a + b + 4 * K * (next_random(&seed) % 3);
    }
    assert_in_range(bytes, 62 * M, 66 * M);
}

static void test_streams__readers_side_by_side_do_not_disturb_each_other(void **state)
{
    enum { READERS = 16 };
    static struct streams s;
    uint64_t seed = 9, at[READERS], bytes = 0;
    for (unsigned i = 0; i < READERS; i++)
        at[i] = i * 100 * (uint64_t)M;
    for (int i = 0; i < READERS * 64; i++) {
        unsigned who = (unsigned)(next_random(&seed) % READERS);
        bytes += given(&s, at[who], 128 * K);
        at[who] += 128 * K;
        given(&s, (4000 + next_random(&seed) % 100000) * (uint64_t)M, 4 * K); /* and somebody who jumps about */
    }
    assert_true(bytes >= READERS * 64 * 128 * K * 9 / 10);
}

static void test_streams__nothing_is_given_twice_or_beyond_the_stop(void **state)
{
    static struct streams s;
    struct stream_limits limits = wide;
    limits.stop = 4 * M + 100;
    uint64_t bytes = 0, last = 0;
    for (uint64_t off = 0; off < 4 * M; off += 128 * K) {
        struct stream_window w = streams_read(&s, off, 128 * K, &limits);
        assert_true(w.from == w.to || w.from >= last);
        assert_true(w.to <= limits.stop || w.from == w.to);
        if (w.from != w.to)
            last = w.to;
        bytes += w.to - w.from;
    }
    assert_int_equal(last, limits.stop);
    assert_true(bytes <= 4 * M);
}

static void test_streams__the_same_bytes_again_are_no_progress(void **state)
{
    static struct streams s;
    for (int i = 0; i < 100; i++)
        assert_int_equal(given(&s, 10 * M, 128 * K), 0);
}

static void test_streams__reads_with_wider_gaps_than_they_are_long_get_nothing(void **state)
{
    static struct streams s;
    for (uint64_t off = 0; off < 64 * M; off += 200 * K)
        assert_int_equal(given(&s, off, 8 * K), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_streams__random_reads_are_given_nothing),
        cmocka_unit_test(test_streams__the_window_grows_with_what_was_read_up_to_the_most),
        cmocka_unit_test(test_streams__a_file_of_a_few_requests_costs_little),
        cmocka_unit_test(test_streams__a_read_by_itself_is_given_nothing_however_long),
        cmocka_unit_test(test_streams__a_directory_read_in_order_is_a_run_whatever_the_order_of_requests),
        cmocka_unit_test(test_streams__readers_side_by_side_do_not_disturb_each_other),
        cmocka_unit_test(test_streams__nothing_is_given_twice_or_beyond_the_stop),
        cmocka_unit_test(test_streams__the_same_bytes_again_are_no_progress),
        cmocka_unit_test(test_streams__reads_with_wider_gaps_than_they_are_long_get_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
