/* When a get is worth a second one: which gets are silent still, how long those of each store are silent as a rule, and
 * how many second ones may be sent. Logic alone: no lock, no clock, no thread; the fetch's lock guards it. */
#ifndef GRANARY_FETCH_HEDGE_H
#define GRANARY_FETCH_HEDGE_H

#include <stdbool.h>
#include <stdint.h>

struct store;

enum {
    HEDGE_STORES_MAX = 16, /* gets of further stores are not hedged */
    HEDGE_BUCKETS = 72,
    HEDGE_SAMPLES_MIN = 200,
    HEDGE_DELAY_MIN_MS = 10,
};

struct hedge_times {
    const struct store *store;
    unsigned count;
    uint16_t buckets[HEDGE_BUCKETS];
};

/* A demand get; lives in its owner's memory. Begins as all 0. */
struct hedge_get {
    const struct store *store;
    uint64_t begun_ms;
    bool silent; /* it has brought nothing yet, and is linked */
    bool hedged; /* it has a second get */
    struct hedge_get *prev, *next;
};

/* Begins as all 0 but percent. */
struct hedge {
    unsigned percent; /* second gets in a hundred demand gets; 0: none */
    unsigned credit;  /* in hundredths of a get */
    unsigned stores;
    struct hedge_times times[HEDGE_STORES_MAX];
    struct hedge_get *silent;
};

/* The get begins: percent/100 of a second get is earned, 10 are kept at most. */
void hedge_begin(struct hedge *h, struct hedge_get *get, const struct store *store, uint64_t now_ms);
/* It has brought its first chunk (good), or failed; nothing if that is known. */
void hedge_end(struct hedge *h, struct hedge_get *get, bool good, uint64_t now_ms);
/* The silent get that is late first, and in *due_ms when: once it has been silent for longer than 95 in 100 gets of its
 * store lately, and for HEDGE_DELAY_MIN_MS. NULL: too little is known, or no second get may be sent now. */
struct hedge_get *hedge_next(struct hedge *h, uint64_t *due_ms);
/* A second get of this one, which hedge_next gave under the same lock, is sent. */
void hedge_send(struct hedge *h, struct hedge_get *get);

#endif
