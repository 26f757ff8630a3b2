/* What the files of the space share: space.c (index, states), space_alloc.c (slabs, room),
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

/* The eviction pool of a directory's slots of one class. */
static inline uint32_t space_pool(unsigned dir, unsigned class, bool meta)
{
    return (dir * CACHE_CLASSES + class) * 2 + meta;
}

/* May a slot with these flags make no room for data? */
static inline bool space_kept(unsigned flags)
{
    return flags & (RECORD_META | RECORD_PINNED);
}

/* As much of the user's pins there may be. */
static inline uint64_t space_pin_limit(const struct space *s)
{
    return s->capacity / 4 * 3;
}

struct evict_node *space_node_at(void *arg, uint32_t id);
/* Pinned. */
bool space_busy_at(void *arg, uint32_t id);

/* ---- space.c: changes of state ---- */

uint32_t *space_bucket_of(const struct space *s, struct space_key key);
uint32_t space_find_key(const struct space *s, struct space_key key);
/* A free slot that is in no list becomes filling or moving. */
void space_begin(struct space *s, uint32_t id, const struct space_request *request, enum slot_state state);
/* The same for one whose fields are set. */
void space_enter(struct space *s, uint32_t id, enum slot_state state);
/* The opposite of space_enter. */
void space_leave(struct space *s, uint32_t id);
/* A ready slot leaves index and policy; it is in no list afterwards. */
void space_forget(struct space *s, uint32_t id);
/* A slot that is in no list goes to the free list. */
void space_make_free(struct space *s, uint32_t id);
/* The same, to be taken next: a restart would find its old record. */
void space_make_free_first(struct space *s, uint32_t id);
void space_describe(struct space *s, uint32_t id, struct space_slot *out);

/* ---- space_alloc.c ---- */

/* Bind an unbound slab; it still stands in its directory's list of those, and its slots in no list.
 * -ENOMEM. */
GR_MUST_CHECK int space_bind_slab(struct space *s, uint32_t number, unsigned class, uint32_t epoch);

#endif
