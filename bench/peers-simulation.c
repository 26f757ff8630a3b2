/* Hundreds of nodes that are each other's cache, on the code that decides which of them has a stripe (store/l2): no
 * network, no disk.
 *
 *   peers-simulation [NODES] [PACKS]       default 500 40000: 1.3 TB in packs of 32 MiB
 *
 * Prints the load of each node, with equal and with different caches, what moves when a node leaves, what a rolling
 * restart takes from the store, what a change of the list costs while half of the nodes have not seen it, and how long
 * a choice takes; then the rows of peers-loads.c. Every run prints the same figures but for the time of a choice. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/error.h"
#include "peers-simulation.h"

enum { NODES = 500, PACKS = 40000, STRIPES = 8 /* of a pack */, READS = 4 /* of a stripe in a rolling restart */ };

static unsigned nodes = NODES, packs = PACKS;
static char (*keys)[96];

void simulation_must(int rc)
{
    if (!rc)
        return;
    fprintf(stderr, "peers-simulation: %s\n", error_text());
    exit(1);
}

/* ---- nodes that are nothing but their URL ---- */

static void nothing_close(struct store *s)
{
    free((char *)s->url);
    free(s);
}

int simulation_open(void *arg, const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_ops ops = {.close = nothing_close};
    struct store *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    *s = (struct store){.ops = &ops, .url = strdup(url)};
    *out = s;
    return 0;
}

void simulation_url(unsigned i, char out[64])
{
    snprintf(out, 64, "http://10.%u.%u.%u:9465/images", i / 60000, i / 250 % 240, 2 + i % 250);
}

unsigned simulation_node(const char *url)
{
    unsigned a, b, c;
    if (sscanf(url, "http://10.%u.%u.%u:", &a, &b, &c) != 3)
        abort();
    return a * 60000 + b * 250 + c - 2;
}

/* All nodes but `absent`; weigh: every second one has a cache of twice the size. */
static void set_nodes(struct store_proxies *p, unsigned absent, bool weigh)
{
    struct members m CLEANUP(members_release) = {0};
    char url[64];
    for (unsigned i = 0; i < nodes; i++) {
        simulation_url(i, url);
        if (i != absent)
            simulation_must(members_add(&m, url, strlen(url), weigh ? 1 + i % 2 : 1));
    }
    simulation_must(proxies_set(p, &m));
}

/* The proxies' own name of a stripe is asked for, so that none of the nodes need be this one. */
static unsigned owner(struct store_proxies *p, size_t stripe)
{
    char name[128];
    bool trial;
    snprintf(name, sizeof name, stripe % STRIPES ? "%s/%zu" : "%s", keys[stripe / STRIPES], stripe % STRIPES);
    struct proxy *proxy = proxies_choose(p, name, 0, &trial);
    unsigned node = simulation_node(proxy->store->url);
    proxy_unref(proxy);
    return node;
}

static void owners(struct store_proxies *p, unsigned *out)
{
    for (size_t i = 0; i < (size_t)packs * STRIPES; i++)
        out[i] = owner(p, i);
}

/* ---- figures ---- */

/* The load of nodes, relative to what each should have. */
static void print_load(const char *what, const unsigned *of, bool weigh)
{
    CLEANUP_FREE unsigned *load = calloc(nodes, sizeof *load);
    double all = (double)packs * STRIPES, weights = 0, least = INFINITY, most = 0, squares = 0;
    for (size_t i = 0; i < (size_t)packs * STRIPES; i++)
        load[of[i]]++;
    for (unsigned i = 0; i < nodes; i++)
        weights += weigh ? 1 + i % 2 : 1;
    for (unsigned i = 0; i < nodes; i++) {
        double share = load[i] / (all / weights * (weigh ? 1 + i % 2 : 1));
        least = fmin(least, share);
        most = fmax(most, share);
        squares += (share - 1) * (share - 1);
    }
    printf("| %s | %.3f | %.3f | %.3f |\n", what, least, most, sqrt(squares / nodes));
}

static size_t count_moved(const unsigned *before, const unsigned *after)
{
    size_t moved = 0;
    for (size_t i = 0; i < (size_t)packs * STRIPES; i++)
        moved += before[i] != after[i];
    return moved;
}

