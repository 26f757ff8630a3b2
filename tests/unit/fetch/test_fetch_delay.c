/* What waits in the queue for its neighbours, and what is learned of them, with a clock that can be stopped. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <time.h>
#include <unistd.h>

#include "unit/fetch_world.h"

enum { GET_MS = 20, ALONE = 24, TURNS_MOST = 200, HANGS_S = 600 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool stopped; /* under the lock, like at */
static struct timespec at;

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    SCOPED_LOCK(&lock);
    if (clock != CLOCK_MONOTONIC || !stopped)
        return __real_clock_gettime(clock, out);
    *out = at;
    return 0;
}

/* While the clock stands no get is answered: it would have taken no time. */
static void stop(struct world *w)
{
    store_fake_hold(w->fake, FAKE_GET);
    SCOPED_LOCK(&lock);
    __real_clock_gettime(CLOCK_MONOTONIC, &at);
    stopped = true;
}

static void go_on(struct world *w)
{
    {
        SCOPED_LOCK(&lock);
        stopped = false;
    }
    store_fake_release(w->fake);
}

static void world_of_long_gets(struct world *w)
{
    world_init(w, &(struct fetch_config){.workers = 8}, 16);
    store_fake_add_fault(w->fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = GET_MS});
    expect_bytes(w, start_one(w, 0, PRIORITY_DEMAND), 0); /* now it is known that they are */
    counter_wait_zero(fetch_counters, w->fetch, "granary_fetch_in_flight");
}

/* Chunks 1 and 2, one after the other, in the same moment. True: the first was held back, and they came by one get. */
static bool read_pair(struct world *w)
{
    uint64_t holds = count_of(w, "held_total"), gets = count_of(w, "requests_total");
    stop(w);
    struct inflight *first = start_one(w, 1, PRIORITY_DEMAND);
    bool held = count_of(w, "held_total") > holds;
    if (!held)
        store_fake_wait_held(w->fake, 1);
    struct inflight *second = start_one(w, 2, PRIORITY_DEMAND);
    go_on(w);
    expect_bytes(w, first, 1);
    expect_bytes(w, second, 2);
    counter_wait_zero(fetch_counters, w->fetch, "granary_fetch_in_flight");
    assert_int_equal(count_of(w, "requests_total") - gets, held ? 1 : 2);
    return held;
}

static void read_alone(struct world *w, unsigned times)
{
    for (unsigned i = 0; i < times; i++) {
        expect_bytes(w, start_one(w, 1, PRIORITY_DEMAND), 1);
        counter_wait_zero(fetch_counters, w->fetch, "granary_fetch_in_flight");
    }
}

static void test_fetch_delay__where_gets_take_long_little_waits_for_its_neighbours(void **state)
{
    struct world w;
    world_of_long_gets(&w);
    for (unsigned i = 0; i < 3; i++)
        assert_true(read_pair(&w));
    world_release(&w);
}

static void test_fetch_delay__where_none_come_nothing_waits(void **state)
{
    struct world w;
    world_of_long_gets(&w);
    read_alone(&w, ALONE);
    stop(&w);
    struct inflight *inflight = start_one(&w, 1, PRIORITY_DEMAND);
    alarm(HANGS_S);
    store_fake_wait_held(w.fake, 1); /* the moment that it would wait for does not come */
    alarm(0);
    go_on(&w);
    expect_bytes(&w, inflight, 1);
    world_release(&w);
}

static void test_fetch_delay__when_they_come_again_it_is_found_out(void **state)
{
    struct world w;
    unsigned turns = 0;
    world_of_long_gets(&w);
    read_alone(&w, ALONE);
    assert_false(read_pair(&w));
    while (!read_pair(&w))
        assert_in_range(++turns, 1, TURNS_MOST);
    for (unsigned i = 0; i < 3; i++)
        assert_true(read_pair(&w));
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_delay__where_gets_take_long_little_waits_for_its_neighbours),
        cmocka_unit_test(test_fetch_delay__where_none_come_nothing_waits),
        cmocka_unit_test(test_fetch_delay__when_they_come_again_it_is_found_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
