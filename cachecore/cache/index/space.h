/* The state in memory: slabs and their slots over all directories, the index from digest to slot,
 * what is free, and what goes next.
 *
 * States of a slot:
 *   free     in the free list of its directory and class, no digest. It may still be pinned by readers
 *            of a chunk that was dropped under them; then it is passed over.
 *   filling  in the index, belongs to the one writer that allocated it; not readable
 *   ready    in the index, and in the eviction policy unless the user pinned it (RECORD_PINNED); readable
 *            while pinned by readers
 *   damaged  in the index, not readable, nobody's: its chunk proved bad, and the user's pin stays with the slot
 *            until the chunk is filled into it again
 *   moving   a second slot for a chunk that is ready in another: not in the index, belongs to the one
 *            that moves the chunk, to be written or to have its record blanked
 * free -> filling (alloc) -> ready (commit) -> free (drop) or filling (evicted by alloc, or retaken);
 * filling -> free (abort); a pinned one: ready -> damaged (drop) -> filling (refill) -> ready or damaged (abort);
 * damaged -> filling (retaken) or free (given up); free -> moving (alloc_move) -> ready, and the chunk's old slot ready
 * -> moving (commit_move); moving -> free (abort).
 *
 * What is kept: metadata slots (RECORD_META) never make room for data. Metadata makes room for itself
 * beyond a quarter of the capacity. The user's pins stay whatever happens; at most three quarters of
 * the capacity can be pinned.
 *
 * Every function but space_unpin needs the cache's lock, held by the caller; none does I/O. Slots
 * are named by number: slab number << SPACE_SLOT_BITS | number in the slab.
 */
#ifndef GRANARY_CACHE_INDEX_SPACE_H
#define GRANARY_CACHE_INDEX_SPACE_H

#include "base/vec.h"
#include "cache/disk/cache_meta.h"
#include "cache/policy/evict.h"

enum { SPACE_SLOT_BITS = 11, SPACE_DIRS_MAX = 16, SPACE_GROUPS_MAX = 16 };
#define SPACE_NONE EVICT_NONE

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_MOVING, SLOT_DAMAGED };

/* The first 16 bytes of a digest: what memory knows of it. The record on disk has it whole, and every
 * read compares that. */
struct space_key {
    uint64_t word[2];
};

struct slot {
    struct space_key key;
    uint32_t hash_next;
    struct evict_node node;
    uint32_t plain_len, stored_len;
    uint32_t used; /* the clock when it was last read or filled */
    uint8_t state;
    uint8_t group;        /* charged to; 0: none */
    uint8_t recorded : 1; /* a record on disk may speak of it */
    uint8_t flags : 7;    /* RECORD_*, SPACE_SESSION_PINNED */
};

/* Beside RECORD_PINNED among a slot's flags: the pin is this process's own and not written to the record. */
enum { SPACE_SESSION_PINNED = 0x40, SLOT_FLAGS = 0x7f };

static inline void slot_set_flags(struct slot *slot, unsigned flags)
{
    slot->flags = flags & SLOT_FLAGS;
}

/* What of a slot's flags its record has. */
static inline uint8_t space_record_flags(unsigned flags)
{
    return (uint8_t)(flags & SPACE_SESSION_PINNED ? flags & ~(unsigned)(SPACE_SESSION_PINNED | RECORD_PINNED) : flags);
}

struct slab {
    struct slot *slots; /* NULL: not bound to a class */
    uint32_t slot_count;
    uint32_t kept; /* slots of it, not free, that make no room for data */
    uint32_t used; /* the latest of its slots' */
    uint32_t epoch;
    uint8_t class;
    uint8_t dir;
    bool announced; /* its entry in the slab table is written, or the writer of a slot does it now */
    bool yielded;   /* not bound, and not to be: its room on the disk is given back */
};

/* A slower medium takes what the faster one has no room for. */
enum cache_media { CACHE_MEDIA_SSD, CACHE_MEDIA_HDD, CACHE_MEDIA_ANY /* in a space_request */ };

