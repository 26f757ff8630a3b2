/* How well a server serves, as its readers feel it. Only these functions decide it: /status, the exit status of
 * `granary status`, the metrics and the report of each store all use them. */
#ifndef GRANARY_SERVER_SERVER_HEALTH_H
#define GRANARY_SERVER_SERVER_HEALTH_H

#include "stack.h"

/* In ascending order: the worst part decides. */
enum server_health {
    SERVER_HEALTHY,
    SERVER_DEGRADED, /* reads are served, some of them late or at a higher cost */
    SERVER_FAILING,  /* reads of uncached data fail or hang now */
};

enum {
    SERVER_READ_SLOW_MS = 5000,   /* a read that waits this long for a store makes it degraded */
    SERVER_READ_STUCK_MS = 30000, /* and this long, failing */
    SERVER_REFUSALS_FAILING = 3,  /* different objects that a store refuses in a row make it failing; fewer, degraded */
    /* When the last refusal is as old as this, any number makes it only degraded: nothing was tried since, and the keys
     * may be good again. Kubernetes starts a failed job again after 5 minutes at most, so one that always fails keeps
     * the server failing. */
    SERVER_REFUSAL_OLD_MS = 600000,
};

/* Return "healthy", "degraded" or "failing". */
const char *server_health_word(enum server_health health);

/* What a store does. */
struct server_store_state {
    /* "answering"; "slow" or "stuck": a read has been waiting long for it; "failing": its last answers were failures;
     * "refusing": it refused the last requests, for a reason that lasts; "silent": it answers nothing, and the breaker
     * lets one request at a time through. */
    const char *word;
    bool refuses;      /* the rest is about its refusals, not its failures */
    uint64_t for_ms;   /* since the first of them in a row */
    const char *error; /* the sentence of the last; "": there is none; lives as long as the struct store_health */
};

/* Judge one store. */
enum server_health server_health_of_store(const struct store_health *store, struct server_store_state *out);
/* Judge one cache directory, and one shared cache proxy. Neither makes a server worse than degraded. */
enum server_health server_health_of_dir(const struct cache_dir_report *dir);
enum server_health server_health_of_tier(const struct store_tier_report *tier);

/* Bytes of server_health's sentence, with its NUL. */
enum { SERVER_HEALTH_WHY_MAX = ERROR_TEXT_MAX + 256 };
/* Return the worst health of all stores, cache directories and proxies. why becomes a sentence about the first one that
 * bad, or "" when healthy. */
enum server_health server_health(struct stack *stack, char why[SERVER_HEALTH_WHY_MAX]);

#endif
