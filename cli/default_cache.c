/* The cache of a server that was started without --cache. A default must never keep a server from starting. So
 * everything for which the server would refuse the directory is tried here first: its owner, its locks, reserving
 * space. Any failure means a server without a disk cache, and a line that says why.
 *
 * Two locks: default.lock is the claim of a command, taken before its server's process exists; the cache's own lock is
 * the server's. The second is only probed here and released again.
 */
#include "cli/default_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "cache/cache_tools.h"

#define SYSTEM_DIR "/var/cache/granary"

static const uint64_t LEAST = 64ull << 20; /* smallest size, and the step of sizes */
enum {
    PROBE = 1 << 20,    /* bytes reserved as a trial */
    SHARE_PERCENT = 50, /* of the free space for the cache */
    LEFT_PERCENT = 10,  /* of the filesystem that stays free */
    LOCK_MS = 5000,     /* how long to wait for a killed server's front end */
    LOCK_STEP_US = 50000
};

const char *default_cache_environment(void)
{
    const char *text = getenv("GRANARY_CACHE");
    return text && *text ? text : NULL;
}

/* XDG_CACHE_HOME counts only if it is absolute, as the XDG specification requires. */
bool default_cache_dir(char out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = 0;
    if (!geteuid())
        len = snprintf(out, PATH_MAX, "%s", SYSTEM_DIR);
    else if (cache && *cache == '/')
        len = snprintf(out, PATH_MAX, "%s/granary", cache);
    else if (home && *home == '/')
        len = snprintf(out, PATH_MAX, "%s/.cache/granary", home);
    return len > 0 && len < PATH_MAX;
}

/* Open the directory, which must be this user's alone: anyone else who may write there could plant chunks. */
static int default_cache_open_dir(const char *dir, int *out_fd)
{
    CLEANUP_FREE char *parent = strdup(dir);
    if (!parent)
        return error_no_memory();
    *strrchr(parent, '/') = 0;
    int rc = io_mkdirs(parent);
    return rc ? rc : safe_dir_open(dir, SAFE_DIR_MAKE, out_fd);
}

/* Claim the directory among commands that start a server without --cache. */
static int default_cache_claim(int dir_fd, const char *dir, int *out_fd)
{
    CLEANUP_FD int fd = -1;
    int rc = safe_file_open(dir_fd, dir, "default.lock", O_RDWR | O_CREAT, &fd);
    if (rc)
        return rc;
    if (flock(fd, LOCK_EX | LOCK_NB))
        return error_set(-errno, "%s is in use by another server", dir);
    *out_fd = steal_fd(&fd);
    return 0;
}

/* Take the cache's lock, waiting a little: the front end of a killed server has it for a moment longer than the claim.
 * Without the wait the next server would have no cache for its whole life. */
static int lock_soon(int dir_fd, const char *dir, int *out_fd)
{
    uint64_t deadline = clock_now_ms() + LOCK_MS;
    for (;;) {
        int rc = cache_lock_take(dir_fd, dir, true, out_fd);
        if (rc != -EBUSY || clock_now_ms() >= deadline)
            return rc;
        usleep(LOCK_STEP_US);
    }
}

/* Check that the filesystem supports fallocate. */
static int check_reserves(const char *dir)
{
    CLEANUP_FD int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0 || fallocate(fd, 0, 0, PROBE))
        return error_set(-errno, "the filesystem of %s cannot reserve room: %s", dir, strerror(errno));
    return 0;
}

/* Choose a size: half of the free space, but leave a tenth of the filesystem. -ENOSPC: even LEAST does not fit. */
static int choose_size(const char *dir, uint64_t *out)
{
    uint64_t free_space, total;
    int rc = cache_dir_free_space(dir, &free_space, &total);
    if (rc)
        return rc;
    uint64_t left = total / 100 * LEFT_PERCENT, size = free_space / 100 * SHARE_PERCENT;
    size = GR_MIN(size, free_space > left ? free_space - left : 0) / LEAST * LEAST;
    if (!size) {
        char have[TEXT_SIZE_MAX];
        return error_set(-ENOSPC, "the filesystem of %s has too little room, %s", dir,
                         text_format_size(free_space, have));
    }
    *out = size;
    return 0;
}

/* The claim is returned in *out_fd; the other descriptors are closed. */
int default_cache_make(char spec[DEFAULT_CACHE_SPEC_MAX], int *out_fd)
{
    char dir[PATH_MAX];
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int lock = -1;
    CLEANUP_FD int claimed = -1;
    uint64_t size = 0;
    if (!default_cache_dir(dir))
        return error_set(-ENOENT, "this user has neither XDG_CACHE_HOME nor HOME");
    int rc = default_cache_open_dir(dir, &dir_fd);
    if (!rc)
        rc = default_cache_claim(dir_fd, dir, &claimed);
    if (!rc)
        rc = lock_soon(dir_fd, dir, &lock);
    if (!rc)
        rc = check_reserves(dir);
    if (!rc)
        rc = choose_size(dir, &size);
    if (rc)
        return rc;
    snprintf(spec, DEFAULT_CACHE_SPEC_MAX, "%s:%" PRIu64, dir, size);
    *out_fd = steal_fd(&claimed);
    return 0;
}
