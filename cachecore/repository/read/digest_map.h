/* A map from digests to numbers, for up to millions of objects: base/map.h with slots of 40 bytes. Used by one thread
 * at a time. */
#ifndef GRANARY_REPOSITORY_READ_DIGEST_MAP_H
#define GRANARY_REPOSITORY_READ_DIGEST_MAP_H

#include "base/cleanup.h"
#include "base/digest.h"
#include "base/map.h"

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
