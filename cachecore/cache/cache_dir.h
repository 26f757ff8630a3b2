/* One cache directory: its lock, its two files, reading and writing of slots' bytes and records.
 * docs/format-cache.md. It knows no index: space.h does.
 */
#ifndef GRANARY_CACHE_CACHE_DIR_H
#define GRANARY_CACHE_CACHE_DIR_H

#include "base/buf.h"
#include "base/counter.h"
#include "cache/space.h"

struct cache_dir {
    char *path;
    struct cache_geometry geometry;
    int lock_fd;
    int data_fd;               /* O_DIRECT where the filesystem has it */
    int record_fd;             /* through the page cache */
    _Atomic uint64_t fault_ms; /* clock of the latest fault; 0: none since it was found well */
};

/* Lock the directory (made if missing), reserve `size` bytes, keep what is there if it has this very
 * geometry, else start empty. -EBUSY names the pid that holds it; -EINVAL; -ENOSPC; -EIO. */
GR_MUST_CHECK int cache_dir_open(const char *path, uint64_t size, struct cache_dir **out);
/* Unlocks. NULL is allowed. */
void cache_dir_close(struct cache_dir *d);
/* After a fork: the lock now is this process's. */
void cache_dir_sign(struct cache_dir *d);

/* Hand every believable slab and record to the space. -ENOMEM, -EIO. */
GR_MUST_CHECK int cache_dir_load(struct cache_dir *d, unsigned number, struct space *space, struct space_load *load);

/* Write a chunk into its slot and then its record; sets slot->crcs. No lock held; the slot is the
 * caller's (filling). On -errno the slot holds nothing usable. */
GR_MUST_CHECK int cache_dir_fill(struct cache_dir *d, const struct space_slot *slot, const struct digest *digest,
                                 const struct buf *plain);

/* The directory failed or worked: one log line when that is news. */
void cache_dir_fault(struct cache_dir *d, const char *what, int rc);
void cache_dir_well(struct cache_dir *d);

#endif
