/* A set of digests with a number each, for what may be millions of objects: a map (base/map.h) with entries of 40
 * bytes. */
#ifndef GRANARY_STORE_READ_DIGEST_MAP_H
#define GRANARY_STORE_READ_DIGEST_MAP_H

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/map.h"

struct digest_slot {
    struct digest key; /* not zero */
    int64_t value;
};

/* Starts as all zero. */
struct digest_map {
    struct map map;
};

void digest_map_release(struct digest_map *m);
#define CLEANUP_DIGEST_MAP CLEANUP(digest_map_release) struct digest_map

/* Add key, which is not zero: 1 added, 0 it was there already (and keeps its value), -ENOMEM with a
 * sentence. */
GR_MUST_CHECK int digest_map_add(struct digest_map *m, const struct digest *key, int64_t value);
/* NULL: absent. Valid until the next add. */
struct digest_slot *digest_map_find(const struct digest_map *m, const struct digest *key);
/* Every slot once, in no order: the first, for NULL, or the one behind `after`; NULL at the end. */
struct digest_slot *digest_map_next(const struct digest_map *m, const struct digest_slot *after);

#endif
