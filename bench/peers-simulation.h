/* What the files of peers-simulation share: peers-simulation.c has the choice of nodes, peers-traffic.c how nodes and
 * store answer each other in virtual time, peers-loads.c what is read. */
#ifndef GRANARY_BENCH_PEERS_SIMULATION_H
#define GRANARY_BENCH_PEERS_SIMULATION_H

#include "base/buf.h"
#include "fetch/fetch_internal.h"
#include "format/object.h"
#include "server/peer_limits.h"
#include "store/l2/l2_internal.h"

/* ---- peers-simulation.c ---- */

/* End the program with the error's sentence unless rc is 0. */
void simulation_must(int rc);
/* A proxy_open of a node that is nothing but its URL. */
int simulation_open(void *arg, const char *url, const struct store_options *options, struct store **out);
/* Node i's URL, and i of a URL: addresses as pods have them. */
void simulation_url(unsigned i, char out[64]);
unsigned simulation_node(const char *url);
/* A random number below n, the same in every run. */
size_t simulation_random(uint64_t *state, size_t n);

/* ---- peers-traffic.c ---- */

enum {
    CHUNK = 64 << 10,
    FILE_CHUNKS = 2,
    PACK_CHUNKS = 512,
    STRIPE_CHUNKS = STORE_STRIPE / CHUNK,
    READERS = 8,      /* of a node */
    WARMERS = 64,     /* callers of warming, */
    WARM_CHUNKS = 16, /* with so many chunks each */
};

/* The virtual time; 0: clocks have the real one. */
extern uint64_t virtual_us;

struct reader {
    struct node *node;
    unsigned left; /* chunks that it waits for */
    uint64_t began_us;
    bool warms;
};

struct ask;

struct node {
    unsigned number;
    bool up;
    char address[32];
    struct store *l2, *origin; /* origin: owned by l2 */
    struct store_proxies *proxies;
    struct fetch *readers, *others;
    uint64_t timer_us; /* when the fetches are looked at again */
    uint8_t *has;      /* a bit for each chunk */
    uint64_t out_free_us, in_free_us;

    struct queue *lookups, *fetches;
    struct peer_clients *clients;
    unsigned looking, fetching;
    size_t looks_waiting, fetches_waiting;
    struct ask *active[PEER_FETCHERS];

    struct reader all[WARMERS];
    uint32_t *plan; /* files, or chunks to warm */
    size_t plan_len, plan_at;
    uint64_t answered; /* requests of others */
};

/* Begins as all zero. */
extern struct world {
    unsigned nodes;
    size_t chunks;
    struct node *node;
    char (*keys)[OBJECT_KEY_MAX];
    struct digest *packs;
    struct buf *bytes; /* what all chunks are */
    uint64_t random, store_free_us, until_us, think_us;

    uint64_t store_bytes, refused_busy, refused_late, refused_memory, failed;
    size_t most_looks, most_fetches, most_queued;
    uint32_t *times; /* of reads, in us */
    size_t times_len, times_cap;
    uint64_t ended_us;
} world;

/* Have it called at that time; of equal times, in the order of these calls. */
void traffic_plan(uint64_t at_us, void (*call)(void *arg), void *arg);
/* Until nothing is planned any more. */
void traffic_run(void);
/* A planned call: begin the next read of the struct reader. */
void traffic_read(void *reader);
/* Make node `number`, whose list has the first `members` nodes. */
void traffic_open(struct node *n, unsigned number, unsigned members);
void traffic_close(struct node *n);
/* Replace a node's list. */
void traffic_members(struct node *n, unsigned count);

/* ---- peers-loads.c ---- */

/* Print a row for each load. */
void simulate_traffic(unsigned nodes);

#endif
