/* The housekeeping thread. Once a second it does this:
 *
 *    free the rings whose disk has answered after all
 *    take directories out of use whose readers are stuck in the kernel
 *    probe the directories that are not normal (cache_dir.h says when)
 *    notice files that were deleted, and filesystems that are too full
 *
 * While all disks are well it finds nothing to do.
 *
 * A probe writes the block reserved for it after the slots, and reads it back when reading is not normal, each with
 * the deadline of a read. While the kernel still owes answers for a directory, only a few probes are tried: each
 * would leave another ring behind. When all answers have come, the directory is probed at once. Writing does not come
 * back before that: a late write must not meet a new one in its slot.
 *
 * A cache may share its filesystem with others (watermarks). When the filesystem's use, by anyone, passes the high
 * mark, slabs are given back to it until the low mark; below that they are reserved again. The budget is the most the
 * cache ever has.
 *
 *    use of the filesystem:   0 ...... low ............ high ...... 100 %
 *                             reserve |   do nothing   | give back
 *
 * A slab that is given back is *yielded*: emptied under cache.lock, and owned by nobody from then on, so that holes
 * can be punched into its data and its records without the lock. No record of it can be believed afterwards, in this
 * run or the next. Nothing is waited for: slabs that are being read or written, and slabs with index nodes or pins,
 * are skipped.
 *
 * Whole images beside the slots (resident.h) are part of the budget: as many slabs are yielded as they take, whatever
 * the watermarks say.
 *
 * At the start a directory that would pass the high mark reserves only the slabs that hold anything.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/pages.h"
#include "base/thread.h"
#include "cache/cache_internal.h"
#include "cache/resident.h"

enum {
    TICK_MS = 1000,
    TRIM_TICKS = 5,
    COUNT_TICKS = 10,
    UNHEARD_MAX = 4,   /* probes without an answer, while the kernel owes some */
    SLABS_A_TICK = 64, /* given back or reserved in one call: the thread has other work */
};

/* ---- probing ---- */

/* Write the probe block. 0, -errno of the disk, or -EAGAIN: no ring came free. */
static int write_probe(struct cache *c, unsigned dir)
{
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + c->disk_timeout_ms);
    if (!ring)
        return -EAGAIN;
    const struct cache_geometry *g = &c->dirs[dir]->geometry;
    cache_meta_probe_encode(g, ring_bounce(ring));
    struct ring_write probe = {cache_data_file(dir), cache_geometry_data_size(g), CACHE_META_PROBE_SIZE,
                               ring_bounce(ring)};
    int rc = ring_write_all(ring, &probe, 1, clock_now_ms() + c->disk_timeout_ms);
    rings_return(ring);
    return rc;
}

/* Read the probe block and compare it. -EBADMSG: other bytes came than were written. */
static int read_probe(struct cache *c, unsigned dir)
{
    uint8_t expected[CACHE_META_PROBE_SIZE];
    /* A writer's ring hands over asynchronously, so that this thread never gets stuck in the kernel. */
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + c->disk_timeout_ms);
    if (!ring)
        return -EAGAIN;
    const struct cache_geometry *g = &c->dirs[dir]->geometry;
    struct ring_read probe = {.file = cache_data_file(dir),
                              .off = cache_geometry_data_size(g),
                              .len = CACHE_META_PROBE_SIZE,
                              .buf = ring_bounce(ring)};
    cache_meta_probe_encode(g, expected);
    ring_read_all(ring, &probe, 1, clock_now_ms() + c->disk_timeout_ms);
    if (!probe.rc && memcmp(probe.buf, expected, sizeof expected) != 0)
        probe.rc = -EBADMSG;
    rings_return(ring);
    return probe.rc;
}

/* Note the result of a probe. For a direction that is normal it counts as any other read or write. true: the state
 * changed. */
static bool note_result(struct cache_dir *d, enum cache_direction direction, int rc)
{
    if (rc == -EAGAIN || rc == -ECANCELED || rc == -ENOMEM)
        return false;
    return cache_dir_state(d, direction) == HEALTH_NORMAL ? cache_dir_note(d, direction, rc)
                                                          : cache_dir_note_probe(d, direction, rc);
}

