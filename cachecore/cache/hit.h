/* Read the pinned slots of a lookup from their disks, verified, within a deadline. Private to cache_read.c. */
#ifndef GRANARY_CACHE_HIT_H
#define GRANARY_CACHE_HIT_H

#include "cache/cache.h"
#include "cache/index/space.h"

/* One piece found on disk. */
struct hit {
    const struct cache_piece *piece;
    struct space_slot slot; /* pinned by the caller while it is read */
    int rc;                 /* out: 0 when piece->dst has the bytes */
    uint8_t *record;        /* private to hit.c: the slot's record in the ring's buffer */
    uint8_t *packed;        /* private to hit.c: the compressed chunk; NULL: not compressed */
};

/* Read all n hits in at most *left_ms, and subtract the time taken from it. Each hit gets its own rc: 0; -ETIMEDOUT:
 * late, and the directory's health has been told; -ECANCELED: not read, which says nothing about disk or chunk (no
 * memory, no time left, or the directory is down by now); -EBADMSG: the bytes differ from their record; else -errno
 * of the disk. No message. Notes no other result, and releases no pin.
 */
void hit_read_all(struct cache *c, struct hit *hits, size_t n, uint64_t *left_ms);

#endif
