/* The packs that an image refers to, and the least length that each must have. */
#ifndef GRANARY_UPKEEP_PACK_SET_H
#define GRANARY_UPKEEP_PACK_SET_H

#include "base/vec.h"
#include "format/chunk.h"

/* A pack. */
struct pack_need {
    struct digest pack;
    uint64_t len; /* end of the last chunk that the image uses */
};

/* Starts as all zero; released by pack_set_release. */
struct pack_set {
    VEC(struct pack_need) needs;
    size_t merged; /* needs[0..merged) are distinct and ascend */
};

/* Add a chunk's pack; ref is not a hole. -ENOMEM. */
GR_MUST_CHECK int pack_set_add(struct pack_set *set, const struct chunk_ref *ref);
/* Finish, after the last add: set->needs are then distinct and ascend by name. */
void pack_set_finish(struct pack_set *set);
void pack_set_release(struct pack_set *set);

#endif
