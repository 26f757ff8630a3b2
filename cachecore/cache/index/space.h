/* The cache's state in memory: slabs and slots over all directories, the index from digest to slot, free slots, and
 * what is evicted next.
 *
 * States of a slot:
 *   free     in the free list of its directory and class; no digest. Readers of a chunk that was dropped under them may
 *            still have it pinned; it is not handed out until they are done
 *   filling  in the index; belongs to the one writer that allocated it; not readable
 *   ready    in the index, and in the eviction policy unless the user pinned it (RECORD_PINNED); readable; pinned by
 *            readers while they read
 *   damaged  in the index; not readable, owned by nobody: its chunk proved bad, and the user's pin stays with the slot
 *            until the chunk is filled into it again
 *   moving   a second slot for a chunk that is ready in another one; not in the index; belongs to the thread that moves
 *            the chunk, to be written or to have its record blanked
 *
 * Transitions:
 *   free    -> filling  alloc              ready -> free      drop
 *   filling -> ready    commit             ready -> filling   evicted by alloc, or retake
 *   filling -> free     abort              free  -> moving    alloc_move
 *   moving  -> ready    commit_move, while the chunk's old slot goes ready -> moving
 *   moving  -> free     abort
 *   with a user's pin:  ready -> damaged  drop;   damaged -> filling  refill or retake;   filling -> damaged  abort;
 *                       damaged -> free   give_up
 *
 * What is kept: data never evicts metadata slots (RECORD_META). Above a quarter of the capacity, metadata evicts
 * metadata. The user's pins stay whatever happens; at most three quarters of the capacity can be pinned.
 *
 * Every function except space_unpin needs the cache's lock, held by the caller; none does I/O. A slot's id is its
 * slab's number << SPACE_SLOT_BITS | its number in the slab.
 */
#ifndef GRANARY_CACHE_INDEX_SPACE_H
#define GRANARY_CACHE_INDEX_SPACE_H

#include <pthread.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "cache/disk/cache_meta.h"
#include "cache/policy/evict.h"

enum { SPACE_SLOT_BITS = 11, SPACE_DIRS_MAX = 16, SPACE_GROUPS_MAX = 1024 };
#define SPACE_NONE EVICT_NONE

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_MOVING, SLOT_DAMAGED };

/* The first 16 bytes of a digest, which is all that memory keeps. The record on disk has the whole digest, and every
 * read compares it. */
struct space_key {
    uint64_t word[2];
};

/* One slot: 48 bytes. */
struct slot {
    struct space_key key;
    uint32_t hash_next;             /* the next slot of its hash bucket */
    struct evict_node node;         /* links in the policy or the free list, and the readers' pins */
    uint32_t plain_len, stored_len; /* bytes */
    uint32_t used;                  /* the clock when it was last read or filled */
    uint16_t group;                 /* the quota it is charged to; 0: none */
    uint8_t state;
    uint8_t recorded : 1; /* a record on disk may describe it */
    uint8_t flags : 7;    /* RECORD_*, SPACE_SESSION_PINNED */
};

/* Set beside RECORD_PINNED: the pin belongs to this process and is not written to the record. */
enum { SPACE_SESSION_PINNED = 0x40, SLOT_FLAGS = 0x7f };

static inline void slot_set_flags(struct slot *slot, unsigned flags)
{
    slot->flags = flags & SLOT_FLAGS;
}

/* The flags as they stand in the slot's record. */
static inline uint8_t space_record_flags(unsigned flags)
{
    return (uint8_t)(flags & SPACE_SESSION_PINNED ? flags & ~(unsigned)(SPACE_SESSION_PINNED | RECORD_PINNED) : flags);
}

