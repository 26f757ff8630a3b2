/* What the scheduler and inflight.c share of an in-flight fetch. Nobody else includes this. */
#ifndef GRANARY_FETCH_INFLIGHT_INTERNAL_H
#define GRANARY_FETCH_INFLIGHT_INTERNAL_H

#include <pthread.h>
#include <stdbool.h>

#include "base/error.h"
#include "fetch/fetch.h"

struct inflight {
    _Atomic unsigned refs;
    struct chunk_ref chunk; /* constant */
    struct store *store;    /* constant, not owned */
    uint32_t tag;           /* constant */

    /* Under the fetch's lock. */
    struct fetch_store *of;       /* the store's share of the gets in flight */
    struct inflight *prev, *next; /* the priority's queue, while queued */
    enum fetch_priority priority;
    uint64_t wanted_us; /* since when somebody waits for it; 0: nobody does */
    bool queued;
    bool warm;         /* a caller at warm priority waits for it, whatever priority it was raised to */
    unsigned attempts; /* gets on their way that bring it: 1, hedged 2 */
    bool completed;    /* its result is known: what another get brings is dropped */

    /* Under lock. */
    pthread_mutex_t lock;
    pthread_cond_t landing;
    bool landed;
    struct buf *plain;  /* NULL when the fetch failed: then error says why */
    struct buf *stored; /* see inflight_stored */
    struct error error;
    uint64_t sent_us, landed_us; /* sent_us 0: it never was */
    unsigned tries;
    const char *from;
};

/* One reference; NULL when out of memory. */
struct inflight *inflight_new(struct store *store, const struct chunk_ref *chunk);

/* NULLs among them are passed over. */
void inflight_unref_all(struct inflight *const *inflights, size_t n);

/* The get that lands it next. */
void inflight_note(struct inflight *inflight, uint64_t sent_us, const struct request_context *context);

/* Wake the waiters with plain and stored (may be NULL; the references are taken), or, when plain is
 * NULL, with rc and the thread's sentence. Once an in-flight fetch. */
void inflight_land(struct inflight *inflight, int rc, struct buf *plain, struct buf *stored);

#endif
