/* Cache directories: each must be this user's alone, have room, and a disk that answers and is not slower than a store.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/accounts.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "cli/bench/bench.h"
#include "cli/doctor/doctor.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"

enum {
    PROBE = 64 << 20,      /* bytes written as a trial, at most */
    WRITE_MS = 3000,       /* how long that may take */
    READ = 64 << 10,       /* bytes of a read: a chunk */
    READ_MS = 500,         /* how long reads are measured */
    DISK_MS = 10000,       /* for all of that; then the disk hangs */
    SLOW_WRITE = 100 << 20 /* bytes a second, about 1 Gbit/s: a store may be faster */
};

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

/* size: bytes; 0: as much as there is; type: of the filesystem; "": it is not known. */
static void check_cache(struct doctor_report *r, const char *dir, uint64_t size, const char *type)
{
    CLEANUP_FD int fd = -1;
    struct statvfs fs;
    char configured[TEXT_SIZE_MAX], room[TEXT_SIZE_MAX], owner[ACCOUNT_TEXT_MAX];
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
        doctor_add(r, DOCTOR_OK, "cache", NULL, "%s: %s%s%s%s%s available, to %s", dir, type, *type ? ", " : "",
                   size ? configured : "", size ? " of " : "", room, account_text(geteuid(), owner));
    if (free_space > 2 * (uint64_t)PROBE)
        check_speed(r, dir);
}

/* A directory to check, in a child process: a disk that does not answer would keep doctor waiting for ever. */
struct cache_to_check {
    const char *dir;
    uint64_t size;
    bool operand;
};

/* Root checks a cache as its owner, which a server of that user is. In a child process: it does not change back. */
static int become_owner(const struct stat *st)
{
    if (geteuid() || !st->st_uid)
        return 0;
    return setgroups(0, NULL) || setegid(st->st_gid) || seteuid(st->st_uid) ? -errno : 0;
}

static int check_one(struct doctor_report *r, const void *arg)
{
    const struct cache_to_check *c = arg;
    struct stat st;
    char type[MOUNTINFO_TYPE_MAX];
    bool there = !stat(c->dir, &st);
    if (c->operand && (!there || !S_ISDIR(st.st_mode)))
        return -ENOTDIR;
    if (!there || mountinfo_type(c->dir, type)) /* before the change of user, which keeps it from reading fdinfo */
        *type = 0;
    int rc = there ? become_owner(&st) : 0;
    if (rc)
        return error_set(rc, "cannot become its owner: %s; run granary doctor as that user", strerror(-rc));
    check_cache(r, c->dir, c->size, type);
    return 0;
}

/* -ENOTDIR: the operand is no directory. */
static int check_in_time(struct doctor_report *r, const struct cache_to_check *c)
{
    int rc = doctor_within(r, check_one, c, DISK_MS);
    if (rc == -ETIMEDOUT)
        doctor_add(r, DOCTOR_FAIL, "cache-disk", "look at the disk: dmesg, smartctl; or use another directory",
                   "%s: its disk has given no answer for %d seconds", c->dir, DISK_MS / 1000);
    else if (rc && rc != -ENOTDIR)
        doctor_add(r, DOCTOR_FAIL, "cache-disk", NULL, "%s: %s", c->dir, error_text());
    return rc;
}

bool doctor_check_directory(struct doctor_report *r, const char *dir)
{
    return check_in_time(r, &(struct cache_to_check){.dir = dir, .operand = true}) != -ENOTDIR;
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
            (void)check_in_time(r, &(struct cache_to_check){.dir = dir, .size = spec.size});
    }
    if (!v->caches.count && !server_options_no_cache(v) && server_options_default_cache(standard))
        (void)check_in_time(r, &(struct cache_to_check){.dir = standard});
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
