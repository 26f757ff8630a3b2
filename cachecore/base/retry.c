#include "base/retry.h"

#include <stdatomic.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "base/error.h"
#include "base/log.h"

enum {
    ASKED_MOST_S = 60,
    WARN_AFTER_MS = 3000,
    WARN_EVERY_MS = 30000,
};

uint64_t retry_jitter(uint64_t most)
{
    uint32_t random = 0;
    /* Without entropy, early at boot, any spread will do. */
    if (getrandom(&random, sizeof random, GRND_NONBLOCK) != sizeof random)
        random = (uint32_t)clock_now_us() * 2654435761u;
    return random % (most + 1);
}

uint64_t retry_asked_ms(void)
{
    return 1000u * GR_MIN(error_retry_after_s(), (unsigned)ASKED_MOST_S);
}

void retry_warn(_Atomic uint64_t *warned_ms, uint64_t begin_ms, uint64_t timeout_ms, const char *prefix)
{
    uint64_t now = clock_now_ms(), last = atomic_load(warned_ms);
    if (now - begin_ms < WARN_AFTER_MS || (last && now - last < WARN_EVERY_MS))
        return;
    /* The exchange lets one of several threads write the line. */
    if (atomic_compare_exchange_strong(warned_ms, &last, now))
        log_warning("%.250s%.400s; trying again for up to %llu s", prefix, error_text(),
                    (unsigned long long)timeout_ms / 1000);
}
