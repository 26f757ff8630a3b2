/* A client of the NBD server that sends one request at a time: the thread that answered it receives the next request.
 * What that thread may not do: hold up the client's other requests, the client's end, or the server's. */
#include "unit/cmocka_all.h"

#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "store/store.h"
#include "unit/nbd_world.h"

enum { READS = 64, READ_LEN = 4096, CACHED = CHUNKS / 2, MISS = CACHED + 1 };

static atomic_uint rounds; /* of the connections' thread */
static atomic_bool keeps, silent;

int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __real_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int __wrap_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);

int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
    int n = __real_epoll_wait(fd, events, max, timeout_ms);
    rounds += n > 0;
    return n;
}

/* A thread that waits for its client's next request does so without end, however busy the machine is. */
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
    bool one_of_them = timeout_ms > 0 && timeout_ms < 10;
    keeps |= one_of_them;
    return __real_poll(fds, n, one_of_them ? WAIT_MS : timeout_ms);
}

int __wrap_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    while (silent)
        sleep_ms(1);
    return __real_store_get(s, key, off, len, sink, arg);
}

static void ask_at(int fd, uint64_t off)
{
    ask(fd, NBD_WIRE_READ, off, off, READ_LEN);
}

static void expect_read(int fd, uint64_t off)
{
    uint8_t got[READ_LEN], want[READ_LEN];
    must(!receive_error(fd, off), "an error");
    receive(fd, got, sizeof got);
    image_fake_bytes(&w.img, off, want, sizeof want);
    must(!memcmp(got, want, sizeof want), "wrong byte in the read at %llu", (unsigned long long)off);
}

/* Serve what is cached of the image, and read until a thread waits for the client. */
static int begin(void)
{
    world_init(at_most(THREADS));
    cache_range(0, (uint64_t)CACHED * CHUNK);
    int fd = attach();
    keeps = false;
    for (uint64_t until = clock_now_ms() + WAIT_MS; !keeps && clock_now_ms() < until;) {
        ask_at(fd, 0);
        expect_read(fd, 0);
    }
    must(keeps, "no thread waits for the client");
    return fd;
}

static void end(int fd)
{
    close(fd);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    world_release();
}

static void test_nbd_kept__the_connections_thread_sleeps(void **state)
{
    int fd = begin();
    unsigned before = rounds;
    for (uint64_t k = 0; k < READS; k++) {
        ask_at(fd, k % CACHED * CHUNK);
        expect_read(fd, k % CACHED * CHUNK);
    }
    assert_in_range(rounds - before, 0, READS / 8);
    end(fd);
}

/* The next request comes while the thread waits for the store. */
static void test_nbd_kept__a_miss_does_not_hold_up_the_next_request(void **state)
{
    int fd = begin();
    silent = true;
    ask_at(fd, (uint64_t)MISS * CHUNK);
    while (stats().memory < READ_LEN) /* it has been received */
        sleep_ms(1);
    ask_at(fd, CHUNK);
    expect_read(fd, CHUNK);
    silent = false;
    expect_read(fd, (uint64_t)MISS * CHUNK);
    end(fd);
}

static void test_nbd_kept__requests_that_come_together_are_done_by_several(void **state)
{
    enum { MISSES = 2 };
    int fd = begin();
    silent = true;
    for (uint64_t k = 0; k < MISSES; k++)
        ask_at(fd, (MISS + k) * CHUNK);
    ask_at(fd, CHUNK);
    expect_read(fd, CHUNK);
    silent = false;
    uint8_t replies[MISSES * (sizeof(struct nbd_wire_simple_reply) + READ_LEN)];
    receive(fd, replies, sizeof replies); /* in any order */
    end(fd);
}

/* Other clients are served while threads wait for theirs, and the threads are not all taken. */
static void test_nbd_kept__many_clients_take_turns(void **state)
{
    enum { CLIENTS = 3 * THREADS };
    int fds[CLIENTS], first = begin();
    uint64_t began_ms = clock_now_ms();
    for (size_t i = 0; i < CLIENTS; i++)
        fds[i] = attach();
    for (uint64_t k = 0; k < READS; k++) {
        ask_at(fds[k % CLIENTS], k % CACHED * CHUNK);
        expect_read(fds[k % CLIENTS], k % CACHED * CHUNK);
    }
    assert_true(stats().threads <= THREADS);
    assert_true(clock_now_ms() - began_ms < WAIT_MS / 2);
    for (size_t i = 0; i < CLIENTS; i++)
        close(fds[i]);
    end(first);
}

static void test_nbd_kept__the_server_ends_without_waiting_for_the_client(void **state)
{
    int fd = begin();
    uint64_t began_ms = clock_now_ms();
    world_release();
    assert_true(clock_now_ms() - began_ms < WAIT_MS / 2);
    expect_end(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_kept__the_connections_thread_sleeps),
        cmocka_unit_test(test_nbd_kept__a_miss_does_not_hold_up_the_next_request),
        cmocka_unit_test(test_nbd_kept__requests_that_come_together_are_done_by_several),
        cmocka_unit_test(test_nbd_kept__many_clients_take_turns),
        cmocka_unit_test(test_nbd_kept__the_server_ends_without_waiting_for_the_client),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
