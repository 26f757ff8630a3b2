/* A disk that remembers every write, for simulating power losses: the files of a cache are recorded while it works
 * (pwrite, ftruncate and fallocate are wrapped by the linker), and then made again as any crash could have left them.
 *
 * The disk writes whole sectors. What a write leaves in a sector is what the page cache held in it then, so an event
 * keeps the whole of each sector it touched, as of that moment; a sector on a disk after a crash is any of the
 * versions it ever had. Events are applied whole, by a random choice of their sectors, or up to some byte (a page
 * may be under way to the disk while it is being changed).
 */
#ifndef GRANARY_TESTS_UNIT_CRASH_DISK_H
#define GRANARY_TESTS_UNIT_CRASH_DISK_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "base/vec.h"
#include "unit/cmocka_all.h"

enum {
    DISK_DIRS = 2,
    DISK_FILES = 2 * DISK_DIRS, /* data and records of each */
    SECTOR = 512,
    DISK_BLOCK = 4096,
    DISK_FILE_MAX = 32 << 20,
    DISK_BLOCKS = DISK_FILE_MAX / DISK_BLOCK,
};

/* bytes NULL: the file got the size `to`; otherwise [from, to) was written, and whole sectors around it are kept. */
struct disk_event {
    unsigned file;
    uint64_t from, to;
    uint8_t *bytes;
};

enum disk_mode { DISK_IDLE, DISK_RECORD, DISK_REPLAY };

struct disk {
    pthread_mutex_t lock;
    enum disk_mode mode;
    char dirs[DISK_DIRS][64];
    char paths[DISK_FILES][80];
    int fds[DISK_FILES];
    uint8_t *image[DISK_FILES]; /* recording: what is in the file; replaying: the state to go back to */
    uint64_t size[DISK_FILES];
    bool touched[DISK_FILES][DISK_BLOCKS]; /* replaying: may differ from the image */
    VEC(struct disk_event) events;
};

static struct disk the_disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t off);
int __real_ftruncate(int fd, off_t size);
int __real_fallocate(int fd, int mode, off_t off, off_t len);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t off);
int __wrap_ftruncate(int fd, off_t size);
int __wrap_fallocate(int fd, int mode, off_t off, off_t len);

/* ---- watching ---- */

/* Which of the files it is; DISK_FILES: none. */
static unsigned disk_file_of(int fd)
{
    char link[32], path[128];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    unsigned i = 0;
    while (i < DISK_FILES && strcmp(path, the_disk.paths[i]) != 0)
        i++;
    return i;
}

static void disk_touch(unsigned file, uint64_t from, uint64_t to)
{
    for (uint64_t b = from / DISK_BLOCK; b * DISK_BLOCK < to; b++)
        the_disk.touched[file][b] = true;
}

static void disk_record(struct disk_event e, const void *data)
{
    struct disk *d = &the_disk;
    if (data) {
        uint64_t first = e.from / SECTOR * SECTOR, end = GR_ALIGN_UP(e.to, SECTOR);
        memcpy(d->image[e.file] + e.from, data, e.to - e.from);
        d->size[e.file] = GR_MAX(d->size[e.file], e.to);
        e.bytes = malloc(end - first);
        memcpy(e.bytes, d->image[e.file] + first, end - first);
    } else {
        if (e.to < d->size[e.file])
            memset(d->image[e.file] + e.to, 0, d->size[e.file] - e.to);
        d->size[e.file] = e.to;
    }
    assert_int_equal(vec_push(&d->events, e), 0);
}

/* How long the file is; writes may still be under way, on threads of the cache. */
static uint64_t disk_size(unsigned file)
{
    SCOPED_LOCK(&the_disk.lock);
    return the_disk.size[file];
}

/* Under the lock, after the call itself. */
static void disk_saw(struct disk_event e, const void *data)
{
    if (e.file == DISK_FILES || the_disk.mode == DISK_IDLE)
        return;
    assert_true(e.to <= DISK_FILE_MAX);
    if (the_disk.mode == DISK_RECORD)
        disk_record(e, data);
    else if (data)
        disk_touch(e.file, e.from, e.to);
    else
        disk_touch(e.file, GR_MIN(e.to, the_disk.size[e.file]), GR_MAX(e.to, the_disk.size[e.file]));
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t off)
{
    unsigned file = disk_file_of(fd);
    SCOPED_LOCK(&the_disk.lock);
    ssize_t n = __real_pwrite(fd, data, len, off);
    if (n > 0)
        disk_saw((struct disk_event){.file = file, .from = (uint64_t)off, .to = (uint64_t)off + (uint64_t)n}, data);
    return n;
}

int __wrap_ftruncate(int fd, off_t size)
{
    unsigned file = disk_file_of(fd);
    SCOPED_LOCK(&the_disk.lock);
    int rc = __real_ftruncate(fd, size);
    if (!rc)
        disk_saw((struct disk_event){.file = file, .to = (uint64_t)size}, NULL);
    return rc;
}

int __wrap_fallocate(int fd, int mode, off_t off, off_t len)
{
    unsigned file = disk_file_of(fd);
    SCOPED_LOCK(&the_disk.lock);
    int rc = __real_fallocate(fd, mode, off, len);
    if (!rc && file < DISK_FILES) {
        assert_int_equal(mode, 0); /* no other is known here */
        if ((uint64_t)(off + len) > the_disk.size[file])
            disk_saw((struct disk_event){.file = file, .to = (uint64_t)(off + len)}, NULL);
    }
    return rc;
}

/* ---- the files ---- */

