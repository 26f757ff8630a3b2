/* Faults are kept by path prefix; a descriptor's path is asked of /proc at each call, so that copies of
 * descriptors are found too.
 */
#include "fake/disk_fake.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"

enum { FAULTS_MAX = 16 };

struct fault {
    char path[PATH_MAX];
    enum disk_fault kind[2]; /* of reads, of writes */
    int error[2];
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fault faults[FAULTS_MAX];
    unsigned count, hanging, calls;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct fault *find_locked(const char *path)
{
    for (unsigned i = 0; i < disk.count; i++) {
        size_t len = strlen(disk.faults[i].path);
        if (!strncmp(path, disk.faults[i].path, len) && (path[len] == 0 || path[len] == '/'))
            return &disk.faults[i];
    }
    return NULL;
}

static enum disk_fault fault_locked(const char *path, bool write, int *error)
{
    const struct fault *f = find_locked(path);
    *error = f ? f->error[write] : 0;
    return f ? f->kind[write] : DISK_HEALTHY;
}

/* What this call is to meet; waits while that is silence. */
static enum disk_fault meet(int fd, bool write, int *error)
{
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    SCOPED_LOCK(&disk.lock);
    disk.calls++;
    if (fault_locked(path, write, error) == DISK_HANG) {
        disk.hanging++;
        pthread_cond_broadcast(&disk.changed);
        while (fault_locked(path, write, error) == DISK_HANG)
            pthread_cond_wait(&disk.changed, &disk.lock);
        disk.hanging--;
        pthread_cond_broadcast(&disk.changed);
    }
    return fault_locked(path, write, error);
}

static ssize_t fake_pread(int fd, void *out, size_t len, off_t off)
{
    int error;
    enum disk_fault fault = meet(fd, false, &error);
    if (fault == DISK_ERROR) {
        errno = error;
        return -1;
    }
    ssize_t n = pread(fd, out, len, off);
    for (ssize_t i = 0; fault == DISK_WRONG && i < n; i += 512)
        ((uint8_t *)out)[i] ^= 1;
    return n;
}

static ssize_t fake_pwrite(int fd, const void *data, size_t len, off_t off)
{
    int error;
    if (meet(fd, true, &error) == DISK_ERROR) {
        errno = error;
        return -1;
    }
    return pwrite(fd, data, len, off);
}

static int fake_fallocate(int fd, int mode, off_t off, off_t len)
{
    int error;
    if (meet(fd, true, &error) == DISK_ERROR) {
        errno = error;
        return -1;
    }
    return fallocate(fd, mode, off, len);
}

struct io_calls disk_fake_calls(void)
{
    disk_fake_reset();
    return (struct io_calls){.pread = fake_pread, .pwrite = fake_pwrite, .fallocate = fake_fallocate};
}

static void set(const char *path, bool write, enum disk_fault kind, int error)
{
    CLEANUP_FREE char *real = realpath(path, NULL);
    SCOPED_LOCK(&disk.lock);
    assert(real && (find_locked(real) || disk.count < FAULTS_MAX));
    struct fault *f = find_locked(real);
    if (!f) {
        f = &disk.faults[disk.count++];
        *f = (struct fault){0};
        snprintf(f->path, sizeof f->path, "%s", real);
    }
    f->kind[write] = kind;
    f->error[write] = error;
    pthread_cond_broadcast(&disk.changed);
}

void disk_fake_reads(const char *path, enum disk_fault fault, int error)
{
    set(path, false, fault, error);
}

void disk_fake_writes(const char *path, enum disk_fault fault, int error)
{
    set(path, true, fault, error);
}

unsigned disk_fake_hanging(void)
{
    SCOPED_LOCK(&disk.lock);
    return disk.hanging;
}

unsigned disk_fake_calls_made(void)
{
    SCOPED_LOCK(&disk.lock);
    return disk.calls;
}

void disk_fake_wait_hanging(unsigned n)
{
    SCOPED_LOCK(&disk.lock);
    while (disk.hanging != n)
        pthread_cond_wait(&disk.changed, &disk.lock);
}

void disk_fake_reset(void)
{
    SCOPED_LOCK(&disk.lock);
    disk.count = disk.calls = 0;
    pthread_cond_broadcast(&disk.changed);
}
