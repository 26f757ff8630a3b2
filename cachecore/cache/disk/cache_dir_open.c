/* Opening a cache directory, within a time: its disk may hang.
 *
 *    lock      pid of the owner, for messages only; flock'ed: the kernel releases it when its owner dies
 *    data      slabs of slots, then the probe block
 *    records   header, regions of records, slab table
 *
 * Both data and records are reserved by fallocate when the directory is opened, so a fill never makes a file grow,
 * and the budget holds at every moment. (With watermarks some slabs may be without their room; no fill goes there:
 * disk_monitor.c.)
 *
 *    found there                    what is done
 *    nothing, or another version,   start empty: reserve, write a new header with a random id
 *    or damaged, or a poor fit
 *    this geometry                  keep it
 *    another budget, same slabs     resize: the slab table moves, slabs beyond the new end go
 *    a read error                   fail: the disk may work tomorrow, so nothing is changed
 *
 * A thread opens the directory, and is left behind when the time is over; it owns everything it needs. If the disk
 * answers after all, the thread closes what it has opened, and the next start finds the directory as it is.
 *
 *    caller:  start thread --- wait ---+--- ended: take the result, free the opening
 *                                      `-- timed out: `left` is set, and the thread frees the opening
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "base/thread.h"
#include "cache/disk/cache_dir.h"
#include "cache/resident.h"

DEFINE_CLEANUP(cache_dir, struct cache_dir *, cache_dir_close)

/* ---- the lock ---- */

void cache_lock_sign(int fd, const char *dir)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    /* Do not truncate to 0 first: ext4 would flush such a file when it is closed, and wait for the disk. */
    if (io_pwrite_full(fd, text, (size_t)n, 0) || ftruncate(fd, n))
        log_debug("cache: cannot note the pid in %s/lock", dir);
}

static int open_lock(int dir_fd, const char *dir, bool make, int *out_fd)
{
    int rc = safe_file_open(dir_fd, dir, "lock", O_RDWR | (make ? O_CREAT : 0), out_fd);
    return rc == -EROFS && !make ? safe_file_open(dir_fd, dir, "lock", O_RDONLY, out_fd) : rc;
}

/* Open and flock the file. If another process holds it, the pid for the message is read from the file. */
int cache_lock_take(int dir_fd, const char *dir, bool make, int *out_fd)
{
    CLEANUP_FD int fd = -1;
    int rc = open_lock(dir_fd, dir, make, &fd);
    if (rc == -ENOENT && !make)
        return error_set(rc, "cache: there is no cache in %s", dir);
    if (rc == -EPERM)
        return error_prefix(rc, "cache");
    if (rc)
        return error_set(rc, "cache: cannot open %s/lock: %s; the directory must be writable", dir, strerror(-rc));
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        cache_lock_sign(fd, dir);
        *out_fd = steal_fd(&fd);
        return 0;
    }
    if (errno != EWOULDBLOCK)
        return error_set(-errno, "cache: cannot lock %s: %s", dir, strerror(errno));
    char text[32] = "";
    ssize_t n = io_pread_full(fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    return error_set(
        -EBUSY, "cache: %s is in use by process %ld; stop that one, attach to it, or give another directory", dir, pid);
}

void cache_dir_sign(struct cache_dir *d)
{
    cache_lock_sign(d->lock_fd, d->path);
}

/* ---- room ---- */

/* Open one of the files. O_NOATIME: updating the access time is a write to the filesystem's journal, for which a read
 * would wait when the disk hangs. */
static int open_in(const struct cache_dir *d, int dir_fd, const char *name, int flags, int *out_fd)
{
    int rc = safe_file_open(dir_fd, d->path, name, O_RDWR | O_CREAT | O_NOATIME | flags, out_fd);
    if (rc == -EPERM)
        return error_prefix(rc, "cache");
    if (rc)
        return error_set(rc, "cache: cannot open %s/%s: %s; the directory must be writable", d->path, name,
                         strerror(-rc));
    return 0;
}

/* ---- opening ---- */

/* Does the file fit the filesystem at this size? Checked before reserving, since fallocate takes all there is before
 * it fails. */
