/* Short reads of cached data that are in flight at the cache's disk: one that hangs, or is bad, holds up neither the
 * others nor what the client asks for meanwhile, nor the client's end, nor the server's for longer than a disk may
 * take. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>

#include "cache/cache_internal.h"
#include "unit/hung_read.h"
#include "unit/nbd_world.h"

enum { THREADS_MOST = 8, READS = 32, READ_LEN = 4096, SOON_MS = 200, LONG_MS = 60000 };

static struct cache *cache(void)
{
    return stack_cache(w.serving.stack);
}

/* Serve the cached image over a store that is gone unless `stored`. */
static int begin(bool stored)
{
    char path[SCRATCH_MAX + 16];
    world_init(at_most(THREADS_MOST));
    cache_all();
    snprintf(path, sizeof path, "%s/packs", w.dir);
    if (!stored)
        scratch_remove(path);
    return attach();
}

static void end(int fd)
{
    if (fd >= 0)
        close(fd);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    hung_read_end();
    world_release();
}

static void ask_many(int fd, uint64_t first, uint64_t n)
{
    struct nbd_wire_request asked[READS];
    for (uint64_t k = 0; k < n; k++)
        asked[k] = wire_request(NBD_WIRE_READ, first + k, (first + k) % CHUNKS * CHUNK, READ_LEN);
    transmit(fd, asked, n * sizeof *asked);
}

/* Receive a reply, whichever it is; returns its cookie. */
static uint64_t receive_any(int fd)
{
    struct nbd_wire_simple_reply reply;
    uint8_t got[READ_LEN], want[READ_LEN];
    receive(fd, &reply, sizeof reply);
    must(be32toh(reply.magic) == NBD_WIRE_SIMPLE_MAGIC && !reply.error, "no reply");
    receive(fd, got, sizeof got);
    image_fake_bytes(&w.img, reply.cookie % CHUNKS * CHUNK, want, sizeof want);
    must(!memcmp(got, want, sizeof want), "wrong byte in read %llu", (unsigned long long)reply.cookie);
    return reply.cookie;
}

/* Receive n replies, none of them twice; returns the sum of their cookies. */
static uint64_t receive_many(int fd, uint64_t n)
{
    uint64_t sum = 0;
    while (n--)
        sum += receive_any(fd);
    return sum;
}

/* Begin with a disk that may take so long. Ask for READS reads, of which one hangs, and receive the others. Returns the
 * number of the one. Without io_uring, which containers often forbid, the test is skipped. */
static uint64_t begin_with_one_hung(bool stored, uint64_t disk_timeout_ms, int *out_fd)
{
    int fd = begin(stored);
    cache()->disk_timeout_ms = disk_timeout_ms;
    ask_many(fd, 0, 1);
    (void)receive_any(fd);
    if (!counter_get(&cache()->reader_stats.reads)) {
        end(fd);
        skip();
    }
    *out_fd = fd;
    hung_read_begin();
    ask_many(fd, 0, READS);
    return READS * (READS - 1) / 2 - receive_many(fd, READS - 1);
}

static void test_nbd_in_flight__a_hung_read_holds_up_nothing(void **state)
{
    int fd;
    uint64_t hung = begin_with_one_hung(true, LONG_MS, &fd);
    ask_many(fd, READS, READS);
    receive_many(fd, READS);
    for (uint64_t k = 0; k < READS; k++) { /* one at a time */
        ask_many(fd, k, 1);
        assert_int_equal(receive_any(fd), k);
    }
    hung_read_end(); /* the disk's answer is short, so the store is asked */
    assert_int_equal(receive_any(fd), hung);
    end(fd);
}

static void test_nbd_in_flight__what_hangs_comes_from_the_store(void **state)
{
    int fd;
    uint64_t hung = begin_with_one_hung(true, SOON_MS, &fd);
    assert_int_equal(receive_any(fd), hung);
    end(fd);
}

static void test_nbd_in_flight__a_client_may_vanish(void **state)
{
    int fd;
    (void)begin_with_one_hung(false, SOON_MS, &fd);
    int other = attach();
    ask_many(fd, 0, READS);
    close(fd);
    ask_many(other, 0, 1);
    (void)receive_any(other);
    close(other);
    end(-1);
}

static void test_nbd_in_flight__the_server_ends(void **state)
{
    int fd;
    (void)begin_with_one_hung(false, SOON_MS, &fd);
    uint64_t began_ms = clock_now_ms();
    ask_many(fd, 0, READS / 2);
    receive_many(fd, READS / 2);
    nbd_server_stop(steal_ptr(&w.server), 0); /* no time to drain */
    assert_true(clock_now_ms() - began_ms < WAIT_MS / 2);
    hung_read_end();
    world_release();
    expect_end(fd);
}

/* Flip a bit of a chunk on the cache's disk. */
static void flip_a_bit(uint64_t chunk)
{
    uint8_t want[READ_LEN], got[READ_LEN];
    char path[SCRATCH_MAX + 16];
    off_t at = 0;
    snprintf(path, sizeof path, "%s/cache/data", w.dir);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    image_fake_bytes(&w.img, chunk * CHUNK, want, sizeof want);
    while (pread(fd, got, sizeof got, at) > 0 && memcmp(got, want, sizeof got))
        at += READ_LEN;
    got[READ_LEN / 2] ^= 1;
    assert_true(pwrite(fd, got, sizeof got, at) == sizeof got && !fsync(fd));
}

static void test_nbd_in_flight__a_flipped_bit_is_fetched(void **state)
{
    int fd = begin(true);
    flip_a_bit(READS / 2);
    ask_many(fd, 0, READS);
    assert_int_equal(receive_many(fd, READS), READS * (READS - 1) / 2);
    assert_int_equal(counter_get(&cache()->stats.crc_errors), 1);
    end(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_in_flight__a_hung_read_holds_up_nothing),
        cmocka_unit_test(test_nbd_in_flight__what_hangs_comes_from_the_store),
        cmocka_unit_test(test_nbd_in_flight__a_client_may_vanish),
        cmocka_unit_test(test_nbd_in_flight__the_server_ends),
        cmocka_unit_test(test_nbd_in_flight__a_flipped_bit_is_fetched),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
