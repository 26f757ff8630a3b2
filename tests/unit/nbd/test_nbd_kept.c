/* A client of the NBD server that sends one request at a time: the thread that answered it receives the next request.
 * What that thread may not do: hold up the client's other requests, the client's end, or the server's. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/epoll.h>

#include "nbd/request.h"
#include "store/store.h"
#include "unit/nbd_world.h"

enum { READS = 64, READ_LEN = 4096, CACHED = CHUNKS / 2, MISS = CACHED + 1, SOON_MS = 50 };

static atomic_uint rounds; /* of the connections' thread */
static atomic_bool keeps, silent;
static atomic_bool blocks;      /* the next reply that is sent meets a full socket */
static atomic_int stirred = -1; /* the client whose byte comes while the second request is parsed; -1: none */
static atomic_uint parsed;      /* requests, since `stirred` was set */
static atomic_bool was_kept;    /* a client, meanwhile */

int __real_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms);
int __wrap_epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms);
int __real_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout_ms);
int __real_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int __wrap_store_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
int __real_request_parse(const uint8_t *wire, uint64_t size, struct request *out);
int __wrap_request_parse(const uint8_t *wire, uint64_t size, struct request *out);

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

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    if (!atomic_exchange(&blocks, false))
        return __real_sendmsg(fd, message, flags);
    errno = EAGAIN;
    return -1;
}

