/* A hash table with open addressing, at most three quarters full. Entries have one size and lie in the table itself.
 *
 * An entry is a struct that begins with 64 bits of its key's hash and is never all zero. Behind the hash stands the
 * rest of a small key with its value, or a pointer to an object that has both:
 *
 *   struct entry { uint64_t hash; struct node *node; };
 *   static bool entry_is(const void *entry, const void *digest) { ... }
 *   static const struct map_type nodes = {.size = sizeof(struct entry), .is = entry_is};
 *   struct entry *e = map_find(&map, &nodes, hash, digest);
 *
 * The 64 bits need not be evenly spread: the first bytes of a digest, an address or a number will do. The table mixes
 * them with a random seed, so that no client can choose keys that collide. Keys with equal hashes are searched one by
 * one.
 *
 * Memory: size * 4 / 3 to size * 8 / 3 bytes per entry in all but the smallest tables; a table never shrinks. The table
 * does not own what its entries point to and takes no lock. map_reserve and map_remove move entries: a pointer to one
 * is valid until the next such call.
 */
#ifndef GRANARY_BASE_MAP_H
#define GRANARY_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/digest.h"

struct map_type {
    size_t size;                                    /* bytes of an entry: a multiple of 8 */
    bool (*is)(const void *entry, const void *key); /* has entry this key? Their hashes are equal already */
};

/* An empty table is all zero. Pass the same type with every call. */
struct map {
    uint8_t *slots;         /* a slot that is all zero is free */
    size_t count, capacity; /* capacity: 0 or a power of two */
    uint64_t seed;          /* mixed into every hash; random, chosen with the first slots */
};

/* Free the slots. The table is empty afterwards and may be used again. */
void map_release(struct map *m);

/* Make room for n more entries. -ENOMEM without a sentence; the table is unchanged then. */
GR_MUST_CHECK int map_reserve(struct map *m, const struct map_type *type, size_t n);
/* Copy an entry into room that map_reserve made; returns its place. Its key must not be in the table. */
void *map_put(struct map *m, const struct map_type *type, const void *entry);
/* Remove an entry, by the pointer that map_find or map_put returned. */
void map_remove(struct map *m, const struct map_type *type, void *entry);
/* Visit every entry once, in no order: returns the first for NULL, then the one after `after`; NULL at the end. The
 * table must not change meanwhile. */
void *map_next(const struct map *m, const struct map_type *type, const void *after);

/* Return the hash that an entry begins with. */
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

/* Return the number of the slot where a search for this hash begins. The multiplier is 2^64 divided by the golden ratio
 * (Knuth's multiplicative hashing); high and low half of the product are folded together, so that every bit of the hash
 * counts. */
static inline size_t map_home_(const struct map *m, uint64_t hash)
{
    unsigned __int128 mixed = (unsigned __int128)(hash ^ m->seed) * 0x9E3779B97F4A7C15u;
    return (size_t)(mixed >> 64 ^ mixed) & (m->capacity - 1);
}

/* Return the entry with this key, or NULL; hash is the key's hash. Inline, so that the compiler can inline type->is as
 * well. The loop ends because a quarter of the slots is free. */
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

/* ---- a map from digests to numbers, for up to millions of objects: slots of 40 bytes; one thread at a time ---- */

/* A key and its number. The key must not be changed in place. */
struct digest_slot {
    struct digest key; /* not zero */
    int64_t value;
};

/* Starts as all zero; released by digest_map_release. */
struct digest_map {
    struct map map;
};

void digest_map_release(struct digest_map *m);
#define CLEANUP_DIGEST_MAP CLEANUP(digest_map_release) struct digest_map

/* Add a key, which must not be zero. 1: added; 0: it was there already and keeps its value; -ENOMEM. */
GR_MUST_CHECK int digest_map_add(struct digest_map *m, const struct digest *key, int64_t value);
/* Return the key's slot, valid until the next add; NULL: absent. */
struct digest_slot *digest_map_find(const struct digest_map *m, const struct digest *key);
/* Return the first slot (after: NULL) or the one after `after`, in no particular order; NULL at the end. */
struct digest_slot *digest_map_next(const struct digest_map *m, const struct digest_slot *after);

#endif
