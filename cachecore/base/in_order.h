/* Work done ahead by a few threads and handed back in the order in which it was given: a ring of slots, each with one
 * piece of work.
 *
 *   in_order_new, { in_order_slot, in_order_give | in_order_take, in_order_drop }..., in_order_free
 *
 *   slot: free -> (filled in by the caller) given -> (worked on) done -> (taken) the caller's -> (dropped) free
 *
 * All calls are of one thread; `work` is called by the others. A slot between give and take is a thread's.
 */
#ifndef GRANARY_BASE_IN_ORDER_H
#define GRANARY_BASE_IN_ORDER_H

#include <stddef.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct in_order_config {
    unsigned threads; /* at most; started as they are needed. 0: in_order_take does the work */
    size_t slots;     /* given and not dropped, at most; at least 1 */
    size_t size;      /* of a slot's memory */
    void (*work)(void *arg, void *slot);
    void (*clear)(
        void *slot); /* release what it holds, also when it was not worked on or is all zero; it is zeroed then */
    void *arg;
};

struct in_order;

GR_MUST_CHECK int in_order_new(const struct in_order_config *config, struct in_order **out);
/* Waits for the work that has begun; what has not is never begun. NULL is allowed. */
void in_order_free(struct in_order *r);
DEFINE_CLEANUP(in_order, struct in_order *, in_order_free)

/* The slot to be given next, zeroed when it was first asked for; NULL: all are given. */
void *in_order_slot(struct in_order *r);
/* Hand it to the threads. Where none can be started, in_order_take does the work. */
void in_order_give(struct in_order *r);

/* Wait until the oldest slot's work is done; NULL: none is given. The same until it is dropped. */
void *in_order_take(struct in_order *r);
/* It is cleared. */
void in_order_drop(struct in_order *r);

#endif
