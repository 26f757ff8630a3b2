/* Clients that always have short reads in flight, and one that asks now and then: it gets its turn, where there is no
 * thread but those that are busy for the others. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>

#include "base/thread.h"
#include "nbd/server_internal.h"
#include "unit/hung_read.h"
#include "unit/nbd_world.h"

enum { READ_LEN = 4096, CACHED = CHUNKS / 2, BUSY_MOST = 3, DELAY_MS = 16, ASKED = 8, ROUNDS_MOST = 60 };

/* ---- threads that cannot be started ---- */

static atomic_int startable = INT_MAX; /* workers */

int __real_thread_start(pthread_t *out, thread_run *run, void *arg);
int __wrap_thread_start(pthread_t *out, thread_run *run, void *arg);

int __wrap_thread_start(pthread_t *out, thread_run *run, void *arg)
{
    if (run == workers_run && startable-- <= 0)
        return error_set(-EAGAIN, "no thread");
    return __real_thread_start(out, run, arg);
}

/* ---- busy clients ---- */

struct busy {
    pthread_t thread;
    int fd;
    unsigned depth;
};

static atomic_bool stop;
static atomic_uint served, served_most; /* replies to all of them; with more they stop */

/* Keep `depth` reads of cached data unanswered until it is to stop. */
static void *be_busy(void *arg)
{
    const struct busy *b = arg;
    struct {
        struct nbd_wire_simple_reply head;
        uint8_t data[READ_LEN];
    } reply;
    for (unsigned asked = 0, answered = 0; asked > answered || !stop;) {
        struct nbd_wire_request requests[64];
        unsigned n = 0;
        while (!stop && asked + n - answered < b->depth) {
            requests[n] = wire_request(NBD_WIRE_READ, n, (asked + n) % CACHED * CHUNK, READ_LEN);
            n++;
        }
        transmit(b->fd, requests, n * sizeof *requests);
        asked += n;
        if (asked == answered)
            continue;
        receive(b->fd, &reply, sizeof reply);
        must(!reply.head.error, "an error");
        answered++;
        if (++served > served_most)
            stop = true;
    }
    return NULL;
}

/* A client asks for chunks one by one from `first` on, while n others are busy. Is each answered before these have got
 * ROUNDS_MOST rounds of `depth` replies? Not milliseconds: on a slow machine all are slow. If not, the others stop. */
static bool gets_its_turn(struct nbd_server_config config, unsigned n, unsigned depth, uint64_t first)
{
    struct busy busy[BUSY_MOST];
    uint8_t got[READ_LEN];
    world_init(config);
    cache_range(0, (uint64_t)CACHED * CHUNK);
    int fd = attach();
    stop = false;
    served = 0;
    served_most = UINT_MAX;
    hung_delay_ms = DELAY_MS;
    for (unsigned i = 0; i < n; i++) {
        busy[i] = (struct busy){.fd = attach(), .depth = depth};
        must(!pthread_create(&busy[i].thread, NULL, be_busy, &busy[i]), "no thread");
    }
    while (served < n * depth * 2)
        sleep_ms(1);
    for (uint64_t k = 0; k < ASKED; k++) {
        served_most = served + ROUNDS_MOST * n * depth;
        ask(fd, NBD_WIRE_READ, k, (first + k) * CHUNK, READ_LEN);
        must(!receive_error(fd, k), "an error");
        receive(fd, got, sizeof got);
    }
    bool in_time = !stop;
    stop = true;
    for (unsigned i = 0; i < n; i++) {
        pthread_join(busy[i].thread, NULL);
        close(busy[i].fd);
    }
    hung_delay_ms = 0;
    close(fd);
    wait_for_clients(0);
    assert_int_equal(stats().memory, 0);
    world_release();
    return in_time;
}

/* The second thread is the reserve, and may not take it. Which of them serves the busy client is chance. */
static void test_nbd_turns__a_read_that_is_not_cached_gets_its_turn(void **state)
{
    for (unsigned i = 0; i < 3; i++)
        assert_true(gets_its_turn(at_most(2), 1, 12, CACHED + 1));
}

/* The busy client has more requests waiting than one thread takes. */
static void test_nbd_turns__the_second_in_the_ring_gets_its_turn(void **state)
{
    assert_true(gets_its_turn(at_most(1), 1, 64, 0));
}

static void test_nbd_turns__threads_that_cannot_be_started_do_not_count(void **state)
{
    startable = BUSY_MOST;
    assert_true(gets_its_turn(at_most(32), BUSY_MOST, 16, 0));
    assert_true(startable < 0); /* it was tried */
    startable = INT_MAX;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nbd_turns__a_read_that_is_not_cached_gets_its_turn),
        cmocka_unit_test(test_nbd_turns__the_second_in_the_ring_gets_its_turn),
        cmocka_unit_test(test_nbd_turns__threads_that_cannot_be_started_do_not_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
