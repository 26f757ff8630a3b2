/* The places of requests that are under way: who waits for one is counted, and no longer than that. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <sched.h>

#include "net/http.h"

static void *take_and_give(void *slots)
{
    struct http_slots_user thread_user = {0};
    if (!http_slots_take(slots, &thread_user, HTTP_SLOT_DATA, 0))
        return NULL;
    http_slots_give(slots, &thread_user, HTTP_SLOT_DATA);
    return slots;
}

static void test_http_slots__who_waits_is_counted_until_there_is_a_place(void **state)
{
    struct http_slots p;
    struct http_slots_user user = {0};
    pthread_t thread;
    void *took;
    http_slots_init(&p, 1);
    assert_true(http_slots_take(&p, &user, HTTP_SLOT_DATA, 0));
    assert_int_equal(http_slots_waiting(&p), 0);
    assert_int_equal(pthread_create(&thread, NULL, take_and_give, &p), 0);
    while (!http_slots_waiting(&p))
        sched_yield();
    http_slots_give(&p, &user, HTTP_SLOT_DATA);
    assert_int_equal(pthread_join(thread, &took), 0);
    assert_ptr_equal(took, &p);
    assert_int_equal(http_slots_waiting(&p), 0);
    http_slots_release(&p);
}

static void test_http_slots__who_gives_up_waits_no_more(void **state)
{
    struct http_slots p;
    struct http_slots_user user = {0};
    http_slots_init(&p, 1);
    assert_true(http_slots_take(&p, &user, HTTP_SLOT_DATA, 0));
    assert_false(http_slots_take(&p, &user, HTTP_SLOT_DATA, 1)); /* long past */
    assert_int_equal(http_slots_waiting(&p), 0);
    http_slots_give(&p, &user, HTTP_SLOT_DATA);
    assert_true(http_slots_take(&p, &user, HTTP_SLOT_DATA, 1));
    http_slots_give(&p, &user, HTTP_SLOT_DATA);
    http_slots_release(&p);
}

/* How many a user gets before it would wait. */
static unsigned take_all(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind)
{
    unsigned n = 0;
    while (http_slots_take(p, user, kind, 1)) /* long past */
        n++;
    return n;
}

static void give_all(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind)
{
    while (kind == HTTP_SLOT_LOOKUP ? user->lookups : user->in_use)
        http_slots_give(p, user, kind);
}

static void test_http_slots__a_sole_user_has_all_and_one_of_many_its_share(void **state)
{
    enum { USERS = 1000, LIMIT = 64 };
    static struct http_slots_user users[USERS];
    struct http_slots p;
    http_slots_init(&p, LIMIT);
    http_slots_join(&p);
    assert_int_equal(take_all(&p, &users[0], HTTP_SLOT_DATA), LIMIT);
    give_all(&p, &users[0], HTTP_SLOT_DATA);
    for (unsigned i = 1; i < USERS; i++)
        http_slots_join(&p);
    assert_int_equal(take_all(&p, &users[0], HTTP_SLOT_DATA), LIMIT * 3 / 4); /* and none is given back */
    for (unsigned i = 1; i < USERS; i++) {
        assert_true(take_all(&p, &users[i], HTTP_SLOT_DATA) > 0);
        give_all(&p, &users[i], HTTP_SLOT_DATA);
    }
    give_all(&p, &users[0], HTTP_SLOT_DATA);
    for (unsigned i = 0; i < USERS; i++)
        http_slots_leave(&p);
    http_slots_release(&p);
}

static void test_http_slots__lookups_do_not_take_all_that_are_shared(void **state)
{
    struct http_slots_user silent = {0}, healthy = {0};
    struct http_slots p;
    http_slots_init(&p, 64);
    http_slots_join(&p);
    assert_int_equal(take_all(&p, &silent, HTTP_SLOT_LOOKUP), 64);
    give_all(&p, &silent, HTTP_SLOT_LOOKUP);
    http_slots_join(&p);
    assert_int_equal(take_all(&p, &silent, HTTP_SLOT_LOOKUP), 18); /* three quarters of three eighths */
    assert_int_equal(take_all(&p, &healthy, HTTP_SLOT_LOOKUP), 4);
    assert_true(take_all(&p, &healthy, HTTP_SLOT_DATA) > 20);
    give_all(&p, &silent, HTTP_SLOT_LOOKUP);
    while (healthy.lookups)
        http_slots_give(&p, &healthy, HTTP_SLOT_LOOKUP);
    give_all(&p, &healthy, HTTP_SLOT_DATA);
    http_slots_leave(&p);
    http_slots_leave(&p);
    http_slots_release(&p);
}

static void test_http_slots__idle_connections_are_limited_for_all_together(void **state)
{
    struct http_slots p;
    http_slots_init(&p, 2);
    for (unsigned i = 0; i < 2 * HTTP_IDLE_TIMES; i++)
        assert_true(http_slots_keep(&p));
    assert_false(http_slots_keep(&p));
    http_slots_unkeep(&p, 1);
    assert_true(http_slots_keep(&p));
    assert_false(http_slots_keep(&p));
    http_slots_unkeep(&p, 2 * HTTP_IDLE_TIMES);
    http_slots_release(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_slots__who_waits_is_counted_until_there_is_a_place),
        cmocka_unit_test(test_http_slots__who_gives_up_waits_no_more),
        cmocka_unit_test(test_http_slots__a_sole_user_has_all_and_one_of_many_its_share),
        cmocka_unit_test(test_http_slots__lookups_do_not_take_all_that_are_shared),
        cmocka_unit_test(test_http_slots__idle_connections_are_limited_for_all_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
