/* The limits of the processes that Granary starts here, and what the kernel allows them: descriptors, threads, locked
 * memory, io_uring, and a clock that is right enough for S3's signatures. */
#include <errno.h>
#include <inttypes.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"

enum {
    FILES_LEAST = 4096,      /* descriptors for a server with many clients */
    THREADS_LEAST = 1024,    /* a server has some 400: 256 that read for clients, 64 that fetch */
    LOCKED_LEAST = 64 << 20, /* bytes of registered buffers of a server whose threads all read */
    CGROUP_MAX = 64 << 10    /* bytes of /proc/self/cgroup */
};

static void check_files(struct doctor_report *r)
{
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_max < FILES_LEAST)
        doctor_add(r, DOCTOR_WARN, "open-files", "raise it: LimitNOFILE= of the unit, or ulimit -Hn",
                   "a process may open %llu files; a server of many clients needs %d",
                   (unsigned long long)files.rlim_max, FILES_LEAST);
    else
        doctor_add(r, DOCTOR_OK, "open-files", NULL, "a process may open %llu files",
                   (unsigned long long)files.rlim_max);
}

static void check_io_uring(struct doctor_report *r)
{
    struct io_uring uring;
    int rc = io_uring_queue_init(8, &uring, 0);
    if (!rc)
        io_uring_queue_exit(&uring);
    if (rc)
        doctor_add(r, DOCTOR_WARN, "io-uring",
                   "sysctl kernel.io_uring_disabled=0, a seccomp profile that allows io_uring, or, before Linux 5.12, "
                   "a higher memlock limit (ulimit -l)",
                   "io_uring is refused here (%s): the cache reads by pread", strerror(-rc));
    else
        doctor_add(r, DOCTOR_OK, "io-uring", NULL, "the kernel allows io_uring");
}

static void check_clock(struct doctor_report *r)
{
    struct timex clock = {0};
    int state = adjtimex(&clock);
    if (state == TIME_ERROR || state < 0)
        doctor_add(r, DOCTOR_WARN, "clock", "run an NTP client: S3 refuses requests of a clock that is 15 minutes off",
                   state < 0 ? "the kernel does not tell whether the clock is synchronized"
                             : "the clock is not synchronized");
    else
        doctor_add(r, DOCTOR_OK, "clock", NULL, "the clock is synchronized");
}

/* Read the pids.max of a cgroup and of those above it, and lower *most to the least of them. dir: below root. */
static void take_cgroup(const char *root, const char *dir, uint64_t *most)
{
    CLEANUP_FREE char *path = strdup(dir);
    char *slash;
    while (path) {
        CLEANUP_BYTES text = BYTES_INIT(64);
        CLEANUP_FREE char *file = NULL;
        if (asprintf(&file, "%s%s/pids.max", root, path) < 0)
            file = NULL;
        if (file && !io_read_file(file, &text) && bytes_string(&text) && *text.data >= '0' && *text.data <= '9')
            *most = GR_MIN(*most, (uint64_t)strtoull((const char *)text.data, NULL, 10));
        slash = strrchr(path, '/');
        if (!strcmp(path, "/sys/fs/cgroup") || !slash)
            return;
        *slash = 0;
    }
}

/* The cgroup's path follows the second colon: "0::/a.slice" (version 2), "8:pids:/a.slice" (version 1). */
static uint64_t most_of_cgroups(const char *root)
{
    CLEANUP_BYTES text = BYTES_INIT(CGROUP_MAX);
    CLEANUP_FREE char *file = NULL;
    uint64_t most = UINT64_MAX;
    if (asprintf(&file, "%s/proc/self/cgroup", root) < 0)
        file = NULL;
    if (!file || io_read_file(file, &text) || !bytes_string(&text))
        return most;
    char *rest = (char *)text.data, *line;
    while ((line = strsep(&rest, "\n"))) {
        char *kind = strchr(line, ':'), *at = kind ? strchr(kind + 1, ':') : NULL;
        CLEANUP_FREE char *dir = NULL;
        if (!at)
            continue;
        *at++ = 0;
        bool second = !strcmp(kind, ":");
        if (!second && strcmp(kind, ":pids") != 0)
            continue;
        if (asprintf(&dir, "/sys/fs/cgroup%s%s", second ? "" : "/pids", strcmp(at, "/") ? at : "") < 0)
            dir = NULL;
        else
            take_cgroup(root, dir, &most);
    }
    return most;
}

static void check_threads(struct doctor_report *r, const char *root)
{
    struct rlimit own;
    uint64_t most = most_of_cgroups(root);
    bool limited = geteuid() && !getrlimit(RLIMIT_NPROC, &own) && own.rlim_cur != RLIM_INFINITY;
    if (limited)
        most = GR_MIN(most, (uint64_t)own.rlim_cur);
    if (most < THREADS_LEAST)
        doctor_add(
            r, DOCTOR_WARN, "threads", "raise it: TasksMax= of the unit, --pids-limit of the container, or ulimit -u",
            "there may be %" PRIu64 " threads here; a server has some 400, and starts others when it is upgraded",
            most);
    else if (most == UINT64_MAX)
        doctor_add(r, DOCTOR_OK, "threads", NULL, "the number of threads is not limited here");
    else
        doctor_add(r, DOCTOR_OK, "threads", NULL, "there may be %" PRIu64 " threads here", most);
}

/* The kernel does not limit root. */
static void check_locked(struct doctor_report *r)
{
    struct rlimit locked;
    char size[TEXT_SIZE_MAX];
    if (!geteuid() || getrlimit(RLIMIT_MEMLOCK, &locked) || locked.rlim_cur >= LOCKED_LEAST)
        doctor_add(r, DOCTOR_OK, "memlock", NULL, "enough memory may be locked");
    else
        doctor_add(
            r, DOCTOR_WARN, "memlock", "raise it: LimitMEMLOCK= of the unit, or ulimit -l",
            "a process may lock %s of memory: reads of the cache cannot use registered buffers, and cost more CPU",
            text_format_size(locked.rlim_cur, size));
}

void doctor_check_limits(struct doctor_report *r, const char *root)
{
    check_files(r);
    check_threads(r, root);
    check_locked(r);
    check_io_uring(r);
    check_clock(r);
}
