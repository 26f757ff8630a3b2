/* A limit on the requests in flight, for one struct http or for several that share it. With several users, each has a
 * share (base/share.h), so that one whose server does not answer leaves slots to the others. Lookups then have at most
 * three eighths of the slots, shared in the same way, so that lookups never keep data from being read. Any thread.
 */
#ifndef GRANARY_NET_HTTP_SLOTS_H
#define GRANARY_NET_HTTP_SLOTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum http_slot_kind { HTTP_SLOT_DATA, HTTP_SLOT_LOOKUP };

/* Private to http_slots.c. */
struct http_slots {
    pthread_mutex_t lock;                     /* guards the rest, and every http_slots_user */
    pthread_cond_t freed;                     /* a slot was released, or a user left */
    unsigned in_use, lookups, limit, waiting; /* slots taken; those by lookups; all; threads waiting for one */
    unsigned users;
};

/* One user's slots. All zero at first. */
struct http_slots_user {
    unsigned in_use, lookups;
};

/* limit: the number of slots, at least 1. */
void http_slots_init(struct http_slots *p, unsigned limit);
void http_slots_release(struct http_slots *p); /* no slot may be taken, every user must have left */

/* A user joins before it takes slots and leaves afterwards. A single user may take all slots. */
void http_slots_join(struct http_slots *p);
void http_slots_leave(struct http_slots *p);

/* Wait for a slot and take it. false: deadline_ms (on clock_now_ms; 0: none) passed before there was one. */
GR_MUST_CHECK bool http_slots_take(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind,
                                   uint64_t deadline_ms);
/* Release a slot. */
void http_slots_give(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind);

/* Return the number of threads that wait for a slot now. */
unsigned http_slots_waiting(struct http_slots *p);

#endif
