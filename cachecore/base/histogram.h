/* Histograms of durations in fixed buckets, counted by any number of threads without a lock: each adds to the stripe of
 * the CPU it runs on, and who looks adds the stripes up. Zeroed memory is an empty histogram.
 */
#ifndef GRANARY_BASE_HISTOGRAM_H
#define GRANARY_BASE_HISTOGRAM_H

#include "base/counter.h"

enum { HISTOGRAM_BOUNDS = 12, HISTOGRAM_STRIPES = 8 };

/* The longest duration of each bucket but the last, ascending; that one has what is longer. */
extern const uint64_t histogram_bounds_us[HISTOGRAM_BOUNDS];

struct histogram {
    struct {
        counter counts[HISTOGRAM_BOUNDS + 1], sum_us;
        uint64_t pad[2]; /* whole cache lines: CPUs do not write into each other's */
    } stripes[HISTOGRAM_STRIPES];
};

/* What a histogram holds at a moment; names end in _seconds. */
struct histogram_row {
    const char *name;
    const char *help;
    uint64_t counts[HISTOGRAM_BOUNDS + 1]; /* of each bucket by itself */
    uint64_t sum_us;
};

/* Called once a histogram while a component lists them. */
typedef void histogram_visit(void *arg, const struct histogram_row *row);

void histogram_add(struct histogram *h, uint64_t us);

/* Fill in row's counts and sum, and show it. */
void histogram_show(struct histogram *h, struct histogram_row row, histogram_visit *visit, void *arg);

#endif
