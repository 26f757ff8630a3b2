/* Reading one counter by name; waiting until it has a value, for tests that need a thread to have come so far. */
#ifndef GRANARY_TESTS_UNIT_COUNTERS_H
#define GRANARY_TESTS_UNIT_COUNTERS_H

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/counter.h"
#include "unit/cmocka_all.h"
#include "unit/threads.h"

struct counter_wanted {
    const char *name;
    uint64_t value;
    bool found;
};

static inline void counter_pick(void *arg, const struct counter_row *row)
{
    struct counter_wanted *w = arg;
    if (!strcmp(row->name, w->name)) {
        w->value = row->value;
        w->found = true;
    }
}

/* counters: fetch_counters, cache_counters, ...; of: what they take. */
#define counter_value(counters, of, counter_name)                                                                      \
    ({                                                                                                                 \
        struct counter_wanted w_ = {.name = (counter_name)};                                                           \
        counters(of, counter_pick, &w_);                                                                               \
        assert_true(w_.found);                                                                                         \
        w_.value;                                                                                                      \
    })

/* Sleep for a millisecond. Two minutes after *since_ms (0: begin now) the program fails. Any thread. */
static inline void counter_pause(uint64_t *since_ms, const char *name)
{
    uint64_t now = clock_now_ms();
    *since_ms = *since_ms ? *since_ms : now;
    must(now - *since_ms <= 120000, "waited for %s without success", name);
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

#define counter_wait(counters, of, counter_name, least)                                                                \
    for (uint64_t since_ = 0; counter_value(counters, of, counter_name) < (uint64_t)(least);)                          \
    counter_pause(&since_, counter_name)

#define counter_wait_zero(counters, of, counter_name)                                                                  \
    for (uint64_t since_ = 0; counter_value(counters, of, counter_name);)                                              \
    counter_pause(&since_, counter_name)

#endif
