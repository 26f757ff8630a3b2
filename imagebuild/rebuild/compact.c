/* The ratio of a chunk tells how much emptying it is worth: its dead blocks, over the blocks of all files that would
 * have to move. Chunks are not sorted but counted by ratio, in classes of a power of two and an eighth.
 *
 *   classes:    low ratio ...  [lowest]  [ .. ][ .. ][ .. ]  high ratio
 *                                |         all chunks are taken
 *                                chunks in ascending order, until the budget or the need is used up
 *
 * So memory is one bit for each chunk: chosen or not.
 *
 * The sum of costs is at least what is moved, since a file that lies in two chosen chunks is counted twice and moved
 * once.
 */
#include "imagebuild/rebuild/compact.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "base/error.h"
#include "imagebuild/rebuild/rebuild_internal.h"

enum { CLASSES = 64 * 8 };

/* The chosen chunks. */
struct compact {
    uint32_t chunk_size;
    uint64_t words;   /* of `chosen` */
    uint64_t chunks;  /* chosen */
    uint64_t *chosen; /* a bit a chunk */
};

/* A chunk that may be emptied, or the sum of a class. */
struct chunk {
    uint64_t dead, cost; /* blocks */
    unsigned class;      /* higher is better */
};

/* The rest of the budget, and the dead blocks that must still go; in blocks. */
struct limits {
    uint64_t budget, need;
};

void compact_free(struct compact *c)
{
    if (!c)
        return;
    free(c->chosen);
    free(c);
}

/* Rate a chunk. Returns false if it has nothing dead beside something live, or would cost too much to count. */
static bool compact_look_at(const struct live_map *l, uint64_t number, struct chunk *out)
{
    uint32_t live = live_map_blocks(l, number), all = live_map_chunk_size(l) / LIVE_BLOCK;
    if (!live || live == all)
        return false;
    *out = (struct chunk){.dead = all - live, .cost = live_map_cost(l, number)};
    if (out->cost == UINT32_MAX)
        return false;
    /* dead < 2^10, cost < 2^32: the quotient has at most 42 bits */
    uint64_t ratio = (out->dead << 32) / out->cost;
    unsigned bits = ratio ? 63 - (unsigned)__builtin_clzll(ratio) : 0;
    unsigned eighths = bits >= 3 ? (unsigned)(ratio >> (bits - 3)) & 7 : 0;
    out->class = bits * 8 + eighths;
    return true;
}

/* Spend the cost of a chunk or class, if the budget allows. */
static bool compact_take(struct limits *limits, const struct chunk *c)
{
    if (c->cost > limits->budget)
        return false;
    limits->budget -= c->cost;
    limits->need -= GR_MIN(limits->need, c->dead);
    return true;
}

/* Return the lowest class from which chunks are taken; all classes above it are taken whole. *limits becomes the
 * rest for that class. */
static unsigned lowest_class(const struct chunk sums[CLASSES], struct limits *limits)
{
    unsigned class = CLASSES;
    while (class > 0) {
        const struct chunk *sum = &sums[--class];
        if (sum->dead >= limits->need || !compact_take(limits, sum))
            break;
    }
    return class;
}

/* Mark the chosen chunks: a pass that sums up the classes, and a pass that chooses. */
static int compact_choose_chunks(struct compact *c, const struct live_map *l, struct limits limits)
{
    struct chunk *sums = calloc(CLASSES, sizeof *sums), chunk;
    uint64_t begin = live_map_begin(l) / c->chunk_size, end = live_map_chunk_end(l);
    if (!sums)
        return error_no_memory();
    for (uint64_t i = begin; i < end; i++) {
        if (!compact_look_at(l, i, &chunk))
            continue;
        sums[chunk.class].dead += chunk.dead;
        sums[chunk.class].cost += chunk.cost;
    }
    unsigned lowest = lowest_class(sums, &limits);
    free(sums);
    for (uint64_t i = begin; i < end; i++) {
        if (!compact_look_at(l, i, &chunk) || chunk.class < lowest)
            continue;
        if (chunk.class == lowest && (!limits.need || !compact_take(&limits, &chunk)))
            continue;
        c->chosen[i / 64] |= UINT64_C(1) << i % 64;
        c->chunks++;
    }
    return 0;
}

int compact_choose(const struct live_map *live, uint64_t budget, struct compact **out)
{
    uint64_t allowed = live_map_bytes(live) / 100 * COMPACT_DEAD_PERCENT, dead = live_map_dead_bytes(live);
    *out = NULL;
    if (dead <= allowed)
        return 0;
    CLEANUP(cleanup_compact) struct compact *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->chunk_size = live_map_chunk_size(live);
    c->words = live_map_chunk_end(live) / 64 + 1;
    c->chosen = calloc(c->words, sizeof *c->chosen);
    if (!c->chosen)
        return error_no_memory();
    struct limits limits = {.budget = budget / LIVE_BLOCK, .need = (dead - allowed) / LIVE_BLOCK};
    int rc = compact_choose_chunks(c, live, limits);
    if (!rc && c->chunks)
        *out = steal_ptr(&c);
    return rc;
}

static bool is_chosen(const struct compact *c, uint64_t chunk)
{
    return chunk / 64 < c->words && c->chosen[chunk / 64] >> chunk % 64 & 1;
}

/* Return whether a file must move. Chunks between its first and last are full of it and never chosen. Files written
 * with the listing lie in free chunks or behind all that is kept, where nothing is chosen. */
static bool lies_in_chosen(const struct compact *c, uint64_t address, uint64_t len)
{
    return is_chosen(c, address / c->chunk_size) || is_chosen(c, (address + len - 1) / c->chunk_size);
}

int compact_apply(const struct compact *c, const struct compact_config *config, struct nodes **out,
                  struct compact_counts *counts)
{
    CLEANUP(cleanup_nodes) struct nodes *to = NULL;
    CLEANUP(cleanup_nodes_cursor) struct nodes_cursor *from = NULL;
    struct node n;
    uint64_t done = 0;
    *counts = (struct compact_counts){.chunks = c->chunks};
    int rc = nodes_new(&config->scratch, &to);
    if (!rc)
        rc = nodes_cursor_new(config->planned, &from);
    while (!rc && (rc = nodes_next(from, &n)) == 1) {
        if (n.plan == NODE_KEEP && lies_in_chosen(c, n.address, n.size)) {
            n.plan = NODE_MOVE;
            live_map_remove(config->live, n.address, n.size);
            counts->files++;
            counts->bytes += n.size;
        }
        rc = nodes_add(to, &n);
        if (!rc && ++done % PLAN_STEP == 0 && config->step)
            rc = config->step(config->step_arg);
    }
    if (!rc)
        rc = nodes_end(to);
    if (rc)
        return rc;
    *out = steal_ptr(&to);
    return 0;
}
