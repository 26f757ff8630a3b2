/* Who asked for a chunk goes away: his threads wait no longer, the fetch goes on for the others. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <string.h>

#include "base/asker.h"
#include "unit/fetch_world.h"

enum { THREADS = 8 };

struct waiter {
    struct asker *asker;
    struct flight *flight;
    pthread_t thread;
    int rc;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    CLEANUP_BUF struct buf *plain = NULL;
    asker_serve(w->asker);
    w->rc = flight_wait(w->flight, &plain);
    return NULL;
}

static unsigned count_waits(struct asker *a)
{
    unsigned n = 0;
    pthread_mutex_lock(&a->lock);
    for (const struct asker_wait *w = a->waits; w; w = w->next)
        n++;
    pthread_mutex_unlock(&a->lock);
    return n;
}

static void begin_waiting(struct waiter *w, struct asker *a, struct flight *flight)
{
    *w = (struct waiter){.asker = a, .flight = flight, .rc = 1};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static void test_fetch_gone__all_his_threads_end_and_nobody_elses(void **state)
{
    struct world w;
    struct asker gone, other;
    struct waiter his[THREADS], others;
    world_init(&w, &(struct fetch_config){.workers = 2}, 4);
    asker_init(&gone);
    asker_init(&other);
    store_fake_hold(w.fake, FAKE_GET);
    struct flight *flight = start_one(&w, 3, LANE_DEMAND), *same = start_one(&w, 3, LANE_DEMAND);
    store_fake_wait_held(w.fake, 1);
    for (int i = 0; i < THREADS; i++)
        begin_waiting(&his[i], &gone, flight);
    begin_waiting(&others, &other, same);
    for (uint64_t since = 0; count_waits(&gone) < THREADS || !count_waits(&other);)
        counter_pause(&since, "threads that wait");
    asker_go(&gone);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(his[i].thread, NULL);
        assert_int_equal(his[i].rc, -ECANCELED);
    }
    assert_int_equal(count_waits(&gone), 0);
    assert_int_equal(count_waits(&other), 1);
    store_fake_release(w.fake);
    pthread_join(others.thread, NULL);
    assert_int_equal(others.rc, 0);
    expect_bytes(&w, same, 3);
    assert_int_equal(count_of(&w, "requests_total"), 1);
    flight_unref(flight);
    asker_release(&gone);
    asker_release(&other);
    world_release(&w);
}

static void test_fetch_gone__who_has_gone_before_is_not_waited_for(void **state)
{
    struct world w;
    struct asker gone;
    world_init(&w, &(struct fetch_config){.workers = 2}, 4);
    asker_init(&gone);
    asker_go(&gone);
    store_fake_hold(w.fake, FAKE_GET);
    struct flight *flight = start_one(&w, 5, LANE_DEMAND);
    asker_serve(&gone);
    expect_error(flight_ref(flight), -ECANCELED, "has gone");
    asker_serve(NULL);
    store_fake_release(w.fake);
    expect_bytes(&w, flight_ref(flight), 5);
    asker_serve(&gone); /* what is there is had all the same */
    expect_bytes(&w, flight, 5);
    asker_serve(NULL);
    asker_release(&gone);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fetch_gone__all_his_threads_end_and_nobody_elses),
        cmocka_unit_test(test_fetch_gone__who_has_gone_before_is_not_waited_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
