/* A flag that ends waiting and long work: an int that a thread or a signal handler sets. It wakes nobody, so who waits
 * looks at it in steps. */
#ifndef GRANARY_BASE_CANCEL_H
#define GRANARY_BASE_CANCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Is it set? cancel may be NULL: never. */
static inline bool cancel_asked(const volatile int *cancel)
{
    return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

/* Sleep until a moment on clock_now_us. False: the flag ended it before; it is not looked at when the moment is there
 * already. */
bool cancel_sleep_until(uint64_t when_us, const volatile int *cancel);

#endif
