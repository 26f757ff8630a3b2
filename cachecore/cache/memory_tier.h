/* The memory tier: whole verified chunks in anonymous memory, in front of the disk cache, which normally has them too.
 * A chunk is found by its full digest, and a read compares the CRC-32C of every 4 KiB block that it touches. Fill
 * threads put fetched chunks here, readers those that they read whole from disk, and the mover those that were hit in
 * parts. */
#ifndef GRANARY_CACHE_MEMORY_TIER_H
#define GRANARY_CACHE_MEMORY_TIER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"
#include "cache/policy/evict.h"

struct memory_tier;

/* Reserve `memory` bytes for chunks, checksums and index together. No page is touched and no thread is started, so a
 * fork may follow. -EINVAL: too small or too large; -ENOMEM: the kernel does not grant that much. */
GR_MUST_CHECK int memory_tier_new(uint64_t memory, enum evict_policy policy, struct memory_tier **out);
/* Free it. No other call may be running. NULL is allowed. */
void memory_tier_free(struct memory_tier *f);

/* ---- any thread; none blocks for longer than a lookup holds a lock ---- */

enum memory_tier_result {
    MEMORY_TIER_MISS,
    MEMORY_TIER_HIT,
    MEMORY_TIER_HIT_TELL, /* a hit, and the disk cache should be told that this chunk is in use */
};

/* Copy bytes [offset, offset + len) of a chunk of plain_len bytes to dst, verified. MEMORY_TIER_MISS: it is not here,
 * has another length, or proved bad (then it is dropped and counted); dst is undefined. */
GR_MUST_CHECK enum memory_tier_result memory_tier_read(struct memory_tier *f, const struct digest *digest,
                                                       uint32_t plain_len, uint32_t offset, uint32_t len, uint8_t *dst);
/* Is the chunk here? f NULL: no. */
bool memory_tier_has(struct memory_tier *f, const struct digest *digest);
/* Would the tier take the chunk now? Also false when it has it already. */
bool memory_tier_admits(struct memory_tier *f, const struct digest *digest, uint32_t len);
/* Put a copy of a whole verified chunk into memory. force: overrule the eviction policy. 0: it can be read now.
 * -EAGAIN: another thread is putting it right now, or all it could replace is being read; -EDQUOT: what is here is
 * worth more; -ENOMEM. No message. */
int memory_tier_put(struct memory_tier *f, const struct digest *digest, const uint8_t *data, uint32_t len, bool force);
/* Drop a chunk; current readers still get its bytes. false: it was not here. f NULL: there is no tier. */
bool memory_tier_drop(struct memory_tier *f, const struct digest *digest);
/* Drop every chunk. f NULL: there is no tier. */
void memory_tier_clear(struct memory_tier *f);

struct memory_tier_stats {
    uint64_t hits, hit_bytes, crc_errors, evictions, entries, used_bytes, capacity;
};
void memory_tier_stats(struct memory_tier *f, struct memory_tier_stats *out);

/* For tests: return the bytes of a chunk, which may be evicted at any time; NULL: not here. */
uint8_t *memory_tier_peek(struct memory_tier *f, const struct digest *digest);
/* Assert the invariants of every shard. Walks everything: for tests. */
void memory_tier_check(struct memory_tier *f);

#endif