/* A slab: a fixed part of a data file, bound to one size class at a time. */
struct slab {
    struct slot *slots; /* NULL: not bound to a class */
    uint32_t slot_count;
    uint32_t kept;  /* slots, not free, that data may not evict */
    uint32_t used;  /* the latest `used` of its slots */
    uint32_t epoch; /* number of its binding, never 0 while bound; records of other epochs do not count */
    uint8_t class;
    uint8_t dir;
    bool announced; /* its entry in the slab table has been written, or the writer of a slot is writing it now */
    bool yielded;   /* out of service: its room on the disk has been given back */
};

/* Slower media take what the faster ones have no room for. */
enum cache_media { CACHE_MEDIA_SSD, CACHE_MEDIA_HDD, CACHE_MEDIA_ANY /* in a space_request */ };

/* One directory's part of the space. */
struct space_dir {
    struct cache_geometry geometry;
    enum cache_media media;
    bool writable;  /* new chunks may be placed here */
    uint32_t first; /* slab number of its first slab */
    uint32_t hand;  /* where the next search for a cold slab starts */
    /* Numbers, within the directory, of slabs that are not bound and not yielded; has capacity for all. */
    VEC(uint32_t) unbound;
    uint32_t yielded; /* how many of its slabs are yielded */
    struct evict_list free[CACHE_CLASSES];
    uint32_t full_allocs[CACHE_CLASSES]; /* allocations that evicted, since the class last looked for a colder slab */
};

#define SPACE_NO_LIMIT UINT64_MAX

/* The limit of one owner. Metadata is charged to nobody. An owner whose limit has ended keeps what is charged to it, so
 * that the next limit knows it. */
struct space_quota {
    uint64_t owner; /* as it stands in records; never 0 */
    uint64_t limit; /* bytes of slots, or SPACE_NO_LIMIT */
};
/* A quota, with what is charged to it. */
struct space_group {
    struct space_quota quota;
    uint64_t used;       /* bytes of slots */
    uint32_t slab, slot; /* where the next search for one of its slots starts */
};

/* All of it, guarded by the cache's lock but for the pins. */
struct space {
    struct slab *slabs;
    uint32_t slab_count;
    struct space_dir dirs[SPACE_DIRS_MAX];
    size_t dir_count;
    struct space_group groups[SPACE_GROUPS_MAX]; /* a slot's group n is groups[n - 1] */
    size_t group_count;
    struct evict *evict;
    uint32_t *buckets; /* heads of the hash chains: slot ids */
    uint32_t bucket_mask;
    uint64_t clock;    /* fills so far, in this run and earlier ones; the time by which ages are measured */
    uint64_t capacity; /* bytes of slots if every slab were bound to a class that fills it */
    uint64_t entries, used_bytes, evictions, quota_refusals;
    uint64_t meta_bytes, pinned_bytes; /* bytes of slots, not free, with RECORD_META, with RECORD_PINNED */
#ifdef GRANARY_CHECK
    uint64_t unchecked; /* locked sections until the next check (space_assert) */
#endif
};

struct space_config {
    struct {
        struct cache_geometry geometry;
        enum cache_media media;
    } dirs[SPACE_DIRS_MAX];
    size_t dir_count;
    enum evict_policy policy;
};

/* A request for a slot. */
struct space_request {
    struct digest digest;
    uint32_t plain_len;
    uint32_t stored_len; /* bytes it takes in the slot */
    uint16_t flags;      /* RECORD_* */
    uint32_t asked;      /* bytes of the chunk that a reader wants now */
    uint16_t group;      /* charged to, and its owner written to the record; 0: none */
    enum cache_media media;
    bool force; /* overrule the eviction policy */
};

/* What a writer or a pinned reader needs to know of a slot without the lock. */
struct space_slot {
    uint32_t id;
    unsigned dir;
    struct cache_place place;
    uint32_t plain_len, stored_len;
    uint16_t flags;
    _Atomic uint16_t *pins;
    uint64_t seq;    /* from alloc: for the record */
    uint64_t owner;  /* from alloc: for the record */
    bool recorded;   /* from alloc: an old record must be invalidated first */
    bool slab_bound; /* from alloc: the slab was bound anew, and its table entry must be written */
};

