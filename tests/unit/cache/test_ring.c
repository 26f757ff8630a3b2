/* Reads and writes with a deadline: by io_uring over pipes that answer when the test wants, by a ring's thread over a
 * fake disk.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "cache/disk/ring.h"
#include "fake/disk_fake.h"
#include "unit/counters.h"
#include "unit/scratch.h"

enum { FILE_SIZE = 256 << 10, SOON_MS = 30, LONG_MS = 60000 };

/* File 0 is a real one of known bytes; file 1 the reading end of a pipe that is empty. */
struct bench {
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 16];
    uint8_t bytes[FILE_SIZE];
    int fds[2], pipe_in;
    struct rings_stats stats;
    struct rings *rings;
};

static void bench_init(struct bench *b, unsigned limit, bool no_uring)
{
    int ends[2];
    memset(b, 0, sizeof *b);
    scratch_make(b->dir);
    snprintf(b->path, sizeof b->path, "%s/file", b->dir);
    for (size_t i = 0; i < FILE_SIZE; i++)
        b->bytes[i] = (uint8_t)(i * 7 + i / 256);
    b->fds[0] = open(b->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(pwrite(b->fds[0], b->bytes, FILE_SIZE, 0), FILE_SIZE);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    b->fds[1] = ends[0];
    b->pipe_in = ends[1];
    struct rings_config config = {
        .fds = b->fds, .count = 2, .limit = limit, .no_uring = no_uring, .calls = disk_fake_calls()};
    assert_int_equal(rings_new(&config, &b->stats, &b->rings), 0);
}

static void bench_release(struct bench *b)
{
    rings_free(b->rings);
    close(b->fds[0]);
    close(b->fds[1]);
    close(b->pipe_in);
    scratch_remove(b->dir);
}

static uint64_t in_ms(uint64_t ms)
{
    return clock_now_ms() + ms;
}

static struct ring *borrow(struct bench *b)
{
    struct ring *r = rings_borrow(b->rings, in_ms(LONG_MS));
    assert_non_null(r);
    return r;
}

static struct ring_read read_at(struct ring *r, unsigned file, uint64_t off, uint32_t len, uint32_t at)
{
    return (struct ring_read){.file = file, .off = off, .len = len, .buf = ring_bounce(r) + at};
}

/* Skip the test if there is no io_uring here: containers often forbid it. */
static void need_uring(struct bench *b)
{
    rings_return(borrow(b));
    if (counter_get(&b->stats.rings))
        return;
    bench_release(b);
    skip();
}

/* Lose a ring to the empty pipe. */
static void lose_one(struct bench *b)
{
    struct ring *r = borrow(b);
    struct ring_read read = read_at(r, 1, 0, 4, 0);
    assert_false(ring_read_all(r, &read, 1, in_ms(SOON_MS)));
    assert_int_equal(read.rc, -ETIMEDOUT);
    rings_return(r);
}

static void answer(struct bench *b, unsigned reads)
{
    while (reads--)
        assert_int_equal(write(b->pipe_in, "late", 4), 4);
}

static void wait_until_none_is_lost(struct bench *b)
{
    for (uint64_t since_ms = 0; rings_reap(b->rings), rings_lost(b->rings, 1) + rings_lost(b->rings, 0);)
        counter_pause(&since_ms, "late requests to end");
}

/* ---- the pool ---- */

/* Idle for the time between two calls: all but 4 go; what was borrowed meanwhile stays. */
static void test_ring__the_unused_are_freed(void **state)
{
    enum { RINGS = 12, KEPT = 4, BORROWED = 6 };
    struct rings_config config;
    struct ring *out[RINGS];
    struct bench b;
    bench_init(&b, RINGS, false);
    need_uring(&b);
    rings_free(b.rings);
    config = (struct rings_config){
        .fds = b.fds, .count = 2, .limit = RINGS, .huge_bounce = true, .calls = disk_fake_calls()};
    assert_int_equal(rings_new(&config, &b.stats, &b.rings), 0);
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < RINGS; i++) {
            out[i] = borrow(&b);
            memset(ring_bounce(out[i]), i, RING_BOUNCE);
        }
        for (int i = 0; i < RINGS; i++)
            assert_int_equal(ring_bounce(out[i])[RING_BOUNCE - 1], i);
        for (int i = 0; i < RINGS; i++)
            rings_return(out[i]);
        rings_trim(b.rings);
        assert_int_equal(counter_get(&b.stats.rings), RINGS);
        for (int i = 0; i < BORROWED; i++)
            out[i] = borrow(&b);
        for (int i = 0; i < BORROWED; i++)
            rings_return(out[i]);
        rings_trim(b.rings);
        assert_int_equal(counter_get(&b.stats.rings), BORROWED);
        rings_trim(b.rings);
        assert_int_equal(counter_get(&b.stats.rings), KEPT);
    }
    bench_release(&b);
}

