/* Workers that look at the clock more than once, and find another time each time: it waits here before it is read. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "unit/fetch_world.h"

enum { PAIRS = 60, FAR_MS = 60, LOOK_MOST_US = 120, LATE_MS = 2500 };

static _Atomic unsigned look_us; /* how long a worker's look takes */

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);

int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    char name[16] = "";
    if (look_us && !pthread_getname_np(pthread_self(), name, sizeof name) && !strcmp(name, "granary-fetch"))
        nanosleep(&(struct timespec){.tv_nsec = look_us * 1000L}, NULL);
    return __real_clock_gettime(clock, out);
}

/* Far from the store gets for warming are spread: the second of a pair is held back for a moment. When that is over
 * between two looks of an idle worker, nobody else wakes it, and it is sent when idle workers look again, seconds
 * later. The first get is not answered before. How long a look must take for that depends on the machine: all are
 * tried. */
static void test_fetch_wait__what_may_go_while_the_idle_look_is_not_forgotten(void **state)
{
    struct world w;
    world_init(&w, &(struct fetch_config){.workers = 3}, 1); /* of which two warm; a pack a chunk: no runs */
    struct store_fake_fault far = {.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = FAR_MS};
    store_fake_add_fault(w.fake, &far);
    expect_bytes(&w, start_one(&w, 0, PRIORITY_DEMAND), 0); /* now it is known that it is far */
    for (unsigned i = 0; i < PAIRS; i++) {
        counter_wait_zero(fetch_counters, w.fetch, "granary_fetch_in_flight");
        uint64_t began_ms = clock_now_ms();
        store_fake_hold(w.fake, FAKE_GET);
        look_us = 1 + LOOK_MOST_US * i / PAIRS;
        struct inflight *first = start_one(&w, 1, PRIORITY_WARM), *second = start_one(&w, 2, PRIORITY_WARM);
        store_fake_wait_held(w.fake, 2);
        look_us = 0;
        assert_in_range(clock_now_ms() - began_ms, 0, LATE_MS);
        store_fake_release(w.fake);
        expect_bytes(&w, first, 1);
        expect_bytes(&w, second, 2);
    }
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_wait__what_may_go_while_the_idle_look_is_not_forgotten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
