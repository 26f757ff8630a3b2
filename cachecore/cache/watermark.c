/* A cache that shares its filesystem with others. When the filesystem's use, by anyone, passes the high mark, slabs
 * are given back to it until the low mark; below that they are reserved again. The budget is the most the cache ever
 * has.
 *
 *    use of the filesystem:   0 ...... low ............ high ...... 100 %
 *                             reserve |   do nothing   | give back
 *
 * A slab that is given back is *yielded*: emptied under cache.lock, and owned by nobody from then on, so that holes
 * can be punched into its data and its records without the lock. No record of it can be believed afterwards, in this
 * run or the next. Nothing is waited for: slabs that are being read or written, and slabs with index nodes or pins,
 * are skipped.
 *
 * At the start a directory that would pass the high mark reserves only the slabs that hold anything.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/log.h"
#include "cache/cache_internal.h"

enum { SLABS_A_TICK = 64 }; /* given back or reserved in one call: the disk monitor has other work */

struct usage {
    uint64_t used, total; /* bytes, as df counts them: root's reserve is not part of total */
};

static bool watermark_look(const struct cache_dir *d, struct usage *out)
{
    struct statvfs fs;
    if (fstatvfs(d->record_fd, &fs))
        return false;
    out->used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
    out->total = out->used + (uint64_t)fs.f_bavail * fs.f_frsize;
    return true;
}

static uint64_t percent_of(uint64_t total, unsigned percent)
{
    return total / 100 * percent;
}

bool watermark_over(const struct cache_dir *d, unsigned high, uint64_t more)
{
    struct usage u;
    return watermark_look(d, &u) && u.used + more > percent_of(u.total, high);
}

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

/* Give one slab back. false: no slab can be given, or the disk refused. */
static bool yield_one(struct cache *c, unsigned dir)
{
    uint32_t slab;
    bool first;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        first = !c->space.dirs[dir].yielded;
        slab = space_yield(&c->space, dir);
    }
    if (slab == SPACE_NONE)
        return false;
    if (first)
        log_warning("cache: %s: its filesystem is short of space; giving some back", c->dirs[dir]->path);
    return !change_slab(c, dir, slab, CACHE_PUNCH);
}

/* Reserve one yielded slab again. The space gets it only after its room is reserved, so a fill never lacks room. */
static bool regain_one(struct cache *c, unsigned dir)
{
    uint32_t slab;
    bool last;
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

/* Estimates the filesystem's use as slabs come and go; the next call measures it again. */
void watermark_apply(struct cache *c, unsigned dir, const struct watermark *marks, uint64_t used, uint64_t total)
{
    uint64_t slab = c->dirs[dir]->geometry.slab_size, whole = slab + slab / CACHE_REGION_SHARE;
    uint64_t low = percent_of(total, marks->low);
    if (used > percent_of(total, marks->high))
        for (unsigned n = 0; used > low && n < SLABS_A_TICK && yield_one(c, dir); n++)
            used -= GR_MIN(used, whole);
    else
        for (unsigned n = 0; used + whole <= low && n < SLABS_A_TICK && regain_one(c, dir); n++)
            used += whole;
}

void watermark_keep(struct cache *c, unsigned dir)
{
    struct usage u;
    if (c->watermark.high && watermark_look(c->dirs[dir], &u))
        watermark_apply(c, dir, &c->watermark, u.used, u.total);
}