struct space_dir {
    struct cache_geometry geometry;
    enum cache_media media;
    bool writable;  /* may be allocated from */
    uint32_t first; /* slab number of its first slab */
    uint32_t hand;  /* where the search for a cold slab goes on */
    VEC(uint32_t) unbound;
    uint32_t yielded; /* slabs */
    struct evict_list free[CACHE_CLASSES];
    uint32_t full_allocs[CACHE_CLASSES]; /* since the class last looked for a colder slab */
};

/* Slots that are charged to one owner. Metadata is charged to nobody. */
struct space_quota {
    uint64_t owner; /* as records have it */
    uint64_t limit; /* bytes of slots */
};
struct space_group {
    struct space_quota quota;
    uint64_t used;
    uint32_t slab, slot; /* where the search for one of its slots goes on */
};

struct space {
    struct slab *slabs;
    uint32_t slab_count;
    struct space_dir dirs[SPACE_DIRS_MAX];
    size_t dir_count;
    struct space_group groups[SPACE_GROUPS_MAX]; /* number n of a slot is groups[n - 1] */
    size_t group_count;
    struct evict *evict;
    uint32_t *buckets;
    uint32_t bucket_mask;
    uint64_t clock;    /* fills so far, this and earlier runs */
    uint64_t capacity; /* bytes of slots there are, were every slab bound to a class that fills it */
    uint64_t entries, used_bytes, evictions, quota_refusals;
    uint64_t meta_bytes, pinned_bytes; /* of slots, not free, with those flags */
#ifdef GRANARY_CHECK
    uint64_t unchecked; /* locked sections until the next check (space_lock.h) */
#endif
};

struct space_config {
    struct {
        struct cache_geometry geometry;
        enum cache_media media;
    } dirs[SPACE_DIRS_MAX];
    size_t dir_count;
    struct space_quota groups[SPACE_GROUPS_MAX];
    size_t group_count;
    enum evict_policy policy;
};

/* What a slot is asked for. */
struct space_request {
    struct digest digest;
    uint32_t plain_len;
    uint32_t stored_len; /* bytes in the slot */
    uint16_t flags;      /* RECORD_* */
    uint32_t asked;      /* bytes that a reader wants of it now */
    uint64_t owner;      /* for the record */
    uint8_t group;       /* charged to; 0: none */
    enum cache_media media;
    bool force; /* whatever the policy thinks of it */
};

/* Everything a writer or a pinned reader needs of a slot, without the lock. */
struct space_slot {
    uint32_t id;
    unsigned dir;
    struct cache_place place;
    uint32_t plain_len, stored_len;
    uint16_t flags;
    _Atomic uint16_t *pins;
    uint64_t seq;    /* alloc: for the record, */
    uint64_t owner;  /* like this */
    bool recorded;   /* alloc: an old record must be invalidated */
    bool slab_bound; /* alloc: the slab was bound anew, its table entry must be written */
};

/* -ENOMEM; -EINVAL too large together. */
GR_MUST_CHECK int space_init(struct space *s, const struct space_config *config);
void space_release(struct space *s);

/* The slot that holds or is being filled with the digest, or SPACE_NONE. */
uint32_t space_find(const struct space *s, const struct digest *digest);
struct slot *space_slot_at(const struct space *s, uint32_t id);
/* The directory a slot is in. */
unsigned space_dir_of(const struct space *s, uint32_t id);

/* false: as many readers have it pinned as can be counted. */
bool space_can_pin(const struct space *s, uint32_t id);
/* Make a ready slot that can be pinned stay while it is read; counts as a use. */
void space_pin(struct space *s, uint32_t id, struct space_slot *out);
/* The same, for a reader who wants `asked` bytes of the chunk. */
void space_pin_read(struct space *s, uint32_t id, uint32_t asked, struct space_slot *out);
/* No lock needed; *pins is not touched afterwards. */
void space_unpin(_Atomic uint16_t *pins);

/* A chunk was asked for that has no slot: the eviction policy may want to know. */
void space_miss(struct space *s, const struct space_request *request);