static bool fits(int fd, uint64_t size)
{
    struct stat file;
    struct statvfs fs;
    if (fstat(fd, &file) || fstatvfs(fd, &fs))
        return true; /* fallocate will find out */
    uint64_t held = (uint64_t)file.st_blocks * 512;
    return held >= size || size - held <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Bytes that a file takes on the disk now. */
static uint64_t held_bytes(int dir_fd, const char *name)
{
    struct stat st;
    return fstatat(dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) ? 0 : (uint64_t)st.st_blocks * 512;
}

/* Open the directory, and create its last component only: a missing parent is most likely a disk that is not mounted,
 * and its room must not be taken from the filesystem below. */
static int cache_dir_open_dir(const char *path, int *out_fd)
{
    int rc = safe_dir_open(path, SAFE_DIR_MAKE, out_fd);
    return rc ? error_prefix(rc, "cache") : 0;
}

int cache_dir_free_space(const char *path, uint64_t *free_space, uint64_t *total)
{
    struct statvfs fs;
    CLEANUP_FD int dir = -1;
    int rc = cache_dir_open_dir(path, &dir);
    if (rc)
        return rc;
    if (fstatvfs(dir, &fs))
        return error_set(-errno, "cache: %s: cannot ask for the size of its filesystem: %s", path, strerror(errno));
    *total = (uint64_t)(fs.f_blocks - fs.f_bfree + fs.f_bavail) * fs.f_frsize;
    *free_space = (uint64_t)fs.f_bavail * fs.f_frsize + held_bytes(dir, "data") + held_bytes(dir, "records") +
                  held_bytes(dir, "exports") + resident_bytes(path);
    return 0;
}

int cache_dir_share(const char *path, unsigned percent, uint64_t *out)
{
    uint64_t free_space, total;
    int rc = cache_dir_free_space(path, &free_space, &total);
    if (!rc)
        *out = free_space / 100 * percent / 4096 * 4096;
    return rc;
}

/* Set the message for space that cannot be reserved. */
static int say_unreserved(const struct cache_dir *d, uint64_t size, int rc)
{
    return error_set(rc, "cache: cannot reserve %llu bytes in %s: %s; give a smaller size or free some space",
                     (unsigned long long)size, d->path, strerror(-rc));
}

/* Reserve exactly `size` bytes. Blocks that hold data keep it; on an error the file is as it was. */
static int reserve(const struct cache_dir *d, int fd, const char *name, uint64_t size)
{
    struct stat before;
    if (fstat(fd, &before))
        return error_set(-errno, "cache: cannot look at %s/%s: %s", d->path, name, strerror(errno));
    errno = ENOSPC;
    if (fits(fd, size) && ftruncate(fd, (off_t)size) == 0 && fallocate(fd, 0, 0, (off_t)size) == 0)
        return 0;
    int rc = -errno;
    if (ftruncate(fd, before.st_size))
        log_warning("cache: %s/%s could not be made small again", d->path, name);
    if (rc == -EOPNOTSUPP)
        return error_set(-EINVAL, "cache: the filesystem of %s cannot reserve space; use ext4, xfs or btrfs", d->path);
    return say_unreserved(d, size, rc);
}

/* Are the files at least as long as the geometry says? They are longer when shrinking them was interrupted. */
static bool sizes_match(const struct cache_dir *d, const struct cache_geometry *g)
{
    struct stat data, records;
    return !fstat(d->data_fd, &data) && !fstat(d->record_fd, &records) &&
           (uint64_t)data.st_size >= cache_geometry_data_file_size(g) &&
           (uint64_t)records.st_size >= cache_geometry_record_file_size(g);
}

/* Fail without touching the contents: a disk that fails now may work tomorrow. */
static int say_unread(const struct cache_dir *d, int rc)
{
    return error_set(rc, "cache: cannot read %s/records: %s; what it holds is left as it is", d->path, strerror(-rc));
}

static int say_unwritten(const struct cache_dir *d, int rc)
{
    return error_set(rc, "cache: cannot write %s/records: %s", d->path, strerror(-rc));
}

/* Read the slab table, with room for `count` entries; those that the file does not have are zero. */
static int cache_dir_open_read_table(const struct cache_dir *d, const struct cache_geometry *g, uint32_t count,
                                     uint8_t **out)
{
    CLEANUP_FREE uint8_t *table = calloc(GR_MAX(count, g->slab_count), CACHE_META_SLAB_SIZE);
    if (!table)
        return error_no_memory();
    ssize_t n =
        io_pread_full(d->record_fd, table, (size_t)g->slab_count * CACHE_META_SLAB_SIZE, cache_slab_entry_offset(g, 0));
    if (n < 0)
        return say_unread(d, (int)n);
    *out = steal_ptr(&table);
    return 0;
}

/* Recognise what the directory holds. *out_found is its geometry, with a slab count of 0 when there is nothing to
 * keep; the reason is logged. */
static int recognise(const struct cache_dir *d, struct cache_geometry *out_found)
{
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    out_found->slab_count = 0;
    if (!header)
        return error_no_memory();
    ssize_t n = io_pread_full(d->record_fd, header, CACHE_META_HEADER_SIZE, 0);
    if (n < 0)
        return say_unread(d, (int)n);
    if (n == 0)
        return 0; /* new */
    struct cache_geometry found, kept;
    int rc = cache_meta_header_decode(header, (size_t)n, &found);
    const char *why = rc == -ENOTSUP            ? "it is of another version"
                      : rc                      ? "its header is damaged"
                      : !sizes_match(d, &found) ? "its files have been cut or replaced"
                      : !cache_geometry_replan(d->geometry.budget, &found, &kept)
                          ? "its size was changed by so much that slabs of another size serve better"
                          : NULL;
    if (why)
        log_warning("cache: %s starts empty: %s", d->path, why);
    else
        *out_found = found;
    return 0;
}

static int write_header(const struct cache_dir *d)
{
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    if (!header)
        return error_no_memory();
    cache_meta_header_encode(&d->geometry, header);
    int rc = io_pwrite_full(d->record_fd, header, CACHE_META_HEADER_SIZE, 0);
    return rc ? say_unwritten(d, rc) : 0;
}

static int reserve_both(const struct cache_dir *d)
{
    int rc = reserve(d, d->data_fd, "data", cache_geometry_data_file_size(&d->geometry));
    return rc ? rc : reserve(d, d->record_fd, "records", cache_geometry_record_file_size(&d->geometry));
}

/* Keep the contents under another budget: slabs and their records stay where they are, those beyond the new end are
 * gone, and the slab table moves to where the last region ends. A crash half way leaves a table that is wholly or
 * partly garbage under the old or the new header. That costs those slabs and nothing else: an entry holds its own
 * number, and every record its place. */
static int resize(struct cache_dir *d, const struct cache_geometry *found)
{
    CLEANUP_FREE uint8_t *table = NULL;
    uint32_t count = d->geometry.slab_count;
    int rc = cache_dir_open_read_table(d, found, count, &table);
    if (!rc && count > found->slab_count)
        rc = reserve_both(d);
    if (rc)
        return rc;
    rc = io_pwrite_full(d->record_fd, table, (size_t)count * CACHE_META_SLAB_SIZE,
                        cache_slab_entry_offset(&d->geometry, 0));
    if (rc)
        return say_unwritten(d, rc);
    rc = write_header(d);
    if (!rc && fdatasync(d->record_fd)) /* before the end of the file is cut off */
        return say_unwritten(d, -errno);
    if (!rc)
        log_info("cache: %s has another size: what is in %u of its %u slabs is kept", d->path,
                 GR_MIN(count, found->slab_count), found->slab_count);
    return rc;
}

/* Keep the contents that recognise found. */
static int take_over(struct cache_dir *d, const struct cache_geometry *found)
{
    uint64_t budget = d->geometry.budget;
    if (!cache_geometry_replan(budget, found, &d->geometry))
        return -EINVAL; /* recognise has checked this */
    if (!cache_geometry_same(&d->geometry, found))
        return resize(d, found);
    CLEANUP_FREE uint8_t *table = NULL; /* it must be readable before anything is written over this geometry */
    return cache_dir_open_read_table(d, found, found->slab_count, &table);
}

/* Make the directory empty. A new random id makes sure that no record of the old contents is believed. */
static int start_empty(struct cache_dir *d)
{
    uint64_t size = cache_geometry_data_file_size(&d->geometry);
    if (!fits(d->data_fd,
              size - GR_MIN(size, atomic_load(&d->resident)))) /* a wrong size must not destroy the contents */
        return say_unreserved(d, size, -ENOSPC);
    int rc = io_random(&d->geometry.id, sizeof d->geometry.id);
    if (rc)
        return error_prefix(rc, "cache: an id for %s", d->path);
    if (ftruncate(d->record_fd, 0) || ftruncate(d->data_fd, 0))
        return error_set(-errno, "cache: cannot empty %s: %s", d->path, strerror(errno));
    rc = reserve(d, d->record_fd, "records", cache_geometry_record_file_size(&d->geometry));
    return rc ? rc : write_header(d);
}

/* Open both files, the data file with O_DIRECT where the filesystem supports it. */
static int open_files(struct cache_dir *d, int dir_fd)
{
    int rc = open_in(d, dir_fd, "records", 0, &d->record_fd);
    if (rc)
        return rc;
    rc = open_in(d, dir_fd, "data", O_DIRECT, &d->data_fd);
    if (rc != -EINVAL)
        return rc;
    log_warning("cache: the filesystem of %s has no direct I/O; reads go through the page cache", d->path);
    return open_in(d, dir_fd, "data", 0, &d->data_fd);
}

/* Write the probe block that the disk monitor will read back. */
static int write_probe(struct cache_dir *d)
{
    CLEANUP_BUF struct buf *probe = buf_new(CACHE_META_PROBE_SIZE);
    if (!probe)
        return error_no_memory();
    cache_meta_probe_encode(&d->geometry, probe->data);
    int rc = io_pwrite_full(d->data_fd, probe->data, probe->len, cache_geometry_data_size(&d->geometry));
    return rc ? error_set(rc, "cache: cannot write %s/data: %s", d->path, strerror(-rc)) : 0;
}

static int change_slab(const struct cache_dir *d, uint32_t slab, enum cache_slab_change change)
{
    struct ring_range at[2];
    int mode = cache_dir_slab_ranges(d, 0, slab, change, at);
    if (fallocate(d->record_fd, mode, (off_t)at[0].off, at[0].len) ||
        fallocate(d->data_fd, mode, (off_t)at[1].off, at[1].len))
        return -errno;
    return 0;
}

/* Does the slab hold data? Space that was reserved and never written does not count. */
static bool slab_holds_data(const struct cache_dir *d, uint32_t slab)
{
    off_t off = (off_t)slab * d->geometry.slab_size, found = lseek(d->data_fd, off, SEEK_DATA);
    return found < 0 ? errno != ENXIO : found < off + (off_t)d->geometry.slab_size;
}

/* Reserve only slabs that hold data; the others are yielded, and wait until the filesystem has room. */
static int reserve_sparingly(struct cache_dir *d)
{
    uint64_t end = cache_geometry_data_size(&d->geometry), size = cache_geometry_data_file_size(&d->geometry);
    d->yielded = calloc(d->geometry.slab_count, sizeof *d->yielded);
    if (!d->yielded)
        return error_no_memory();
    if (ftruncate(d->data_fd, (off_t)size) || fallocate(d->data_fd, 0, (off_t)end, (off_t)(size - end)))
        return error_set(-errno, "cache: cannot reserve space in %s: %s", d->path, strerror(errno));
    for (uint32_t i = 0; i < d->geometry.slab_count; i++) {
        if (slab_holds_data(d, i) && !change_slab(d, i, CACHE_RESERVE))
            continue;
        d->yielded[i] = true;
        int rc = change_slab(d, i, CACHE_PUNCH);
        if (rc)
            return error_set(rc, "cache: cannot give space of %s back: %s", d->path, strerror(-rc));
    }
    return 0;
}

static uint64_t held_now(int fd)
{
    struct stat st;
    return fstat(fd, &st) ? 0 : (uint64_t)st.st_blocks * 512;
}

bool cache_dir_usage(const struct cache_dir *d, uint64_t *out_used, uint64_t *out_total)
{
    struct statvfs fs;
    if (fstatvfs(d->record_fd, &fs))
        return false;
    *out_used = (uint64_t)(fs.f_blocks - fs.f_bfree) * fs.f_frsize;
    *out_total = *out_used + (uint64_t)fs.f_bavail * fs.f_frsize;
    return true;
}

/* Reserve the files; `high` as for cache_dir_open. */
static int reserve_data(struct cache_dir *d, unsigned high)
{
    uint64_t size = cache_geometry_data_file_size(&d->geometry), held = held_now(d->data_fd), used, total;
    uint64_t more = size > held ? size - held : 0;
    if (atomic_load(&d->resident)) /* a part of the budget is theirs: disk_monitor.c sees to that */
        return reserve_sparingly(d);
    if (high && cache_dir_usage(d, &used, &total) && used + more > total / 100 * high)
        return reserve_sparingly(d);
    return reserve_both(d);
}

int cache_dir_open(const char *path, uint64_t size, unsigned high, struct cache_dir **out)
{
    CLEANUP(cleanup_cache_dir) struct cache_dir *d = calloc(1, sizeof *d);
    if (!d)
        return error_no_memory();
    d->lock_fd = d->data_fd = d->record_fd = -1;
    pthread_mutex_init(&d->health_lock, NULL);
    d->size = size;
    d->path = strdup(path);
    if (!d->path)
        return error_no_memory();
    CLEANUP_FD int dir = -1;
    int rc = cache_geometry_plan(size, &d->geometry);
    if (!rc)
        rc = cache_dir_open_dir(path, &dir);
    if (!rc)
        rc = cache_lock_take(dir, path, true, &d->lock_fd);
    if (rc)
        return rc;
    resident_sweep(path);
    atomic_store(&d->resident, resident_bytes(path));
    rc = open_files(d, dir);
    struct cache_geometry found;
    if (!rc)
        rc = recognise(d, &found);
    if (!rc)
        rc = found.slab_count ? take_over(d, &found) : start_empty(d);
    if (!rc) /* kept contents too: a file that was copied or restored may have holes */
        rc = reserve_data(d, high);
    if (!rc)
        rc = write_probe(d);
    if (rc)
        return rc;
    *out = steal_ptr(&d);
    return 0;
}

/* ---- within a time ---- */

/* One opening. `lock` decides which side frees it: ended and left are set under it. */
struct opening {
    struct cache_dir_order order; /* with its own copy of the path */
    pthread_mutex_t lock;
    pthread_cond_t ending;
    bool ended, left; /* left: the caller has given up */
    struct cache_dir *dir;
    struct error error;
};

static void opening_free(struct opening *o)
{
    pthread_cond_destroy(&o->ending);
    pthread_mutex_destroy(&o->lock);
    free((char *)o->order.path);
    free(o);
}

/* Make an opening with copies of everything the thread needs. NULL: out of memory. */
static struct opening *opening_new(const struct cache_dir_order *order)
{
    struct opening *o = calloc(1, sizeof *o);
    char *path = strdup(order->path);
    if (!o || !path) {
        free(o);
        free(path);
        return NULL;
    }
    o->order = *order;
    o->order.path = path;
    pthread_mutex_init(&o->lock, NULL);
    thread_cond_init(&o->ending);
    return o;
}

/* Report the result to the caller. false: the caller has given up. */
static bool hand_over(struct opening *o, int rc)
{
    SCOPED_LOCK(&o->lock);
    error_take(&o->error, rc);
    o->ended = true;
    pthread_cond_signal(&o->ending);
    return !o->left;
}

static void *open_by_thread(void *arg)
{
    struct opening *o = arg;
    struct cache_dir_order *order = &o->order;
    if (order->begin)
        order->begin();
    int rc = order->size ? 0 : cache_dir_share(order->path, order->percent, &order->size);
    if (!rc)
        rc = cache_dir_open(order->path, order->size, order->high, &o->dir);
    if (hand_over(o, rc))
        return NULL;
    cache_dir_close(o->dir);
    opening_free(o);
    return NULL;
}

/* Wait for the result. false: the opening belongs to the thread now. */
static bool wait_for_opening(struct opening *o, uint32_t timeout_ms)
{
    struct timespec until = clock_at_ms(clock_now_ms() + timeout_ms);
    SCOPED_LOCK(&o->lock);
    while (!o->ended && pthread_cond_timedwait(&o->ending, &o->lock, &until) != ETIMEDOUT) {
    }
    o->left = !o->ended;
    return o->ended;
}

int cache_dir_open_within(struct cache_dir_order *order, uint32_t timeout_ms, struct cache_dir **out)
{
    struct opening *o = opening_new(order);
    if (!o)
        return error_no_memory();
    pthread_t thread;
    int rc = thread_start(&thread, open_by_thread, o);
    if (rc) {
        opening_free(o);
        return rc;
    }
    if (!wait_for_opening(o, timeout_ms)) {
        pthread_detach(thread);
        return error_set(-ETIMEDOUT, "cache: %s: its disk has given no answer for %u seconds", order->path,
                         timeout_ms / 1000);
    }
    pthread_join(thread, NULL);
    rc = o->error.code ? error_restore(&o->error) : 0;
    order->size = o->order.size;
    *out = o->dir;
    opening_free(o);
    return rc;
}
