/* The bucket is stored as a single point in time, paid_ns (the generic cell rate algorithm, ITU-T I.371). Each byte
 * moves it forward by 1 / rate seconds; an idle bucket may lag behind now by the burst, no more. A taker waits until
 * paid_ns:
 *
 *   now - burst        now          paid_ns
 *   ----|---------------|--------------|-----> time
 *       full bucket     empty          debt: wait this long
 */
#include "base/rate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"

#define SECOND_NS UINT64_C(1000000000)

void rate_init(struct rate *r, uint64_t bytes_per_s)
{
    *r = (struct rate){.bytes_per_s = bytes_per_s};
    pthread_mutex_init(&r->lock, NULL);
}

void rate_release(struct rate *r)
{
    pthread_mutex_destroy(&r->lock);
}

uint64_t rate_charge(struct rate *r, uint64_t n, uint64_t now_ns)
{
    SCOPED_LOCK(&r->lock);
    /* A clock near 0 must not make now - burst negative. */
    uint64_t burst_ns = GR_MIN((uint64_t)RATE_BURST_MS * 1000000, now_ns);
    /* whole seconds and the rest, since n * SECOND_NS may overflow */
    uint64_t takes_ns = n / r->bytes_per_s * SECOND_NS +
                        (uint64_t)((double)(n % r->bytes_per_s) * (double)SECOND_NS / (double)r->bytes_per_s);
    r->paid_ns = GR_MAX(r->paid_ns, now_ns - burst_ns) + takes_ns;
    return r->paid_ns;
}

bool rate_take(struct rate *r, uint64_t n, const volatile int *cancel)
{
    if (!r)
        return true;
    return cancel_sleep_until((rate_charge(r, n, clock_now_us() * 1000) + 999) / 1000, cancel);
}

int rate_parse(const char *what, const char *text, uint64_t *out_bytes_per_s)
{
    size_t len = strlen(text);
    bool named = len > 2 && !strcmp(text + len - 2, "/s");
    CLEANUP_FREE char *size = strndup(text, named ? len - 2 : len);
    if (!size)
        return error_no_memory();
    int rc = text_parse_size(what, size, out_bytes_per_s);
    if (rc)
        return error_set(rc, "%s: '%s' is not a rate; write for example 100M or 100M/s, in bytes a second", what, text);
    return *out_bytes_per_s < RATE_MIN
               ? error_set(-EINVAL, "%s: %s is less than the 64K a second it must be", what, text)
               : 0;
}
