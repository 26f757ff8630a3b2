/* One cache directory: its lock, its two files, the writing of slots and records, and its health.
 * docs/reference/format-cache.md has the files. The index is elsewhere (space.h). */
#ifndef GRANARY_CACHE_DISK_CACHE_DIR_H
#define GRANARY_CACHE_DISK_CACHE_DIR_H

#include "base/buf.h"
#include "base/counter.h"
#include "cache/disk/ring.h"
#include "cache/index/space.h"

/* ---- health ---- */

/* The health of one direction (reading or writing) of one cache directory: a state machine without I/O and without a
 * clock. The caller locks.
 *
 *    state    | good            | fault             | wrong   | timeout | probe good      | probe bad
 *    normal   | -               | suspect           | suspect | down    |                 |
 *    suspect  | normal, if well | down, if the 8th  | -       | down    | normal, if well | down
 *    down     | -               | -                 | -       | -       | suspect         | probed later
 *
 * "well": the latest fault, or the return from down, is HEALTH_NORMAL_AFTER_MS ago. "the 8th": of faults in a row,
 * without a success in between. Bytes that differ from their checksum ("wrong") say that their slot is damaged, which
 * the next fill repairs; only a probe whose bytes come back wrong says that the disk is bad.
 *
 * Suspect: used as before, and probed once a second. Down: not used at all, and probed after 1 s, then at intervals
 * that double up to 30 s. The interval keeps growing when a direction goes down again before it was normal.
 */

enum {
    HEALTH_FAULTS_MAX = 8, /* faults in a row before it is down */
    HEALTH_NORMAL_AFTER_MS = 10000,
    HEALTH_PROBE_MIN_MS = 1000,
    HEALTH_PROBE_MAX_MS = 30000,
};

enum health_state { HEALTH_NORMAL, HEALTH_SUSPECT, HEALTH_DOWN };

enum health_event {
    HEALTH_GOOD,    /* it worked */
    HEALTH_FAULT,   /* it failed */
    HEALTH_WRONG,   /* the bytes differ from those written */
    HEALTH_TIMEOUT, /* no answer in time */
    HEALTH_PROBE_GOOD,
    HEALTH_PROBE_BAD,
};

/* All zero: normal. */
struct health {
    enum health_state state;
    unsigned faults;        /* in a row */
    uint64_t fault_ms;      /* time of the latest fault, or of the return from down */
    uint64_t probe_ms;      /* time of the next probe, unless normal */
    uint32_t probe_wait_ms; /* interval of probes while down; 0: it was normal since */
};

/* Note an event. true: the state has changed. */
bool health_note(struct health *h, enum health_event event, uint64_t now_ms);
/* Is a probe due? */
bool health_wants_probe(const struct health *h, uint64_t now_ms);
/* Return "normal", "suspect" or "down". */
const char *health_name(enum health_state state);

/* ---- the directory ---- */

enum cache_direction { CACHE_READING, CACHE_WRITING, CACHE_DIRECTIONS };

/* An open directory. Constant but for the health, which has a lock of its own, and atomics. */
struct cache_dir {
    char *path;
    struct cache_geometry geometry;
    enum cache_media media; /* set by the caller after opening */
    int lock_fd;
    int data_fd;                 /* O_DIRECT where the filesystem supports it */
    int record_fd;               /* uses the page cache */
    uint64_t size;               /* bytes, as configured */
    bool *yielded;               /* slabs that were not reserved at the start; NULL: all were */
    pthread_mutex_t health_lock; /* innermost */
    struct health health[CACHE_DIRECTIONS];
    _Atomic uint8_t state[CACHE_DIRECTIONS]; /* copy of health[].state, read without the lock */
    _Atomic bool deleted;                    /* its files were unlinked */
    _Atomic uint64_t resident;               /* bytes of whole images beside the slots, when last looked (resident.h) */
    _Atomic uint64_t claimed;         /* what they will have once one that is being filled is complete; 0: none is */
    _Atomic uint64_t filling, filled; /* bytes of the one that is being filled, and of these done */
    struct {                          /* how many there were when last counted (resident_count) */
        _Atomic uint64_t complete, in_use, pinned, bad;
    } residents;
    _Atomic uint32_t owed; /* 1 + a yielded slab whose room the filesystem has not got back yet; 0: none */
};

/* ---- opening (cache_dir_open.c) ---- */

/* The lock of a cache directory: one process owns the directory, and a dead owner blocks nobody.
 *
 * Take the lock of directory dir_fd (safe_dir_open), called `dir` in messages. *out_fd: close it to release the lock.
 * make: create the lock file if it is missing, else -ENOENT; without make, a directory on a read-only filesystem can
 * be locked too. -EBUSY: another process holds it (the message names its pid); -EPERM: another user could change the
 * file.
 */
GR_MUST_CHECK int cache_lock_take(int dir_fd, const char *dir, bool make, int *out_fd);
/* Write this process's pid into the lock file; call it again after a fork. */
void cache_lock_sign(int fd, const char *dir);

/* Say how many bytes a cache in that directory may take: those free on its filesystem (without root's reserve) and
 * those the cache holds already; and the filesystem's size without that reserve. Creates the directory if it is
 * missing. -EPERM: another user could have created its contents or could change them (safe_dir.h), as for
 * cache_dir_open; -EIO and the like. */
GR_MUST_CHECK int cache_dir_free_space(const char *path, uint64_t *free_space, uint64_t *total);
/* Compute a percentage of that room, in whole 4 KiB. */
GR_MUST_CHECK int cache_dir_share(const char *path, unsigned percent, uint64_t *out);

