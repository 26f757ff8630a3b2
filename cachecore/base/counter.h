/* Counters: each component holds a struct of them and shows them as a table {name, help, address}.
 */
#ifndef GRANARY_BASE_COUNTER_H
#define GRANARY_BASE_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

typedef _Atomic uint64_t counter;

/* One line of a component's table; names follow Prometheus (snake case, unit at the end, _total for
 * sums). */
struct counter_row {
    const char *name;
    const char *help;
    uint64_t value;
};

/* Called once per row while a component lists its counters. */
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
