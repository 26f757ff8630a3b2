/* Replay a trace of reads through the policies of evict.h, and through the offline optimum: `granary cache simulate`.
 * One pool, no concurrent readers, no disk: a missed chunk is cached at once. */
#ifndef GRANARY_CACHE_POLICY_EVICT_SIM_H
#define GRANARY_CACHE_POLICY_EVICT_SIM_H

#include "base/vec.h"
#include "cache/policy/evict.h"

/* A distinct chunk of a trace. */
struct evict_sim_chunk {
    uint64_t key;       /* as in evict.h */
    uint32_t len;       /* bytes it occupies in the cache */
    uint32_t hash_next; /* number of the next chunk in its bucket */
};

/* The reads, in order. All zero: empty. */
struct evict_trace {
    VEC(struct evict_sim_chunk) chunks;
    VEC(uint32_t) asks;   /* chunk numbers, one per read */
    VEC(uint8_t) parts;   /* how much of the chunk each read needed (evict_part) */
    VEC(uint32_t) epochs; /* the number of reads at the end of each epoch but the last */
    uint64_t bytes;       /* total of the distinct chunks */
    uint32_t *buckets;
    uint32_t bucket_count;
};

enum { EVICT_TRACE_ASKS_MAX = 1 << 30 };

/* Append a read of `wanted` bytes of a chunk of len bytes. -ENOMEM; without a sentence: -EINVAL: the chunk had another
 * length before; -EFBIG: too many reads. */
GR_MUST_CHECK int evict_trace_ask(struct evict_trace *t, uint64_t key, uint32_t len, uint32_t wanted);
/* End an epoch, unless it has no reads. -ENOMEM. */
GR_MUST_CHECK int evict_trace_epoch(struct evict_trace *t);
void evict_trace_release(struct evict_trace *t);
/* Return the number of epochs: those that were ended, and one more if reads follow. */
size_t evict_trace_epoch_count(const struct evict_trace *t);

/* The reads of one epoch, and how many were hits. */
struct evict_sim_epoch {
    uint64_t asks, hits;
};

/* What a replay came to. Released by evict_sim_release. */
struct evict_sim_result {
    uint64_t asks, hits, ask_bytes, hit_bytes, evictions, not_admitted;
    const char *following; /* the policy in effect at the end; NULL for the optimum */
    VEC(struct evict_sim_epoch) epochs;
};

/* Replay the trace through a policy with a cache of `size` bytes. -ENOMEM with a sentence. Release *out in both cases.
 */
GR_MUST_CHECK int evict_sim_policy(const struct evict_trace *t, uint64_t size, enum evict_policy policy,
                                   struct evict_sim_result *out);
/* Replay the trace through the offline optimum (Belady), the bound for every policy: it evicts, or does not admit, the
 * chunk whose next read is farthest in the future. Exact if all chunks have the same length; otherwise close to the
 * optimum, and not always above every policy. */
GR_MUST_CHECK int evict_sim_optimum(const struct evict_trace *t, uint64_t size, struct evict_sim_result *out);
void evict_sim_release(struct evict_sim_result *r);

#endif
