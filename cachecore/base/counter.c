/* Histograms. Counting is on the read path. Stripes keep the CPUs from fighting over one cache line; a thread that
 * moves to another CPU between two statements still counts correctly, since the counters are atomic.
 */
#include "base/counter.h"

#include <sched.h>

const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS] = {50,    200,    1000,   2500,    5000,     10000,
                                                        25000, 100000, 500000, 2500000, 10000000, 60000000};

/* Return the first bucket whose bound is at least us; HISTOGRAM_BOUNDS is the unbounded one. */
static unsigned histogram_bucket_of(uint64_t us)
{
    unsigned i = 0;
    while (i < HISTOGRAM_BOUNDS && us > histogram_bounds_us[i])
        i++;
    return i;
}

void histogram_add(struct histogram *h, uint64_t us)
{
    unsigned stripe = (unsigned)sched_getcpu() % HISTOGRAM_STRIPES;
    counter_add(&h->stripes[stripe].counts[histogram_bucket_of(us)], 1);
    counter_add(&h->stripes[stripe].sum_us, us);
}

void histogram_show(struct histogram *h, struct histogram_row row, histogram_visit *visit, void *arg)
{
    for (unsigned s = 0; s < HISTOGRAM_STRIPES; s++) {
        for (unsigned i = 0; i <= HISTOGRAM_BOUNDS; i++)
            row.counts[i] += counter_get(&h->stripes[s].counts[i]);
        row.sum_us += counter_get(&h->stripes[s].sum_us);
    }
    visit(arg, &row);
}