/* ---- reading ---- */

static void expect_right_reads(bool no_uring)
{
    struct bench b;
    bench_init(&b, 2, no_uring);
    struct ring *r = borrow(&b);
    struct ring_read reads[RING_READS_MAX];
    for (unsigned i = 0; i < RING_READS_MAX; i++)
        reads[i] = read_at(r, 0, i * 4096 % FILE_SIZE, 2048 + i, i * 3072);
    reads[7].off = FILE_SIZE - 100; /* short */
    assert_true(ring_read_all(r, reads, RING_READS_MAX, in_ms(LONG_MS)));
    for (unsigned i = 0; i < RING_READS_MAX; i++) {
        assert_int_equal(reads[i].rc, i == 7 || reads[i].off + reads[i].len > FILE_SIZE ? -EIO : 0);
        if (!reads[i].rc)
            assert_memory_equal(reads[i].buf, b.bytes + reads[i].off, reads[i].len);
    }
    rings_return(r);
    assert_int_equal(counter_get(&b.stats.reads) + counter_get(&b.stats.preads), RING_READS_MAX);
    if (no_uring)
        assert_int_equal(counter_get(&b.stats.reads), 0);
    bench_release(&b);
}

static void test_ring__reads_what_is_there(void **state)
{
    expect_right_reads(false);
}

static void test_ring__a_thread_reads_what_is_there(void **state)
{
    expect_right_reads(true);
}

static void test_ring__a_late_read_leaves_the_others_of_its_call_good(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    need_uring(&b);
    unsigned lost = 0;
    for (uint64_t soon = SOON_MS;; soon *= 2) { /* a busy machine may be late with both */
        struct ring *r = borrow(&b);
        struct ring_read reads[2] = {read_at(r, 1, 0, 4, 0), read_at(r, 0, 8192, 4096, 4096)};
        assert_false(ring_read_all(r, reads, 2, in_ms(soon)));
        bool good = reads[1].rc == 0;
        assert_int_equal(reads[0].rc, -ETIMEDOUT);
        if (good)
            assert_memory_equal(reads[1].buf, b.bytes + 8192, 4096);
        rings_return(r);
        lost++;
        assert_int_equal(rings_lost(b.rings, 1), 1);
        assert_int_equal(counter_get(&b.stats.lost), lost);
        answer(&b, 1);
        wait_until_none_is_lost(&b);
        if (good)
            break;
        assert_true(soon < LONG_MS);
    }
    bench_release(&b);
}

static void test_ring__an_answer_in_time_is_waited_for(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    need_uring(&b);
    struct ring *r = borrow(&b);
    struct ring_read read = read_at(r, 1, 0, 4, 0);
    answer(&b, 1);
    assert_true(ring_read_all(r, &read, 1, in_ms(LONG_MS)));
    assert_int_equal(read.rc, 0);
    assert_memory_equal(read.buf, "late", 4);
    rings_return(r);
    bench_release(&b);
}

