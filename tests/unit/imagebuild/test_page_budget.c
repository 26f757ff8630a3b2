/* The room that pages of a listing share: how many are in it, and that nobody waits for ever. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/cleanup.h"
#include "base/thread.h"
#include "imagebuild/source/page_budget.h"

enum { THREADS = 8, ROUNDS = 2000 };

static struct page_budget budget;
static atomic_int smalls, alls, broken;
static bool only_smalls;
static int smalls_left; /* for the threads */

static void *come_and_go(void *arg)
{
    unsigned random = (unsigned)(uintptr_t)arg;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1103515245 + 12345;
        bool all = !only_smalls && (random >> 16 & 1);
        if (page_budget_enter(&budget, all)) {
            atomic_fetch_add(&broken, 1);
            break;
        }
        int here = atomic_fetch_add(all ? &alls : &smalls, 1) + 1;
        if (all ? here > 1 || atomic_load(&smalls) : here > smalls_left || atomic_load(&alls))
            atomic_fetch_add(&broken, 1);
        sched_yield(); /* with it in here, others come upon it */
        atomic_fetch_sub(all ? &alls : &smalls, 1);
        page_budget_leave(&budget, all);
    }
    return NULL;
}

static void run_threads(void)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], come_and_go, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&broken), 0);
}

static void test_page_budget__many_small_ones_or_all_of_it(void **state)
{
    page_budget_init(&budget);
    smalls_left = 2;
    only_smalls = true;
    for (int i = smalls_left; i < PAGE_BUDGET_SMALLS; i++)
        assert_int_equal(page_budget_enter(&budget, false), 0);
    run_threads();
    for (int i = smalls_left; i < PAGE_BUDGET_SMALLS; i++)
        page_budget_leave(&budget, false);
    smalls_left = PAGE_BUDGET_SMALLS;
    only_smalls = false;
    run_threads();
    assert_int_equal(budget.smalls + budget.all + budget.waiting_all, 0);
    page_budget_release(&budget);
}

static void *want_all(void *arg)
{
    return page_budget_enter(&budget, true) == -ECANCELED ? arg : NULL;
}

static void test_page_budget__closing_it_ends_waits(void **state)
{
    pthread_t thread;
    void *refused = NULL;
    bool waits = false;
    page_budget_init(&budget);
    assert_int_equal(page_budget_enter(&budget, false), 0);
    assert_int_equal(thread_start(&thread, want_all, &budget), 0);
    while (!waits) {
        SCOPED_LOCK(&budget.mutex);
        waits = budget.waiting_all;
    }
    page_budget_close(&budget);
    pthread_join(thread, &refused);
    assert_ptr_equal(refused, &budget);
    assert_int_equal(page_budget_enter(&budget, false), -ECANCELED);
    page_budget_release(&budget);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_page_budget__many_small_ones_or_all_of_it),
        cmocka_unit_test(test_page_budget__closing_it_ends_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
