/* A set of digests with a number each, for what may be millions of objects: 40 bytes an entry in an
 * open-addressing table at most two thirds full. */
#ifndef GRANARY_STORE_READ_DIGEST_MAP_H
#define GRANARY_STORE_READ_DIGEST_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/digest.h"

struct digest_slot {
    struct digest key; /* zero: free */
    int64_t value;
};

/* Starts as all zero. */
struct digest_map {
    struct digest_slot *slots;
    size_t count, capacity; /* capacity: 0 or a power of two */
};

void digest_map_release(struct digest_map *m);
#define CLEANUP_DIGEST_MAP CLEANUP(digest_map_release) struct digest_map

/* Add key, which is not zero: 1 added, 0 it was there already (and keeps its value), -ENOMEM with a
 * sentence. */
GR_MUST_CHECK int digest_map_add(struct digest_map *m, const struct digest *key, int64_t value);
/* NULL: absent. Valid until the next add. */
struct digest_slot *digest_map_find(const struct digest_map *m, const struct digest *key);

#endif