static void test_ring__zombies_leave_the_pool_to_others_up_to_a_bound(void **state)
{
    struct bench b;
    bench_init(&b, 3, false);
    need_uring(&b);
    for (int i = 0; i < 6; i++)
        lose_one(&b);
    assert_int_equal(rings_lost(b.rings, 1), 6);
    assert_null(rings_borrow(b.rings, in_ms(LONG_MS))); /* at once: nobody could return one */
    answer(&b, 6);
    struct ring *r = borrow(&b); /* the answers make place, without a disk monitor */
    struct ring_read read = read_at(r, 0, 0, 4096, 0);
    assert_true(ring_read_all(r, &read, 1, in_ms(LONG_MS)));
    assert_int_equal(read.rc, 0);
    rings_return(r);
    wait_until_none_is_lost(&b);
    bench_release(&b);
}

/* Lose every ring that there may be at one time. */
static unsigned lose_all(struct bench *b)
{
    struct ring *rings[8];
    unsigned n = 0;
    while ((rings[n] = rings_borrow(b->rings, in_ms(0))))
        n++;
    for (unsigned i = 0; i < n; i++) {
        struct ring_read read = read_at(rings[i], 1, 0, 4, 0);
        assert_false(ring_read_all(rings[i], &read, 1, in_ms(SOON_MS)));
        rings_return(rings[i]);
    }
    return n;
}

static void test_ring__crowds_that_lose_all_there_are_leave_some_again(void **state)
{
    struct bench b;
    bench_init(&b, 4, false);
    need_uring(&b);
    assert_int_equal(lose_all(&b), 4);
    assert_int_equal(lose_all(&b), 2);
    assert_int_equal(lose_all(&b), 1);
    struct ring *r = borrow(&b);
    struct ring_read read = read_at(r, 0, 0, 4096, 0);
    assert_true(ring_read_all(r, &read, 1, in_ms(LONG_MS)));
    assert_int_equal(read.rc, 0);
    rings_return(r);
    answer(&b, 7);
    wait_until_none_is_lost(&b);
    assert_int_equal(lose_all(&b), 4);
    answer(&b, 4);
    wait_until_none_is_lost(&b);
    bench_release(&b);
}

static void *read_the_pipe(void *arg)
{
    struct bench *b = arg;
    struct ring *r = borrow(b);
    struct ring_read read = read_at(r, 1, 0, 4, 0);
    assert_true(ring_read_all(r, &read, 1, in_ms(LONG_MS)));
    rings_return(r);
    return NULL;
}

static void test_ring__a_read_beyond_its_deadline_is_seen_from_outside(void **state)
{
    struct bench b;
    pthread_t reader;
    bench_init(&b, 2, false);
    need_uring(&b);
    assert_int_equal(pthread_create(&reader, NULL, read_the_pipe, &b), 0);
    while (!rings_overdue(b.rings, in_ms(2 * LONG_MS))) /* as if so much time had gone */
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    assert_int_equal(rings_overdue(b.rings, in_ms(2 * LONG_MS)), 1 << 1);
    assert_int_equal(rings_overdue(b.rings, in_ms(0)), 0);
    answer(&b, 1);
    pthread_join(reader, NULL);
    assert_int_equal(rings_overdue(b.rings, in_ms(2 * LONG_MS)), 0);
    bench_release(&b);
}

static void test_ring__none_is_lent_beyond_the_limit(void **state)
{
    struct bench b;
    bench_init(&b, 2, true);
    struct ring *one = borrow(&b), *two = borrow(&b);
    assert_null(rings_borrow(b.rings, in_ms(SOON_MS)));
    rings_return(one);
    assert_ptr_equal(borrow(&b), one);
    rings_return(one);
    rings_return(two);
    bench_release(&b);
}

static void test_ring__the_pool_goes_without_an_answer_to_its_reads(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    need_uring(&b);
    lose_one(&b);
    rings_free(b.rings);
    answer(&b, 1); /* falls into memory that is nobody else's */
    close(b.fds[0]);
    close(b.fds[1]);
    close(b.pipe_in);
    scratch_remove(b.dir);
}

/* ---- the thread ---- */

