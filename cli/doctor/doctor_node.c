/* What a node needs: a kernel with nbd (or FUSE and loop devices) and erofs, Granary's programs in one version,
 * io_uring, enough descriptors, a clock that is right enough for S3's signatures, and a cache directory that is this
 * user's alone, has room and is not slower than the store. And its mounts: each needs its device, a server that
 * answers, and with kernel nbd a reconnect daemon.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <liburing.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "cli/bench/bench.h"
#include "cli/doctor/doctor.h"
#include "cli/server_options.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

enum {
    FILES_LEAST = 4096,    /* descriptors for a server with many clients */
    PROGRAM_MS = 10000,    /* for a program to tell its version */
    STEP_US = 5000,        /* between two looks */
    PROBE = 64 << 20,      /* bytes written as a trial, at most */
    WRITE_MS = 5000,       /* how long that may take */
    READ = 64 << 10,       /* bytes of a read: a chunk */
    READ_MS = 500,         /* how long reads are measured */
    SLOW_WRITE = 100 << 20 /* bytes a second, about 1 Gbit/s: a store may be faster */
};

/* ---- the kernel ---- */

static bool is_loaded(const char *filesystem)
{
    CLEANUP_BYTES text = BYTES_INIT(64 << 10);
    char word[32];
    snprintf(word, sizeof word, "\t%s\n", filesystem);
    return !io_read_file("/proc/filesystems", &text) && !bytes_append(&text, "", 1) &&
           strstr((const char *)text.data, word);
}

/* Whether the kernel has a filesystem, or a module for it, which is loaded then. */
static bool has_filesystem(const char *name)
{
    const char *const argv[] = {"modprobe", name, NULL};
    return is_loaded(name) || (!process_run(argv, PROGRAM_MS) && is_loaded(name));
}

static void check_kernel(struct doctor_report *r)
{
    bool fuse = !access("/dev/fuse", F_OK) && !access("/dev/loop-control", F_OK);
    if (!device_nbd_available())
        doctor_add(r, DOCTOR_OK, "kernel-nbd", NULL, "the kernel has nbd: mounts use kernel nbd");
    else
        doctor_add(r, fuse ? DOCTOR_WARN : DOCTOR_FAIL, "kernel-nbd", NULL, "%s%s", error_text(),
                   fuse ? "; mounts use FUSE, which is slower, and fail when granary-fuse ends" : "");
    if (fuse)
        doctor_add(r, DOCTOR_OK, "fuse", NULL, "/dev/fuse and /dev/loop-control are there");
    else
        doctor_add(r, DOCTOR_WARN, "fuse", "modprobe -a fuse loop, or give the container these devices",
                   "no /dev/fuse or no /dev/loop-control: no mounts by FUSE");
    if (has_filesystem("erofs") && !mount_erofs_fits())
        doctor_add(r, DOCTOR_WARN, "erofs", "build with --fs ext4 for this node, or boot a kernel with pages of 4 KiB",
                   "the kernel's pages have %ld bytes, and its erofs cannot mount images before Linux 6.4",
                   sysconf(_SC_PAGESIZE));
    else if (has_filesystem("erofs"))
        doctor_add(r, DOCTOR_OK, "erofs", NULL, "the kernel has erofs");
    else if (geteuid())
        doctor_add(r, DOCTOR_WARN, "erofs", "run granary doctor as root", "erofs is not loaded, and only root can try");
    else if (has_filesystem("ext4"))
        doctor_add(r, DOCTOR_WARN, "erofs", "build with --fs ext4 for this node, or install a kernel with erofs",
                   "the kernel has no erofs, but ext4");
    else
        doctor_add(r, DOCTOR_FAIL, "erofs", "install a kernel with erofs or ext4 modules",
                   "the kernel has neither erofs nor ext4");
}

/* ---- programs ---- */

/* Run PROGRAM --version and return its output's first line. */
static int version_of(const char *program, char *out, size_t size)
{
    const char *const argv[] = {program, "--version", NULL};
    CLEANUP_FD int output = memfd_create("version", MFD_CLOEXEC);
    const struct process_spec spec = {.argv = argv, .output = output, .listen_fd = -1};
    uint64_t deadline = clock_now_ms() + PROGRAM_MS;
    pid_t pid, ended = 0;
    int status = 0, rc = output < 0 ? error_set(-errno, "memfd: %s", strerror(errno)) : process_spawn(&spec, &pid);
    while (!rc && !(ended = waitpid(pid, &status, WNOHANG)) && clock_now_ms() < deadline)
        usleep(STEP_US);
    if (!rc && !ended) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
        rc = error_set(-ETIMEDOUT, "%s --version does not end", program);
    }
    if (rc)
        return rc;
    ssize_t n = io_pread_full(output, out, size - 1, 0);
    out[n > 0 ? n : 0] = 0;
    out[strcspn(out, "\n")] = 0;
    return status || n <= 0 ? error_set(-EIO, "%s --version fails", program) : 0;
}

