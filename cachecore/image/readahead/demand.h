/* What clients recently read of an image, per leaf of its index: which chunks, which were fetched ahead and not read
 * yet, and how many more may be fetched ahead.
 *
 * The rule (demand_credit) holds for each leaf separately. Let c be the share of the leaf that was read:
 *
 *   c                0 ------- 1/16 ----------- 3/16 ------------ 1
 *   may be unread     nothing      8 (c - 1/16)    the whole leaf
 *
 * A client that reads a directory soon gets the whole leaf; one that samples a file here and there gets nothing.
 *
 * Threads: any thread may call every function; there is no lock. A leaf is tracked from its first miss on, so readers
 * of a cached image pay for one load. Memory: 8 bytes per leaf of the image, and 280 bytes per tracked leaf, about a
 * quarter of a byte per chunk.
 */
#ifndef GRANARY_IMAGE_READAHEAD_DEMAND_H
#define GRANARY_IMAGE_READAHEAD_DEMAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "format/index.h"

enum { DEMAND_WORDS = INDEX_FANOUT / 64, DEMAND_PAGE = 4096 }; /* bits are kept in words; reads are counted in pages */

/* One tracked leaf. All members are relaxed; see demand.c. */
struct demand_leaf {
    _Atomic uint64_t asked[DEMAND_WORDS];  /* one bit per chunk: it was read */
    _Atomic uint64_t unread[DEMAND_WORDS]; /* one bit per chunk: fetched ahead and not read since */
    _Atomic uint32_t pages;                /* pages of the first read of each chunk, summed */
    _Atomic uint32_t unread_count;         /* bits in unread */
    _Atomic uint32_t last;                 /* the chunk that was missed last */
    _Atomic uint32_t fruitless;            /* `pages` when a search last found nothing to fetch; 0: none did */
    _Atomic bool complete;                 /* every chunk is cached, as far as is known */
};

/* One per image. */
struct demand {
    /* leaf_count entries; NULL: nothing of the leaf was missed. Freed with the image only. */
    _Atomic(struct demand_leaf *) *leaves;
    uint64_t chunks, leaf_count;
    uint32_t chunk_size;
};

/* All leaves untracked. -ENOMEM. */
GR_MUST_CHECK int demand_init(struct demand *d, uint64_t chunks, uint32_t chunk_size);
void demand_release(struct demand *d);

/* Return a leaf's state; NULL: nothing of it was missed. */
static inline struct demand_leaf *demand_leaf(const struct demand *d, uint64_t leaf)
{
    return atomic_load_explicit(&d->leaves[leaf], memory_order_acquire);
}

static inline bool demand_is_complete(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->complete, memory_order_relaxed);
}

/* A client missed chunk number `chunk` of the leaf. Begins to track the leaf if it is new. If it was complete, forgets
 * what was read of it: chunks have been evicted since. NULL: out of memory. */
struct demand_leaf *demand_missed(struct demand *d, uint64_t leaf, uint32_t chunk);
/* A client read len bytes of the chunk. True: the chunk had been fetched ahead and is read for the first time. */
bool demand_read(struct demand_leaf *leaf, uint32_t chunk, uint32_t len);

/* Was anything of the chunk read? */
bool demand_was_asked(const struct demand_leaf *leaf, uint32_t chunk);
/* Was the chunk read, or fetched ahead, or is it being fetched ahead? */
bool demand_is_known(const struct demand_leaf *leaf, uint32_t chunk);

/* Return how many pages of the leaf's chunks were read. */
static inline uint32_t demand_pages(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->pages, memory_order_relaxed);
}

/* Return how many chunks of leaf `number` may be fetched ahead now. */
uint32_t demand_credit(const struct demand *d, uint64_t number);

/* Claim the chunk for fetching ahead. False: it is being fetched ahead, or was and has not been read. */
bool demand_claim(struct demand_leaf *leaf, uint32_t chunk);
/* Take a claim back: the chunk was not fetched. */
void demand_unclaim(struct demand_leaf *leaf, uint32_t chunk);
/* A search of the whole leaf found nothing to claim. complete: all chunks are cached. Else the leaf has no credit until
 * clients have read more of it. */
void demand_exhausted(struct demand_leaf *leaf, bool complete);

#endif
