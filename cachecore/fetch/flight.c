/* One chunk in the air: a reference count, a condition to wait on, and the result. The result is
 * written once, under the flight's own lock, so that waiters never touch the table's lock. Lock
 * order: the fetch's lock or an asker's may be held when a flight's is taken, never the other way round.
 */
#include "fetch/flight_internal.h"

#include <assert.h>
#include <stdlib.h>

#include "base/asker.h"
#include "base/clock.h"

struct flight *flight_new(struct store *store, const struct chunk_ref *chunk)
{
    struct flight *flight = calloc(1, sizeof *flight);
    if (!flight)
        return NULL;
    atomic_init(&flight->refs, 1);
    flight->chunk = *chunk;
    flight->store = store;
    pthread_mutex_init(&flight->lock, NULL);
    pthread_cond_init(&flight->landing, NULL);
    return flight;
}

struct flight *flight_ref(struct flight *flight)
{
    atomic_fetch_add_explicit(&flight->refs, 1, memory_order_relaxed);
    return flight;
}

void flight_unref(struct flight *flight)
{
    if (!flight || atomic_fetch_sub_explicit(&flight->refs, 1, memory_order_acq_rel) != 1)
        return;
    buf_unref(flight->plain);
    buf_unref(flight->stored);
    pthread_cond_destroy(&flight->landing);
    pthread_mutex_destroy(&flight->lock);
    free(flight);
}

void flight_unref_all(struct flight *const *flights, size_t n)
{
    for (size_t i = 0; i < n; i++)
        flight_unref(flights[i]);
}

const struct chunk_ref *flight_chunk(const struct flight *flight)
{
    return &flight->chunk;
}

uint32_t flight_tag(const struct flight *flight)
{
    return flight->tag;
}

void flight_note(struct flight *flight, uint64_t sent_us, const struct store_errand *errand)
{
    SCOPED_LOCK(&flight->lock);
    flight->sent_us = sent_us;
    flight->tries = errand->tries;
    flight->from = errand->from;
}

void flight_times(struct flight *flight, uint64_t since_us, struct flight_times *out)
{
    SCOPED_LOCK(&flight->lock);
    uint64_t landed_us = GR_MAX(flight->landed_us, since_us);
    uint64_t sent_us = GR_MIN(GR_MAX(flight->sent_us ? flight->sent_us : landed_us, since_us), landed_us);
    *out = (struct flight_times){
        .queued_us = sent_us - since_us, .get_us = landed_us - sent_us, .tries = flight->tries, .from = flight->from};
}

void flight_land(struct flight *flight, int rc, struct buf *plain, struct buf *stored)
{
    SCOPED_LOCK(&flight->lock);
    assert(!flight->landed && (plain || rc < 0));
    if (plain)
        flight->plain = plain;
    else
        error_take(&flight->error, rc);
    flight->stored = stored;
    flight->landed = true;
    flight->landed_us = clock_now_us();
    pthread_cond_broadcast(&flight->landing);
}

struct buf *flight_stored(struct flight *flight)
{
    SCOPED_LOCK(&flight->lock);
    return flight->stored ? buf_ref(flight->stored) : NULL;
}

static int wait_landed(struct flight *flight, const struct asker_wait *wait, struct buf **out)
{
    SCOPED_LOCK(&flight->lock);
    while (!flight->landed && !asker_wait_is_over(wait))
        pthread_cond_wait(&flight->landing, &flight->lock);
    if (!flight->landed)
        return error_set(-ECANCELED, "fetch: who asked for it has gone");
    if (!flight->plain)
        return error_restore(&flight->error);
    *out = buf_ref(flight->plain);
    return 0;
}

int flight_wait(struct flight *flight, struct buf **out)
{
    struct asker_wait wait;
    asker_wait_begin(&wait, &flight->lock, &flight->landing);
    int rc = wait_landed(flight, &wait, out);
    asker_wait_end(&wait);
    return rc;
}
