/* Files: "lock" (pid of the owner, flock'ed: a dead owner does not block), "data" (slabs of slots),
 * "records" (header, slab table, records). Both are reserved in full by fallocate at open, so a fill
 * never grows anything and the budget holds at every instant.
 *
 * A fill: the old record is blanked, the data written (O_DIRECT), then the new record. Nothing is
 * ever synced, so after a power loss any subset of those writes may be on the disk in any order.
 * That is why every record carries the CRC of each block it speaks of: a record over bytes that are
 * not the ones it was made for (an old record over new data, a new record over old data, torn data)
 * proves itself wrong at the first read of that block and becomes a miss; a record over exactly its
 * bytes is right, whichever fill left them there. Blanking the old record first only makes such
 * misses rare.
 */
#include "cache/cache_dir.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    WELL_AFTER_MS = 10000,            /* a directory is called well so long after its latest fault */
    REGION_MAX = CACHE_SLAB_MAX >> 9, /* records of one slab */
};

DEFINE_CLEANUP(cache_dir, struct cache_dir *, cache_dir_close)

static int open_in(const struct cache_dir *d, const char *name, int flags)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/%s", d->path, name) >= (int)sizeof path)
        return -ENAMETOOLONG;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | flags, 0600);
    return fd < 0 ? -errno : fd;
}

static int say_open(const struct cache_dir *d, const char *name, int rc)
{
    return error_set(rc, "cache: cannot open %s/%s: %s; the directory must be writable", d->path, name, strerror(-rc));
}

/* ---- the lock ---- */

void cache_dir_sign(struct cache_dir *d)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    if (ftruncate(d->lock_fd, 0) || io_pwrite_full(d->lock_fd, text, (size_t)n, 0))
        log_debug("cache: cannot note the pid in %s/lock", d->path);
}

static int lock_dir(struct cache_dir *d)
{
    d->lock_fd = open_in(d, "lock", 0);
    if (d->lock_fd < 0)
        return say_open(d, "lock", d->lock_fd);
    if (flock(d->lock_fd, LOCK_EX | LOCK_NB) == 0) {
        cache_dir_sign(d);
        return 0;
    }
    if (errno != EWOULDBLOCK)
        return error_set(-errno, "cache: cannot lock %s: %s", d->path, strerror(errno));
    char text[32] = "";
    ssize_t n = io_pread_full(d->lock_fd, text, sizeof text - 1, 0);
    long pid = n > 0 ? strtol(text, NULL, 10) : 0;
    return error_set(-EBUSY,
                     "cache: %s is in use by process %ld; stop that one, attach to it, or give another directory",
                     d->path, pid);
}

/* ---- opening ---- */

/* Asked before reserving: fallocate would take all there is before it fails. */
static bool fits(int fd, uint64_t size)
{
    struct stat file;
    struct statvfs fs;
    if (fstat(fd, &file) || fstatvfs(fd, &fs))
        return true; /* fallocate will tell */
    uint64_t held = (uint64_t)file.st_blocks * 512;
    return held >= size || size - held <= (uint64_t)fs.f_bavail * fs.f_frsize;
}

/* Reserve exactly size bytes. Blocks that hold data already keep it. */
static int reserve(const struct cache_dir *d, int fd, const char *name, uint64_t size)
{
    errno = ENOSPC;
    if (fits(fd, size) && ftruncate(fd, (off_t)size) == 0 && fallocate(fd, 0, 0, (off_t)size) == 0)
        return 0;
    int rc = -errno;
    if (ftruncate(fd, 0))
        log_warning("cache: %s/%s could not be made small again", d->path, name);
    if (rc == -EOPNOTSUPP)
        return error_set(-EINVAL, "cache: the filesystem of %s cannot reserve space; use ext4, xfs or btrfs", d->path);
    return error_set(rc, "cache: cannot reserve %llu bytes in %s: %s; give a smaller size or free some space",
                     (unsigned long long)size, d->path, strerror(-rc));
}

static bool sizes_match(const struct cache_dir *d, const struct cache_geometry *g)
{
    struct stat data, records;
    return !fstat(d->data_fd, &data) && !fstat(d->record_fd, &records) &&
           (uint64_t)data.st_size == cache_geometry_data_size(g) &&
           (uint64_t)records.st_size == cache_geometry_record_file_size(g);
}

