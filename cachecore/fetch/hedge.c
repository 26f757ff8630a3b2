/* Times are counted in buckets of a quarter of an octave, 8 ms to five minutes; below 8 ms each millisecond has its
 * own. A percentile is the upper edge of its bucket. At SAMPLES_MOST all counts are halved, so that recent times weigh
 * most.
 *
 * GETs are compared with others of their length: a node answers when it has every chunk of the GET, so a long one is
 * silent for longer. Where the times lie close together, as on a link that is full, the slowest 5 in 100 are not worth
 * a second request: it would only lengthen the queue. So a late GET has also taken twice the median.
 *
 * A node that does not have a chunk fetches it first, so it takes as long as the store. While the store itself would
 * take as long, a second request to it brings nothing sooner, and makes it send the same bytes twice.
 */
#include "fetch/fetch_internal.h"

#include <assert.h>

/* The samples that halve the counts; a whole request, and the cap of the budget, in hundredths; the doublings of a
 * shorter GET's time, since a store's first bytes depend little on the length. */
enum { SAMPLES_MOST = 2000, GET = 100, CREDIT_MOST = 10 * GET, DOUBLINGS_MOST = 2 };

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

/* Return the times of a store, NULL if there are none. */
static struct hedge_times *times_of(struct hedge *h, const struct store *store)
{
    for (unsigned i = 0; i < h->stores; i++)
        if (h->times[i].store == store)
            return &h->times[i];
    return NULL;
}

/* Return which times a GET of `chunks` chunks belongs to: 1, 2, 3 to 4, 5 to 8, more. */
static unsigned length_of(size_t chunks)
{
    unsigned length = 0;
    while (length < HEDGE_LENGTHS - 1 && (size_t)1 << length < chunks)
        length++;
    return length;
}

/* Count the time to the first chunk. */
static void hedge_note(struct hedge *h, const struct hedge_get *get, uint64_t ms)
{
    struct hedge_times *of = times_of(h, get->store);
    if (!of) {
        if (h->stores == HEDGE_STORES_MAX)
            return;
        of = &h->times[h->stores++];
        of->store = get->store;
    }
    struct hedge_length *t = &of->lengths[get->length];
    t->buckets[hedge_bucket_of(ms)]++;
    if (++t->count < SAMPLES_MOST)
        return;
    t->count = 0;
    for (unsigned i = 0; i < HEDGE_BUCKETS; i++)
        t->count += t->buckets[i] /= 2;
}

/* Return a time that at most `above` of the samples exceed. */
static uint64_t exceeded_by(const struct hedge_length *t, unsigned above)
{
    unsigned bucket = HEDGE_BUCKETS - 1;
    while (bucket && t->buckets[bucket] <= above)
        above -= t->buckets[bucket--];
    return upper_edge_ms(bucket);
}

/* Return after which time GETs of the length are late, 0 if too few are known. */
static uint64_t late_ms(const struct hedge_length *t)
{
    if (t->count < HEDGE_SAMPLES_MIN)
        return 0;
    uint64_t slowest = exceeded_by(t, t->count / 20), twice = 2 * exceeded_by(t, t->count / 2);
    uint64_t late = GR_MAX(slowest, twice);
    return GR_MAX(late, (uint64_t)HEDGE_DELAY_MIN_MS);
}

/* Return after which time the GET would be late at that store, 0 if it is not known. If too few of its length are, it
 * may take twice as long as one of half the length, but at most four times as long as any shorter one, nor longer than
 * the next longer one that is known. */
static uint64_t delay_at_ms(struct hedge *h, const struct store *store, const struct hedge_get *get)
{
    const struct hedge_times *t = times_of(h, store);
    uint64_t late = t ? late_ms(&t->lengths[get->length]) : 0, most = 0;
    if (!t || late)
        return late;
    for (unsigned shorter = 1; !late && shorter <= get->length; shorter++)
        late = late_ms(&t->lengths[get->length - shorter]) << GR_MIN(shorter, (unsigned)DOUBLINGS_MOST);
    for (unsigned longer = get->length + 1; !most && longer < HEDGE_LENGTHS; longer++)
        most = late_ms(&t->lengths[longer]);
    return late && most ? GR_MIN(late, most) : late + most;
}

/* Return after which time the GET is late, 0 if it is not known. */
static uint64_t delay_ms(struct hedge *h, const struct hedge_get *get)
{
    uint64_t delay = delay_at_ms(h, get->store, get);
    if (!delay || get->second == get->store)
        return delay;
    uint64_t at_second = delay_at_ms(h, get->second, get);
    return GR_MAX(delay, at_second);
}

void hedge_begin(struct hedge *h, struct hedge_get *get, const struct store *store, const struct store *second,
                 size_t chunks, uint64_t now_ms)
{
    *get = (struct hedge_get){.store = store,
                              .second = second,
                              .length = length_of(chunks),
                              .begun_ms = now_ms,
                              .silent = true,
                              .next = h->silent};
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
        hedge_note(h, get, now_ms - get->begun_ms);
}

struct hedge_get *hedge_next(struct hedge *h, uint64_t *due_ms)
{
    struct hedge_get *first = NULL;
    for (struct hedge_get *get = h->credit < GET ? NULL : h->silent; get; get = get->next) {
        uint64_t delay = get->hedged ? 0 : delay_ms(h, get);
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