/* How many nodes take over from one, and the largest share of what it had. */
static void print_heirs(const unsigned *before, const unsigned *after, unsigned gone)
{
    CLEANUP_FREE unsigned *took = calloc(nodes, sizeof *took);
    unsigned heirs = 0, most = 0, all = 0;
    for (size_t i = 0; i < (size_t)packs * STRIPES; i++)
        if (before[i] == gone)
            took[after[i]]++;
    for (unsigned i = 0; i < nodes; i++) {
        heirs += took[i] > 0;
        most = GR_MAX(most, took[i]);
        all += took[i];
    }
    printf("Its %u stripes go to %u nodes, at most %u to one.\n\n", all, heirs, most);
}

size_t simulation_random(uint64_t *state, size_t n)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (size_t)((*state >> 33) % n);
}

/* Every node in turn is away while READS / NODES reads of each stripe happen, and comes back with its cache. What is
 * read of its stripes meanwhile, others fetch from the store, once each, and keep. */
static void rolling_restart(struct store_proxies *p, const unsigned *home)
{
    size_t all = (size_t)packs * STRIPES, fetched = 0, reads = 0;
    CLEANUP_FREE bool *kept_elsewhere = calloc(all, sizeof *kept_elsewhere);
    uint64_t state = 1;
    for (unsigned gone = 0; gone < nodes; gone++) {
        set_nodes(p, gone, false);
        for (size_t i = 0; i < all * READS / nodes; i++, reads++) {
            size_t stripe = simulation_random(&state, all);
            if (home[stripe] != gone || kept_elsewhere[stripe])
                continue;
            if (owner(p, stripe) == gone)
                abort();
            kept_elsewhere[stripe] = true;
            fetched++;
        }
    }
    printf("A rolling restart of all %u nodes, while each stripe is read %.1f times: the store sends %.4f of the data "
           "again.\n\n",
           nodes, (double)reads / (double)all, (double)fetched / (double)all);
    set_nodes(p, nodes, false);
}

static double choice_us(struct store_proxies *p)
{
    enum { TIMES = 20000 };
    uint64_t began = clock_now_us();
    for (size_t i = 0; i < TIMES; i++)
        (void)owner(p, i % ((size_t)packs * STRIPES));
    return (double)(clock_now_us() - began) / TIMES;
}

static void make_keys(void)
{
    keys = calloc(packs, sizeof *keys);
    if (!keys)
        simulation_must(error_no_memory());
    for (unsigned i = 0; i < packs; i++) {
        char hex[DIGEST_HEX_SIZE];
        struct digest d = digest_of(&i, sizeof i);
        digest_hex(&d, hex);
        snprintf(keys[i], sizeof keys[i], "packs/%.2s/%s", hex, hex);
    }
}

int main(int argc, char **argv)
{
    const struct store_options options = {0};
    const struct store_node node = {.address = NULL};
    struct store_proxies *p = NULL;
    if (argc > 1)
        nodes = (unsigned)strtoul(argv[1], NULL, 10);
    if (argc > 2)
        packs = (unsigned)strtoul(argv[2], NULL, 10);
    if (nodes < 2 || nodes > STORE_L2_MAX || !packs) {
        fprintf(stderr, "peers-simulation [NODES: 2 to %d] [PACKS]\n", STORE_L2_MAX);
        return 2;
    }
    make_keys();
    size_t all = (size_t)packs * STRIPES;
    CLEANUP_FREE unsigned *home = calloc(all, sizeof *home), *other = calloc(all, sizeof *other);
    simulation_must(home && other ? proxies_new(simulation_open, NULL, &options, &node, &p) : error_no_memory());

    printf("%u nodes, %zu stripes of %u packs\n\n", nodes, all, packs);
    printf("| load of a node / its share | least | most | standard deviation |\n| --- | --- | --- | --- |\n");
    set_nodes(p, nodes, false);
    owners(p, home);
    print_load("equal caches", home, false);
    set_nodes(p, nodes, true);
    owners(p, other);
    print_load("every second cache twice as large", other, true);

    set_nodes(p, 7, false);
    owners(p, other);
    size_t moved = count_moved(home, other);
    printf("\nOne node leaves: %.5f of the stripes move, 1/%u is %.5f. ", (double)moved / (double)all, nodes,
           1.0 / nodes);
    print_heirs(home, other, 7);
    printf(
        "While half of the nodes have not seen that, %.5f of the stripes have two owners: the store sends at most that "
        "part twice.\n\n",
        (double)moved / (double)all);
    rolling_restart(p, home);
    printf("A choice among %u nodes takes %.1f us.\n\n", nodes, choice_us(p));
    proxies_unref(p);
    free(keys);
    simulate_traffic(nodes);
    return 0;
}
