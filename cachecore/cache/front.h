/* The memory tier: whole verified chunks in anonymous memory in front of the disk cache.
 *
 * Inclusive: what is here is normally on disk too, so a restart loses nothing. A chunk is known by
 * its full digest, and the CRC-32C of every 4 KiB block that a read touches is compared at that read.
 * docs/internals/cache.md.
 */
#ifndef GRANARY_CACHE_FRONT_H
#define GRANARY_CACHE_FRONT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/digest.h"
#include "cache/policy/evict.h"

struct front;

/* Reserve `memory` bytes, chunks, checksums and index together; no page of it is touched yet, and no
 * thread is made: a fork may follow. -EINVAL: too small or too large; -ENOMEM: the kernel does not
 * give so much. */
GR_MUST_CHECK int front_new(uint64_t memory, enum evict_policy policy, struct front **out);
/* Nobody may be in a call. NULL is allowed. */
void front_free(struct front *f);

/* ---- any thread; none of them blocks for more than a lock held for a lookup ---- */

enum front_result {
    FRONT_MISS,
    FRONT_HIT,
    FRONT_HIT_TELL, /* a hit, and time that the disk heard that this chunk is in use */
};

/* Copy [offset, offset + len) of a chunk of plain_len bytes to dst, checked. FRONT_MISS: not here, of
 * another length, or it proved bad (then it is dropped and counted); dst is undefined. */
GR_MUST_CHECK enum front_result front_read(struct front *f, const struct digest *digest, uint32_t plain_len,
                                           uint32_t offset, uint32_t len, uint8_t *dst);
bool front_has(struct front *f, const struct digest *digest);
/* Would it take the chunk now? false also when it has it. */
bool front_admits(struct front *f, const struct digest *digest, uint32_t len);
/* Take a copy of a whole verified chunk. force: whatever the eviction policy thinks of it. 0: it can be
 * read now. -EAGAIN: another thread puts it just now, or all it could replace is being read; -EDQUOT:
 * what is here is worth more; -ENOMEM. No sentence. */
int front_put(struct front *f, const struct digest *digest, const uint8_t *data, uint32_t len, bool force);
/* Forget a chunk; who reads it at this moment still gets its bytes. false: it was not here. */
bool front_drop(struct front *f, const struct digest *digest);
/* Forget every chunk. */
void front_clear(struct front *f);

struct front_stats {
    uint64_t hits, hit_bytes, crc_errors, evictions, entries, used_bytes, capacity;
};
void front_stats(struct front *f, struct front_stats *out);

/* For tests: the bytes of a chunk, which may be evicted at any time; NULL: not here. */
uint8_t *front_peek(struct front *f, const struct digest *digest);
/* Asserts the invariants of every shard; walks everything: for tests too. */
void front_check(struct front *f);

#endif
