/* How many requests may be under way at a time: of one struct http, or of several that share these slots. Where
 * several do, each has a share (base/share.h): one whose server is silent leaves slots to the others. Look-ups have
 * three eighths of the slots at most, shared in the same way, so that no number of them keeps data from being read. */
#ifndef GRANARY_NET_HTTP_SLOTS_H
#define GRANARY_NET_HTTP_SLOTS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum http_slot_kind { HTTP_SLOT_DATA, HTTP_SLOT_LOOKUP };

/* Members are its own. */
struct http_slots {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    unsigned in_use, lookups, limit, waiting; /* waiting: for one to be given back */
    unsigned users;
};

/* One that takes slots; all 0 to begin with, under the slots' lock. */
struct http_slots_user {
    unsigned in_use, lookups;
};

/* limit: at least 1. */
void http_slots_init(struct http_slots *p, unsigned limit);
void http_slots_release(struct http_slots *p); /* none is taken */

/* From join to leave a user is counted: a sole one has all slots. */
void http_slots_join(struct http_slots *p);
void http_slots_leave(struct http_slots *p);

/* Wait for a slot; false: deadline_ms (on clock_now_ms; 0: none) passed before there was one. */
GR_MUST_CHECK bool http_slots_take(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind,
                                   uint64_t deadline_ms);
void http_slots_give(struct http_slots *p, struct http_slots_user *user, enum http_slot_kind kind);

/* How many wait for a slot now. Any thread. */
unsigned http_slots_waiting(struct http_slots *p);

#endif
