/* Waiting for reads in flight, by a thread that has nothing else to wait for. */
#ifndef GRANARY_TESTS_UNIT_READER_H
#define GRANARY_TESTS_UNIT_READER_H

#include "unit/cmocka_all.h"

#include <poll.h>

#include "cache/cache.h"

/* Wait until something has ended, or is late. Call it after cache_reader_take has returned NULL. */
static inline void reader_await(const struct cache_reader *r)
{
    int wait_ms = 0;
    struct pollfd on = {.fd = cache_reader_fd(r, &wait_ms), .events = POLLIN};
    if (on.fd >= 0)
        (void)poll(&on, 1, wait_ms); /* interrupted: the caller looks again */
}

/* Wait until n reads have ended, and no more. */
static inline void reader_take(struct cache_reader *r, size_t n)
{
    size_t ended = 0;
    while (ended < n) {
        while (cache_reader_take(r))
            ended++;
        if (ended < n)
            reader_await(r);
    }
    assert_int_equal(ended, n);
}

#endif
