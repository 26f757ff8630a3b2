/* The inside of an in-flight fetch, for inflight.c and the scheduler's own files only. */
#ifndef GRANARY_FETCH_INFLIGHT_INTERNAL_H
#define GRANARY_FETCH_INFLIGHT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "fetch/fetch.h"

/* The fetch's lock (struct fetch) guards the queueing state, inflight.lock the result. So waiters never contend for the
 * scheduler's lock. */
struct inflight {
    _Atomic unsigned refs;
    struct chunk_ref chunk; /* constant */
    struct store *store;    /* constant, not owned */
    uint32_t tag;           /* constant */

    /* Guarded by the fetch's lock. */
    struct fetch_store *of;       /* the store's accounting of GETs in flight */
    struct inflight *prev, *next; /* in the queue of its priority; valid while queued */
    enum fetch_priority priority;
    uint64_t wanted_us; /* when the first reader began to wait for it; 0: no reader waits */
    bool queued;
    bool warm;         /* a caller at PRIORITY_WARM waits for it, whatever its priority is now */
    unsigned attempts; /* running GETs that cover it: 1, or 2 when hedged */
    bool completed;    /* its result is decided; a second GET's bytes are dropped */

    /* Guarded by lock; written once, by inflight_land. */
    pthread_mutex_t lock;
    pthread_cond_t landing; /* broadcast when it lands */
    bool landed;
    struct buf *plain;  /* the chunk's uncompressed bytes; NULL: the fetch failed with `error` */
    struct buf *stored; /* see inflight_stored; may be NULL */
    struct error error;
    uint64_t sent_us, landed_us; /* sent_us 0: no GET was sent */
    unsigned tries;              /* see inflight_times */
    const char *from;
};

/* Return a new fetch with one reference, or NULL when out of memory. */
struct inflight *inflight_new(struct store *store, const struct chunk_ref *chunk);

/* Drop a reference to each of n fetches; NULL entries are allowed. */
void inflight_unref_all(struct inflight *const *inflights, size_t n);

/* Record the GET that decides the fetch, for inflight_times; before inflight_land. */
void inflight_note(struct inflight *inflight, uint64_t sent_us, const struct request_context *context);

/* Store the result and wake all waiters; called once. Takes over the references to plain and stored (stored may be
 * NULL). With plain NULL the fetch failed: rc and the calling thread's error sentence go to every waiter. */
void inflight_land(struct inflight *inflight, int rc, struct buf *plain, struct buf *stored);

#endif
