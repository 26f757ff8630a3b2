/* All counts are relaxed atomics. Two threads may see each other's updates late, and then fetch a chunk more or less
 * ahead. The sum of all leaves' pages, too, is exact only between updates. The bits are changed by atomic
 * read-modify-write, so each claim and each first read counts once. */
#include "image/image_internal.h"

#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

/* The numbers of the rule in image_internal.h: 1/16, 1/8, and 8 */
enum { SPARSE_PART = 16, SPARSE_ALONE_PART = 8, BEYOND_FACTOR = 8 };
enum { AGAIN_PART = 256 }; /* after a search that found nothing, this part of the leaf is read before the next */

static uint64_t bit_of(uint32_t chunk)
{
    return 1ull << chunk % 64;
}

/* Set or clear a bit; true if that changed it. */
static bool set_bit(_Atomic uint64_t *words, uint32_t chunk)
{
    return !(atomic_fetch_or_explicit(&words[chunk / 64], bit_of(chunk), memory_order_relaxed) & bit_of(chunk));
}

static bool clear_bit(_Atomic uint64_t *words, uint32_t chunk)
{
    return atomic_fetch_and_explicit(&words[chunk / 64], ~bit_of(chunk), memory_order_relaxed) & bit_of(chunk);
}

static bool get_bit(const _Atomic uint64_t *words, uint32_t chunk)
{
    return atomic_load_explicit(&words[chunk / 64], memory_order_relaxed) & bit_of(chunk);
}

static uint32_t get(const _Atomic uint32_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

/* One NULL per leaf; a leaf's state is allocated at its first miss. */
int demand_init(struct demand *d, uint64_t chunks, uint32_t chunk_size)
{
    d->chunks = chunks;
    d->chunk_size = chunk_size;
    d->leaf_count = (chunks + INDEX_FANOUT - 1) / INDEX_FANOUT;
    d->leaves = calloc(d->leaf_count + 1, sizeof *d->leaves);
    return d->leaves ? 0 : error_no_memory();
}

void demand_release(struct demand *d)
{
    for (uint64_t i = 0; d->leaves && i < d->leaf_count; i++)
        free(demand_leaf(d, i));
    free(d->leaves);
}

static uint64_t chunks_of(const struct demand *d, uint64_t number)
{
    return GR_MIN(d->chunks - number * INDEX_FANOUT, (uint64_t)INDEX_FANOUT);
}

static uint64_t pages_of(const struct demand *d, uint64_t number)
{
    return chunks_of(d, number) * (d->chunk_size / DEMAND_PAGE);
}

/* Publish a new leaf, unless another thread was faster; return the published one. NULL: out of memory. */
static struct demand_leaf *make_leaf(struct demand *d, uint64_t number)
{
    struct demand_leaf *leaf = calloc(1, sizeof *leaf), *there = NULL;
    if (!leaf)
        return NULL;
    if (atomic_compare_exchange_strong(&d->leaves[number], &there, leaf)) {
        atomic_fetch_add_explicit(&d->tracked, pages_of(d, number), memory_order_relaxed);
        return leaf;
    }
    free(leaf);
    return there;
}

/* Not atomic as a whole: a concurrent read may be lost or kept, which changes the credit by a chunk. */
static void forget_asked(struct demand *d, struct demand_leaf *leaf)
{
    for (size_t i = 0; i < DEMAND_WORDS; i++)
        atomic_store_explicit(&leaf->asked[i], 0, memory_order_relaxed);
    atomic_fetch_sub_explicit(&d->pages, atomic_exchange_explicit(&leaf->pages, 0, memory_order_relaxed),
                              memory_order_relaxed);
    atomic_store_explicit(&leaf->fruitless, 0, memory_order_relaxed);
}

/* A complete leaf is missed only after chunks of it were evicted, so what was read of it before is obsolete. */
struct demand_leaf *demand_missed(struct demand *d, uint64_t number, uint32_t chunk)
{
    struct demand_leaf *leaf = demand_leaf(d, number);
    if (!leaf)
        leaf = make_leaf(d, number);
    if (!leaf)
        return NULL;
    if (atomic_exchange_explicit(&leaf->complete, false, memory_order_relaxed))
        forget_asked(d, leaf);
    atomic_store_explicit(&leaf->last, chunk, memory_order_relaxed);
    return leaf;
}

static void end_unread(struct demand_leaf *leaf)
{
    atomic_fetch_sub_explicit(&leaf->unread_count, 1, memory_order_relaxed);
}

/* The plain loads come first: they cost less than a read-modify-write, and mostly there is nothing to change. */
bool demand_read(struct demand *d, struct demand_leaf *leaf, uint32_t chunk, uint32_t len)
{
    if (!get_bit(leaf->asked, chunk) && set_bit(leaf->asked, chunk)) {
        uint32_t pages = (len + DEMAND_PAGE - 1) / DEMAND_PAGE;
        atomic_fetch_add_explicit(&leaf->pages, pages, memory_order_relaxed);
        atomic_fetch_add_explicit(&d->pages, pages, memory_order_relaxed);
    }
    if (!get_bit(leaf->unread, chunk) || !clear_bit(leaf->unread, chunk))
        return false;
    end_unread(leaf);
    return true;
}

bool demand_was_asked(const struct demand_leaf *leaf, uint32_t chunk)
{
    return get_bit(leaf->asked, chunk);
}

bool demand_is_known(const struct demand_leaf *leaf, uint32_t chunk)
{
    return get_bit(leaf->asked, chunk) || get_bit(leaf->unread, chunk);
}

/* Return which part of a leaf may be read before anything is fetched ahead of it. */
static unsigned sparse_part(const struct demand *d)
{
    uint64_t pages = atomic_load_explicit(&d->pages, memory_order_relaxed);
    uint64_t tracked = atomic_load_explicit(&d->tracked, memory_order_relaxed);
    return pages < tracked / SPARSE_PART ? SPARSE_ALONE_PART : SPARSE_PART;
}

/* Computed in pages and rounded down to chunks; see the rule in image_internal.h. */
uint32_t demand_credit(const struct demand *d, uint64_t number)
{
    const struct demand_leaf *leaf = demand_leaf(d, number);
    if (!leaf || demand_is_complete(leaf))
        return 0;
    uint64_t asked = get(&leaf->pages), all = pages_of(d, number), fruitless = get(&leaf->fruitless);
    if (fruitless && asked < fruitless + all / AGAIN_PART + 1)
        return 0;
    uint64_t sparse = all / sparse_part(d), allowed = asked > sparse ? (asked - sparse) * BEYOND_FACTOR : 0;
    uint64_t most = GR_MIN(allowed / (d->chunk_size / DEMAND_PAGE), chunks_of(d, number)),
             unread = get(&leaf->unread_count);
    return unread < most ? (uint32_t)(most - unread) : 0;
}

bool demand_claim(struct demand_leaf *leaf, uint32_t chunk)
{
    if (get_bit(leaf->unread, chunk) || !set_bit(leaf->unread, chunk))
        return false;
    atomic_fetch_add_explicit(&leaf->unread_count, 1, memory_order_relaxed);
    return true;
}

void demand_unclaim(struct demand_leaf *leaf, uint32_t chunk)
{
    if (clear_bit(leaf->unread, chunk))
        end_unread(leaf);
}

void demand_exhausted(struct demand_leaf *leaf, bool complete)
{
    atomic_store_explicit(&leaf->fruitless, GR_MAX(get(&leaf->pages), 1u), memory_order_relaxed);
    if (complete)
        atomic_store_explicit(&leaf->complete, true, memory_order_relaxed);
}
