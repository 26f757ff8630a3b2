/* How many requests may be under way at a time: of one struct http, or of several that share these places. */
#ifndef GRANARY_NET_HTTP_PLACES_H
#define GRANARY_NET_HTTP_PLACES_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"

/* Members are its own. */
struct http_places {
    pthread_mutex_t lock;
    pthread_cond_t freed;
    unsigned taken, limit, waiting; /* waiting: for one to be given back */
};

/* limit: at least 1. */
void http_places_init(struct http_places *p, unsigned limit);
void http_places_release(struct http_places *p); /* none is taken */

/* Wait for a place; false: deadline_ms (on clock_now_ms; 0: none) passed before there was one. */
GR_MUST_CHECK bool http_places_take(struct http_places *p, uint64_t deadline_ms);
void http_places_give(struct http_places *p);

/* How many wait for a place now. Any thread. */
unsigned http_places_waiting(struct http_places *p);

#endif
