/* An io_uring that fails in the middle of reads: the linker puts a kernel in its place that refuses at the call the
 * test chose. No byte is wrong, no chunk is given up for it, and the cache goes on.
 */
#include "unit/cache_world.h"

#include <liburing.h>

enum { CHUNKS = 80, PIECES = 20 }; /* a call of 20 pieces is more than one submission holds */
static const uint32_t lens[] = {128 << 10};

enum trouble {
    NONE,
    REFUSES,   /* the reads are not taken, an error is returned */
    BREAKS,    /* they are, and then an error is returned */
    INTERRUPTS /* a signal, again and again; then all is well */
};

static _Atomic enum trouble trouble;
static _Atomic unsigned calls_until_trouble, troubles;

int __real_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                                            struct __kernel_timespec *ts, sigset_t *mask);
int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                                            struct __kernel_timespec *ts, sigset_t *mask);

int __wrap_io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                                            struct __kernel_timespec *ts, sigset_t *mask)
{
    enum trouble now = atomic_load(&trouble);
    if (now == NONE || atomic_fetch_sub(&calls_until_trouble, 1) != 1)
        return __real_io_uring_submit_and_wait_timeout(ring, cqe, n, ts, mask);
    atomic_fetch_add(&troubles, 1);
    if (now == INTERRUPTS) {
        atomic_store(&calls_until_trouble, 2); /* every other call */
        return -EINTR;
    }
    if (now == BREAKS)
        io_uring_submit(ring);
    return -EBADR;
}

static void set_trouble(enum trouble kind, unsigned calls)
{
    atomic_store(&troubles, 0);
    atomic_store(&calls_until_trouble, calls);
    atomic_store(&trouble, kind);
}

static void start(struct world *w)
{
    set_trouble(NONE, 0);
    world_init(w, CHUNKS, lens, 1, 64 << 20);
    world_open(w);
    world_warm(w);
    world_expect(w, 0);
    if (!count_of(w, "rings")) {
        world_release(w);
        print_message("SKIPPED: no io_uring here\n");
        skip();
    }
}

/* Every chunk in calls of many pieces; what the n-th call meets is set. */
static void read_all(struct world *w)
{
    struct cache_piece p[CHUNKS];
    CLEANUP_FREE uint8_t *dst = malloc((size_t)CHUNKS * lens[0]);
    for (unsigned i = 0; i < CHUNKS; i++)
        p[i] = world_piece(w, i, 0, lens[0], dst + (size_t)i * lens[0]);
    for (unsigned at = 0; at < CHUNKS; at += PIECES)
        if (cache_read(w->cache, p + at, PIECES, NULL, 0, PRIORITY_DEMAND))
            fail_msg("%s", error_text());
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_true(memcmp(p[i].dst, w->plain[i], lens[0]) == 0);
}

static void test_cache_uring__reads_it_refuses_are_done_without_it(void **state)
{
    for (unsigned call = 1; call < 6; call++) {
        struct world w;
        start(&w);
        store_fake_set_dead(w.fake, -EIO);
        set_trouble(REFUSES, call);
        read_all(&w);
        assert_int_equal(troubles, 1);
        assert_true(count_of(&w, "pread_reads_total") > 0);
        set_trouble(NONE, 0);
        read_all(&w);
        assert_int_equal(count_of(&w, "entries"), CHUNKS);
        world_check(&w);
        world_release(&w);
    }
}

static void test_cache_uring__reads_lost_in_it_come_from_the_store(void **state)
{
    for (unsigned call = 1; call < 6; call++) {
        struct world w;
        start(&w);
        set_trouble(BREAKS, call);
        read_all(&w);
        assert_int_equal(troubles, 1);
        set_trouble(NONE, 0);
        world_settle(&w);
        read_all(&w);
        assert_int_equal(count_of(&w, "crc_errors_total"), 0);
        assert_int_equal(count_of(&w, "entries"), CHUNKS);
        world_check(&w);
        world_release(&w);
    }
}

static void test_cache_uring__a_signal_in_the_middle_changes_nothing(void **state)
{
    struct world w;
    start(&w);
    store_fake_set_dead(w.fake, -EIO);
    set_trouble(INTERRUPTS, 1);
    read_all(&w);
    assert_true(troubles > 1);
    assert_int_equal(count_of(&w, "pread_reads_total"), 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_uring__reads_it_refuses_are_done_without_it),
        cmocka_unit_test(test_cache_uring__reads_lost_in_it_come_from_the_store),
        cmocka_unit_test(test_cache_uring__a_signal_in_the_middle_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
