/* Work ahead by threads that comes back in order: whatever the threads, and whenever it is ended. */
#include "unit/cmocka_all.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/in_order.h"

enum { ITEMS = 500, SLOTS = 7 };

struct item {
    unsigned number;
    unsigned *square; /* allocated by the work */
};

struct world {
    atomic_uint worked, inside, peak;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool held; /* work waits */
};

static atomic_uint cleared; /* that held something */

static void note_inside(struct world *w)
{
    unsigned inside = atomic_fetch_add(&w->inside, 1) + 1, peak = atomic_load(&w->peak);
    while (inside > peak && !atomic_compare_exchange_weak(&w->peak, &peak, inside))
        ;
}

static void square(void *arg, void *slot)
{
    struct world *w = arg;
    struct item *i = slot;
    note_inside(w);
    pthread_mutex_lock(&w->lock);
    pthread_cond_broadcast(&w->changed);
    while (w->held)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
    i->square = malloc(sizeof *i->square);
    *i->square = i->number * i->number;
    atomic_fetch_add(&w->worked, 1);
    atomic_fetch_sub(&w->inside, 1);
}

static void clear(void *slot)
{
    struct item *i = slot;
    if (i->square)
        atomic_fetch_add(&cleared, 1);
    free(i->square);
}

static struct in_order *open_ring(struct world *w, unsigned threads)
{
    const struct in_order_config config = {
        .threads = threads, .slots = SLOTS, .size = sizeof(struct item), .work = square, .clear = clear, .arg = w};
    struct in_order *r = NULL;
    *w = (struct world){.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    atomic_store(&cleared, 0);
    assert_int_equal(in_order_new(&config, &r), 0);
    return r;
}

static void hold(struct world *w, bool held)
{
    pthread_mutex_lock(&w->lock);
    w->held = held;
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
}

static void wait_inside(struct world *w, unsigned count)
{
    pthread_mutex_lock(&w->lock);
    while (atomic_load(&w->inside) < count)
        pthread_cond_wait(&w->changed, &w->lock);
    pthread_mutex_unlock(&w->lock);
}

/* As many as there is room for. */
static void give_all(struct in_order *r, unsigned *next)
{
    struct item *i;
    while (*next < ITEMS && (i = in_order_slot(r))) {
        assert_null(i->square);
        assert_int_equal(i->number, 0);
        i->number = (*next)++;
        in_order_give(r);
    }
}

static void test_in_order__comes_back_as_it_was_given(void **state)
{
    static const unsigned threads[] = {0, 1, 3, SLOTS, 64};
    for (size_t t = 0; t < GR_ARRAY_SIZE(threads); t++) {
        struct world w;
        struct in_order *r = open_ring(&w, threads[t]);
        unsigned next = 0;
        assert_null(in_order_take(r));
        for (unsigned n = 0; n < ITEMS; n++) {
            give_all(r, &next);
            struct item *i = in_order_take(r);
            assert_int_equal(i->number, n);
            assert_int_equal(*i->square, n * n);
            assert_ptr_equal(in_order_take(r), i);
            in_order_drop(r);
        }
        assert_null(in_order_take(r));
        in_order_free(r);
        assert_int_equal(w.worked, ITEMS);
        assert_int_equal(cleared, ITEMS);
        assert_true(w.peak <= GR_MAX(1, GR_MIN(threads[t], (unsigned)SLOTS)));
    }
}

static void test_in_order__works_on_as_many_as_it_has_threads(void **state)
{
    struct world w;
    struct in_order *r = open_ring(&w, 3);
    unsigned next = 0;
    hold(&w, true);
    give_all(r, &next);
    assert_int_equal(next, SLOTS);
    wait_inside(&w, 3);
    hold(&w, false);
    for (unsigned n = 0; n < SLOTS; n++) {
        assert_int_equal(((struct item *)in_order_take(r))->number, n);
        in_order_drop(r);
    }
    in_order_free(r);
    assert_int_equal(w.peak, 3);
}

static void *release(void *arg)
{
    hold(arg, false);
    return NULL;
}

/* What has begun is ended, what has not is never begun, and nothing is lost. */
static void test_in_order__ends_with_work_in_the_air(void **state)
{
    struct world w;
    struct in_order *r = open_ring(&w, 2);
    pthread_t releaser;
    unsigned next = 0;
    hold(&w, true);
    give_all(r, &next);
    wait_inside(&w, 2);
    assert_int_equal(pthread_create(&releaser, NULL, release, &w), 0);
    in_order_free(r);
    pthread_join(releaser, NULL);
    assert_true(w.worked >= 2);
    assert_int_equal(w.inside, 0);
    assert_int_equal(cleared, w.worked);

    r = open_ring(&w, 0); /* none has begun; one is being filled in */
    give_all(r, &(unsigned){ITEMS - 2});
    ((struct item *)in_order_slot(r))->square = malloc(sizeof(unsigned));
    in_order_free(r);
    assert_int_equal(w.worked, 0);
    assert_int_equal(cleared, 1);
    in_order_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_order__comes_back_as_it_was_given),
        cmocka_unit_test(test_in_order__works_on_as_many_as_it_has_threads),
        cmocka_unit_test(test_in_order__ends_with_work_in_the_air),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
