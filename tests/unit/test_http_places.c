/* The places of requests that are under way: who waits for one is counted, and no longer than that. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <sched.h>

#include "net/http_places.h"

static void *take_and_give(void *places)
{
    if (!http_places_take(places, 0))
        return NULL;
    http_places_give(places);
    return places;
}

static void test_http_places__who_waits_is_counted_until_there_is_a_place(void **state)
{
    struct http_places p;
    pthread_t thread;
    void *took;
    http_places_init(&p, 1);
    assert_true(http_places_take(&p, 0));
    assert_int_equal(http_places_waiting(&p), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_and_give, &p), 0);
    while (!http_places_waiting(&p))
        sched_yield();
    http_places_give(&p);
    assert_int_equal(pthread_join(thread, &took), 0);
    assert_ptr_equal(took, &p);
    assert_int_equal(http_places_waiting(&p), 0);
    http_places_release(&p);
}

static void test_http_places__who_gives_up_waits_no_more(void **state)
{
    struct http_places p;
    http_places_init(&p, 1);
    assert_true(http_places_take(&p, 0));
    assert_false(http_places_take(&p, 1)); /* long past */
    assert_int_equal(http_places_waiting(&p), 0);
    http_places_give(&p);
    assert_true(http_places_take(&p, 1));
    http_places_give(&p);
    http_places_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_places__who_waits_is_counted_until_there_is_a_place),
        cmocka_unit_test(test_http_places__who_gives_up_waits_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
