/* The state in memory: slabs and their slots over all directories, the index from digest to slot,
 * what is free, and what goes next.
 *
 * States of a slot:
 *   free     in its class's free list, no digest. It may still be pinned by readers of a chunk that
 *            was dropped under them; then it is passed over.
 *   filling  in the index, belongs to the one writer that allocated it; not readable
 *   ready    in the index and in the eviction policy; readable while pinned
 * free -> filling (alloc) -> ready (commit) -> free (drop) or filling (evicted by alloc);
 * filling -> free (abort).
 *
 * Every function but space_unpin needs the cache's lock, held by the caller; none does I/O. Slots
 * are named by number: slab number << SPACE_SLOT_BITS | number in the slab.
 */
#ifndef GRANARY_CACHE_SPACE_H
#define GRANARY_CACHE_SPACE_H

#include <stdatomic.h>

#include "base/vec.h"
#include "cache/cache_meta.h"
#include "cache/evict.h"

enum { SPACE_SLOT_BITS = 11, SPACE_DIRS_MAX = 16 };
#define SPACE_NONE EVICT_NONE

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY };

struct slot {
    struct digest digest;
    uint32_t hash_next;
    struct evict_node node;
    uint32_t plain_len;
    uint32_t used; /* the clock when it was last read or filled */
    _Atomic uint16_t pins;
    uint8_t state;
    bool recorded; /* a record on disk may speak of it */
};

struct slab {
    struct slot *slots; /* NULL: not bound to a class */
    uint32_t *crcs;     /* cache_class_blocks() for each slot */
    uint32_t slot_count;
    uint32_t used; /* the latest of its slots' */
    uint32_t epoch;
    uint8_t class;
    uint8_t dir;
    bool announced; /* its entry in the slab table is written, or the writer of a slot does it now */
};

struct space_dir {
    struct cache_geometry geometry;
    uint32_t first; /* slab number of its first slab */
    VEC(uint32_t) unbound;
};

struct space {
    struct slab *slabs;
    uint32_t slab_count;
    struct space_dir dirs[SPACE_DIRS_MAX];
    size_t dir_count;
    struct evict_list free[CACHE_CLASSES];
    struct evict evict[CACHE_CLASSES];
    uint32_t full_allocs[CACHE_CLASSES]; /* since the class last looked for a colder slab */
    uint32_t *buckets;
    uint32_t bucket_mask;
    uint64_t clock; /* fills so far, this and earlier runs */
    uint64_t entries, used_bytes, evictions;
};

/* Everything a writer or a pinned reader needs of a slot, without the lock. */
struct space_slot {
    uint32_t id;
    unsigned dir;
    struct cache_place place;
    uint32_t plain_len;
    uint32_t *crcs;
    _Atomic uint16_t *pins;
    uint64_t seq;    /* alloc: for the record */
    bool recorded;   /* alloc: an old record must be invalidated */
    bool slab_bound; /* alloc: the slab was bound anew, its table entry must be written */
};

/* Geometries of the directories, in order. -ENOMEM; -EINVAL too large together. */
GR_MUST_CHECK int space_init(struct space *s, const struct cache_geometry *dirs, size_t count);
void space_release(struct space *s);

/* The slot that holds or is being filled with the digest, or SPACE_NONE. */
uint32_t space_find(const struct space *s, const struct digest *digest);
struct slot *space_slot_at(const struct space *s, uint32_t id);

/* false: as many readers have it pinned as can be counted. */
bool space_can_pin(const struct space *s, uint32_t id);
/* Make a ready slot that can be pinned stay while it is read; counts as a use. */
void space_pin(struct space *s, uint32_t id, struct space_slot *out);
/* No lock needed; *pins is not touched afterwards. */
void space_unpin(_Atomic uint16_t *pins);

/* A slot for a chunk that is not in the index: filling afterwards. Evicts when needed. -EAGAIN: every
 * slot it could take is busy; -ENOMEM. No sentence. */
GR_MUST_CHECK int space_alloc(struct space *s, const struct digest *digest, uint32_t plain_len, struct space_slot *out);
void space_commit(struct space *s, uint32_t id);
void space_abort(struct space *s, uint32_t id);
/* Forget a ready slot. */
void space_drop(struct space *s, uint32_t id);

/* Loading, in this order: each bound slab, its records, then space_load_finish, which puts the slots
 * in the order of their fills. */
struct space_loaded {
    uint64_t seq;
    uint32_t id;
};
struct space_load {
    VEC(struct space_loaded) slots;
};
/* place->slab counts within the directory. -ENOMEM. */
GR_MUST_CHECK int space_load_slab(struct space *s, unsigned dir, const struct cache_place *place);
GR_MUST_CHECK int space_load_slot(struct space *s, struct space_load *load, unsigned dir,
                                  const struct cache_place *place, const struct cache_record *record);
void space_load_finish(struct space *s, struct space_load *load);

/* Bytes of slots there are, were every slab bound to a class that fills it. */
uint64_t space_capacity(const struct space *s);

/* Asserts what must hold between locked sections; walks everything: for tests. */
void space_check(const struct space *s);

#endif
