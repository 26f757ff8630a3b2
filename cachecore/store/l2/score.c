/* How well a node and a name go together. All nodes must agree on it, also those that run other versions: never change
 * it. docs/reference/peer-protocol.md has the steps. */
#include "store/l2/l2_internal.h"

#include <math.h>

/* A step of FNV-1a. */
static uint64_t fnv1a(uint64_t hash, char c)
{
    return (hash ^ (uint8_t)c) * 0x100000001b3u;
}

uint64_t score_seed(const char *url)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *url; url++)
        hash = fnv1a(hash, *url);
    return hash * 0x9e3779b97f4a7c15u;
}

/* MurmurHash3's. */
static uint64_t finalize(uint64_t x)
{
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccdu;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53u;
    return x ^ (x >> 33);
}

/* One hash is a chain of multiplications that wait for each other, and four are computed in the time of one. */
void score_of(const uint64_t seeds[SCORE_LANES], const char *name, uint64_t out[SCORE_LANES])
{
    uint64_t a = seeds[0], b = seeds[1], c = seeds[2], d = seeds[3];
    for (; *name; name++) {
        a = fnv1a(a, *name);
        b = fnv1a(b, *name);
        c = fnv1a(c, *name);
        d = fnv1a(d, *name);
    }
    out[0] = finalize(a);
    out[1] = finalize(b);
    out[2] = finalize(c);
    out[3] = finalize(d);
}

/* By log1p(), because the scores that matter are those next to 1. */
double score_cost(uint64_t score, unsigned weight)
{
    double below_one = ((double)(UINT64_MAX - score) + 0.5) * 0x1p-64;
    return -log1p(-below_one) / weight;
}