/* Writes for which the kernel still owes an answer. */
static unsigned lost_writes(struct cache *c, unsigned dir)
{
    return rings_lost(c->writers, cache_data_file(dir)) + rings_lost(c->writers, cache_record_file(dir));
}

/* Reads for which the kernel still owes an answer. */
static unsigned lost_reads(struct cache *c, unsigned dir)
{
    return rings_lost(c->readers, cache_data_file(dir)) + rings_lost(c->readers, cache_record_file(dir));
}

/* Probe writing, and reading if it is not normal. A good write does not count while late writes are still in flight. */
static void probe_dir(struct cache *c, unsigned dir)
{
    struct cache_dir *d = c->dirs[dir];
    bool late_writes = lost_writes(c, dir) > 0;
    int written = write_probe(c, dir);
    bool changed = false;
    if (written || !late_writes)
        changed = note_result(d, CACHE_WRITING, written);
    c->disk_monitor.dirs[dir].unheard += written == -ETIMEDOUT;
    if (cache_dir_state(d, CACHE_READING) != HEALTH_NORMAL) {
        int seen = read_probe(c, dir);
        c->disk_monitor.dirs[dir].unheard += seen == -ETIMEDOUT;
        changed |= note_result(d, CACHE_READING, seen);
    }
    if (changed)
        cache_dir_changed(c, dir);
}

static bool is_normal(const struct cache_dir *d)
{
    return cache_dir_state(d, CACHE_READING) == HEALTH_NORMAL && cache_dir_state(d, CACHE_WRITING) == HEALTH_NORMAL;
}

/* Probe a directory that is not normal, when a probe is due or when its disk has just answered everything. */
static void look_at_health(struct cache *c, unsigned dir)
{
    struct cache_dir *d = c->dirs[dir];
    struct disk_monitor *j = &c->disk_monitor;
    bool lost = lost_reads(c, dir) + lost_writes(c, dir) > 0;
    bool answered = j->dirs[dir].lost && !lost;
    j->dirs[dir].lost = lost;
    if (!lost)
        j->dirs[dir].unheard = 0;
    if (is_normal(d))
        return;
    bool due = cache_dir_wants_probe(d, CACHE_READING) || cache_dir_wants_probe(d, CACHE_WRITING);
    if (answered || (due && j->dirs[dir].unheard < UNHEARD_MAX))
        probe_dir(c, dir);
}

/* ---- watermarks ---- */

/* Punch or reserve a slab on disk, without cache.lock, with the deadline of a write. A full filesystem says nothing
 * about the disk's health. */
static int change_slab(struct cache *c, unsigned dir, uint32_t slab, enum cache_slab_change change)
{
    uint64_t deadline_ms = clock_now_ms() + (uint64_t)c->disk_timeout_ms * WRITE_TIMEOUT_FACTOR;
    struct ring *ring = rings_borrow(c->writers, deadline_ms);
    if (!ring)
        return -EAGAIN;
    int rc = cache_dir_change_slab(c->dirs[dir], ring, dir, slab, change, deadline_ms);
    if (rc != -ENOSPC)
        cache_note(c, dir, CACHE_WRITING, rc); /* before the ring is returned */
    rings_return(ring);
    return rc;
}

/* Punch the slab that was yielded last, if that is not done. false: the disk refused; this slab is tried again before
 * any other is yielded or regained. */
static bool punch_owed(struct cache *c, unsigned dir)
{
    uint32_t owed = atomic_load(&c->dirs[dir]->owed);
    if (owed && change_slab(c, dir, owed - 1, CACHE_PUNCH))
        return false;
    atomic_store(&c->dirs[dir]->owed, 0);
    return true;
}

