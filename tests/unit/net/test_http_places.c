/* The places of requests that are under way: who waits for one is counted, and no longer than that. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <sched.h>

#include "net/http_places.h"

static void *take_and_give(void *places)
{
    struct http_places_user thread_user = {0};
    if (!http_places_take(places, &thread_user, HTTP_PLACE_DATA, 0))
        return NULL;
    http_places_give(places, &thread_user, HTTP_PLACE_DATA);
    return places;
}

static void test_http_places__who_waits_is_counted_until_there_is_a_place(void **state)
{
    struct http_places p;
    struct http_places_user user = {0};
    pthread_t thread;
    void *took;
    http_places_init(&p, 1);
    assert_true(http_places_take(&p, &user, HTTP_PLACE_DATA, 0));
    assert_int_equal(http_places_waiting(&p), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_and_give, &p), 0);
    while (!http_places_waiting(&p))
        sched_yield();
    http_places_give(&p, &user, HTTP_PLACE_DATA);
    assert_int_equal(pthread_join(thread, &took), 0);
    assert_ptr_equal(took, &p);
    assert_int_equal(http_places_waiting(&p), 0);
    http_places_release(&p);
}

static void test_http_places__who_gives_up_waits_no_more(void **state)
{
    struct http_places p;
    struct http_places_user user = {0};
    http_places_init(&p, 1);
    assert_true(http_places_take(&p, &user, HTTP_PLACE_DATA, 0));
    assert_false(http_places_take(&p, &user, HTTP_PLACE_DATA, 1)); /* long past */
    assert_int_equal(http_places_waiting(&p), 0);
    http_places_give(&p, &user, HTTP_PLACE_DATA);
    assert_true(http_places_take(&p, &user, HTTP_PLACE_DATA, 1));
    http_places_give(&p, &user, HTTP_PLACE_DATA);
    http_places_release(&p);
}

/* How many a user gets before it would wait. */
static unsigned take_all(struct http_places *p, struct http_places_user *user, enum http_place_kind kind)
{
    unsigned n = 0;
    while (http_places_take(p, user, kind, 1)) /* long past */
        n++;
    return n;
}

static void give_all(struct http_places *p, struct http_places_user *user, enum http_place_kind kind)
{
    while (kind == HTTP_PLACE_LOOKUP ? user->lookups : user->taken)
        http_places_give(p, user, kind);
}

static void test_http_places__a_sole_user_has_all_and_one_of_many_its_share(void **state)
{
    enum { USERS = 1000, LIMIT = 64 };
    static struct http_places_user users[USERS];
    struct http_places p;
    http_places_init(&p, LIMIT);
    http_places_join(&p);
    assert_int_equal(take_all(&p, &users[0], HTTP_PLACE_DATA), LIMIT);
    give_all(&p, &users[0], HTTP_PLACE_DATA);
    for (unsigned i = 1; i < USERS; i++)
        http_places_join(&p);
    assert_int_equal(take_all(&p, &users[0], HTTP_PLACE_DATA), LIMIT * 3 / 4); /* and none is given back */
    for (unsigned i = 1; i < USERS; i++) {
        assert_true(take_all(&p, &users[i], HTTP_PLACE_DATA) > 0);
        give_all(&p, &users[i], HTTP_PLACE_DATA);
    }
    give_all(&p, &users[0], HTTP_PLACE_DATA);
    for (unsigned i = 0; i < USERS; i++)
        http_places_leave(&p);
    http_places_release(&p);
}

static void test_http_places__lookups_do_not_take_all_that_are_shared(void **state)
{
    struct http_places_user silent = {0}, well = {0};
    struct http_places p;
    http_places_init(&p, 64);
    http_places_join(&p);
    assert_int_equal(take_all(&p, &silent, HTTP_PLACE_LOOKUP), 64);
    give_all(&p, &silent, HTTP_PLACE_LOOKUP);
    http_places_join(&p);
    assert_int_equal(take_all(&p, &silent, HTTP_PLACE_LOOKUP), 18); /* three quarters of three eighths */
    assert_int_equal(take_all(&p, &well, HTTP_PLACE_LOOKUP), 4);
    assert_true(take_all(&p, &well, HTTP_PLACE_DATA) > 20);
    give_all(&p, &silent, HTTP_PLACE_LOOKUP);
    while (well.lookups)
        http_places_give(&p, &well, HTTP_PLACE_LOOKUP);
    give_all(&p, &well, HTTP_PLACE_DATA);
    http_places_leave(&p);
    http_places_leave(&p);
    http_places_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_places__who_waits_is_counted_until_there_is_a_place),
        cmocka_unit_test(test_http_places__who_gives_up_waits_no_more),
        cmocka_unit_test(test_http_places__a_sole_user_has_all_and_one_of_many_its_share),
        cmocka_unit_test(test_http_places__lookups_do_not_take_all_that_are_shared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
