/* The packs an image refers to, and how long each must at least be. */
#ifndef GRANARY_UPKEEP_PACK_SET_H
#define GRANARY_UPKEEP_PACK_SET_H

#include "base/vec.h"
#include "format/chunk.h"

struct pack_need {
    struct digest pack;
    uint64_t len; /* end of the last chunk referred to */
};

struct pack_set {
    VEC(struct pack_need) needs;
    size_t merged; /* needs[0..merged) are distinct, ascending */
};

/* Not a hole. 0 or -ENOMEM with a sentence. */
GR_MUST_CHECK int pack_set_add(struct pack_set *set, const struct chunk_ref *ref);
/* After the last add: set->needs are distinct, ascending by name. */
void pack_set_finish(struct pack_set *set);
void pack_set_release(struct pack_set *set);

#endif