/* Does the directory hold a cache of this very geometry? Takes over its id. Says why not. */
static bool recognise(struct cache_dir *d)
{
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    if (!header)
        return false;
    ssize_t n = io_pread_full(d->record_fd, header, CACHE_META_HEADER_SIZE, 0);
    if (n == 0)
        return false; /* new */
    struct cache_geometry found;
    int rc = n < 0 ? (int)n : cache_meta_header_decode(header, (size_t)n, &found);
    const char *why = rc == -ENOTSUP                               ? "it is of another version"
                      : rc                                         ? "its header is damaged"
                      : !cache_geometry_same(&found, &d->geometry) ? "its size was changed"
                      : !sizes_match(d, &d->geometry)              ? "its files have been cut or replaced"
                                                                   : NULL;
    if (why) {
        log_warning("cache: %s starts empty: %s", d->path, why);
        return false;
    }
    d->geometry.id = found.id;
    return true;
}

static int start_empty(struct cache_dir *d)
{
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    if (!header)
        return error_set(-ENOMEM, "cache: out of memory");
    if (getrandom(&d->geometry.id, sizeof d->geometry.id, 0) != sizeof d->geometry.id)
        return error_set(-EIO, "cache: no random bytes for the id of %s", d->path);
    if (ftruncate(d->record_fd, 0) || ftruncate(d->data_fd, 0))
        return error_set(-errno, "cache: cannot empty %s: %s", d->path, strerror(errno));
    cache_meta_header_encode(&d->geometry, header);
    int rc = reserve(d, d->record_fd, "records", cache_geometry_record_file_size(&d->geometry));
    if (rc)
        return rc;
    rc = io_pwrite_full(d->record_fd, header, CACHE_META_HEADER_SIZE, 0);
    return rc ? error_set(rc, "cache: cannot write %s/records: %s", d->path, strerror(-rc)) : 0;
}

static int open_files(struct cache_dir *d)
{
    d->record_fd = open_in(d, "records", 0);
    if (d->record_fd < 0)
        return say_open(d, "records", d->record_fd);
    d->data_fd = open_in(d, "data", O_DIRECT);
    if (d->data_fd == -EINVAL) {
        log_warning("cache: the filesystem of %s has no direct I/O; reads go through the page cache", d->path);
        d->data_fd = open_in(d, "data", 0);
    }
    return d->data_fd < 0 ? say_open(d, "data", d->data_fd) : 0;
}

int cache_dir_open(const char *path, uint64_t size, struct cache_dir **out)
{
    CLEANUP(cleanup_cache_dir) struct cache_dir *d = calloc(1, sizeof *d);
    if (!d || !(d->path = strdup(path))) {
        if (d)
            d->lock_fd = d->data_fd = d->record_fd = -1;
        return error_set(-ENOMEM, "cache: out of memory");
    }
    d->lock_fd = d->data_fd = d->record_fd = -1;
    int rc = cache_geometry_plan(size, &d->geometry);
    if (!rc)
        rc = io_mkdirs(path);
    if (!rc)
        rc = lock_dir(d);
    if (!rc)
        rc = open_files(d);
    if (!rc && !recognise(d))
        rc = start_empty(d);
    if (!rc) /* also when recognised: a file copied or restored may have holes */
        rc = reserve(d, d->data_fd, "data", cache_geometry_data_size(&d->geometry));
    if (rc)
        return rc;
    *out = steal_ptr(&d);
    return 0;
}

void cache_dir_close(struct cache_dir *d)
{
    if (!d)
        return;
    if (d->record_fd >= 0)
        close(d->record_fd);
    if (d->data_fd >= 0)
        close(d->data_fd);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    free(d->path);
    free(d);
}

/* ---- loading ---- */

static int load_records(struct cache_dir *d, unsigned number, struct space *space, struct space_load *load,
                        struct cache_place place, uint8_t *region)
{
    uint32_t stride = cache_class_record_size(place.class);
    uint32_t slots = cache_class_slots(&d->geometry, place.class);
    place.slot = 0;
    ssize_t n =
        io_pread_full(d->record_fd, region, (size_t)slots * stride, cache_place_record_offset(&d->geometry, &place));
    if (n < 0)
        return 0; /* the slab's chunks are misses */
    int rc = space_load_slab(space, number, &place);
    struct cache_record record;
    for (; !rc && place.slot < slots && (place.slot + 1) * (size_t)stride <= (size_t)n; place.slot++)
        if (cache_meta_record_decode(&d->geometry, &place, region + (size_t)place.slot * stride, &record))
            rc = space_load_slot(space, load, number, &place, &record);
    return rc;
}

