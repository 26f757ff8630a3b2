/* Reading the pinned slots of a lookup from their disks, checked, within a time. Only cache_read.c
 * includes it.
 */
#ifndef GRANARY_CACHE_HIT_H
#define GRANARY_CACHE_HIT_H

#include "cache/cache.h"
#include "cache/index/space.h"

struct hit {
    const struct cache_piece *piece;
    struct space_slot slot; /* pinned for as long as it is read */
    int rc;                 /* out: 0 when piece->dst has the bytes */
    uint8_t *record;        /* hit.c's own, like the next */
    uint8_t *packed;
};

/* Read all n hits, in at most *left_ms, from which the time taken is subtracted. Each gets its own rc:
 * -ETIMEDOUT: late, and its directory has been told; -ECANCELED: not read, nothing is known against
 * disk or chunk (no memory, no time left, its directory is down by now); -EBADMSG: it proved bad; else
 * -errno of the disk. No sentence. Notes nothing else and gives no pin back. */
void hit_read_all(struct cache *c, struct hit *hits, size_t n, uint64_t *left_ms);

#endif
