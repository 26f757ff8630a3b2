/* What the files of the space share: space.c (index, states, invariants), space_alloc.c (slabs, making room),
 * space_load.c. */
#ifndef GRANARY_CACHE_INDEX_SPACE_INTERNAL_H
#define GRANARY_CACHE_INDEX_SPACE_INTERNAL_H

#include "base/le.h"
#include "cache/index/space.h"

enum { SPACE_SLOT_MASK = (1 << SPACE_SLOT_BITS) - 1 };

static inline struct slab *space_slab_of(const struct space *s, uint32_t id)
{
    return &s->slabs[id >> SPACE_SLOT_BITS];
}

static inline struct space_key space_key_of(const struct digest *digest)
{
    return (struct space_key){{le64_get(digest->b), le64_get(digest->b + 8)}};
}

/* The eviction pool of a directory's slots of one class: data or metadata. */
static inline uint32_t space_pool(unsigned dir, unsigned class, bool meta)
{
    return (dir * CACHE_CLASSES + class) * 2 + meta;
}

/* Is a slot with these flags kept when data needs room? */
static inline bool space_kept(unsigned flags)
{
    return flags & (RECORD_META | RECORD_PINNED);
}

/* The most bytes that may be pinned. */
static inline uint64_t space_pin_limit(const struct space *s)
{
    return s->capacity / 4 * 3;
}

struct evict_node *space_node_at(void *arg, uint32_t id);
/* Does any reader have it pinned? */
bool space_busy_at(void *arg, uint32_t id);

/* ---- space.c: changes of state ---- */

uint32_t *space_bucket_of(const struct space *s, struct space_key key);
uint32_t space_find_key(const struct space *s, struct space_key key);
/* Make a free slot that is in no list filling or moving, for the request. */
void space_begin(struct space *s, uint32_t id, const struct space_request *request, enum slot_state state);
/* The same for a slot whose fields are set already. */
void space_enter(struct space *s, uint32_t id, enum slot_state state);
/* Undo space_enter: out of the index and the counts. */
void space_leave(struct space *s, uint32_t id);
/* Take a ready slot out of index and policy; it is in no list afterwards. */
void space_forget(struct space *s, uint32_t id);
/* Put a slot that is in no list at the end of the free list. */
void space_make_free(struct space *s, uint32_t id);
/* The same at the front, so that it is reused next: until then a restart would find its old record. */
void space_make_free_first(struct space *s, uint32_t id);
/* Copy what readers and writers need without the lock. */
void space_describe(struct space *s, uint32_t id, struct space_slot *out);

/* ---- space_alloc.c ---- */

/* Bind a slab that is unbound. It still stands in its directory's list of unbound slabs, and its slots are in no
 * list. -ENOMEM. */
GR_MUST_CHECK int space_bind_slab(struct space *s, uint32_t number, unsigned class, uint32_t epoch);

/* Return the owner's group, a new one without a limit if it had none; 0: there are `most` groups. */
unsigned space_group_of(struct space *s, uint64_t owner, size_t most);

#endif
