/* A trace of chunks asked for, replayed through the policies of evict.h and through the offline
 * optimum. One pool, no readers, no disk: what is fetched is in at once. */
#ifndef GRANARY_CACHE_POLICY_EVICT_SIM_H
#define GRANARY_CACHE_POLICY_EVICT_SIM_H

#include "base/vec.h"
#include "cache/policy/evict.h"

struct evict_sim_chunk {
    uint64_t key; /* of the policies: 64 evenly spread bits */
    uint32_t len; /* bytes it takes in the cache */
    uint32_t hash_next;
};

struct evict_trace {
    VEC(struct evict_sim_chunk) chunks;
    VEC(uint32_t) asks;   /* numbers of chunks */
    VEC(uint8_t) parts;   /* of each ask: how much of the chunk was wanted, in parts of EVICT_WHOLE */
    VEC(uint32_t) epochs; /* how many asks there were when each epoch but the last ended */
    uint64_t bytes;       /* of the distinct chunks */
    uint32_t *buckets;
    uint32_t bucket_count;
};

enum { EVICT_TRACE_ASKS_MAX = 1 << 30 };

/* Starts from zero. wanted: bytes of the chunk's len. -ENOMEM; -EINVAL: the chunk had another length before; -EFBIG:
 * too many. No sentence. */
GR_MUST_CHECK int evict_trace_ask(struct evict_trace *t, uint64_t key, uint32_t len, uint32_t wanted);
/* An epoch ends here, unless it is empty. -ENOMEM, no sentence. */
GR_MUST_CHECK int evict_trace_epoch(struct evict_trace *t);
void evict_trace_release(struct evict_trace *t);
/* There are as many as epochs ended, and one more if anything was asked for since. */
size_t evict_trace_epoch_count(const struct evict_trace *t);

struct evict_sim_epoch {
    uint64_t asks, hits;
};

struct evict_sim_result {
    uint64_t asks, hits, ask_bytes, hit_bytes, evictions, not_admitted;
    const char *following; /* at the end; NULL: the optimum */
    VEC(struct evict_sim_epoch) epochs;
};

/* size: bytes of the cache. -ENOMEM with a sentence. Release the result in both cases. */
GR_MUST_CHECK int evict_sim_policy(const struct evict_trace *t, uint64_t size, enum evict_policy policy,
                                   struct evict_sim_result *out);
/* What nobody can beat who does not know the future: whose next use is farthest goes, or does not come
 * in. Exact when all chunks are equally long; otherwise close to it, not always above the others. */
GR_MUST_CHECK int evict_sim_optimum(const struct evict_trace *t, uint64_t size, struct evict_sim_result *out);
void evict_sim_release(struct evict_sim_result *r);

#endif
