/* Event counters. Each component keeps a struct of them and lists them as rows for status and metrics. Any thread. The
 * accesses are relaxed: a counter orders nothing else, and two counters read together may be a moment apart.
 */
#ifndef GRANARY_BASE_COUNTER_H
#define GRANARY_BASE_COUNTER_H

#include <stdatomic.h>
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

static inline void counter_add(counter *c, uint64_t n)
{
    atomic_fetch_add_explicit(c, n, memory_order_relaxed);
}

static inline uint64_t counter_get(counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

#endif
