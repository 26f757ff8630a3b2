/* Locks by flock on the directories themselves, so no lock file is left behind. A run directory may be removed by the
 * process that holds its lock; one that waited for the lock then holds a directory that is not there any more, so it
 * compares inodes and starts again. */
#include "attach/node_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/state.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"

/* How long node_lock and node_lock_mount wait; between two tries. */
enum { WAIT_MS = 60000, MOUNT_WAIT_MS = 20000, STEP_US = 20000 };

static int node_lock_open_dir(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd >= 0 ? fd : error_set(-errno, "cannot open %s: %s", path, strerror(errno));
}

/* Try again and again instead of blocking, so that a lock that is never released becomes an error. */
int node_lock(int *out_fd)
{
    int rc = io_mkdirs(STATE_ROOT);
    CLEANUP_FD int fd = rc ? -1 : node_lock_open_dir(STATE_ROOT);
    if (rc || fd < 0)
        return rc ? rc : fd;
    uint64_t deadline = clock_now_ms() + WAIT_MS;
    while (flock(fd, LOCK_EX | LOCK_NB)) {
        if (clock_now_ms() > deadline)
            return error_set(-EBUSY,
                             "another granary mount or umount has been at work for a minute ('fuser %s' shows "
                             "it); end it and try again",
                             STATE_ROOT);
        usleep(STEP_US);
    }
    *out_fd = steal_fd(&fd);
    return 0;
}

/* Whether path is still the directory that fd locks. */
static bool is_there(const char *path, int fd)
{
    struct stat there, locked;
    return !stat(path, &there) && !fstat(fd, &locked) && there.st_ino == locked.st_ino && there.st_dev == locked.st_dev;
}

/* The directory may vanish between mkdir, open and flock; each time the loop starts again. */
int node_lock_mount(const char *run_dir, bool wait, int *out_fd)
{
    uint64_t deadline = clock_now_ms() + (wait ? MOUNT_WAIT_MS : 0);
    for (;;) {
        if (mkdir(run_dir, 0700) && errno != EEXIST)
            return error_set(-errno, "cannot make %s: %s", run_dir, strerror(errno));
        CLEANUP_FD int fd = open(run_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0 && errno == ENOENT)
            continue;
        if (fd < 0)
            return error_set(-errno, "cannot open %s: %s", run_dir, strerror(errno));
        if (!flock(fd, LOCK_EX | LOCK_NB)) {
            if (!is_there(run_dir, fd))
                continue;
            *out_fd = steal_fd(&fd);
            return 0;
        }
        if (clock_now_ms() >= deadline)
            return error_set(-EBUSY, "it is being mounted or unmounted by another process ('fuser %s' shows it)",
                             run_dir);
        usleep(STEP_US);
    }
}
