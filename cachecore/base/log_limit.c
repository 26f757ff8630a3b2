/* A token bucket that gains one token a second. Only whole seconds are added, and refilled_ms moves on by just those,
 * so the fraction is not lost between calls.
 */
#include "base/log_limit.h"

#include "base/cleanup.h"
#include "base/compiler.h"

bool log_limit_pass(struct log_limit *l, uint64_t now_ms, uint64_t *out_passed_over)
{
    SCOPED_LOCK(&l->lock);
    if (!l->refilled_ms)
        l->refilled_ms = now_ms;
    uint64_t seconds = now_ms > l->refilled_ms ? (now_ms - l->refilled_ms) / 1000 : 0;
    l->left = (unsigned)GR_MIN(l->left + seconds, (uint64_t)LOG_LIMIT_BURST);
    l->refilled_ms += seconds * 1000;
    if (!l->left) {
        l->passed_over++;
        return false;
    }
    l->left--;
    *out_passed_over = l->passed_over;
    l->passed_over = 0;
    return true;
}
