/* A flag that ends waits and long work: an int that a thread or a signal handler sets. Setting it wakes no thread, so
 * waits poll it in short steps.
 */
#ifndef GRANARY_BASE_CANCEL_H
#define GRANARY_BASE_CANCEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

/* Is the flag set? cancel may be NULL: never set. */
static inline bool cancel_asked(const volatile int *cancel)
{
    return cancel && __atomic_load_n(cancel, __ATOMIC_RELAXED);
}

/* Return 0, or -ECANCELED with the sentence "interrupted" if the flag is set. */
GR_MUST_CHECK int cancel_check(const volatile int *cancel);

/* Sleep until when_us, a time on clock_now_us. Returns false when the flag ended the sleep early. When the time has
 * already come, returns true without checking the flag. */
bool cancel_sleep_until(uint64_t when_us, const volatile int *cancel);

#endif
