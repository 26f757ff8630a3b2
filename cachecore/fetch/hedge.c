/* Times are counted in buckets of a quarter of an octave, 8 ms to five minutes; below 8 ms each millisecond has its
 * own. A percentile is the upper edge of its bucket. At SAMPLES_MOST all counts are halved, so that recent times weigh
 * most.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>

/* The samples that halve the counts; a whole request, and the cap of the budget, in hundredths. */
enum { SAMPLES_MOST = 2000, GET = 100, CREDIT_MOST = 10 * GET };

/* Return the bucket of a time: 0..7 are the milliseconds themselves, then four buckets an octave; the last one is open.
 */
static unsigned hedge_bucket_of(uint64_t ms)
{
    if (ms < 8)
        return (unsigned)ms;
    unsigned octave = 63 - (unsigned)__builtin_clzll(ms);
    unsigned bucket = 8 + (octave - 3) * 4 + (unsigned)(ms >> (octave - 2) & 3);
    return GR_MIN(bucket, (unsigned)HEDGE_BUCKETS - 1);
}

/* Return the first millisecond above a bucket. */
static uint64_t upper_edge_ms(unsigned bucket)
{
    if (bucket < 8)
        return bucket + 1;
    unsigned octave = 3 + (bucket - 8) / 4, quarter = (bucket - 8) % 4;
    return (uint64_t)(5 + quarter) << (octave - 2);
}

static struct hedge_times *times_of(struct hedge *h, const struct store *store)
{
    for (unsigned i = 0; i < h->stores; i++)
        if (h->times[i].store == store)
            return &h->times[i];
    return NULL;
}

/* Count a time to the first chunk. */
static void hedge_note(struct hedge *h, const struct store *store, uint64_t ms)
{
    struct hedge_times *t = times_of(h, store);
    if (!t) {
        if (h->stores == HEDGE_STORES_MAX)
            return;
        t = &h->times[h->stores++];
        t->store = store;
    }
    t->buckets[hedge_bucket_of(ms)]++;
    if (++t->count < SAMPLES_MOST)
        return;
    t->count = 0;
    for (unsigned i = 0; i < HEDGE_BUCKETS; i++)
        t->count += t->buckets[i] /= 2;
}

/* Return the 95th percentile of the store's times, 0 if too few are known. */
static uint64_t delay_ms(struct hedge *h, const struct store *store)
{
    const struct hedge_times *t = times_of(h, store);
    if (!t || t->count < HEDGE_SAMPLES_MIN)
        return 0;
    unsigned left = t->count / 20, bucket = HEDGE_BUCKETS - 1; /* samples that may lie above */
    while (bucket && t->buckets[bucket] <= left)
        left -= t->buckets[bucket--];
    return GR_MAX(upper_edge_ms(bucket), (uint64_t)HEDGE_DELAY_MIN_MS);
}

void hedge_begin(struct hedge *h, struct hedge_get *get, const struct store *store, uint64_t now_ms)
{
    *get = (struct hedge_get){.store = store, .begun_ms = now_ms, .silent = true, .next = h->silent};
    if (h->silent)
        h->silent->prev = get;
    h->silent = get;
    h->credit = GR_MIN(h->credit + h->percent, (unsigned)CREDIT_MOST);
}

void hedge_end(struct hedge *h, struct hedge_get *get, bool good, uint64_t now_ms)
{
    if (!get->silent)
        return;
    *(get->prev ? &get->prev->next : &h->silent) = get->next;
    if (get->next)
        get->next->prev = get->prev;
    get->silent = false;
    if (good)
        hedge_note(h, get->store, now_ms - get->begun_ms);
}

struct hedge_get *hedge_next(struct hedge *h, uint64_t *due_ms)
{
    struct hedge_get *first = NULL;
    for (struct hedge_get *get = h->credit < GET ? NULL : h->silent; get; get = get->next) {
        uint64_t delay = get->hedged ? 0 : delay_ms(h, get->store);
        if (delay && (!first || get->begun_ms + delay < *due_ms)) {
            first = get;
            *due_ms = get->begun_ms + delay;
        }
    }
    return first;
}

void hedge_send(struct hedge *h, struct hedge_get *get)
{
    assert(h->credit >= GET);
    h->credit -= GET;
    get->hedged = true;
}
