/* Room for whole images within the budget of a directory. The disk monitor gives slabs back, once a second, for what is
 * there and what is claimed (residents_apply); nothing is written before it has given enough, so the budget holds at
 * every moment. */
#include <errno.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "cache/cache_internal.h"
#include "cache/resident.h"

enum { LOOK_US = 100000, STUCK_MS = 30000 /* without a slab given back in that time, none will be */ };

static uint64_t most_of(const struct cache_dir *d)
{
    return d->geometry.budget / 100 * RESIDENT_SHARE_PERCENT;
}

/* Find the first healthy fast directory whose files can be mounted; one that is large enough for the image comes before
 * the others. -ENODEV; -ENOTSUP: only those whose files cannot be mounted. */
static int choose(struct cache *c, uint64_t size, unsigned *out)
{
    bool found = false;
    int unfit = 0;
    for (unsigned i = 0; i < c->dir_count; i++) {
        const struct cache_dir *d = c->dirs[i];
        if (d->media == CACHE_MEDIA_HDD || !cache_dir_fills(d))
            continue;
        int rc = resident_check_place(d->path);
        if (rc) {
            unfit = rc;
            continue;
        }
        bool fits = most_of(d) >= size;
        if (fits || !found)
            *out = i;
        found = true;
        if (fits)
            return 0;
    }
    if (!found && !unfit)
        return error_set(-ENODEV, "this server keeps nothing on a fast disk; give --cache DIR:SIZE");
    return found ? 0 : unfit;
}

static int say_small(const struct cache_dir *d, uint64_t size, uint64_t others)
{
    char image[TEXT_SIZE_MAX], most[TEXT_SIZE_MAX], used[TEXT_SIZE_MAX];
    return error_set(
        -ENOSPC,
        "%s has no room for the whole image of %s: of its budget whole images may take %s, and those in use or pinned "
        "take %s; give a larger cache, or umount or unpin them",
        d->path, text_format_size(size, image), text_format_size(most_of(d), most), text_format_size(others, used));
}

/* Wait until the monitor has given back what was claimed. */
static int wait_for_slabs(struct cache *c, unsigned dir, const volatile int *cancel)
{
    uint32_t before = 0;
    uint64_t since = clock_now_ms();
    for (;;) {
        uint32_t yielded;
        if (residents_given(c, dir, &yielded))
            return 0;
        if (yielded != before)
            since = clock_now_ms();
        before = yielded;
        if (clock_now_ms() - since > STUCK_MS)
            return error_set(-ENOSPC,
                             "%s: pinned chunks and index nodes leave too little room for the whole image; unpin some, "
                             "or give a larger cache",
                             c->dirs[dir]->path);
        if (!cancel_sleep_until(clock_now_us() + LOOK_US, cancel))
            return cancel_check(cancel);
    }
}

int cache_resident_begin(struct cache *c, const struct resident_id *id, const volatile int *cancel,
                         const char **out_dir)
{
    unsigned dir = 0;
    uint64_t left = 0, none = 0;
    int rc = choose(c, id->size, &dir);
    if (rc)
        return rc;
    struct cache_dir *d = c->dirs[dir];
    if (most_of(d) < id->size)
        return say_small(d, id->size, 0);
    char path[PATH_MAX];
    CLEANUP_FD int there = -1;
    rc = resident_open(d->path, id, path, &there);
    *out_dir = d->path;
    if (rc != -ENOENT && rc != -EBADMSG) /* -EBADMSG: it is out of use now */
        return rc ? rc : -EEXIST;
    if (!atomic_compare_exchange_strong(&d->claimed, &none, 1))
        return error_set(-EBUSY, "%s: another image is being written there; try again when it is complete", d->path);
    rc = resident_make_room(d->path, most_of(d) - id->size, &id->content_root, &left);
    if (!rc && left > most_of(d) - id->size)
        rc = say_small(d, id->size, left);
    if (!rc) {
        atomic_store(&d->claimed, left + id->size);
        rc = wait_for_slabs(c, dir, cancel);
    }
    if (rc)
        atomic_store(&d->claimed, 0);
    else
        atomic_store(&d->filling, id->size);
    return rc;
}

static struct cache_dir *dir_of(struct cache *c, const char *path)
{
    for (size_t i = 0; i < c->dir_count; i++)
        if (c->dirs[i]->path == path)
            return c->dirs[i];
    return NULL;
}

void cache_resident_done(struct cache *c, const char *dir, uint64_t done)
{
    struct cache_dir *d = dir_of(c, dir);
    if (d)
        atomic_store(&d->filled, done);
}

void cache_resident_end(struct cache *c, const char *dir)
{
    struct cache_dir *d = dir_of(c, dir);
    if (!d)
        return;
    atomic_store(&d->resident, resident_bytes(dir)); /* or its slabs would be taken back meanwhile */
    atomic_store(&d->filling, 0);
    atomic_store(&d->filled, 0);
    atomic_store(&d->claimed, 0);
}