static inline void disk_init(void)
{
    struct disk *d = &the_disk;
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "."; /* memory, where there is some */
    char here[32];
    for (int i = 0; i < DISK_DIRS; i++) {
        snprintf(here, sizeof here, "%s/granary-crash-XXXXXX", base);
        assert_non_null(mkdtemp(here));
        char *full = realpath(here, NULL);
        assert_true(full && strlen(full) < sizeof d->dirs[i]);
        strcpy(d->dirs[i], full);
        free(full);
        for (int k = 0; k < 2; k++) {
            int file = 2 * i + k;
            snprintf(d->paths[file], sizeof d->paths[file], "%s/%s", d->dirs[i], k ? "records" : "data");
            d->fds[file] = open(d->paths[file], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            d->image[file] = calloc(1, DISK_FILE_MAX);
            assert_true(d->fds[file] >= 0 && d->image[file]);
        }
    }
}

static inline void disk_release(void)
{
    struct disk *d = &the_disk;
    char path[80];
    for (size_t i = 0; i < d->events.len; i++)
        free(d->events.items[i].bytes);
    vec_release(&d->events);
    for (int i = 0; i < DISK_FILES; i++) {
        close(d->fds[i]);
        unlink(d->paths[i]);
        free(d->image[i]);
    }
    for (int i = 0; i < DISK_DIRS; i++) {
        snprintf(path, sizeof path, "%s/lock", d->dirs[i]);
        unlink(path);
        rmdir(d->dirs[i]);
    }
}

/* Was every change of the files seen? */
static inline bool disk_is_complete(void)
{
    CLEANUP_FREE uint8_t *now = malloc(DISK_FILE_MAX);
    for (int i = 0; i < DISK_FILES; i++) {
        ssize_t n = pread(the_disk.fds[i], now, DISK_FILE_MAX, 0);
        if (n != (ssize_t)the_disk.size[i] || memcmp(now, the_disk.image[i], (size_t)n) != 0)
            return false;
    }
    return true;
}

/* ---- replaying ---- */

/* Put a part of an event on the disk, and into the image when that is to move on. */
static inline void disk_put(const struct disk_event *e, uint64_t from, uint64_t to, bool keep)
{
    struct disk *d = &the_disk;
    uint64_t first = e->from / SECTOR * SECTOR;
    assert_int_equal(__real_pwrite(d->fds[e->file], e->bytes + (from - first), to - from, (off_t)from), to - from);
    if (keep) {
        memcpy(d->image[e->file] + from, e->bytes + (from - first), to - from);
        d->size[e->file] = GR_MAX(d->size[e->file], to);
    } else {
        disk_touch(e->file, from, to);
    }
}

static inline void disk_put_size(const struct disk_event *e, bool keep)
{
    struct disk *d = &the_disk;
    assert_int_equal(__real_ftruncate(d->fds[e->file], (off_t)e->to), 0);
    uint64_t size = d->size[e->file];
    if (!keep)
        disk_touch(e->file, GR_MIN(size, e->to), GR_MAX(size, e->to));
    else if (e->to < size)
        memset(d->image[e->file] + e->to, 0, size - e->to);
    if (keep)
        d->size[e->file] = e->to;
}

/* The whole write reached the disk. */
static inline void disk_apply(const struct disk_event *e, bool keep)
{
    if (e->bytes)
        disk_put(e, e->from / SECTOR * SECTOR, GR_ALIGN_UP(e->to, (uint64_t)SECTOR), keep);
    else
        disk_put_size(e, keep);
}

enum tear { TEAR_FRONT, TEAR_BACK, TEAR_SECTORS, TEAR_BYTES, TEARS };

/* A part of it did: some first sectors, some last ones, any, or all up to some byte. */
static inline void disk_apply_torn(const struct disk_event *e, enum tear tear, uint64_t random)
{
    if (!e->bytes)
        return;
    uint64_t first = e->from / SECTOR * SECTOR, end = GR_ALIGN_UP(e->to, (uint64_t)SECTOR);
    uint64_t cut = first + random % ((end - first) / SECTOR) * SECTOR;
    if (tear == TEAR_FRONT)
        disk_put(e, first, cut, false);
    else if (tear == TEAR_BACK)
        disk_put(e, cut, end, false);
    else if (tear == TEAR_BYTES)
        disk_put(e, e->from, e->from + random % (e->to - e->from), false);
    for (uint64_t s = first; tear == TEAR_SECTORS && s < end; s += SECTOR, random = random >> 1 | random << 63)
        if (random & 1)
            disk_put(e, s, s + SECTOR, false);
}

/* Back to the image, whatever a test and the cache did since. */
static inline void disk_restore(void)
{
    struct disk *d = &the_disk;
    for (int i = 0; i < DISK_FILES; i++) {
        assert_int_equal(__real_ftruncate(d->fds[i], (off_t)d->size[i]), 0);
        for (uint64_t b = 0; b < DISK_BLOCKS; b++) {
            uint64_t from = b * DISK_BLOCK, to = GR_MIN(from + DISK_BLOCK, d->size[i]);
            if (d->touched[i][b] && from < to)
                assert_int_equal(__real_pwrite(d->fds[i], d->image[i] + from, to - from, (off_t)from), to - from);
        }
        memset(d->touched[i], 0, sizeof d->touched[i]);
    }
}

/* As it was before anything was recorded. */
static inline void disk_rewind(void)
{
    struct disk *d = &the_disk;
    for (int i = 0; i < DISK_FILES; i++) {
        memset(d->image[i], 0, d->size[i]);
        d->size[i] = 0;
    }
    disk_restore();
}

#endif
