/* One in-flight fetch: a reference count, a condition to wait on, and the result. The result is written once, under the
 * fetch's own lock, so waiters never take the lock of the table. Lock order: the table's lock or a client's lock may be
 * held while this lock is taken, never the reverse. fetch_queue.c has the table of them. */
#include "fetch/fetch_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/client.h"
#include "base/clock.h"
#include "base/thread.h"

struct inflight *inflight_new(struct store *store, const struct chunk_ref *chunk)
{
    struct inflight *inflight = calloc(1, sizeof *inflight);
    if (!inflight)
        return NULL;
    atomic_init(&inflight->refs, 1);
    inflight->chunk = *chunk;
    inflight->store = store;
    pthread_mutex_init(&inflight->lock, NULL);
    thread_cond_init(&inflight->landing);
    pthread_cond_init(&inflight->retirement, NULL);
    return inflight;
}

struct inflight *inflight_ref(struct inflight *inflight)
{
    atomic_fetch_add_explicit(&inflight->refs, 1, memory_order_relaxed);
    return inflight;
}

void inflight_unref(struct inflight *inflight)
{
    if (!inflight || atomic_fetch_sub_explicit(&inflight->refs, 1, memory_order_acq_rel) != 1)
        return;
    buf_unref(inflight->plain);
    buf_unref(inflight->stored);
    pthread_cond_destroy(&inflight->landing);
    pthread_cond_destroy(&inflight->retirement);
    pthread_mutex_destroy(&inflight->lock);
    free(inflight);
}

void inflight_unref_all(struct inflight *const *inflights, size_t n)
{
    for (size_t i = 0; i < n; i++)
        inflight_unref(inflights[i]);
}

const struct chunk_ref *inflight_chunk(const struct inflight *inflight)
{
    return &inflight->chunk;
}

uint32_t inflight_tag(const struct inflight *inflight)
{
    return inflight->tag;
}

void inflight_note(struct inflight *inflight, const struct fetch_run *run)
{
    SCOPED_LOCK(&inflight->lock);
    inflight->sent_us = run->sent_us;
    inflight->tries = run->context.tries;
    inflight->from_l2 = run->context.from_l2;
    inflight->from_node = run->context.from_node;
    inflight->others = run->others && !run->context.owner_lacks;
    memcpy(inflight->from, run->context.from, sizeof inflight->from);
}

bool inflight_is_own(struct inflight *inflight)
{
    SCOPED_LOCK(&inflight->lock);
    return !inflight->others;
}

void inflight_times(struct inflight *inflight, uint64_t since_us, struct inflight_times *out)
{
    SCOPED_LOCK(&inflight->lock);
    /* A waiter may have joined after the GET was sent, or even after it landed: clamp both times to its own wait. */
    uint64_t landed_us = GR_MAX(inflight->landed_us, since_us);
    uint64_t sent_us = GR_MIN(GR_MAX(inflight->sent_us ? inflight->sent_us : landed_us, since_us), landed_us);
    *out = (struct inflight_times){.queued_us = sent_us - since_us,
                                   .get_us = landed_us - sent_us,
                                   .tries = inflight->tries,
                                   .from_l2 = inflight->from_l2,
                                   .from_node = inflight->from_node};
    memcpy(out->from, inflight->from, sizeof out->from);
}

void inflight_land(struct inflight *inflight, int rc, struct buf *plain, struct buf *stored)
{
    SCOPED_LOCK(&inflight->lock);
    assert(!inflight->landed && (plain || rc < 0));
    if (plain)
        inflight->plain = plain;
    else
        error_take(&inflight->error, rc);
    inflight->stored = stored;
    inflight->landed = true;
    inflight->landed_us = clock_now_us();
    pthread_cond_broadcast(&inflight->landing);
}

struct buf *inflight_stored(struct inflight *inflight)
{
    SCOPED_LOCK(&inflight->lock);
    return inflight->stored ? buf_ref(inflight->stored) : NULL;
}

/* The client's disconnect broadcasts `landing` too (client_wait), so no wait outlives its client. */
static int wait_landed(struct inflight *inflight, const struct client_wait *wait, struct buf **out)
{
    SCOPED_LOCK(&inflight->lock);
    while (!inflight->landed && !client_wait_is_over(wait))
        pthread_cond_wait(&inflight->landing, &inflight->lock);
    if (!inflight->landed)
        return error_set(-ECANCELED, "fetch: the client is gone");
    if (!inflight->plain)
        return error_restore(&inflight->error);
    *out = buf_ref(inflight->plain);
    return 0;
}

int inflight_wait(struct inflight *inflight, struct buf **out)
{
    struct client_wait wait;
    client_wait_begin(&wait, &inflight->lock, &inflight->landing);
    int rc = wait_landed(inflight, &wait, out);
    client_wait_end(&wait);
    return rc;
}

void inflight_wait_retired(struct inflight *inflight)
{
    struct client_wait wait;
    client_wait_begin(&wait, &inflight->lock, &inflight->retirement);
    {
        SCOPED_LOCK(&inflight->lock);
        while (!inflight->retired && !client_wait_is_over(&wait))
            pthread_cond_wait(&inflight->retirement, &inflight->lock);
    }
    client_wait_end(&wait);
}

int inflight_wait_ms(struct inflight *inflight, uint64_t ms, struct buf **out)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + ms);
    SCOPED_LOCK(&inflight->lock);
    while (!inflight->landed)
        if (pthread_cond_timedwait(&inflight->landing, &inflight->lock, &until) == ETIMEDOUT && !inflight->landed)
            return error_set(-ETIMEDOUT, "fetch: the chunk has not come in time");
    if (!inflight->plain)
        return error_restore(&inflight->error);
    *out = buf_ref(inflight->plain);
    return 0;
}
