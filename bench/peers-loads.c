/* What the nodes of peers-simulation read, and the rows about it. */
#include "peers-simulation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

enum { STRIPES_EACH = 64 /* of a node, on average */ };

/* All nodes anew, of which the first `members` are in the list. */
static void world_open(unsigned members)
{
    virtual_us = 1000000;
    world.random = 1;
    world.store_free_us = world.until_us = world.think_us = 0;
    for (unsigned i = 0; i < world.nodes; i++)
        traffic_open(&world.node[i], i, members);
}

/* Every owner has what is its own. */
static void fill_caches(void)
{
    for (size_t chunk = 0; chunk < world.chunks; chunk += STRIPE_CHUNKS) {
        bool trial;
        struct proxy *proxy =
            proxies_choose(world.node[0].proxies, world.keys[chunk / PACK_CHUNKS], chunk % PACK_CHUNKS * CHUNK, &trial);
        memset(world.node[simulation_node(proxy->store->url)].has + chunk / 8, 0xff, STRIPE_CHUNKS / 8);
        proxy_unref(proxy);
    }
}

/* A node's files in random order: every nodes-th of the first `files` in one order of all, or all of them in its own.
 */
static void plan_files(size_t files, bool all)
{
    CLEANUP_FREE uint32_t *order = calloc(files, sizeof *order);
    if (!order)
        abort();
    for (unsigned i = 0; i < world.nodes; i++) {
        struct node *n = &world.node[i];
        for (size_t k = 0; (all || !i) && k < files; k++) {
            size_t other = simulation_random(&world.random, k + 1);
            order[k] = order[other];
            order[other] = (uint32_t)k;
        }
        for (size_t k = all ? 0 : i; k < files; k += all ? 1 : world.nodes)
            n->plan[n->plan_len++] = order[k] * FILE_CHUNKS;
    }
}

static void plan_warming(void)
{
    for (size_t chunk = 0; chunk < world.chunks; chunk += STRIPE_CHUNKS) {
        bool trial;
        struct proxy *proxy =
            proxies_choose(world.node[0].proxies, world.keys[chunk / PACK_CHUNKS], chunk % PACK_CHUNKS * CHUNK, &trial);
        struct node *n = &world.node[simulation_node(proxy->store->url)];
        for (uint32_t i = 0; i < STRIPE_CHUNKS; i += WARM_CHUNKS)
            n->plan[n->plan_len++] = (uint32_t)chunk + i;
        proxy_unref(proxy);
    }
}

static void start_readers(unsigned readers, bool warm)
{
    for (unsigned i = 0; i < world.nodes; i++)
        for (unsigned k = 0; k < readers; k++) {
            world.node[i].all[k].warms = warm;
            traffic_plan(virtual_us, traffic_read, &world.node[i].all[k]);
        }
}

static int by_time(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static uint64_t hedges(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < world.nodes; i++)
        sum += counter_get(&world.node[i].readers->counters.hedges);
    return sum;
}

/* Let all happen, and print the row. of: bytes of the data that was read. */
static void run(const char *what, double of)
{
    uint64_t began_us = virtual_us, most = 0, answered = 0;
    world.store_bytes = world.refused_busy = world.refused_late = world.refused_memory = world.failed = 0;
    world.most_looks = world.most_fetches = world.most_queued = world.times_len = 0;
    for (unsigned i = 0; i < world.nodes; i++)
        world.node[i].answered = 0;
    uint64_t hedged = hedges();
    traffic_run();
    for (unsigned i = 0; i < world.nodes; i++) {
        answered += world.node[i].answered;
        most = GR_MAX(most, world.node[i].answered);
    }
    qsort(world.times, world.times_len, sizeof *world.times, by_time);
    printf("| %s | %.1f | %.4f | %zu | %.1f %.1f %.1f | %.0f %llu | %zu %zu | %zu | %llu %llu %llu | %llu | %llu |\n",
           what, (double)(world.ended_us - began_us) / 1e6, (double)world.store_bytes / of, world.times_len,
           world.times[world.times_len / 2] / 1e3, world.times[world.times_len * 99 / 100] / 1e3,
           world.times[world.times_len - 1] / 1e3, (double)answered / world.nodes, (unsigned long long)most,
           world.most_looks, world.most_fetches, world.most_queued, (unsigned long long)world.refused_busy,
           (unsigned long long)world.refused_late, (unsigned long long)world.refused_memory,
           (unsigned long long)world.failed, (unsigned long long)(hedges() - hedged));
    fflush(stdout);
}

static void world_close(void)
{
    for (unsigned i = 0; i < world.nodes; i++)
        traffic_close(&world.node[i]);
    virtual_us = 0;
}

