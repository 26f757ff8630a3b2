/* How several stores share the GETs in flight.
 *
 * A GET to a silent store keeps its slot for minutes and cannot be taken back. What counts is how many slots a store
 * holds when it falls silent, and that it gets no more after that.
 *
 *   one store      all slots but a sixteenth of the workers, which stay free for a store that is added later
 *   several        share_allows() (base/share.h): three quarters of the slots at most, and the last slot is reserved
 *                  for a store that has none
 *   not answering  an eighth of the slots: its last GET failed, it has delivered nothing yet, or it is silent
 *   silent         it has GETs in flight and has delivered nothing for silent_ms. Its GETs and bytes are excluded from
 *                  the limits of concurrency.h and window.h, for they put no load on the link
 *
 * No event marks the moment a store falls silent. The next search for work notices it; idle workers search every few
 * seconds (fetch_run.c).
 */
#include "fetch/fetch_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/share.h"

enum { UNPROVEN_PART = 8, SOLE_LEAVES_PART = 16 }; /* shares, as fractions of the limit and of the workers */

/* An entry of fetch.stores. */
struct store_entry {
    uint64_t hash; /* the store's address */
    struct fetch_store *of;
};

static bool store_entry_is(const void *entry, const void *store)
{
    return ((const struct store_entry *)entry)->of->store == store;
}

static const struct map_type store_entries = {.size = sizeof(struct store_entry), .is = store_entry_is};

int fetch_find_store_locked(struct fetch *f, const struct store *store, struct fetch_store **out)
{
    const struct store_entry *entry = map_find(&f->stores, &store_entries, (uintptr_t)store, store);
    if (!entry) {
        struct fetch_store *s = map_reserve(&f->stores, &store_entries, 1) ? NULL : calloc(1, sizeof *s);
        if (!s)
            return error_no_memory();
        s->store = store;
        entry = map_put(&f->stores, &store_entries, &(struct store_entry){(uintptr_t)store, s});
    }
    *out = entry->of;
    return 0;
}

void fetch_free_stores(struct fetch *f)
{
    for (const struct store_entry *entry = NULL; (entry = map_next(&f->stores, &store_entries, entry));)
        free(entry->of);
    map_release(&f->stores);
}

static bool is_silent(const struct fetch *f, const struct fetch_store *s, uint64_t now_us)
{
    return s->busy && now_us - GR_MIN(now_us, s->heard_us) >= f->config.silent_ms * 1000;
}

struct fetch_shares fetch_shares_locked(const struct fetch *f)
{
    struct fetch_shares shares = {.limit = f->concurrency.limit, .now_us = clock_now_us()};
    /* With a single store there is no other to protect: its GETs count as they are. */
    for (const struct fetch_store *s = f->stores.count > 1 ? f->busy_stores : NULL; s; s = s->busy_next)
        if (is_silent(f, s, shares.now_us)) {
            shares.silent_busy += s->busy;
            shares.silent_background += s->busy_background;
            for (int priority = 0; priority < PRIORITIES; priority++)
                shares.silent_in_flight[priority] += s->in_flight[priority];
        }
    shares.limit = GR_MIN(shares.limit + shares.silent_busy, f->config.workers);
    shares.free = shares.limit - GR_MIN(shares.limit, f->busy);
    return shares;
}

bool fetch_is_answering(const struct fetch *f, const struct fetch_shares *shares, const struct fetch_store *s)
{
    return s->answers && !is_silent(f, s, shares->now_us);
}

/* Background GETs of one store get three quarters of the three quarters that all background has. */
bool fetch_has_place(const struct fetch *f, const struct fetch_shares *shares, const struct inflight *inflight)
{
    const struct fetch_store *s = inflight->of;
    unsigned unproven = GR_MAX(f->concurrency.limit / UNPROVEN_PART, 1u);
    if (f->stores.count == 1)
        return shares->free > 0 && s->busy < f->config.workers - f->config.workers / SOLE_LEAVES_PART;
    if (!fetch_is_answering(f, shares, s) && s->busy >= unproven)
        return false;
    return share_allows(s->busy, shares->free) &&
           (inflight->priority == PRIORITY_DEMAND ||
            s->busy_background < fetch_three_quarters(fetch_three_quarters(shares->limit)));
}

static void link_busy(struct fetch *f, struct fetch_store *s)
{
    s->busy_prev = NULL;
    s->busy_next = f->busy_stores;
    if (s->busy_next)
        s->busy_next->busy_prev = s;
    f->busy_stores = s;
}

static void unlink_busy(struct fetch *f, struct fetch_store *s)
{
    *(s->busy_prev ? &s->busy_prev->busy_next : &f->busy_stores) = s->busy_next;
    if (s->busy_next)
        s->busy_next->busy_prev = s->busy_prev;
}

void fetch_begin_get_locked(struct fetch *f, struct fetch_store *s, bool background)
{
    f->busy++;
    f->busy_background += background;
    if (!s->busy++) {
        s->heard_us = clock_now_us();
        link_busy(f, s);
    }
    s->busy_background += background;
}

void fetch_end_get_locked(struct fetch *f, struct fetch_store *s, bool background, bool answered)
{
    f->busy--;
    f->busy_background -= background;
    s->busy_background -= background;
    s->answers &= answered;
    if (!--s->busy)
        unlink_busy(f, s);
}

void fetch_heard_locked(struct fetch *f, struct fetch_store *s)
{
    bool first = !s->answers;
    s->answers = true;
    s->heard_us = clock_now_us();
    if (first && f->queued)
        pthread_cond_signal(&f->work); /* its share may be larger now */
}