/* Open a directory: lock it (creating it if missing), reserve `size` bytes, keep its contents if its geometry can be
 * kept, else start empty. high: percent of the filesystem's use above which only slabs that hold something are
 * reserved; 0: always reserve all. -EBUSY: in use (the message names the pid); -EINVAL: bad size, or the filesystem
 * cannot reserve space; -ENOSPC; -EPERM; -EIO and the like: the disk fails, and its contents are left as they are.
 */
GR_MUST_CHECK int cache_dir_open(const char *path, uint64_t size, unsigned high, struct cache_dir **out);
struct cache_dir_order {
    const char *path;
    uint64_t size; /* bytes; 0: use percent, and report the size here */
    unsigned percent;
    unsigned high;
    void (*begin)(void); /* tests: called first by the thread that opens; NULL is allowed */
};
/* cache_dir_share and cache_dir_open, within a time. -ETIMEDOUT: the disk has not answered; a thread stays behind
 * until it does, and then closes what it opened. */
GR_MUST_CHECK int cache_dir_open_within(struct cache_dir_order *order, uint32_t timeout_ms, struct cache_dir **out);
/* Say how much of the directory's filesystem is in use by anyone, and its size, in bytes as df counts them: root's
 * reserve is not part of it. false: the filesystem does not say. */
GR_MUST_CHECK bool cache_dir_usage(const struct cache_dir *d, uint64_t *out_used, uint64_t *out_total);

/* ---- use (cache_dir.c) ---- */

/* Close the files and release the lock. NULL is allowed. */
void cache_dir_close(struct cache_dir *d);
/* Write this process's pid into the lock file. To be called again after a fork, which keeps the lock but changes the
 * pid. */
void cache_dir_sign(struct cache_dir *d);

/* Load every believable slab and record into the space. A disk that does not answer a read within timeout_ms is down
 * afterwards, and what was not read by then is not loaded. -ENOMEM. */
struct cache_load {
    struct space *space;
    struct space_load slots;
    const struct io_calls *calls;
    uint32_t timeout_ms;
};
GR_MUST_CHECK int cache_dir_load(struct cache_dir *d, unsigned number, struct cache_load *load);

/* The numbers of a directory's files in the pools of rings. */
static inline unsigned cache_data_file(unsigned dir)
{
    return dir * 2;
}
static inline unsigned cache_record_file(unsigned dir)
{
    return dir * 2 + 1;
}

enum { CACHE_FILLS_MAX = 16 /* chunks of one cache_dir_fill */ };

/* A chunk to be written into its slot. */
struct cache_fill {
    const struct space_slot *slot;
    const struct digest *digest;
    struct buf *stored;
    int rc; /* out: 0 or -errno, and then the slot holds nothing usable; -ETIMEDOUT: what was begun may still reach the
               disk; -ECANCELED: not written, since another one failed */
};

/* Write n <= CACHE_FILLS_MAX chunks into their slots of this directory and then their records, by a ring the caller
 * borrowed, without any lock. The caller holds the slots (filling or moving). */
void cache_dir_fill(const struct cache_dir *d, struct ring *ring, struct cache_fill *fills, size_t n,
                    uint64_t deadline_ms);

/* Blank a slot's record on disk, so that a restart does not find its chunk. Results as for ring_write_all. */
GR_MUST_CHECK int cache_dir_blank(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot,
                                  uint64_t deadline_ms);

/* Write the flags of a slot's record, of which only RECORD_PINNED may differ; a reader's pin holds the slot. Results
 * as for ring_write_all. */
GR_MUST_CHECK int cache_dir_write_flags(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot,
                                        uint8_t flags, uint64_t deadline_ms);

/* Give the room of a slab and its records back to the filesystem, or reserve it. Either way they read as zero
 * afterwards. No chunk of the slab may be in the index. Results as for ring_allocate_all; -ENOSPC. */
enum cache_slab_change { CACHE_PUNCH, CACHE_RESERVE };
GR_MUST_CHECK int cache_dir_change_slab(const struct cache_dir *d, struct ring *ring, unsigned number, uint32_t slab,
                                        enum cache_slab_change change, uint64_t deadline_ms);
/* Set the ranges of a slab's records and data, in that order; return the mode for fallocate. */
int cache_dir_slab_ranges(const struct cache_dir *d, unsigned number, uint32_t slab, enum cache_slab_change change,
                          struct ring_range out[2]);

/* The same for a probe. */
bool cache_dir_note_probe(struct cache_dir *d, enum cache_direction direction, int rc);
/* Is a probe due? */
bool cache_dir_wants_probe(struct cache_dir *d, enum cache_direction direction);

static inline enum health_state cache_dir_state(const struct cache_dir *d, enum cache_direction direction)
{
    return atomic_load_explicit(&d->state[direction], memory_order_relaxed);
}
/* Note the result of a read or write: 0 or -errno of the disk (-EBADMSG: a checksum did not match; -ECANCELED,
 * -EAGAIN and -ENOMEM say nothing about the disk). true: the state changed, which is logged once. Any thread. */
bool cache_dir_note_change(struct cache_dir *d, enum cache_direction direction, int rc);
static inline bool cache_dir_note(struct cache_dir *d, enum cache_direction direction, int rc)
{
    if (!rc && cache_dir_state(d, direction) == HEALTH_NORMAL)
        return false; /* the usual case, without the lock */
    return cache_dir_note_change(d, direction, rc);
}

/* May its chunks be read? */
static inline bool cache_dir_reads(const struct cache_dir *d)
{
    return cache_dir_state(d, CACHE_READING) != HEALTH_DOWN;
}
/* May chunks be written there? Chunks that cannot be read are not worth writing. */
static inline bool cache_dir_fills(const struct cache_dir *d)
{
    return cache_dir_reads(d) && cache_dir_state(d, CACHE_WRITING) != HEALTH_DOWN;
}

#endif
