/* Who asked for a chunk goes away: his threads wait no longer, the fetch goes on for the others. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <string.h>

#include "base/client.h"
#include "unit/fetch_world.h"

enum { THREADS = 8 };

struct waiter {
    struct client *client;
    struct inflight *inflight;
    pthread_t thread;
    int rc;
};

static void *wait_for_it(void *arg)
{
    struct waiter *w = arg;
    CLEANUP_BUF struct buf *plain = NULL;
    client_bind_thread(w->client);
    w->rc = inflight_wait(w->inflight, &plain);
    return NULL;
}

static unsigned count_waits(struct client *a)
{
    unsigned n = 0;
    pthread_mutex_lock(&a->lock);
    for (const struct client_wait *w = a->waits; w; w = w->next)
        n++;
    pthread_mutex_unlock(&a->lock);
    return n;
}

static void begin_waiting(struct waiter *w, struct client *a, struct inflight *inflight)
{
    *w = (struct waiter){.client = a, .inflight = inflight, .rc = 1};
    assert_int_equal(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static void test_fetch_gone__all_his_threads_end_and_nobody_elses(void **state)
{
    struct world w;
    struct client gone, other;
    struct waiter his[THREADS], others;
    world_init(&w, &(struct fetch_config){.workers = 2}, 4);
    client_init(&gone);
    client_init(&other);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *inflight = start_one(&w, 3, PRIORITY_DEMAND), *same = start_one(&w, 3, PRIORITY_DEMAND);
    store_fake_wait_held(w.fake, 1);
    for (int i = 0; i < THREADS; i++)
        begin_waiting(&his[i], &gone, inflight);
    begin_waiting(&others, &other, same);
    for (uint64_t since = 0; count_waits(&gone) < THREADS || !count_waits(&other);)
        counter_pause(&since, "threads that wait");
    client_set_disconnected(&gone);
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
    inflight_unref(inflight);
    client_release(&gone);
    client_release(&other);
    world_release(&w);
}

static void test_fetch_gone__who_has_gone_before_is_not_waited_for(void **state)
{
    struct world w;
    struct client gone;
    world_init(&w, &(struct fetch_config){.workers = 2}, 4);
    client_init(&gone);
    client_set_disconnected(&gone);
    store_fake_hold(w.fake, FAKE_GET);
    struct inflight *inflight = start_one(&w, 5, PRIORITY_DEMAND);
    client_bind_thread(&gone);
    expect_error(inflight_ref(inflight), -ECANCELED, "the client is gone");
    client_bind_thread(NULL);
    store_fake_release(w.fake);
    expect_bytes(&w, inflight_ref(inflight), 5);
    client_bind_thread(&gone); /* what is there is had all the same */
    expect_bytes(&w, inflight, 5);
    client_bind_thread(NULL);
    client_release(&gone);
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