/* Is there room for the chunk, or would the policy make some for it? Nothing is changed. */
bool space_admits(const struct space *s, const struct space_request *request);
/* A slot for a chunk that is not in the index: filling afterwards. Evicts when needed. -EAGAIN: every
 * slot it could take is busy now; -EDQUOT: its group has no more, the policy keeps what there is, or
 * all of it must be kept;
 * -ENODEV: no directory of the wanted medium is writable; -ENOMEM. No sentence. */
GR_MUST_CHECK int space_alloc(struct space *s, const struct space_request *request, struct space_slot *out);
void space_commit(struct space *s, uint32_t id);
void space_abort(struct space *s, uint32_t id);
/* Fill a damaged slot again, or another one where the chunk is stored in another length now; it is pinned afterwards.
 * Errors as space_alloc, the slot stays damaged then; -EAGAIN also while its readers are not done. */
GR_MUST_CHECK int space_refill(struct space *s, uint32_t id, const struct space_request *request,
                               struct space_slot *out);
/* Make a ready or damaged slot filling again, unpinned, for its record to be blanked before space_abort. Its readers
 * keep their pins. */
void space_retake(struct space *s, uint32_t id, struct space_slot *out);
/* Forget a ready slot, or make it damaged where the user pinned it. */
void space_drop(struct space *s, uint32_t id);
/* Forget a damaged slot. */
void space_give_up(struct space *s, uint32_t id);

/* A second slot for a ready chunk, on the medium: moving afterwards, space_abort gives it back. Errors
 * as space_alloc; the policy is asked. */
GR_MUST_CHECK int space_alloc_move(struct space *s, uint32_t id, enum cache_media media, struct space_slot *out);
/* The chunk is in new_id from now on. false: it is not in old_id any more, or was pinned or unpinned
 * meanwhile. The slot of the two that is not the chunk's is moving afterwards: its record is to be
 * blanked before space_abort, or a chunk evicted later would come back with it. */
GR_MUST_CHECK bool space_commit_move(struct space *s, uint32_t old_id, uint32_t new_id);

/* Pin or unpin a ready slot for the user, held or not; writing that to its record is the caller's. -EDQUOT: as much
 * is pinned as may be. */
GR_MUST_CHECK int space_set_pinned(struct space *s, uint32_t id, bool pinned);
/* Pin it without a word in its record, unless the user has. -EDQUOT. */
GR_MUST_CHECK int space_session_pin(struct space *s, uint32_t id);

/* Empty a slab of the directory that is not in use now, without metadata or pins, and take it out of
 * service: its number in the directory, or SPACE_NONE. What is unbound goes first, then what was not used
 * for long. */
uint32_t space_yield(struct space *s, unsigned dir);
/* One that was yielded, or SPACE_NONE. */
uint32_t space_yielded(const struct space *s, unsigned dir);
/* Put a yielded slab back into service. */
void space_regain(struct space *s, unsigned dir, uint32_t slab);

/* Is the directory given new chunks? All are at first. What it holds stays in the index. */
void space_dir_writable(struct space *s, unsigned dir, bool writable);

/* Loading, in this order: each bound slab, its records, then space_load_finish, which puts the slots
 * in the order of their fills. */
struct space_load {
    VEC(uint64_t) slots;
    uint64_t pinned_bytes;
};
/* place->slab counts within the directory. -ENOMEM. */
void space_load_yielded(struct space *s, unsigned dir, uint32_t slab);
GR_MUST_CHECK int space_load_slab(struct space *s, unsigned dir, const struct cache_place *place);
GR_MUST_CHECK int space_load_slot(struct space *s, struct space_load *load, unsigned dir,
                                  const struct cache_place *place, const struct cache_record *record);
/* Empties load, also on an error. -ENOMEM. */
GR_MUST_CHECK int space_load_finish(struct space *s, struct space_load *load);

/* Asserts what must hold between locked sections; walks everything: for tests. */
void space_check(const struct space *s);

#endif