static void check_program(struct doctor_report *r, const char *check, bool fuse)
{
    CLEANUP_FREE char *program = NULL;
    char version[128];
    int rc = server_program(fuse, &program);
    if (!rc)
        rc = version_of(program, version, sizeof version);
    if (rc)
        doctor_add(r, fuse ? DOCTOR_WARN : DOCTOR_FAIL, check,
                   fuse ? "install the package granary-fuse, unless this node mounts by kernel nbd only"
                        : "install the package granary again",
                   "%s", error_text());
    else if (strcmp(version, "granary " GRANARY_VERSION) != 0)
        doctor_add(r, DOCTOR_FAIL, check, "install all packages of Granary in one version",
                   "%s says '%s', and this is granary " GRANARY_VERSION, program, version);
    else
        doctor_add(r, DOCTOR_OK, check, NULL, "%s, %s", program, version);
}

/* ---- limits ---- */

static void check_limits(struct doctor_report *r)
{
    struct rlimit files;
    if (!getrlimit(RLIMIT_NOFILE, &files) && files.rlim_max < FILES_LEAST)
        doctor_add(r, DOCTOR_WARN, "open-files", "raise it: LimitNOFILE= of the unit, or ulimit -Hn",
                   "a process may open %llu files; a server of many clients needs %d",
                   (unsigned long long)files.rlim_max, FILES_LEAST);
    else
        doctor_add(r, DOCTOR_OK, "open-files", NULL, "a process may open %llu files",
                   (unsigned long long)files.rlim_max);
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
    struct timex clock = {0};
    int state = adjtimex(&clock);
    if (state == TIME_ERROR || state < 0)
        doctor_add(r, DOCTOR_WARN, "clock", "run an NTP client: S3 refuses requests of a clock that is 15 minutes off",
                   state < 0 ? "the kernel does not tell whether the clock is synchronized"
                             : "the clock is not synchronized");
    else
        doctor_add(r, DOCTOR_OK, "clock", NULL, "the clock is synchronized");
}

void doctor_check_node(struct doctor_report *r)
{
    check_kernel(r);
    check_program(r, "granary-nbd", false);
    check_program(r, "granary-fuse", true);
    check_limits(r);
}

/* ---- cache directories ---- */

/* Measure a directory that is safe and has room. */
static void check_speed(struct doctor_report *r, const char *dir)
{
    CLEANUP_BENCH_DISK disk;
    double write = 0, reads = 0;
    char w[TEXT_SIZE_MAX], d[TEXT_SIZE_MAX];
    int rc = bench_disk_init(&disk, dir, PROBE);
    if (!rc)
        rc = bench_disk_fill(&disk, 1, WRITE_MS, &write);
    if (!rc)
        rc = bench_disk_run(&disk, false, READ, 1, READ_MS, &reads);
    if (rc) {
        doctor_add(r, DOCTOR_FAIL, "cache-disk",
                   rc == -EOPNOTSUPP ? "use ext4 or XFS on an SSD" : "look at the disk: dmesg, smartctl", "%s",
                   error_text());
        return;
    }
    text_format_size((uint64_t)write, w);
    text_format_size((uint64_t)reads * READ, d);
    if (!disk.direct)
        doctor_add(r, DOCTOR_WARN, "cache-disk", "use ext4 or XFS on an SSD",
                   "%s: its filesystem has no direct I/O, so what is cached is in memory twice", dir);
    else if (write < SLOW_WRITE)
        doctor_add(r, DOCTOR_WARN, "cache-disk", "use a faster disk, or --memory alone",
                   "%s: writes %s/s, reads %s/s in chunks: a store may be faster", dir, w, d);
    else
        doctor_add(r, DOCTOR_OK, "cache-disk", NULL, "%s: writes %s/s, reads %s/s, one chunk at a time", dir, w, d);
}

/* Return the bytes that a cache in the directory holds already. */
static uint64_t held_by(int dir_fd)
{
    static const char *const files[] = {"data", "records"};
    uint64_t held = 0;
    struct stat st;
    for (size_t i = 0; i < GR_ARRAY_SIZE(files); i++)
        if (!fstatat(dir_fd, files[i], &st, AT_SYMLINK_NOFOLLOW))
            held += (uint64_t)st.st_blocks * 512;
    return held;
}

/* A server makes a missing directory, but not its parent: without that, a disk is probably not mounted. */
static void check_missing(struct doctor_report *r, const char *dir)
{
    char parent[PATH_MAX];
    snprintf(parent, sizeof parent, "%s", dir);
    if (access(dirname(parent), F_OK))
        doctor_add(r, DOCTOR_FAIL, "cache", "mount its disk, or make the directory", "%s: there is no %s", dir, parent);
    else
        doctor_add(r, DOCTOR_OK, "cache", NULL, "%s is not there yet; the first server makes it", dir);
}

