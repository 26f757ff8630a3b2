/* The health of the proxies.
 *
 * No thread probes the proxies; their health follows from the requests that readers make anyway. A proxy's health is
 * one number, its demerits. A failure adds FAILURE, a good answer takes one away. About a fifth of bad answers, or
 * three in a row, bring it to LIMIT:
 *
 *        +----+   LIMIT reached    +------+   pause over: one request   +-------+
 *   ---> | up | -----------------> | down | --------------------------> | trial |
 *        +----+                    +------+                             +-------+
 *          ^                          ^      failed: the pause doubles      |
 *          |                          +-------------------------------------+
 *          |                                 good answer                    |
 *          +----------------------------------------------------------------+
 *
 * While a proxy is down or on trial, its keys belong to the proxy with the next score. A proxy that goes down again
 * soon after it came up also has its pause doubled. So a dead proxy costs one short timeout every PAUSE_MOST_MS, and
 * one that sends wrong bytes in every answer costs little more. */
#include "store/l2/l2_internal.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

/* Demerits: 4 for each failure balances at one bad answer in five; 12 is three failures in a row. */
enum { FAILURE = 4, LIMIT = 12 };
/* How long a proxy that is down is skipped. */
enum { PAUSE_FIRST_MS = 1000, PAUSE_MOST_MS = 60000 };

bool proxy_may_be_asked(struct proxy *proxy, uint64_t now)
{
    return atomic_load_explicit(&proxy->asked_from_ms, memory_order_relaxed) <= now;
}

/* Note when the proxy may be asked; call it after every change of what that follows from. */
static void show_locked(struct proxy *proxy)
{
    uint64_t from = !proxy->down ? 0 : proxy->on_trial ? UINT64_MAX : proxy->trial_at_ms;
    atomic_store_explicit(&proxy->asked_from_ms, from, memory_order_relaxed);
}

bool proxy_take(struct store_proxies *p, struct proxy *proxy, uint64_t now, bool *trial)
{
    SCOPED_LOCK(&p->lock);
    if (!proxy_may_be_asked(proxy, now))
        return false;
    *trial = proxy->down;
    proxy->on_trial |= *trial;
    show_locked(proxy);
    atomic_fetch_add(&proxy->refs, 1);
    return true;
}

/* Take a proxy down. The pause doubles when a trial failed or the proxy came up only a short while ago. */
static void go_down_locked(struct proxy *proxy, uint64_t now)
{
    bool again = proxy->pause_ms && (proxy->down || now - proxy->up_since_ms < PAUSE_MOST_MS);
    proxy->pause_ms = again ? GR_MIN(2 * proxy->pause_ms, (uint64_t)PAUSE_MOST_MS) : PAUSE_FIRST_MS;
    proxy->trial_at_ms = now + proxy->pause_ms;
    proxy->down = true;
}

/* Count a good answer. Only a trial brings a proxy up: other requests that are still running when it goes down do
 * not. */
static void good_locked(struct proxy *proxy, bool trial, uint64_t now)
{
    if (trial) {
        proxy->down = false;
        proxy->demerits = 0;
        proxy->up_since_ms = now;
    } else if (proxy->demerits) {
        proxy->demerits--;
    }
}

/* Count a failure; return whether it took the proxy down. */
static bool bad_locked(struct proxy *proxy, bool trial, uint64_t now)
{
    bool was_up = !proxy->down;
    if (was_up)
        proxy->demerits += FAILURE;
    if (trial || (was_up && proxy->demerits >= LIMIT))
        go_down_locked(proxy, now);
    return was_up && proxy->down;
}

static void say_up(const struct proxy *proxy)
{
    log_info("shared cache proxy %s answers again", proxy->store->url);
}

void proxies_complete(struct store_proxies *p, struct proxy *proxy, bool good, bool trial)
{
    bool went_down = false;
    {
        SCOPED_LOCK(&p->lock);
        uint64_t now = clock_now_ms();
        if (trial)
            proxy->on_trial = false;
        if (good) {
            proxy->lacks = 0;
            good_locked(proxy, trial, now);
        } else {
            went_down = bad_locked(proxy, trial, now);
        }
        show_locked(proxy);
    }
    if (good && trial)
        say_up(proxy);
    if (went_down)
        log_warning("shared cache proxy %s is skipped until it answers again: %.300s", proxy->store->url, error_text());
}

bool proxies_answered(struct store_proxies *p, struct proxy *proxy, bool trial)
{
    if (!trial)
        return false;
    {
        SCOPED_LOCK(&p->lock);
        if (proxy->lacks >= LACKS_MAX)
            return true;
        proxy->on_trial = false;
        good_locked(proxy, true, clock_now_ms());
        show_locked(proxy);
    }
    say_up(proxy);
    return false;
}

void proxies_lacks(struct store_proxies *p, struct proxy *proxy, bool trial)
{
    bool went_down = false;
    {
        SCOPED_LOCK(&p->lock);
        uint64_t now = clock_now_ms();
        if (trial)
            proxy->on_trial = false;
        proxy->lacks += proxy->lacks < LACKS_MAX;
        if (proxy->lacks < LACKS_MAX) {
            good_locked(proxy, trial, now);
        } else if (trial || !proxy->down) {
            went_down = !proxy->down;
            go_down_locked(proxy, now);
        }
        show_locked(proxy);
    }
    if (went_down)
        log_warning("node %s is skipped until it answers again: it had none of the last %d ranges that it was asked "
                    "for, and the store has them; see its status",
                    proxy->store->url, LACKS_MAX);
}

void proxies_call_off(struct store_proxies *p, struct proxy *proxy, bool trial)
{
    SCOPED_LOCK(&p->lock);
    if (trial)
        proxy->on_trial = false;
    show_locked(proxy);
}
