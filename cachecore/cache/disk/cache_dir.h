/* One cache directory: its lock, its two files, writing of slots' bytes and records, its health.
 * docs/reference/format-cache.md. It knows no index: space.h does.
 */
#ifndef GRANARY_CACHE_DISK_CACHE_DIR_H
#define GRANARY_CACHE_DISK_CACHE_DIR_H

#include "base/buf.h"
#include "base/counter.h"
#include "cache/disk/health.h"
#include "cache/disk/ring.h"
#include "cache/index/space.h"

enum cache_way { CACHE_READING, CACHE_WRITING, CACHE_WAYS };

struct cache_dir {
    char *path;
    struct cache_geometry geometry;
    enum cache_media media; /* the opener's */
    int lock_fd;
    int data_fd;                 /* O_DIRECT where the filesystem has it */
    int record_fd;               /* through the page cache */
    uint64_t size;               /* as it was asked for */
    bool *yielded;               /* slabs that were not reserved at the start; NULL: all are */
    pthread_mutex_t health_lock; /* innermost */
    struct health health[CACHE_WAYS];
    _Atomic uint8_t state[CACHE_WAYS]; /* of health, to be looked at without the lock */
    _Atomic bool deleted;              /* its files have no name any more */
};

/* What a cache in that directory may take, in bytes: what is free on its filesystem (but for root's reserve) and what
 * the cache holds already; and the filesystem's size, without that reserve. The directory is made if missing.
 * -EPERM: another user could have made or could change what is in it (safe_dir.h), as of cache_dir_open; -EIO and the
 * like. */
GR_MUST_CHECK int cache_dir_room(const char *path, uint64_t *room, uint64_t *total);
/* Percent of that room. */
GR_MUST_CHECK int cache_dir_share(const char *path, unsigned percent, uint64_t *out);

/* high: percent of the filesystem's use above which only slabs are reserved that hold anything; 0: all
 * are, always.
 * Lock the directory (made if missing), reserve `size` bytes, keep what is there if it has this very
 * geometry, else start empty. -EBUSY names the pid that holds it; -EINVAL; -ENOSPC; -EIO and the like:
 * the disk fails, what it holds is left as it is. */
GR_MUST_CHECK int cache_dir_open(const char *path, uint64_t size, unsigned high, struct cache_dir **out);
struct cache_dir_order {
    const char *path;
    uint64_t size; /* 0: percent of the room there; set then */
    unsigned percent;
    unsigned high;
    void (*begin)(void); /* NULL is allowed: called first, by the thread that opens (tests) */
};
/* cache_dir_share and cache_dir_open within a time. -ETIMEDOUT: the disk has not answered; a thread stays behind until
 * it does. */
GR_MUST_CHECK int cache_dir_open_within(struct cache_dir_order *order, uint32_t timeout_ms, struct cache_dir **out);
/* Unlocks. NULL is allowed. */
void cache_dir_close(struct cache_dir *d);
/* After a fork: the lock now is this process's. */
void cache_dir_sign(struct cache_dir *d);

/* Hand every believable slab and record to the space, reading by calls. A disk that does not answer a read in
 * timeout_ms is down afterwards, and what was not read by then is forgotten. -ENOMEM. */
struct cache_load {
    struct space *space;
    struct space_load slots;
    const struct io_calls *calls;
    uint32_t timeout_ms;
};
GR_MUST_CHECK int cache_dir_load(struct cache_dir *d, unsigned number, struct cache_load *load);

/* The numbers of a directory's files among those of the rings. */
static inline unsigned cache_data_file(unsigned dir)
{
    return dir * 2;
}
static inline unsigned cache_record_file(unsigned dir)
{
    return dir * 2 + 1;
}

/* Write a chunk into its slot and then its record, by a ring the caller borrowed. No lock
 * held; the slot is the caller's (filling). On -errno the slot holds nothing usable; after
 * -ETIMEDOUT what was begun may still reach the disk. */
GR_MUST_CHECK int cache_dir_fill(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot,
                                 const struct digest *digest, struct buf *stored, uint64_t deadline_ms);

/* Take a slot's record off the disk, so that a restart does not know its chunk. As cache_dir_fill. */
GR_MUST_CHECK int cache_dir_blank(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot,
                                  uint64_t deadline_ms);

/* Write the flags of a pinned slot's record, of which only RECORD_PINNED may differ. As cache_dir_fill. */
GR_MUST_CHECK int cache_dir_write_flags(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot,
                                        uint8_t flags, uint64_t deadline_ms);

/* Give the room of a slab and of its records back to the filesystem, or reserve it. They are zero afterwards. No
 * chunk of it is in the index. As cache_dir_fill; -ENOSPC. */
enum cache_slab_change { CACHE_PUNCH, CACHE_RESERVE };
GR_MUST_CHECK int cache_dir_change_slab(const struct cache_dir *d, struct ring *ring, unsigned number, uint32_t slab,
                                        enum cache_slab_change change, uint64_t deadline_ms);
/* Where the records and the data of a slab are, in that order; returns the mode of fallocate. */
int cache_dir_slab_ranges(const struct cache_dir *d, unsigned number, uint32_t slab, enum cache_slab_change change,
                          struct ring_range out[2]);

/* What a read or write of the directory came to: 0, or -errno of the disk (-EBADMSG: a checksum did not
 * hold; -ECANCELED, -EAGAIN, -ENOMEM: nothing to do with it). One log line when its state changes; true
 * then. Any thread. */
bool cache_dir_note(struct cache_dir *d, enum cache_way way, int rc);
/* The same of a probe. */
bool cache_dir_note_probe(struct cache_dir *d, enum cache_way way, int rc);
bool cache_dir_wants_probe(struct cache_dir *d, enum cache_way way);

static inline enum health_state cache_dir_state(const struct cache_dir *d, enum cache_way way)
{
    return atomic_load_explicit(&d->state[way], memory_order_relaxed);
}
/* watermark.c: is the filesystem, with so many bytes more, used above `high` percent? */
bool watermark_over(const struct cache_dir *d, unsigned high, uint64_t more);

/* May its chunks be read? */
static inline bool cache_dir_reads(const struct cache_dir *d)
{
    return cache_dir_state(d, CACHE_READING) != HEALTH_DOWN;
}
/* What cannot be read is not worth writing. */
static inline bool cache_dir_fills(const struct cache_dir *d)
{
    return cache_dir_reads(d) && cache_dir_state(d, CACHE_WRITING) != HEALTH_DOWN;
}

#endif
