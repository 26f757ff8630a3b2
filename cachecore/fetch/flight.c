/* One chunk in the air: a reference count, a condition to wait on, and the result. The result is
 * written once, under the flight's own lock, so that waiters never touch the table's lock. Lock
 * order: the fetch's lock may be held when a flight's is taken, never the other way round.
 */
#include "fetch/flight_internal.h"

#include <assert.h>
#include <stdlib.h>

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
    pthread_cond_broadcast(&flight->landing);
}

struct buf *flight_stored(struct flight *flight)
{
    SCOPED_LOCK(&flight->lock);
    return flight->stored ? buf_ref(flight->stored) : NULL;
}

int flight_wait(struct flight *flight, struct buf **out)
{
    SCOPED_LOCK(&flight->lock);
    while (!flight->landed)
        pthread_cond_wait(&flight->landing, &flight->lock);
    if (!flight->plain)
        return error_restore(&flight->error);
    *out = buf_ref(flight->plain);
    return 0;
}