int cache_dir_load(struct cache_dir *d, unsigned number, struct space *space, struct space_load *load)
{
    size_t table_size = (size_t)d->geometry.slab_count * CACHE_META_SLAB_SIZE;
    CLEANUP_FREE uint8_t *table = calloc(1, table_size + 1);
    CLEANUP_FREE uint8_t *region = malloc(REGION_MAX);
    if (!table || !region)
        return error_set(-ENOMEM, "cache: out of memory for the index");
    ssize_t n = io_pread_full(d->record_fd, table, table_size, cache_slab_entry_offset(0));
    if (n < (ssize_t)table_size) {
        cache_dir_fault(d, "reading its records", n < 0 ? (int)n : -EIO);
        return 0;
    }
    int rc = 0;
    for (uint32_t i = 0; !rc && i < d->geometry.slab_count; i++) {
        struct cache_place place = {.slab = i};
        if (cache_meta_slab_decode(&d->geometry, table + (size_t)i * CACHE_META_SLAB_SIZE, &place))
            rc = load_records(d, number, space, load, place, region);
    }
    return rc;
}

/* ---- filling ---- */

static int announce_slab(struct cache_dir *d, const struct space_slot *slot)
{
    uint8_t entry[CACHE_META_SLAB_SIZE];
    cache_meta_slab_encode(&d->geometry, &slot->place, entry);
    return io_pwrite_full(d->record_fd, entry, sizeof entry, cache_slab_entry_offset(slot->place.slab));
}

static int blank_record(struct cache_dir *d, const struct space_slot *slot)
{
    static const uint8_t blank[CACHE_META_RECORD_HEAD];
    return io_pwrite_full(d->record_fd, blank, sizeof blank, cache_place_record_offset(&d->geometry, &slot->place));
}

static int write_record(struct cache_dir *d, const struct space_slot *slot, const struct cache_record *record)
{
    uint8_t bytes[CACHE_RECORD_MAX];
    cache_meta_record_encode(&d->geometry, &slot->place, record, bytes);
    return io_pwrite_full(d->record_fd, bytes, cache_class_record_size(slot->place.class),
                          cache_place_record_offset(&d->geometry, &slot->place));
}

int cache_dir_fill(struct cache_dir *d, const struct space_slot *slot, const struct digest *digest,
                   const struct buf *plain)
{
    assert(plain->len == slot->plain_len);
    struct cache_record record = {.digest = *digest, .seq = slot->seq, .plain_len = slot->plain_len};
    uint32_t blocks = cache_block_crcs(plain->data, slot->plain_len, record.crcs);
    memcpy(slot->crcs, record.crcs, blocks * sizeof *record.crcs);
    int rc = slot->slab_bound ? announce_slab(d, slot) : 0;
    if (!rc && slot->recorded)
        rc = blank_record(d, slot);
    if (!rc) /* cap: whole 4 KiB, as O_DIRECT wants; what is behind the chunk in it is zero */
        rc = io_pwrite_full(d->data_fd, plain->data, plain->cap, cache_place_data_offset(&d->geometry, &slot->place));
    if (!rc)
        rc = write_record(d, slot, &record);
    return rc;
}

/* ---- health ---- */

void cache_dir_fault(struct cache_dir *d, const char *what, int rc)
{
    uint64_t before = atomic_exchange(&d->fault_ms, clock_now_ms() + 1);
    if (!before)
        log_warning("cache: %s: %s failed: %s; such reads go to the store, nothing is lost", d->path, what,
                    rc == -EBADMSG ? "bytes differ from their checksum" : strerror(-rc));
}

void cache_dir_well(struct cache_dir *d)
{
    uint64_t fault = atomic_load_explicit(&d->fault_ms, memory_order_relaxed);
    if (fault && clock_now_ms() > fault + WELL_AFTER_MS && atomic_compare_exchange_strong(&d->fault_ms, &fault, 0))
        log_info("cache: %s works again", d->path);
}
