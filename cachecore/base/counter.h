/* Event counters, and histograms of durations. Each component keeps a struct of them and lists them as rows for status
 * and metrics. Any thread. The accesses are relaxed: a counter orders nothing else, and two counters read together may
 * be a moment apart.
 */
#ifndef GRANARY_BASE_COUNTER_H
#define GRANARY_BASE_COUNTER_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

typedef _Atomic uint64_t counter;

/* One row of a component's list. Names follow Prometheus: snake case, the unit at the end, _total for sums. */
struct counter_row {
    const char *name;
    const char *help;
    uint64_t value;
};

/* Called once for each row while a component lists its counters. */
typedef void counter_visit(void *arg, const struct counter_row *row);

/* Visit n rows. */
static inline void counter_show(const struct counter_row *rows, size_t n, counter_visit *visit, void *arg)
{
    for (size_t i = 0; i < n; i++)
        visit(arg, &rows[i]);
}

static inline void counter_add(counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_get(counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

/* ---- histograms (counter.c) ----
 *
 * Histograms of durations in fixed buckets. Any number of threads add to one without a lock: each adds to the stripe of
 * the CPU it runs on, and a reader sums the stripes. Zeroed memory is an empty histogram. */

enum { HISTOGRAM_BOUNDS = 12, HISTOGRAM_STRIPES = 8 };

/* The longest duration of each bucket, in ascending order. The last bucket has no bound: it counts all longer ones. */
extern const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS];

struct histogram {
    struct {
        counter counts[HISTOGRAM_BOUNDS + 1], sum_us;
        uint64_t pad[2]; /* fills whole cache lines, so that no two stripes share one */
    } stripes[HISTOGRAM_STRIPES];
};

/* The contents of a histogram at one moment. Names end in _seconds. */
struct histogram_row {
    const char *name;
    const char *help;
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* per bucket, not cumulative as Prometheus shows them */
    uint64_t sum_us;
};

/* Called once for each histogram while a component lists them. */
typedef void histogram_visit(void *arg, const struct histogram_row *row);

/* Count one duration of us microseconds. Any thread. */
void histogram_add(struct histogram *h, uint64_t us);

/* Add the histogram's counts and sum to row, whose name and help the caller has set, and visit it. */
void histogram_show(struct histogram *h, struct histogram_row row, histogram_visit *visit, void *arg);

#endif
