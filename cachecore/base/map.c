/* Linear probing. The invariant: between an entry's home, the slot that its hash selects, and the slot where it lies,
 * no slot is free. A search may therefore stop at the first free slot.
 *
 * Removing an entry makes a hole that could cut later entries off from their homes. It is closed by moving such entries
 * up (Knuth, The Art of Computer Programming, vol. 3, 6.4, algorithm R), so no tombstones are needed, and a table whose
 * entries come and go stays fast:
 *
 *     before   [ A ][ X ][ B ][ C ][   ]      home(A) = 0, home(B) = 2, home(C) = 0
 *     X goes   [ A ][ C ][ B ][   ][   ]      B stays at its home, C moves into the hole
 */
#include "base/map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "base/error.h"

enum { CAPACITY_MIN = 16 };

void map_release(struct map *m)
{
    free(m->slots);
    memset(m, 0, sizeof *m);
}

static uint8_t *slot_at(const struct map *m, const struct map_type *type, size_t i)
{
    return m->slots + i * type->size;
}

/* Return the number of the next slot; the last one is followed by the first. */
static size_t next_slot(const struct map *m, size_t i)
{
    return (i + 1) & (m->capacity - 1);
}

void *map_put(struct map *m, const struct map_type *type, const void *entry)
{
    assert(m->count < m->capacity / 4 * 3 && !map_is_free_(entry, type));
    size_t i = map_home_(m, map_hash_at_(entry));
    while (!map_is_free_(slot_at(m, type, i), type))
        i = next_slot(m, i);
    m->count++;
    return memcpy(slot_at(m, type, i), entry, type->size);
}

int map_reserve(struct map *m, const struct map_type *type, size_t n)
{
    struct map larger = {.capacity = GR_MAX(m->capacity, (size_t)CAPACITY_MIN), .seed = m->seed};
    while (larger.capacity / 4 * 3 - m->count < n)
        larger.capacity *= 2;
    if (larger.capacity == m->capacity)
        return 0;
    /* Without random bytes, early at boot perhaps, the address is a weaker seed: it varies with ASLR. */
    if (!m->slots && getrandom(&larger.seed, sizeof larger.seed, 0) != sizeof larger.seed)
        larger.seed = (uintptr_t)m;
    larger.slots = calloc(larger.capacity, type->size);
    if (!larger.slots)
        return -ENOMEM;
    for (void *entry = NULL; (entry = map_next(m, type, entry));)
        map_put(&larger, type, entry);
    free(m->slots);
    *m = larger;
    return 0;
}

void map_remove(struct map *m, const struct map_type *type, void *entry)
{
    size_t hole = (size_t)((uint8_t *)entry - m->slots) / type->size;
    for (size_t i = next_slot(m, hole); !map_is_free_(slot_at(m, type, i), type); i = next_slot(m, i)) {
        size_t from_home = (i - map_home_(m, map_hash_at_(slot_at(m, type, i)))) & (m->capacity - 1);
        if (from_home < ((i - hole) & (m->capacity - 1)))
            continue; /* its home lies after the hole, so the hole does not cut it off */
        memcpy(slot_at(m, type, hole), slot_at(m, type, i), type->size);
        hole = i;
    }
    memset(slot_at(m, type, hole), 0, type->size);
    m->count--;
}

void *map_next(const struct map *m, const struct map_type *type, const void *after)
{
    size_t i = after ? (size_t)((const uint8_t *)after - m->slots) / type->size + 1 : 0;
    while (i < m->capacity && map_is_free_(slot_at(m, type, i), type))
        i++;
    return i < m->capacity ? slot_at(m, type, i) : NULL;
}

/* ---- digests as keys ---- */

/* A digest is evenly spread, so its first bytes, with which a slot begins, serve as the hash. */
static bool slot_is(const void *slot, const void *key)
{
    return digest_equal(&((const struct digest_slot *)slot)->key, key);
}

static const struct map_type digest_slots = {.size = sizeof(struct digest_slot), .is = slot_is};

void digest_map_release(struct digest_map *m)
{
    map_release(&m->map);
}

int digest_map_add(struct digest_map *m, const struct digest *key, int64_t value)
{
    assert(!digest_is_zero(key));
    if (digest_map_find(m, key))
        return 0;
    if (map_reserve(&m->map, &digest_slots, 1))
        return error_no_memory();
    const struct digest_slot slot = {.key = *key, .value = value};
    map_put(&m->map, &digest_slots, &slot);
    return 1;
}

struct digest_slot *digest_map_find(const struct digest_map *m, const struct digest *key)
{
    return map_find(&m->map, &digest_slots, digest_hash(key), key);
}

struct digest_slot *digest_map_next(const struct digest_map *m, const struct digest_slot *after)
{
    return map_next(&m->map, &digest_slots, after);
}
