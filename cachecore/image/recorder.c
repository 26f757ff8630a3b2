/* One bit a chunk tells a first touch from later ones. The ring is Dmitry Vyukov's bounded queue, with many producers
 * and one consumer: each cell has a turn number, compared with a position in the queue:
 *
 *    turn == position                    free, for the producer that moves the tail past it
 *    turn == position + 1                filled, for the consumer
 *    turn == position + RECORDER_RING    free again, one round later
 *
 * A recorder is freed when no reader can reach it. A reader counts itself in `users`, then loads the recorder again;
 * recorder_stop clears the pointer, then waits until `users` is 0. All four accesses are sequentially consistent, so
 * one side sees the other.
 */
#include "image/image_internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "base/cleanup.h"

/* One cell of the ring. */
struct cell {
    _Atomic uint64_t turn;
    struct trace_entry entry;
};

/* One recording. Readers write `touched`, the ring and `tail`; the taking thread owns `head`. */
struct recorder {
    _Atomic uint64_t *touched; /* one bit a chunk */
    struct cell *ring;
    _Atomic uint64_t tail; /* next position to fill */
    uint64_t head;         /* next position to take; the consumer's alone */
    counter dropped;
};

void recorder_free(struct recorder *r)
{
    if (!r)
        return;
    free(r->touched);
    free(r->ring);
    free(r);
}
DEFINE_CLEANUP(recorder, struct recorder *, recorder_free)

int recorder_start(struct recorder_place *place, uint64_t chunk_count, struct recorder **out)
{
    CLEANUP(cleanup_recorder) struct recorder *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    r->touched = calloc(chunk_count / 64 + 1, sizeof *r->touched);
    r->ring = calloc(RECORDER_RING, sizeof *r->ring);
    if (!r->touched || !r->ring)
        return error_no_memory();
    for (uint64_t i = 0; i < RECORDER_RING; i++)
        atomic_init(&r->ring[i].turn, i);
    struct recorder *none = NULL;
    if (!atomic_compare_exchange_strong(&place->current, &none, r))
        return error_set(-EBUSY, "this export is being recorded already");
    atomic_fetch_add(&place->started, 1);
    *out = steal_ptr(&r);
    return 0;
}

/* Sequentially consistent, like recorder_push: either a reader sees NULL, or this thread sees the reader in `users`. */
void recorder_stop(struct recorder_place *place, struct recorder *r)
{
    if (atomic_load(&place->current) != r)
        return;
    atomic_store(&place->current, NULL);
    while (atomic_load(&place->users)) /* each of them for a few instructions */
        sched_yield();
}

/* Append an entry. false: the ring is full. */
static bool recorder_put(struct recorder *r, const struct trace_entry *entry)
{
    uint64_t at = atomic_load_explicit(&r->tail, memory_order_relaxed);
    for (;;) {
        struct cell *cell = &r->ring[at % RECORDER_RING];
        uint64_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
        if (turn == at) {
            if (!atomic_compare_exchange_weak_explicit(&r->tail, &at, at + 1, memory_order_relaxed,
                                                       memory_order_relaxed))
                continue;
            cell->entry = *entry;
            atomic_store_explicit(&cell->turn, at + 1, memory_order_release);
            return true;
        }
        if (turn < at)
            return false;
        at = atomic_load_explicit(&r->tail, memory_order_relaxed); /* another producer took this position */
    }
}

/* Record a chunk the first time it is touched. A dropped entry clears its bit again. */
static void touch(struct recorder *r, uint64_t chunk, const struct digest *digest)
{
    _Atomic uint64_t *word = &r->touched[chunk / 64];
    uint64_t bit = UINT64_C(1) << chunk % 64;
    if (atomic_load_explicit(word, memory_order_relaxed) & bit ||
        atomic_fetch_or_explicit(word, bit, memory_order_relaxed) & bit)
        return;
    const struct trace_entry entry = trace_entry_of(chunk, digest);
    if (recorder_put(r, &entry))
        return;
    atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed);
    counter_add(&r->dropped, 1);
}

/* The recorder is loaded again after `users` was incremented; recorder_note's load was only a hint. */
void recorder_push(struct recorder_place *place, uint64_t chunk, const struct digest *digest)
{
    atomic_fetch_add(&place->users, 1);
    struct recorder *r = atomic_load(&place->current);
    if (r)
        touch(r, chunk, digest);
    atomic_fetch_sub(&place->users, 1);
}

size_t recorder_take(struct recorder *r, struct trace_entry *out, size_t max)
{
    size_t n = 0;
    for (; n < max; n++, r->head++) {
        struct cell *cell = &r->ring[r->head % RECORDER_RING];
        if (atomic_load_explicit(&cell->turn, memory_order_acquire) != r->head + 1)
            break;
        out[n] = cell->entry;
        atomic_store_explicit(&cell->turn, r->head + RECORDER_RING, memory_order_release);
    }
    return n;
}

uint64_t recorder_dropped(struct recorder *r)
{
    return counter_get(&r->dropped);
}

/* `started` is read before `current`: if one recording ends and the next begins in between, the next is not ended. */
bool recorder_end(struct recorder_place *place)
{
    unsigned which = atomic_load(&place->started);
    if (!atomic_load(&place->current))
        return false;
    atomic_store(&place->ends, which);
    return true;
}

bool recorder_ending(struct recorder_place *place)
{
    return atomic_load(&place->ends) == atomic_load(&place->started);
}
