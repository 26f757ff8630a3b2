/* How many requests may be under way at a time: of one struct http, or of several that share these places. Where
 * several do, each has a share (base/share.h): one whose server is silent leaves places to the others. Look-ups have
 * three eighths of the places at most, shared in the same way, so that no number of them keeps data from being read. */
#ifndef GRANARY_NET_HTTP_PLACES_H
#define GRANARY_NET_HTTP_PLACES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

enum http_place_kind { HTTP_PLACE_DATA, HTTP_PLACE_LOOKUP };

/* Members are its own. */
struct http_places {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    unsigned taken, lookups, limit, waiting; /* waiting: for one to be given back */
    unsigned users;
};

/* One that takes places; all 0 to begin with, under the places' lock. */
struct http_places_user {
    unsigned taken, lookups;
};

/* limit: at least 1. */
void http_places_init(struct http_places *p, unsigned limit);
void http_places_release(struct http_places *p); /* none is taken */

/* From join to leave a user is counted: a sole one has all places. */
void http_places_join(struct http_places *p);
void http_places_leave(struct http_places *p);

/* Wait for a place; false: deadline_ms (on clock_now_ms; 0: none) passed before there was one. */
GR_MUST_CHECK bool http_places_take(struct http_places *p, struct http_places_user *user, enum http_place_kind kind,
                                    uint64_t deadline_ms);
void http_places_give(struct http_places *p, struct http_places_user *user, enum http_place_kind kind);

/* How many wait for a place now. Any thread. */
unsigned http_places_waiting(struct http_places *p);

#endif
