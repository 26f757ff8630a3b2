/* The pool: no more threads than it may have, and a store that is silent does not hold up what is cached. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>

#include "ublk/pool.h"
#include "unit/threads.h"

enum { THREADS = 8, WORK = 100 };

static atomic_bool open_gate;
static atomic_int begun, cached_done, done;

static void wait_at_gate(struct pool_work *work)
{
    atomic_fetch_add(&begun, 1);
    while (!atomic_load(&open_gate))
        sleep_ms(1);
    atomic_fetch_add(&done, 1);
}

static void count_cached(struct pool_work *work)
{
    atomic_fetch_add(&cached_done, 1);
}

static void test_pool__cached_work_passes_what_waits(void **state)
{
    static struct pool_work waiting[WORK], cached[WORK];
    struct pool *p = NULL;
    assert_int_equal(pool_new(THREADS, &p), 0);
    assert_false(pool_is_short(p));
    for (int i = 0; i < WORK; i++) {
        waiting[i].run = wait_at_gate;
        pool_give(p, &waiting[i]);
    }
    while (atomic_load(&begun) < THREADS - THREADS / 4)
        sleep_ms(1);
    assert_true(pool_is_short(p));
    for (int round = 1; round <= 2; round++) { /* the second time, the threads for it are there and idle */
        for (int i = 0; i < WORK; i++) {
            cached[i] = (struct pool_work){.run = count_cached, .cached = true};
            pool_give(p, &cached[i]);
        }
        while (atomic_load(&cached_done) < round * WORK)
            sleep_ms(1);
        sleep_ms(20); /* until they wait */
    }
    assert_int_equal(atomic_load(&begun), THREADS - THREADS / 4); /* the others waited all the while */
    assert_true(pool_threads(p) <= THREADS);
    atomic_store(&open_gate, true);
    pool_free(p); /* runs the rest */
    assert_int_equal(atomic_load(&done), WORK);
}

static void test_pool__one_thread_is_enough(void **state)
{
    static struct pool_work work[WORK];
    struct pool *p = NULL;
    atomic_store(&open_gate, true);
    atomic_store(&done, 0);
    assert_int_equal(pool_new(1, &p), 0);
    for (int i = 0; i < WORK; i++) {
        work[i].run = wait_at_gate;
        pool_give(p, &work[i]);
    }
    assert_int_equal(pool_threads(p), 1);
    pool_free(p);
    assert_int_equal(atomic_load(&done), WORK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool__cached_work_passes_what_waits),
        cmocka_unit_test(test_pool__one_thread_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
