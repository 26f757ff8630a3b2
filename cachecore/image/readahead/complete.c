/* The search for a unit begins at the unit that contains the latest miss, and continues to the end of the leaf, then
 * from its beginning. A client that reads a directory in any order has the neighbours it will read next there. Chunks
 * that another thread has claimed are left to that thread.
 */
#include "image/readahead/complete.h"

#include <errno.h>

#include "base/error.h"
#include "image/span.h"

enum { LOOK = 64 /* chunks looked up under one lock */, FREE_PART = 64 /* of the cache always stays free */ };

/* A unit being assembled. */
struct unit {
    struct image *img;
    struct demand_leaf *leaf;
    uint32_t most, count; /* chunks it may have; chunks it has */
    bool missing;         /* an uncached chunk was seen, claimed or not */
    uint32_t first;       /* number of its first chunk */
    uint32_t numbers[COMPLETE_CHUNKS];
    struct cache_piece pieces[COMPLETE_CHUNKS];
    uint64_t bytes;
};

/* Return how many chunks a unit has. */
static uint32_t complete_unit(const struct image *img)
{
    uint32_t chunks = COMPLETE_BYTES / img->manifest.chunk_size;
    return GR_MIN(GR_MAX(chunks, 1u), (uint32_t)COMPLETE_CHUNKS);
}

/* A last leaf with few chunks may never have a whole unit's credit. */
uint32_t complete_worth(const struct image *img, uint64_t leaf)
{
    uint64_t chunks = img->demand.chunks - leaf * INDEX_FANOUT;
    uint32_t unit = complete_unit(img);
    return chunks < (uint64_t)INDEX_FANOUT ? (uint32_t)GR_MIN((uint64_t)unit, chunks / 64 + 1) : unit;
}

/* Claim a chunk and add it to the unit. False: the unit is full, or the chunk is too far from its first one. */
static bool complete_add(struct unit *u, const struct chunk_ref *ref, uint32_t number)
{
    u->missing = true;
    if (u->count == u->most || (u->count && number >= u->first + 2 * u->most))
        return false;
    if (!demand_claim(u->leaf, number))
        return true;
    u->first = u->count ? u->first : number;
    u->numbers[u->count] = number;
    u->pieces[u->count++] =
        (struct cache_piece){.ref = *ref, .store = u->img->config.store, .quota = u->img->config.quota};
    u->bytes += ref->plain_len;
    return true;
}

/* Add the missing ones of the chunks [from, end) of the leaf. False: the unit is full. */
static bool add_missing(struct unit *u, const struct span *span, uint32_t from, uint32_t end)
{
    while (from < end) {
        struct digest digests[LOOK];
        struct cache_chunk states[LOOK];
        uint32_t numbers[LOOK], n = 0;
        for (; from < end && n < LOOK; from++) {
            const struct chunk_ref *ref = span_chunk(span, span->first + from);
            if (!ref)
                continue;
            digests[n] = ref->digest;
            numbers[n++] = from;
        }
        cache_query(u->img->config.cache, digests, n, states);
        for (uint32_t i = 0; i < n; i++)
            if (!states[i].cached && !complete_add(u, span_chunk(span, span->first + numbers[i]), numbers[i]))
                return false;
    }
    return true;
}

/* Fill in the unit. A leaf without anything to claim loses its credit. */
static void complete_choose(struct unit *u, const struct span *span)
{
    uint32_t count = (uint32_t)(span->end - span->first), unit = complete_unit(u->img);
    uint32_t start = atomic_load_explicit(&u->leaf->last, memory_order_relaxed) / unit * unit;
    if (add_missing(u, span, start, count) && !u->count)
        (void)add_missing(u, span, 0, start);
    if (!u->count)
        demand_exhausted(u->leaf, !u->missing);
}

/* May the image be completed? Only if it fits into the cache. If several images compete, only free space is used:
 * completing one must not evict another. */
static bool has_room(const struct image *img, bool shared)
{
    struct cache_capacity capacity = cache_capacity(img->config.cache, img->config.quota);
    if (capacity.most < img->manifest.size)
        return false;
    return !shared || capacity.free > capacity.most / FREE_PART + COMPLETE_BYTES;
}

/* The credit is checked again: other threads may have used it since the leaf was found. */
int complete_some(struct image *img, uint64_t leaf, bool shared)
{
    if (!has_room(img, shared))
        return -EDQUOT;
    struct span span;
    int rc = span_locate(img, leaf * INDEX_FANOUT, SPAN_FETCHED, &span);
    if (rc)
        return rc;
    struct unit u = {.img = img, .leaf = demand_leaf(&img->demand, leaf)};
    u.most = GR_MIN(demand_credit(&img->demand, leaf), complete_unit(img));
    if (span.leaf && u.most)
        complete_choose(&u, &span);
    node_unref(span.leaf);
    if (!u.count)
        return 0;
    rc = cache_ahead(img->config.cache, u.pieces, u.count);
    /* A bad chunk would fail again: its unit stays claimed. */
    for (uint32_t i = 0; rc && !error_of_one_thing(rc) && i < u.count; i++)
        demand_unclaim(u.leaf, u.numbers[i]);
    if (!rc)
        counter_add(&img->completion_bytes, u.bytes);
    return rc;
}
