/* Which demand GETs deserve a hedged request. Keeps the GETs that have delivered nothing yet, the distribution of each
 * store's time to the first chunk, and a budget of hedged requests.
 *
 * Pure logic: no lock, no clock, no thread. The fetch's lock guards it.
 */
#ifndef GRANARY_FETCH_HEDGE_H
#define GRANARY_FETCH_HEDGE_H

#include <stdbool.h>
#include <stdint.h>

struct store;

enum {
    HEDGE_STORES_MAX = 16,   /* GETs of further stores are not hedged */
    HEDGE_BUCKETS = 72,      /* of the histogram; see hedge.c */
    HEDGE_SAMPLES_MIN = 200, /* a store's GETs that must be known before one is hedged */
    HEDGE_DELAY_MIN_MS = 10, /* no GET is hedged earlier */
};

/* The histogram of one store: time to the first chunk. */
struct hedge_times {
    const struct store *store;
    unsigned count;
    uint16_t buckets[HEDGE_BUCKETS];
};

/* A demand GET, embedded in its owner. All zero at first. */
struct hedge_get {
    const struct store *store;
    uint64_t begun_ms;
    bool silent; /* it has delivered nothing yet and is in hedge.silent */
    bool hedged; /* a hedged request was sent for it */
    struct hedge_get *prev, *next;
};

/* All zero at first, except percent. */
struct hedge {
    unsigned percent; /* hedged requests per hundred demand GETs; 0: none */
    unsigned credit;  /* budget, in hundredths of a GET */
    unsigned stores;
    struct hedge_times times[HEDGE_STORES_MAX];
    struct hedge_get *silent; /* list of the GETs that have delivered nothing yet */
};

/* A demand GET begins. Earns percent/100 of a hedged request; the budget is capped at 10 requests. */
void hedge_begin(struct hedge *h, struct hedge_get *get, const struct store *store, uint64_t now_ms);
/* The GET has delivered its first chunk (good) or failed. Further calls do nothing. */
void hedge_end(struct hedge *h, struct hedge_get *get, bool good, uint64_t now_ms);
/* Return the silent GET that becomes late first, and in *due_ms when. A GET is late when it has delivered nothing for
 * longer than the 95th percentile of its store's recent GETs, and for at least HEDGE_DELAY_MIN_MS. NULL: the budget is
 * empty, or no store has enough samples. */
struct hedge_get *hedge_next(struct hedge *h, uint64_t *due_ms);
/* A hedged request is sent for this GET, which hedge_next returned under the same lock. */
void hedge_send(struct hedge *h, struct hedge_get *get);

#endif