/* Make the space for these directories, all slabs unbound. -ENOMEM; -EINVAL: together they are too large. Call
 * space_release when done. */
GR_MUST_CHECK int space_init(struct space *s, const struct space_config *config);
void space_release(struct space *s);

/* Return the slot that holds the digest or is being filled with it, or SPACE_NONE. */
uint32_t space_find(const struct space *s, const struct digest *digest);
struct slot *space_slot_at(const struct space *s, uint32_t id);
/* Return the number of the slot's directory. */
unsigned space_dir_of(const struct space *s, uint32_t id);

/* Can a reader pin the slot? false: its pin count is at its maximum. */
bool space_can_pin(const struct space *s, uint32_t id);
/* Pin a ready slot (space_can_pin) while it is read; counts as a use. *out is valid until space_unpin. */
void space_pin(struct space *s, uint32_t id, struct space_slot *out);
/* The same, for a reader that wants `asked` bytes of the chunk. */
void space_pin_read(struct space *s, uint32_t id, uint32_t asked, struct space_slot *out);
/* Release a pin. Needs no lock; *pins is not touched afterwards. */
void space_unpin(_Atomic uint16_t *pins);

/* Tell the eviction policy that a chunk without a slot was read. */
void space_miss(struct space *s, const struct space_request *request);

/* Give an owner's chunks a limit, or SPACE_NO_LIMIT. Returns the owner's group; 0: there are SPACE_GROUPS_MAX others
 * that have a limit or chunks. A group without both may become another owner's: a request that still names it is
 * charged to that one. */
unsigned space_set_limit(struct space *s, uint64_t owner, uint64_t limit);
/* Return the owner's group if it has a limit, else 0. */
unsigned space_limited(const struct space *s, uint64_t owner);

/* Is there room for the chunk, or would the policy make some? Changes nothing. */
bool space_admits(const struct space *s, const struct space_request *request);
/* Allocate a slot for a chunk that is not in the index; it is filling afterwards. Evicts when needed. -EAGAIN: every
 * slot it could take is busy now; -EDQUOT: its quota is used up, the policy keeps what there is, or all of it must be
 * kept; -ENODEV: no directory of the wanted medium is writable; -ENOMEM. No message. */
GR_MUST_CHECK int space_alloc(struct space *s, const struct space_request *request, struct space_slot *out);
/* End a fill: the slot becomes ready. */
void space_commit(struct space *s, uint32_t id);
/* End a fill or move that failed: the slot becomes free, or damaged where the user pinned it. */
void space_abort(struct space *s, uint32_t id);
/* Make a damaged slot filling again, or take another slot if the chunk's stored length needs another class now. It is
 * pinned when filled. Errors as for space_alloc, and then the slot stays damaged; -EAGAIN also while it still has
 * readers. */
GR_MUST_CHECK int space_refill(struct space *s, uint32_t id, const struct space_request *request,
                               struct space_slot *out);
/* Make a ready or damaged slot filling, without the user's pin, so that its record can be blanked before space_abort.
 * Its readers keep their pins. */
void space_retake(struct space *s, uint32_t id, struct space_slot *out);
/* Drop the chunk of a ready slot; a slot with a lasting pin becomes damaged instead of free. */
void space_drop(struct space *s, uint32_t id);
/* Free a damaged slot. */
void space_give_up(struct space *s, uint32_t id);

/* Allocate a second slot for a ready chunk on the medium: it is moving until space_commit_move or space_abort. Errors
 * as for space_alloc; the policy decides as for any other chunk. */
GR_MUST_CHECK int space_alloc_move(struct space *s, uint32_t id, enum cache_media media, struct space_slot *out);
/* Switch the chunk to new_id. false: it has left old_id, or was pinned or unpinned meanwhile. Either way one of the
 * two slots is moving afterwards: blank its record before space_abort, or a chunk that is evicted later would come
 * back. */