/* size: bytes; 0: as much as there is. */
static void check_cache(struct doctor_report *r, const char *dir, uint64_t size)
{
    CLEANUP_FD int fd = -1;
    struct statvfs fs;
    char configured[TEXT_SIZE_MAX], room[TEXT_SIZE_MAX];
    if (access(dir, F_OK) && errno == ENOENT) {
        check_missing(r, dir);
        return;
    }
    if (safe_dir_open(dir, 0, &fd) || fstatvfs(fd, &fs)) {
        doctor_add(r, DOCTOR_FAIL, "cache", NULL, "%s", fd < 0 ? error_text() : strerror(errno));
        return;
    }
    uint64_t free_space = (uint64_t)fs.f_bavail * fs.f_frsize, held = held_by(fd);
    text_format_size(free_space + held, room);
    text_format_size(size, configured);
    if (size > free_space + held)
        doctor_add(r, DOCTOR_FAIL, "cache", "give it a smaller size, or free space",
                   "%s is set to %s, but only %s is available", dir, configured, room);
    else
        doctor_add(r, DOCTOR_OK, "cache", NULL, "%s: %s%s%s available", dir, size ? configured : "", size ? " of " : "",
                   room);
    if (free_space > 2 * (uint64_t)PROBE)
        check_speed(r, dir);
}

/* Check every directory that a server without options would use. */
static void check_each_cache(struct doctor_report *r, const struct server_values *v)
{
    char standard[PATH_MAX];
    for (size_t i = 0; i < v->caches.count; i++) {
        struct cache_spec spec;
        if (!strcmp(v->caches.items[i], "none") || cache_spec_parse("cache ", v->caches.items[i], &spec))
            continue; /* the values were parsed before */
        CLEANUP_FREE char *dir = strndup(v->caches.items[i], spec.dir_len);
        if (dir)
            check_cache(r, dir, spec.size);
    }
    if (!v->caches.count && !server_options_no_cache(v) && server_options_default_cache(standard))
        check_cache(r, standard, 0);
}

void doctor_check_caches(struct doctor_report *r)
{
    const struct config *c;
    struct server_values v = {0};
    char count[TEXT_COUNT_MAX];
    int rc = config_get(&c);
    if (!rc)
        rc = config_check_sections(c);
    if (!rc)
        rc = server_options_take_config(&v);
    if (!rc)
        rc = server_options_take_environment(&v);
    if (rc) {
        doctor_add(r, DOCTOR_FAIL, "config", NULL, "%s", error_text());
    } else {
        if (c->entries.len)
            doctor_add(r, DOCTOR_OK, "config", NULL, "%s: no errors in %s", c->path,
                       text_format_count(c->entries.len, "setting", count));
        else
            doctor_add(r, DOCTOR_OK, "config", NULL, "no configuration file, or an empty one");
        check_each_cache(r, &v);
    }
    options_release_lists(server_option_rows, &v);
}

/* ---- mounts ---- */

/* What visits of states count. */
struct mounts {
    struct doctor_report *report;
    unsigned sound;
};

static int check_mount(void *arg, const struct mount_state *s)
{
    struct mounts *m = arg;
    json_t *status = NULL;
    if (!s->mounted && process_alive(&s->mounter))
        return 0; /* in progress */
    if (!s->mounted || !mount_device_attached(s)) {
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary umount that directory, then mount it again", "%s: %s",
                   s->dir, s->mounted ? "its device is gone" : "a killed mount has left parts");
        return 0;
    }
    if (*s->control && server_status_get(s->control, &status)) { /* empty: a server without a control socket */
        doctor_add(m->report, DOCTOR_FAIL, "mounts",
                   "start it again: granary serve, or another granary mount; its log says why",
                   "%s: its server does not answer", s->dir);
        return 0;
    }
    const char *health = server_status_text(status, "health");
    if (status && !strcmp(health, "failing"))
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary status says what fails", "%s: its server is failing",
                   s->dir);
    else if (status && !strcmp(health, "degraded"))
        doctor_add(m->report, DOCTOR_WARN, "mounts", "granary status says why", "%s: its server is degraded", s->dir);
    else if (!strcmp(s->method, "nbd") && !keep_holder(s->device))
        doctor_add(m->report, DOCTOR_FAIL, "mounts", "granary keep DEVICE",
                   "%s: nothing reconnects %s when its server ends", s->dir, s->device);
    else
        m->sound++;
    json_decref(status);
    return 0;
}

void doctor_check_mounts(struct doctor_report *r)
{
    struct mounts m = {.report = r};
    unsigned before = r->counts[DOCTOR_FAIL];
    if (geteuid()) {
        doctor_add(r, DOCTOR_WARN, "mounts", "run granary doctor as root", "only root sees the mounts of this node");
        return;
    }
    if (state_each(check_mount, &m))
        doctor_add(r, DOCTOR_WARN, "mounts", NULL, "%s", error_text());
    else if (!m.sound && before == r->counts[DOCTOR_FAIL])
        doctor_add(r, DOCTOR_OK, "mounts", NULL, "there are none");
    else if (m.sound)
        doctor_add(r, DOCTOR_OK, "mounts", NULL, "%u with device and server", m.sound);
}
