/* Records of chunks that were hit lately, kept in memory: a hit whose record is here reads one place of the disk, not
 * two.
 *
 * What is kept are the bytes of the record as they stand on disk. The reader checks them in the same way, wherever they
 * come from: their own CRC covers slot, binding and cache, and the digest is compared. So a record that is out of
 * date, because its slot has another chunk by now, is no match.
 *
 * The oldest record leaves for a new one. Any thread; a lock is held only while a record is copied.
 */
#ifndef GRANARY_CACHE_RECORD_MEMORY_H
#define GRANARY_CACHE_RECORD_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"

struct record_memory;

enum {
    RECORD_MEMORY_SHARE = 512, /* a cache keeps records in its capacity divided by this, rounded up to a power of 2 */
    RECORD_MEMORY_MAX = 32 << 20,  /* but in no more than these bytes */
    RECORD_MEMORY_MIN = 128 << 10, /* and in no less */
};

/* Make it for a cache of `capacity` bytes. -ENOMEM with a message. */
GR_MUST_CHECK int record_memory_new(uint64_t capacity, struct record_memory **out);
/* NULL is allowed. */
void record_memory_free(struct record_memory *m);

/* Copy the record of the chunk, `len` bytes, to out. false: it is not here, or has another length. The caller checks
 * it as one from disk. */
bool record_memory_get(struct record_memory *m, const struct digest *digest, uint8_t *out, uint32_t len);
/* Keep a copy of a record, in place of an earlier one of the chunk; len <= CACHE_RECORD_MAX. */
void record_memory_put(struct record_memory *m, const struct digest *digest, const uint8_t *record, uint32_t len);

/* Forget the chunk's record. */
void record_memory_forget(struct record_memory *m, const struct digest *digest);

/* Return the bytes of records kept now; the rest of what was reserved was never touched, and takes no memory. 0 for
 * NULL. */
uint64_t record_memory_used(struct record_memory *m);

#endif
