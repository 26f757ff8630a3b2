/* How well a server serves, as its readers feel it: the one place that decides it. Status, its exit status, the metrics
 * and the lines of the stores all say what these functions say. */
#ifndef GRANARY_SERVER_SERVER_HEALTH_H
#define GRANARY_SERVER_SERVER_HEALTH_H

#include "stack.h"

enum server_health {
    SERVER_HEALTHY,
    SERVER_DEGRADED, /* reads are served, some of them late or at a higher cost */
    SERVER_FAILING,  /* what is not cached cannot be read now */
};

enum {
    SERVER_READ_SLOW_MS = 5000,   /* a read that has waited so long for a store: degraded */
    SERVER_READ_STUCK_MS = 30000, /* failing */
};

/* "healthy", "degraded", "failing" */
const char *server_health_word(enum server_health health);

/* *out_state: "answering"; "slow" or "stuck": a read has been waiting long for it; "failing": its last answers were
 * failures; "silent": it answers nothing, and one request at a time asks it. */
enum server_health server_health_of_store(const struct store_health *store, const char **out_state);
enum server_health server_health_of_dir(const struct cache_dir_report *dir);
enum server_health server_health_of_tier(const struct store_tier_report *tier);

/* The worst of these; why becomes a sentence about the first that is so, "" when healthy. */
enum { SERVER_HEALTH_WHY_MAX = ERROR_TEXT_MAX + 256 };
enum server_health server_health(struct stack *stack, char why[SERVER_HEALTH_WHY_MAX]);

#endif
