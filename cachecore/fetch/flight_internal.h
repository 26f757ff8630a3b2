/* What the scheduler and flight.c share of a flight. Nobody else includes this. */
#ifndef GRANARY_FETCH_FLIGHT_INTERNAL_H
#define GRANARY_FETCH_FLIGHT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct flight {
    _Atomic unsigned refs;
    struct chunk_ref chunk; /* constant */
    struct store *store;    /* constant, not owned */
    uint32_t tag;           /* constant */

    /* Under the fetch's lock. */
    struct fetch_store *of;     /* the store's share of the gets in flight */
    struct flight *prev, *next; /* the lane's queue, while queued */
    enum fetch_lane lane;
    uint64_t wanted_us; /* since when somebody waits for it; 0: nobody does */
    bool queued;
    unsigned attempts; /* gets on their way that bring it: 1, hedged 2 */
    bool settled;      /* its result is known: what another get brings is dropped */

    /* Under lock. */
    pthread_mutex_t lock;
    pthread_cond_t landing;
    bool landed;
    struct buf *plain;  /* NULL when the fetch failed: then error says why */
    struct buf *stored; /* see flight_stored */
    struct error error;
    uint64_t sent_us, landed_us; /* sent_us 0: it never was */
    unsigned tries;
    const char *from;
};

/* One reference; NULL when out of memory. */
struct flight *flight_new(struct store *store, const struct chunk_ref *chunk);

/* NULLs among them are passed over. */
void flight_unref_all(struct flight *const *flights, size_t n);

/* The get that lands it next. */
void flight_note(struct flight *flight, uint64_t sent_us, const struct store_errand *errand);

/* Wake the waiters with plain and stored (may be NULL; the references are taken), or, when plain is
 * NULL, with rc and the thread's sentence. Once a flight. */
void flight_land(struct flight *flight, int rc, struct buf *plain, struct buf *stored);

#endif