/* The worker that keeps the other client wakes up, and finds the first request queued. */
int __wrap_request_parse(const uint8_t *wire, uint64_t size, struct request *out)
{
    if (stirred >= 0 && ++parsed == 2) {
        keeps = false;
        transmit(stirred, "", 1);
        for (uint64_t until = clock_now_ms() + SOON_MS; !keeps && clock_now_ms() < until;)
            sleep_ms(1);
        was_kept = keeps;
    }
    return __real_request_parse(wire, size, out);
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
    while (stats().memory) /* the last reply's is released after it has been sent */
        sleep_ms(1);
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

/* Ask for what the store delivers when it is no longer silent, and wait until that has been received. */
static void ask_silent_store(int fd, uint64_t off)
{
    silent = true;
    ask_at(fd, off);
    while (stats().memory < READ_LEN)
        sleep_ms(1);
}

/* Another request is answered while the read at `off` waits for the store. */
static void expect_no_hold_up(int fd, uint64_t off)
{
    ask_silent_store(fd, off);
    ask_at(fd, CHUNK);
    expect_read(fd, CHUNK);
    silent = false;
    expect_read(fd, off);
}

static void test_nbd_kept__a_miss_does_not_hold_up_the_next_request(void **state)
{
    int fd = begin();
    expect_no_hold_up(fd, (uint64_t)MISS * CHUNK);
    end(fd);
}

/* Overwrite the first chunk on the cache's disk. */
static void spoil_first_chunk(void)
{
    static uint8_t chunk[CHUNK], got[CHUNK];
    char path[SCRATCH_MAX + 16];
    off_t at = 0;
    snprintf(path, sizeof path, "%s/cache/data", w.dir);
    CLEANUP_FD int fd = open(path, O_RDWR | O_CLOEXEC);
    image_fake_bytes(&w.img, 0, chunk, sizeof chunk);
    while (pread(fd, got, sizeof got, at) > 0 && memcmp(got, chunk, sizeof got))
        at += READ_LEN;
    memset(chunk, 0, sizeof chunk);
    assert_true(pwrite(fd, chunk, sizeof chunk, at) == sizeof chunk && !fsync(fd));
}

/* The cache has the chunk, as far as it knows. */
static void test_nbd_kept__a_bad_chunk_does_not_hold_up_the_next_request(void **state)
{
    int fd = begin();
    spoil_first_chunk();
    expect_no_hold_up(fd, 0);
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

static void expect_gone(int fd)
{
    expect_end(fd);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    world_release();
}

static void test_nbd_kept__garbage_ends_the_connection(void **state)
{
    static const uint8_t garbage[REQUEST_SIZE] = {1};
    int fd = begin();
    transmit(fd, garbage, sizeof garbage);
    expect_gone(fd);
}

static void test_nbd_kept__the_end_of_input_ends_the_connection(void **state)
{
    int fd = begin();
    shutdown(fd, SHUT_WR);
    expect_gone(fd);
}

static void test_nbd_kept__a_client_may_disconnect(void **state)
{
    int fd = begin();
    ask(fd, NBD_WIRE_DISC, 0, 0, 0);
    expect_gone(fd);
}

/* A client may send requests without waiting for the handshake's end. The handshake then ends after an event of output,
 * in the connections' thread, which still has the client's other requests when the first is answered. */
static void test_nbd_kept__not_while_the_connections_thread_has_its_input(void **state)
{
    const struct __attribute__((packed)) {
        struct nbd_wire_option_head list, go;
        uint8_t export[11];
        struct nbd_wire_request reads[2];
    } all = {
        .list = option_head(NBD_WIRE_OPT_LIST, 0),
        .go = option_head(NBD_WIRE_OPT_GO, sizeof all.export),
        .export = {0, 0, 0, 5, 'f', 'a', 'c', 'e', 's', 0, 0},
        .reads = {wire_request(NBD_WIRE_READ, 0, 0, READ_LEN), wire_request(NBD_WIRE_READ, CHUNK, CHUNK, READ_LEN)}};
    int other = begin(), fd = greet(NBD_WIRE_FIXED_NEWSTYLE | NBD_WIRE_NO_ZEROES);
    parsed = 0;
    blocks = true;
    stirred = other;
    transmit(fd, &all, sizeof all);
    assert_int_equal(outcome(fd, NULL), NBD_WIRE_REP_ACK);
    assert_int_equal(outcome(fd, NULL), NBD_WIRE_REP_ACK);
    for (uint64_t k = 0; k < 2; k++)
        expect_read(fd, k * CHUNK);
    stirred = -1;
    assert_false(was_kept);
    close(other);
    end(fd);
}

static void test_nbd_kept__the_server_ends_without_waiting_for_the_client(void **state)
{
    int fd = begin();
    uint64_t began_ms = clock_now_ms();
    world_release();
    assert_true(clock_now_ms() - began_ms < WAIT_MS / 2);
    expect_end(fd);
}

static void *read_late(void *arg)
{
    int fd = *(const int *)arg;
    sleep_ms(SOON_MS); /* the server is ending by then, most times */
    silent = false;
    expect_read(fd, (uint64_t)MISS * CHUNK);
    expect_end(fd);
    return NULL;
}

static void test_nbd_kept__the_server_ends_after_the_last_reply(void **state)
{
    int fd = begin();
    pthread_t thread;
    ask_silent_store(fd, (uint64_t)MISS * CHUNK);
    assert_int_equal(pthread_create(&thread, NULL, read_late, &fd), 0);
    world_release();
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_kept__the_connections_thread_sleeps),
        cmocka_unit_test(test_nbd_kept__a_miss_does_not_hold_up_the_next_request),
        cmocka_unit_test(test_nbd_kept__a_bad_chunk_does_not_hold_up_the_next_request),
        cmocka_unit_test(test_nbd_kept__requests_that_come_together_are_done_by_several),
        cmocka_unit_test(test_nbd_kept__many_clients_take_turns),
        cmocka_unit_test(test_nbd_kept__garbage_ends_the_connection),
        cmocka_unit_test(test_nbd_kept__the_end_of_input_ends_the_connection),
        cmocka_unit_test(test_nbd_kept__a_client_may_disconnect),
        cmocka_unit_test(test_nbd_kept__not_while_the_connections_thread_has_its_input),
        cmocka_unit_test(test_nbd_kept__the_server_ends_without_waiting_for_the_client),
        cmocka_unit_test(test_nbd_kept__the_server_ends_after_the_last_reply),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
