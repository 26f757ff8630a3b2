/* What readers have asked of an image lately, leaf by leaf of its index: how much of a leaf, which chunks were fetched
 * ahead of them and not asked for yet, and how many more may be.
 *
 * The rule (demand_credit) holds for each leaf by itself, and so for the image: of a leaf of which up to a sixteenth
 * was asked, nothing is fetched ahead; from there on eight times what goes beyond may lie unread, which is the whole
 * leaf when three sixteenths were asked. A reader of a directory has that soon, and one who takes a file here and there
 * never.
 *
 * Every function may be called from any thread; there is no lock. A leaf is known from its first miss on: readers of an
 * image that is cached pay for one load. Memory: 8 bytes a leaf of the image, and 280 bytes, about a quarter of a byte
 * a chunk, for one of which something was missed.
 */
#ifndef GRANARY_IMAGE_READAHEAD_DEMAND_H
#define GRANARY_IMAGE_READAHEAD_DEMAND_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "format/index.h"

enum { DEMAND_WORDS = INDEX_FANOUT / 64, DEMAND_PAGE = 4096 };

struct demand_leaf {
    _Atomic uint64_t asked[DEMAND_WORDS];  /* a bit a chunk: was asked for */
    _Atomic uint64_t unread[DEMAND_WORDS]; /* fetched ahead, not asked for since */
    _Atomic uint32_t pages;                /* first asked of its chunks */
    _Atomic uint32_t unread_count;
    _Atomic uint32_t last;      /* chunk that was missed last */
    _Atomic uint32_t fruitless; /* so many pages were asked when nothing was found that could be fetched */
    _Atomic bool complete;      /* nothing is missing, as far as is known */
};

struct demand {
    _Atomic(struct demand_leaf *) *leaves;
    uint64_t chunks, leaf_count;
    uint32_t chunk_size;
};

/* -ENOMEM. */
GR_MUST_CHECK int demand_init(struct demand *d, uint64_t chunks, uint32_t chunk_size);
void demand_release(struct demand *d);

/* NULL: nothing of it was missed. */
static inline struct demand_leaf *demand_leaf(const struct demand *d, uint64_t leaf)
{
    return atomic_load_explicit(&d->leaves[leaf], memory_order_acquire);
}

static inline bool demand_is_complete(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->complete, memory_order_relaxed);
}

/* Chunk number `chunk` of the leaf was asked for and not in the cache. What a complete leaf was asked is forgotten.
 * NULL: no memory. */
struct demand_leaf *demand_missed(struct demand *d, uint64_t leaf, uint32_t chunk);
/* len bytes of it were read. true: it had been fetched ahead, and this is its first reader. */
bool demand_read(struct demand_leaf *leaf, uint32_t chunk, uint32_t len);

/* Was anything of it asked for? */
bool demand_was_asked(const struct demand_leaf *leaf, uint32_t chunk);
/* That, or is it being fetched ahead, or was? */
bool demand_is_known(const struct demand_leaf *leaf, uint32_t chunk);

/* Pages of the leaf's chunks that were asked for. */
static inline uint32_t demand_pages(const struct demand_leaf *leaf)
{
    return atomic_load_explicit(&leaf->pages, memory_order_relaxed);
}

/* How many chunks of the leaf may be fetched ahead now. */
uint32_t demand_credit(const struct demand *d, uint64_t number);

/* The chunk is going to be fetched ahead: false: somebody does that already, or did and nobody has read it. */
bool demand_claim(struct demand_leaf *leaf, uint32_t chunk);
/* It was not. */
void demand_unclaim(struct demand_leaf *leaf, uint32_t chunk);
/* The whole leaf was looked through. complete: nothing is missing; else nothing could be claimed, and there is no
 * credit until more was asked. */
void demand_exhausted(struct demand_leaf *leaf, bool complete);

#endif