static void two_epochs(void)
{
    const double all = (double)world.chunks * CHUNK;
    world_open(world.nodes);
    plan_files(world.chunks / FILE_CHUNKS, false);
    start_readers(READERS, false);
    run("first epoch, shuffled", all);
    for (unsigned i = 0; i < world.nodes; i++)
        world.node[i].plan_at = 0;
    start_readers(READERS, false);
    run("second epoch", all);
    world_close();
}

static void warming(void)
{
    world_open(world.nodes);
    plan_warming();
    start_readers(WARMERS, true);
    run("`warm --cluster`", (double)world.chunks * CHUNK);
    world_close();
}

/* All nodes read the same thousandth. */
static void hot_spot(bool filled, const char *what)
{
    size_t files = world.chunks / FILE_CHUNKS / 1000;
    world_open(world.nodes);
    if (filled)
        fill_caches();
    plan_files(files, true);
    start_readers(READERS, false);
    run(what, (double)files * FILE_CHUNKS * CHUNK);
    world_close();
}

/* ---- changes while nodes read ---- */

enum { CHANGES = 8, EACH_US = 2000000, DOWN_US = 1000000, THINK_US = 100000, LATE_US = 5000000 };

static void go_down(void *node)
{
    ((struct node *)node)->up = false;
}

static void come_up(void *node)
{
    ((struct node *)node)->up = true;
}

/* Nodes that restart one after the other: while they do, connections to them are refused; they read on. */
static void restarts(void)
{
    world_open(world.nodes);
    fill_caches();
    plan_files(world.chunks / FILE_CHUNKS, false);
    world.think_us = THINK_US;
    world.until_us = virtual_us + (CHANGES + 1) * EACH_US;
    for (unsigned i = 0; i < CHANGES; i++) {
        traffic_plan(virtual_us + (i + 1) * (uint64_t)EACH_US, go_down, &world.node[i]);
        traffic_plan(virtual_us + (i + 1) * (uint64_t)EACH_US + DOWN_US, come_up, &world.node[i]);
    }
    start_readers(READERS, false);
    run("8 nodes restart one after the other, 1 s each", (double)world.chunks * CHUNK);
    world_close();
}

static unsigned members_now;

static void see_members(void *node)
{
    traffic_members(node, members_now);
}

/* Every node sees it when it looks at its list, within five seconds. */
static void join_one(void *arg)
{
    (void)arg;
    members_now++;
    for (unsigned i = 0; i < world.nodes; i++)
        traffic_plan(virtual_us + simulation_random(&world.random, LATE_US), see_members, &world.node[i]);
}

static void joins(void)
{
    members_now = world.nodes - CHANGES;
    world_open(members_now);
    fill_caches();
    plan_files(world.chunks / FILE_CHUNKS, false);
    world.think_us = THINK_US;
    world.until_us = virtual_us + (CHANGES + 3) * EACH_US;
    for (unsigned i = 0; i < CHANGES; i++)
        traffic_plan(virtual_us + (i + 1) * (uint64_t)EACH_US, join_one, NULL);
    start_readers(READERS, false);
    run("8 nodes join one after the other, each seen within 5 s", (double)world.chunks * CHUNK);
    world_close();
}

void simulate_traffic(unsigned nodes)
{
    unsigned packs = nodes * STRIPES_EACH * STRIPE_CHUNKS / PACK_CHUNKS;
    log_to(NULL, LOG_LEVEL_ERROR);
    world.nodes = nodes;
    world.chunks = (size_t)packs * PACK_CHUNKS;
    world.node = calloc(nodes, sizeof *world.node);
    world.keys = calloc(packs, sizeof *world.keys);
    world.packs = calloc(packs, sizeof *world.packs);
    world.bytes = buf_new(CHUNK);
    if (!world.node || !world.keys || !world.packs || !world.bytes)
        abort();
    for (unsigned i = 0; i < packs; i++) {
        world.packs[i] = digest_of(&i, sizeof i);
        object_key(OBJECT_PACK, &world.packs[i], world.keys[i]);
    }
    printf("Reads in virtual time: %.0f GB in files of 128 KiB\n\n"
           "| load | s | bytes from the store / data | reads | p50, p99, longest, ms | requests a node answers: mean, "
           "most | most that wait "
           "at a node: lookups, fetches | chunks in a node's queues, most | refused: queue full, late, share | failed "
           "| hedged |\n"
           "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n",
           (double)world.chunks * CHUNK / 1e9);
    two_epochs();
    warming();
    hot_spot(false, "all read the same thousandth, which no node has");
    hot_spot(true, "the same, its owners have it");
    restarts();
    if (nodes > 2 * CHANGES)
        joins();
    buf_unref(world.bytes);
    free(world.packs);
    free(world.keys);
    free(world.node);
    free(world.times);
}