GR_MUST_CHECK bool space_commit_move(struct space *s, uint32_t old_id, uint32_t new_id);

/* Pin or unpin a ready slot for the user, and end a session pin; the caller writes the record. -EDQUOT: the pin limit
 * is reached. */
GR_MUST_CHECK int space_set_pinned(struct space *s, uint32_t id, bool pinned);
/* Pin a ready slot without a record of it, unless it is pinned already. -EDQUOT: the pin limit is reached. */
GR_MUST_CHECK int space_session_pin(struct space *s, uint32_t id);
/* End a session pin, if the slot has one; a user's pin stays. */
void space_session_unpin(struct space *s, uint32_t id);

/* Empty a slab that nobody uses now and that has no metadata or pins, and take it out of service. Returns its number
 * within the directory, or SPACE_NONE. Unbound slabs go first, then cold ones. */
uint32_t space_yield(struct space *s, unsigned dir);
/* Return a yielded slab, or SPACE_NONE. */
uint32_t space_yielded(const struct space *s, unsigned dir);
/* Put a yielded slab back into service, unbound. */
void space_regain(struct space *s, unsigned dir, uint32_t slab);

/* Say whether new chunks may be placed in the directory; at first they may. Its chunks stay in the index either way. */
void space_dir_writable(struct space *s, unsigned dir, bool writable);

enum { SPACE_LOAD_OWNERS = 256 };

/* Loading goes in this order: limits, yielded slabs and bound slabs, each with its records, then space_load_finish,
 * which enters the slots in the order of their fills. Owners in records that have no limit get half of the groups at
 * most; what is charged to the others is forgotten, so that a restart always makes places. */
struct space_load {
    VEC(uint64_t) slots;
    uint64_t pinned_bytes;
    uint16_t groups[SPACE_LOAD_OWNERS]; /* by an owner's low bits, those found last */
};
/* place->slab is a number within the directory. -ENOMEM. */
void space_load_yielded(struct space *s, unsigned dir, uint32_t slab);
GR_MUST_CHECK int space_load_slab(struct space *s, unsigned dir, const struct cache_place *place);
GR_MUST_CHECK int space_load_slot(struct space *s, struct space_load *load, unsigned dir,
                                  const struct cache_place *place, const struct cache_record *record);
/* Enter all loaded slots, and empty `load`, on an error too. -ENOMEM. */
GR_MUST_CHECK int space_load_finish(struct space *s, struct space_load *load);

/* Assert what must hold between locked sections. Walks everything: for tests. */
void space_check(const struct space *s);

/* The lock that guards a space. A build with GRANARY_CHECK (debug, sanitizers) asserts the state table before it
 * unlocks: after every locked section while few slots are bound, later only after as many sections that each pays for
 * SPACE_CHECK_SLOTS slots on average. */

enum { SPACE_CHECK_SLOTS = 512 };

#ifdef GRANARY_CHECK
/* Call it before anything that unlocks, a wait for a condition included. */
void space_assert(struct space *s);
#else
static inline void space_assert(struct space *s)
{
}
#endif

/* What the end of the scope needs. */
struct space_locked {
    pthread_mutex_t *mutex;
    struct space *space;
};

static inline void space_unlock_(struct space_locked *l)
{
    space_assert(l->space);
    pthread_mutex_unlock(l->mutex);
}

/* Lock mutex, which guards the space, until the end of the scope. */
#define SCOPED_SPACE_LOCK(guard, guarded)                                                                              \
    CLEANUP(space_unlock_)                                                                                             \
    struct space_locked CLEANUP_CONCAT_(space_locked_, __LINE__) = {.mutex = (guard), .space = (guarded)};             \
    pthread_mutex_lock(CLEANUP_CONCAT_(space_locked_, __LINE__).mutex)

#endif
