/* Sleep in steps of 100 ms, the longest that a cancelled wait goes on. A condition could wake the sleeper at once, but
 * a signal handler must not signal one.
 */
#include "base/cancel.h"

#include <errno.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"

enum { STEP_US = 100000 };

int cancel_check(const volatile int *cancel)
{
    return cancel_asked(cancel) ? error_set(-ECANCELED, "interrupted") : 0;
}

bool cancel_sleep_until(uint64_t when_us, const volatile int *cancel)
{
    for (uint64_t now = clock_now_us(); now < when_us; now = clock_now_us()) {
        if (cancel_asked(cancel))
            return false;
        struct timespec step = {.tv_nsec = (long)GR_MIN(when_us - now, (uint64_t)STEP_US) * 1000};
        nanosleep(&step,
                  NULL); /* a signal ends the step early, and the loop checks the flag its handler may have set */
    }
    return true;
}
