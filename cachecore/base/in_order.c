/* A ring of slots and a queue of pointers to them. `tail` counts the slots given, `head` those dropped; both only grow:
 *
 *     head            tail
 *      v               v
 *   ---[ d ][ q ][ d ][ ]---    d: done, q: queued or worked on; in_order_take returns the slot at head
 *
 * The caller's thread alone uses head and tail. The queue has room for every slot, so giving never blocks. Threads take
 * slots in the order given but may finish in any order, hence one `done` flag per slot. `lock` guards `done` alone; the
 * flag also publishes what `work` wrote to the slot.
 */
#include "base/in_order.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/queue.h"
#include "base/thread.h"

struct in_order {
    struct in_order_config config;
    uint8_t *slots;      /* config.slots * config.size bytes */
    bool *done;          /* per slot; guarded by lock */
    uint64_t head, tail; /* work number n is in slot n % config.slots */
    struct queue *todo;
    _Atomic bool stopping; /* in_order_free: begin no more work */
    pthread_t *threads;
    unsigned thread_count;
    pthread_mutex_t lock;
    pthread_cond_t slot_done;
};

static void *slot_at(const struct in_order *r, uint64_t number)
{
    return r->slots + number % r->config.slots * r->config.size;
}

static bool *done_of(struct in_order *r, const void *slot)
{
    return &r->done[(size_t)((const uint8_t *)slot - r->slots) / r->config.size];
}

/* Do a slot's work and mark it done. */
static void work_on(struct in_order *r, void *slot)
{
    r->config.work(r->config.arg, slot);
    SCOPED_LOCK(&r->lock);
    *done_of(r, slot) = true;
    pthread_cond_signal(&r->slot_done); /* only the caller's thread ever waits */
}

static void *work_main(void *arg)
{
    struct in_order *r = arg;
    void *slot;
    while ((slot = queue_pop(r->todo)) && !atomic_load(&r->stopping))
        work_on(r, slot);
    return NULL;
}

/* ------------------------------------------------------------------ the ring */

void *in_order_slot(struct in_order *r)
{
    return r->tail - r->head < r->config.slots ? slot_at(r, r->tail) : NULL;
}

void in_order_give(struct in_order *r)
{
    void *slot = in_order_slot(r);
    assert(slot);
    r->tail++;
    if (!queue_push(r->todo, slot))
        abort(); /* only in_order_free closes the queue */
    /* Start one more thread only when there is more work than threads: short lists need few. */
    if (r->thread_count < r->config.threads && r->tail - r->head > r->thread_count &&
        !thread_start(&r->threads[r->thread_count], work_main, r))
        r->thread_count++; /* a failure to start one is no error: fewer threads do the same work */
}

void *in_order_take(struct in_order *r)
{
    if (r->head == r->tail)
        return NULL;
    void *slot = slot_at(r, r->head);
    const bool *done = done_of(r, slot);
    if (!r->thread_count && !*done)
        work_on(r, queue_pop(r->todo)); /* no other thread pops, so the first entry is this slot */
    SCOPED_LOCK(&r->lock);
    while (!*done)
        pthread_cond_wait(&r->slot_done, &r->lock);
    return slot;
}

/* Make a slot free again: all zero, not done. */
static void clear(struct in_order *r, void *slot)
{
    r->config.clear(slot);
    memset(slot, 0, r->config.size);
    *done_of(r, slot) = false;
}

void in_order_drop(struct in_order *r)
{
    assert(r->head < r->tail);
    clear(r, slot_at(r, r->head));
    r->head++;
}

/* ------------------------------------------------------------------ life */

void in_order_free(struct in_order *r)
{
    if (!r)
        return;
    atomic_store(&r->stopping, true);
    if (r->todo)
        queue_close(r->todo);
    for (unsigned i = 0; i < r->thread_count; i++)
        pthread_join(r->threads[i], NULL);
    for (; r->head < r->tail; r->head++)
        clear(r, slot_at(r, r->head));
    if (r->slots) /* the caller may have filled in part of the next slot without giving it */
        clear(r, slot_at(r, r->tail));
    queue_free(r->todo);
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->slot_done);
    free(r->slots);
    free(r->done);
    free(r->threads);
    free(r);
}

int in_order_new(const struct in_order_config *config, struct in_order **out)
{
    CLEANUP(cleanup_in_order) struct in_order *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    r->config = *config;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->slot_done, NULL);
    r->slots = calloc(config->slots, config->size);
    r->done = calloc(config->slots, sizeof *r->done);
    r->threads = calloc(config->threads + 1, sizeof *r->threads);
    r->todo = queue_new(config->slots);
    if (!r->slots || !r->done || !r->threads || !r->todo)
        return error_no_memory();
    *out = steal_ptr(&r);
    return 0;
}