static void test_ring__only_the_operation_that_hangs_is_late(void **state)
{
    struct bench b;
    bench_init(&b, 2, true);
    char other[SCRATCH_MAX + 16];
    snprintf(other, sizeof other, "%s/other", b.dir);
    int fd = open(other, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct rings_config config = {
        .fds = (int[]){b.fds[0], fd}, .count = 2, .limit = 2, .no_uring = true, .calls = disk_fake_calls()};
    struct rings *rings;
    assert_int_equal(pwrite(fd, b.bytes, 8192, 0), 8192);
    assert_int_equal(rings_new(&config, &b.stats, &rings), 0);

    bool hung = false;
    for (uint64_t soon = SOON_MS; !hung; soon *= 2) { /* a busy machine may not come so far in time */
        assert_true(soon < LONG_MS);
        disk_fake_reads(other, DISK_HANG, 0);
        struct ring *r = rings_borrow(rings, in_ms(LONG_MS));
        struct ring_read reads[3] = {read_at(r, 0, 0, 4096, 0), read_at(r, 1, 0, 4096, 4096),
                                     read_at(r, 0, 0, 4096, 8192)};
        assert_false(ring_read_all(r, reads, 3, in_ms(soon)));
        hung = reads[0].rc == 0;
        if (hung)
            assert_int_equal(reads[1].rc, -ETIMEDOUT);
        assert_int_equal(reads[2].rc, -ECANCELED); /* behind it: nothing is known of its disk */
        rings_return(r);
        assert_int_equal(rings_lost(rings, 1), 1);
        disk_fake_reset();
        for (uint64_t since_ms = 0; rings_reap(rings), rings_lost(rings, 1);)
            counter_pause(&since_ms, "late reads to end");
    }
    rings_free(rings);
    close(fd);
    bench_release(&b);
}

static void test_ring__writes_go_in_order_until_one_fails(void **state)
{
    struct bench b;
    uint8_t got[3];
    bench_init(&b, 2, false);
    struct ring *r = borrow(&b);
    memcpy(ring_bounce(r), "abc", 3);
    struct ring_write writes[3] = {
        {0, 10, 1, ring_bounce(r)}, {0, 10, 1, ring_bounce(r) + 1}, {0, 11, 1, ring_bounce(r) + 2}};
    assert_int_equal(ring_write_all(r, writes, 3, in_ms(LONG_MS)), 0);
    assert_int_equal(pread(b.fds[0], got, 2, 10), 2);
    assert_memory_equal(got, "bc", 2);
    disk_fake_writes(b.path, DISK_ERROR, ENOSPC);
    unsigned before = disk_fake_calls_made();
    assert_int_equal(ring_write_all(r, writes, 3, in_ms(LONG_MS)), -ENOSPC);
    assert_int_equal(disk_fake_calls_made() - before, 1);
    rings_return(r);
    bench_release(&b);
}

/* Write blocks 0 to 2, 5 and 6, each of its own letter, and check what the file has then. */
static void write_blocks(struct rings *rings, int fd)
{
    enum { BLOCKS = 7, WRITES = 5 };
    static const uint64_t blocks[WRITES] = {0, 1, 2, 5, 6};
    struct ring_write writes[WRITES];
    struct buf *held[WRITES];
    int rc[WRITES];
    uint8_t got[BLOCKS * 4096], expected[BLOCKS * 4096];
    assert_int_equal(pread(fd, expected, sizeof expected, 0), sizeof expected);
    for (unsigned i = 0; i < WRITES; i++) {
        held[i] = buf_new(4096);
        memset(held[i]->data, 'a' + (int)i, 4096);
        memset(expected + blocks[i] * 4096, 'a' + (int)i, 4096);
        writes[i] = (struct ring_write){0, blocks[i] * 4096, 4096, held[i]->data};
    }
    struct ring *r = rings_borrow(rings, in_ms(LONG_MS));
    assert_non_null(r);
    ring_write_each(r, writes, held, WRITES, rc, in_ms(LONG_MS));
    rings_return(r);
    for (unsigned i = 0; i < WRITES; i++) {
        assert_int_equal(rc[i], 0);
        assert_int_equal(atomic_load(&held[i]->refs), 1);
        buf_unref(held[i]);
    }
    assert_int_equal(pread(fd, got, sizeof got, 0), sizeof got);
    assert_memory_equal(got, expected, sizeof got);
}

static void test_ring__writes_at_once_go_where_they_belong(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    int direct = open(b.path, O_RDWR | O_CLOEXEC | O_DIRECT); /* -1: no direct I/O here, and so the thread writes */
    for (int async = 0; async < 2; async++) {
        struct rings_config config = {.fds = direct < 0 ? b.fds : &direct, .count = 1, .limit = 1, .async = async};
        struct rings *rings;
        assert_int_equal(rings_new(&config, &b.stats, &rings), 0);
        write_blocks(rings, b.fds[0]);
        rings_free(rings);
        assert_int_equal(pwrite(b.fds[0], b.bytes, FILE_SIZE, 0), FILE_SIZE);
    }
    write_blocks(b.rings, b.fds[0]);
    if (direct >= 0)
        close(direct);
    bench_release(&b);
}

static void test_ring__of_writes_at_once_each_has_its_result(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    struct buf *source = buf_new(4096);
    struct buf *const held[2] = {source, source};
    const struct ring_write writes[2] = {{0, 0, 4096, source->data}, {0, 8192, 4096, source->data}};
    int rc[2];
    struct ring *r = borrow(&b);
    disk_fake_writes(b.path, DISK_ERROR, ENOSPC);
    ring_write_each(r, writes, held, 2, rc, in_ms(LONG_MS));
    assert_int_equal(rc[0], -ENOSPC);
    assert_int_equal(rc[1], -ECANCELED);
    assert_int_equal(atomic_load(&source->refs), 1);
    disk_fake_reset();
    ring_write_each(r, writes, held, 2, rc, in_ms(LONG_MS));
    assert_true(!rc[0] && !rc[1]);
    rings_return(r);
    buf_unref(source);
    bench_release(&b);
}

/* Write to a disk that hangs until it does so in the first write: a busy machine may be late before that. */
static void write_late(struct bench *b, const struct ring_write *writes, size_t n, struct buf *source)
{
    disk_fake_writes(b->path, DISK_HANG, 0);
    for (uint64_t soon = SOON_MS; !disk_fake_hanging(); soon *= 2) {
        assert_true(soon < LONG_MS);
        struct ring *r = borrow(b);
        struct buf *const held[2] = {source, source};
        int rc[2];
        ring_write_each(r, writes, held, n, rc, in_ms(soon));
        for (size_t i = 0; i < n; i++)
            assert_int_equal(rc[i], -ETIMEDOUT);
        rings_return(r);
        for (uint64_t since_ms = 0; !disk_fake_hanging() && (rings_reap(b->rings), rings_lost(b->rings, 0));)
            counter_pause(&since_ms, "a write that hangs");
    }
}

static void test_ring__a_late_write_keeps_its_bytes_and_begins_nothing_more(void **state)
{
    struct bench b;
    uint8_t got[2] = {0};
    bench_init(&b, 2, false);
    struct buf *source = buf_new(4096);
    memset(source->data, 'x', 4096);
    struct ring_write writes[2] = {{0, 0, 4096, source->data}, {0, 8192, 4096, source->data}};
    write_late(&b, writes, 2, source);
    assert_int_equal(rings_lost(b.rings, 0), 1);
    assert_int_equal(atomic_load(&source->refs), 3);
    disk_fake_reset();
    wait_until_none_is_lost(&b);
    assert_int_equal(atomic_load(&source->refs), 1);
    assert_int_equal(pread(b.fds[0], got, 1, 0), 1);
    assert_int_equal(pread(b.fds[0], got + 1, 1, 8192), 1);
    assert_int_equal(got[0], 'x');
    assert_int_equal(got[1], b.bytes[8192]);
    buf_unref(source);
    bench_release(&b);
}

static void test_ring__the_pool_goes_and_a_late_write_cleans_up_behind_itself(void **state)
{
    struct bench b;
    bench_init(&b, 2, false);
    struct buf *source = buf_new(4096);
    memset(source->data, 'x', 4096);
    struct ring_write write = {0, 0, 4096, source->data};
    write_late(&b, &write, 1, source);
    rings_free(b.rings);
    b.rings = NULL;
    assert_int_equal(atomic_load(&source->refs), 2);
    disk_fake_reset();
    for (uint64_t since_ms = 0; atomic_load(&source->refs) > 1;)
        counter_pause(&since_ms, "the late write");
    buf_unref(source);
    bench_release(&b);
}

/* ---- many ---- */

struct crowd {
    struct bench *b;
    _Atomic unsigned seed, reads;
};

static void *read_in_crowd(void *arg)
{
    struct crowd *c = arg;
    unsigned seed = atomic_fetch_add(&c->seed, 1);
    for (unsigned i = 0; i < 200; i++) {
        struct ring *r;
        while (!(r = rings_borrow(c->b->rings, in_ms(LONG_MS)))) /* all are zombies at the moment */
            sched_yield();
        uint32_t off = (seed * 7919 + i * 4099) % (FILE_SIZE - 4096);
        struct ring_read read = read_at(r, 0, off, 4096, 0);
        bool in_time = ring_read_all(r, &read, 1, in_ms(i % 50 == 49 ? 0 : LONG_MS)); /* some give up at once */
        if (!read.rc && memcmp(read.buf, c->b->bytes + off, 4096) == 0)
            atomic_fetch_add(&c->reads, 1);
        else if (in_time)
            fail_msg("a read failed: %d", read.rc);
        rings_return(r);
    }
    return NULL;
}

static void expect_crowd_reads(bool no_uring)
{
    enum { THREADS = 12 };
    struct bench b;
    pthread_t threads[THREADS];
    bench_init(&b, 4, no_uring);
    struct crowd c = {.b = &b};
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_in_crowd, &c), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_in_range(atomic_load(&c.reads), THREADS * 196, THREADS * 200);
    wait_until_none_is_lost(&b);
    bench_release(&b);
}

