/* Do work ahead of time on a few threads and hand the results back in the order in which the work was given: a ring of
 * slots, one piece of work each. Prefetching readers use it.
 *
 *   in_order_new, { in_order_slot, in_order_give | in_order_take, in_order_drop }..., in_order_free
 *
 *   slot:  free --in_order_slot, fill in, in_order_give--> queued --work()--> done
 *            ^                                                                  |
 *            +--------in_order_drop-------- taken <----------in_order_take------+
 *
 * One thread makes all the calls; other threads run `work`. From give to take, a slot belongs to those threads.
 */
#ifndef GRANARY_BASE_IN_ORDER_H
#define GRANARY_BASE_IN_ORDER_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct in_order_config {
    unsigned threads; /* at most; started as needed. 0: in_order_take does the work */
    size_t slots;     /* in the ring: at most as many are given and not yet dropped; at least 1 */
    size_t size;      /* bytes of one slot */
    /* Do the work of a slot and leave the result, or the error, in it. Any of the threads. */
    void (*work)(void *arg, void *slot);
    void (*clear)(
        void *slot); /* release what the slot holds, worked on or not, or all zero; the slot is zeroed afterwards */
    void *arg;
};

struct in_order;

/* Make a ring; config is copied. -ENOMEM with a sentence. */
GR_MUST_CHECK int in_order_new(const struct in_order_config *config, struct in_order **out);
/* Wait for work that has begun, skip the rest, clear every slot and free the ring. NULL is allowed. */
void in_order_free(struct in_order *r);
DEFINE_CLEANUP(in_order, struct in_order *, in_order_free)

/* Return the slot to fill in and give next; NULL: all slots are in use. It is all zero at first, and the same slot
 * until in_order_give. */
void *in_order_slot(struct in_order *r);
/* Queue that slot for the threads. If no thread can be started, in_order_take does the work. */
void in_order_give(struct in_order *r);

/* Wait until the work of the oldest slot is done and return that slot; NULL: none is queued. Returns the same slot
 * until in_order_drop. */
void *in_order_take(struct in_order *r);
/* Clear the oldest slot and free it for new work. Only after in_order_take returned it. */
void in_order_drop(struct in_order *r);

#endif