/* Give one slab back; why: for the log. false: no slab can be given, or the disk refused. */
static bool yield_one(struct cache *c, unsigned dir, const char *why)
{
    uint32_t slab;
    bool first;
    if (!punch_owed(c, dir))
        return false;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        first = !c->space.dirs[dir].yielded;
        slab = space_yield(&c->space, dir);
        if (slab != SPACE_NONE)
            atomic_store(&c->dirs[dir]->owed, slab + 1); /* before residents_given counts it */
    }
    if (slab == SPACE_NONE)
        return false;
    if (first)
        log_warning("cache: %s: %s; giving some of its slots back", c->dirs[dir]->path, why);
    return punch_owed(c, dir);
}

/* Reserve one yielded slab again. The space gets it only after its room is reserved, so a fill never lacks room. */
static bool regain_one(struct cache *c, unsigned dir)
{
    uint32_t slab;
    bool last;
    if (!punch_owed(c, dir))
        return false;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        slab = space_yielded(&c->space, dir);
    }
    if (slab == SPACE_NONE)
        return false;
    if (change_slab(c, dir, slab, CACHE_RESERVE))
        return false;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        space_regain(&c->space, dir, slab);
        last = !c->space.dirs[dir].yielded;
        pthread_cond_broadcast(&c->changed);
    }
    if (last)
        log_info("cache: %s: has all its space again", c->dirs[dir]->path);
    return true;
}

/* Bytes on disk of a slab and its records. */
static uint64_t slab_bytes(const struct cache_dir *d)
{
    uint64_t slab = d->geometry.slab_size;
    return slab + slab / CACHE_REGION_SHARE;
}

/* How many slabs the directory goes without for the whole images beside them. */
static uint32_t slabs_for_residents(const struct cache_dir *d)
{
    uint64_t whole = slab_bytes(d);
    uint64_t bytes = GR_MAX(atomic_load(&d->resident), atomic_load(&d->claimed));
    return (uint32_t)GR_MIN((bytes + whole - 1) / whole, (uint64_t)d->geometry.slab_count);
}

static uint32_t yielded_now(struct cache *c, unsigned dir)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    return c->space.dirs[dir].yielded;
}

void residents_apply(struct cache *c, unsigned dir)
{
    if (!punch_owed(c, dir))
        return;
    bool *gave = &c->disk_monitor.dirs[dir].gave;
    uint32_t wanted = slabs_for_residents(c->dirs[dir]);
    *gave = wanted || (*gave && yielded_now(c, dir));
    for (unsigned n = 0; yielded_now(c, dir) < wanted && n < SLABS_A_TICK; n++)
        if (!yield_one(c, dir, "whole images are kept beside its slots"))
            break;
    for (unsigned n = 0; *gave && !c->watermark.high && yielded_now(c, dir) > wanted && n < SLABS_A_TICK; n++)
        if (!regain_one(c, dir))
            break;
}

bool residents_given(struct cache *c, unsigned dir, uint32_t *out_yielded)
{
    *out_yielded = yielded_now(c, dir);
    *out_yielded -= atomic_load(&c->dirs[dir]->owed) && *out_yielded; /* its room is not there yet */
    return *out_yielded >= slabs_for_residents(c->dirs[dir]);
}

/* Estimates the filesystem's use as slabs come and go; the next call measures it again. */
void watermark_apply(struct cache *c, unsigned dir, const struct watermark *marks, uint64_t used, uint64_t total)
{
    uint64_t whole = slab_bytes(c->dirs[dir]);
    uint64_t low = total / 100 * marks->low;
    if (used > total / 100 * marks->high)
        for (unsigned n = 0; used > low && n < SLABS_A_TICK && yield_one(c, dir, "its filesystem is short of space");
             n++)
            used -= GR_MIN(used, whole);
    else
        for (unsigned n = 0; used + whole <= low && n < SLABS_A_TICK &&
                             yielded_now(c, dir) > slabs_for_residents(c->dirs[dir]) && regain_one(c, dir);
             n++)
            used += whole;
}

/* ---- other checks, and the loop ---- */

/* Report the timeouts of readers that are stuck in the kernel and cannot report them themselves. */
static void look_for_overdue(struct cache *c)
{
    uint32_t files = rings_overdue(c->readers, clock_now_ms());
    for (unsigned i = 0; files && i < c->dir_count; i++)
        if (files & (UINT32_C(1) << cache_data_file(i) | UINT32_C(1) << cache_record_file(i)))
            cache_note(c, i, CACHE_READING, -ETIMEDOUT);
}

