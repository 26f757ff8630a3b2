/* base/map.h with digests as keys. The map expects each slot to begin with its hash; a digest is uniformly
 * distributed, so its first bytes, which digest_hash returns, serve as the hash. */
#include "repository/read/digest_map.h"

#include <assert.h>

#include "base/error.h"

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