static void test_ring__a_crowd_that_gives_up_now_and_then_reads_right(void **state)
{
    expect_crowd_reads(false);
}

static void test_ring__a_crowd_reads_right_by_threads(void **state)
{
    expect_crowd_reads(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ring__the_unused_are_freed),
        cmocka_unit_test(test_ring__reads_what_is_there),
        cmocka_unit_test(test_ring__a_thread_reads_what_is_there),
        cmocka_unit_test(test_ring__a_late_read_leaves_the_others_of_its_call_good),
        cmocka_unit_test(test_ring__an_answer_in_time_is_waited_for),
        cmocka_unit_test(test_ring__zombies_leave_the_pool_to_others_up_to_a_bound),
        cmocka_unit_test(test_ring__crowds_that_lose_all_there_are_leave_some_again),
        cmocka_unit_test(test_ring__a_read_beyond_its_deadline_is_seen_from_outside),
        cmocka_unit_test(test_ring__none_is_lent_beyond_the_limit),
        cmocka_unit_test(test_ring__the_pool_goes_without_an_answer_to_its_reads),
        cmocka_unit_test(test_ring__only_the_operation_that_hangs_is_late),
        cmocka_unit_test(test_ring__writes_go_in_order_until_one_fails),
        cmocka_unit_test(test_ring__writes_at_once_go_where_they_belong),
        cmocka_unit_test(test_ring__of_writes_at_once_each_has_its_result),
        cmocka_unit_test(test_ring__a_late_write_keeps_its_bytes_and_begins_nothing_more),
        cmocka_unit_test(test_ring__the_pool_goes_and_a_late_write_cleans_up_behind_itself),
        cmocka_unit_test(test_ring__a_crowd_that_gives_up_now_and_then_reads_right),
        cmocka_unit_test(test_ring__a_crowd_reads_right_by_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