/* Warn once when the files of a directory have been deleted. */
static void look_for_names(struct cache_dir *d)
{
    struct stat data, records;
    if (!is_normal(d) || atomic_load(&d->deleted) || fstat(d->data_fd, &data) || fstat(d->record_fd, &records) ||
        (data.st_nlink && records.st_nlink))
        return;
    atomic_store(&d->deleted, true);
    log_warning("cache: %s: its files were deleted; they are used until this server ends, and take their space until "
                "then",
                d->path);
}

/* Measure the whole images again: any process may remove some. Only where there were any, which only a fill changes:
 * listing a directory of a disk that hangs might not return. Counting opens each of them, so it is not done each time.
 */
static void look_for_residents(struct cache *c, unsigned dir, bool count)
{
    struct cache_dir *d = c->dirs[dir];
    uint64_t *seen = &c->disk_monitor.dirs[dir].resident, bytes = 0;
    if (atomic_load(&d->resident))
        atomic_store(&d->resident, bytes = resident_bytes(d->path));
    if (!(count && bytes) && bytes == *seen)
        return;
    *seen = bytes;
    const struct resident_counts n = bytes ? resident_count(d->path) : (struct resident_counts){0};
    atomic_store(&d->residents.complete, n.complete);
    atomic_store(&d->residents.in_use, n.in_use);
    atomic_store(&d->residents.pinned, n.pinned);
    atomic_store(&d->residents.bad, n.bad);
}

/* Sleep until the next tick. false: the thread is to stop. */
static bool sleep_a_tick(struct disk_monitor *j)
{
    struct timespec until = clock_at_ms(clock_now_ms() + TICK_MS);
    SCOPED_LOCK(&j->lock);
    while (!j->stopping && pthread_cond_timedwait(&j->wake, &j->lock, &until) != ETIMEDOUT) {
    }
    return !j->stopping;
}

/* The loop: one round a second, until the cache closes. */
static void *keep_house(void *arg)
{
    struct cache *c = arg;
    for (unsigned ticks = 1; sleep_a_tick(&c->disk_monitor); ticks++) {
        rings_reap(c->readers);
        rings_reap(c->writers);
        look_for_overdue(c);
        if (ticks % TRIM_TICKS == 0) {
            rings_trim(c->readers);
            rings_trim(c->writers);
            pages_trim();
        }
        for (unsigned i = 0; i < c->dir_count; i++) {
            look_at_health(c, i);
            look_for_names(c->dirs[i]);
            uint64_t used, total;
            if (is_normal(c->dirs[i]) && !lost_writes(c, i)) {
                look_for_residents(c, i, ticks % COUNT_TICKS == 0);
                residents_apply(c, i);
            }
            if (c->watermark.high && is_normal(c->dirs[i]) && !lost_writes(c, i) &&
                cache_dir_usage(c->dirs[i], &used, &total))
                watermark_apply(c, i, &c->watermark, used, total);
        }
    }
    return NULL;
}

void disk_monitor_init(struct disk_monitor *j)
{
    pthread_mutex_init(&j->lock, NULL);
    thread_cond_init(&j->wake);
}

void disk_monitor_release(struct disk_monitor *j)
{
    pthread_cond_destroy(&j->wake);
    pthread_mutex_destroy(&j->lock);
}

int disk_monitor_start(struct cache *c)
{
    if (!c->dir_count)
        return 0;
    int rc = thread_start(&c->disk_monitor.thread, keep_house, c);
    c->disk_monitor.started = rc == 0;
    return rc ? error_prefix(rc, "cache") : 0;
}

void disk_monitor_tell_to_stop(struct disk_monitor *j)
{
    SCOPED_LOCK(&j->lock);
    j->stopping = true;
    pthread_cond_signal(&j->wake);
}

void disk_monitor_stop(struct disk_monitor *j)
{
    disk_monitor_tell_to_stop(j);
    if (j->started)
        pthread_join(j->thread, NULL);
    j->started = false;
}
