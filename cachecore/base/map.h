/* A hash table whose entries, all of one size, lie in the table itself: open addressing, at most three quarters full.
 *
 * An entry is a struct that begins with 64 bits of its key's hash and is never all zero. What follows is the rest of a
 * small key and its value, or a pointer to the object that has both:
 *
 *   struct entry { uint64_t hash; struct node *node; };
 *   static bool entry_is(const void *entry, const void *digest) { ... }
 *   static const struct map_type nodes = {.size = sizeof(struct entry), .is = entry_is};
 *   struct entry *e = map_find(&map, &nodes, hash, digest);
 *
 * Those 64 bits need not be evenly spread: a digest's first bytes will do, an address, or a number. The table mixes
 * them with a seed of its own, so that nobody can choose keys that collide there; keys of one hash are found one after
 * the other.
 *
 * Memory: size * 4 / 3 to size * 8 / 3 bytes an entry, once there are a few; it never shrinks. What entries point to is
 * the caller's, and so is a lock. map_put and map_remove move entries: a pointer to one is valid until the next of
 * them.
 */
#ifndef GRANARY_BASE_MAP_H
#define GRANARY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/compiler.h"

struct map_type {
    size_t size;                                    /* of an entry: a multiple of 8 */
    bool (*is)(const void *entry, const void *key); /* asked of entries that have the key's hash */
};

/* Starts as all zero. The same type is given with every call. */
struct map {
    uint8_t *slots;         /* a slot that is all zero is free */
    size_t count, capacity; /* capacity: 0 or a power of two */
    uint64_t seed;
};

void map_release(struct map *m);

/* Room for n more entries; -ENOMEM without a sentence, the table is as before. */
GR_MUST_CHECK int map_reserve(struct map *m, const struct map_type *type, size_t n);
/* Copy the entry, whose key is not in the table, into room that was reserved; returns it there. */
void *map_put(struct map *m, const struct map_type *type, const void *entry);
/* Take out an entry that map_find returned. */
void map_remove(struct map *m, const struct map_type *type, void *entry);
/* Every entry once, in no order, while none is put or removed: the first, for NULL, or the one behind `after`; NULL at
 * the end. */
void *map_next(const struct map *m, const struct map_type *type, const void *after);

static inline uint64_t map_hash_at_(const void *slot)
{
    uint64_t hash;
    memcpy(&hash, slot, sizeof hash);
    return hash;
}

static inline bool map_is_free_(const uint8_t *slot, const struct map_type *type)
{
    size_t i = 0;
    while (i < type->size && !map_hash_at_(slot + i))
        i += sizeof(uint64_t);
    return i >= type->size;
}

/* The slot where an entry of that hash is looked for first. */
static inline size_t map_home_(const struct map *m, uint64_t hash)
{
    unsigned __int128 mixed = (unsigned __int128)(hash ^ m->seed) * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 64 ^ mixed) & (m->capacity - 1);
}

/* The entry of that key, whose hash is given, or NULL. Here, so that the compiler knows the type. */
static inline void *map_find(const struct map *m, const struct map_type *type, uint64_t hash, const void *key)
{
    if (!m->count)
        return NULL;
    for (size_t i = map_home_(m, hash);; i = (i + 1) & (m->capacity - 1)) {
        uint8_t *slot = m->slots + i * type->size;
        if (map_is_free_(slot, type))
            return NULL;
        if (map_hash_at_(slot) == hash && type->is(slot, key))
            return slot;
    }
}

#endif
