/* The log: nothing is remembered between lines. Before each line standard error is examined again, which costs two
 * system calls. So the log's sink needs no state, and a log that another process rotated is noticed.
 *
 *     standard error is        each line                        at SERVICE_LOG_MAX
 *     the journal's stream     "<priority>text"                 the journal's business
 *     a file in the log dir    "time level text"                renamed to FILE.1, a new file opened
 *     a file in a run dir      "time level text"                truncated, since it occupies memory
 *     anything else            "time level text"                left alone
 *
 * No function of the log may replace the thread's error: lines are logged while it is still to be reported.
 *
 * The service manager is told by sd_notify's protocol, without libsystemd: one datagram to the unix socket in
 * NOTIFY_SOCKET. A path that begins with "@" is in the abstract namespace, whose names begin with NUL. */
#include "attach/server/service.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "attach/state.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"
#include "base/text.h"

enum { PATH_SIZE = 128, TAIL_MAX = 2 * SERVICE_LOG_MAX };
enum { FILE_FLAGS = O_RDWR | O_CREAT | O_APPEND };

/* ---- the directory ---- */

/* systemd sets LOGS_DIRECTORY for a unit; root and users have their usual places otherwise. -ENOENT; -ENAMETOOLONG. */
int service_log_directory(char out[PATH_MAX])
{
    const char *given = getenv("LOGS_DIRECTORY"), *state = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int len;
    if (given && *given == '/')
        len = snprintf(out, PATH_MAX, "%s", given);
    else if (!geteuid())
        len = snprintf(out, PATH_MAX, "/var/log/granary");
    else if (state && *state == '/')
        len = snprintf(out, PATH_MAX, "%s/granary/log", state);
    else if (home && *home == '/')
        len = snprintf(out, PATH_MAX, "%s/.local/state/granary/log", home);
    else
        return error_set(-ENOENT, "there is no directory for logs: set HOME or LOGS_DIRECTORY");
    return len < PATH_MAX ? 0 : error_set(-ENAMETOOLONG, "the path of the log directory is too long");
}

/* ---- lines ---- */

/* Whether standard error is the journal's stream: JOURNAL_STREAM has its device and inode. */
static bool to_journal(void)
{
    struct stat st;
    unsigned long long dev, ino;
    const char *stream = getenv("JOURNAL_STREAM");
    return stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 && !fstat(STDERR_FILENO, &st) && st.st_dev == dev &&
           st.st_ino == ino;
}

/* Return the path, without symlinks, of the regular file that standard error is; false when it is none. */
static bool stderr_file(char path[PATH_MAX])
{
    struct stat st;
    if (fstat(STDERR_FILENO, &st) || !S_ISREG(st.st_mode))
        return false;
    ssize_t n = readlink("/proc/self/fd/2", path, PATH_MAX - 1);
    path[n > 0 ? n : 0] = 0;
    return n > 0;
}

/* Is path inside dir? */
static bool is_below(const char *path, const char *dir)
{
    size_t len = strlen(dir);
    return !strncmp(path, dir, len) && path[len] == '/';
}

/* Whether standard error is a file in the log directory. path and dir are filled in, without symlinks. */
static bool own_file(char path[PATH_MAX], char dir[PATH_MAX])
{
    char given[PATH_MAX];
    struct error before;
    error_take(&before, 0);
    int rc = service_log_directory(given);
    (void)error_restore(&before);
    return stderr_file(path) && !rc && realpath(given, dir) && is_below(path, dir) &&
           !strchr(path + strlen(dir) + 1, '/');
}

/* Whether the file is in a run directory, because the log directory could not be used. */
static bool is_fallback(const char *path)
{
    char root[PATH_MAX];
    return realpath(STATE_ROOT, root) && is_below(path, root);
}

/* Open a log for appending, with a shared lock for as long as any process writes to it. sweep_old removes no locked
 * log, even one of a process in another container. */
static int open_locked(int dir_fd, const char *dir, const char *file)
{
    for (;;) {
        CLEANUP_FD int fd = -1;
        struct stat st;
        int rc = safe_file_open(dir_fd, dir, file, FILE_FLAGS, &fd);
        if (rc)
            return rc;
        if (flock(fd, LOCK_SH)) /* where there are no locks, sweep_old gets none either, and removes nothing */
            log_debug("cannot lock the log %s: %s", file, strerror(errno));
        if (fstat(fd, &st) || st.st_nlink) /* else sweep_old removed it in between */
            return steal_fd(&fd);
    }
}

/* Rename the log to FILE.1, and make a new file standard error. */
static int rotate(const char *path, const char *dir)
{
    char before[NAME_MAX + 1];
    const char *name = path + strlen(dir) + 1;
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    int rc = safe_dir_open(dir, SAFE_DIR_ROOTS_GROUP, &dir_fd);
    snprintf(before, sizeof before, "%.200s.1", name);
    if (!rc && renameat(dir_fd, name, dir_fd, before))
        rc = -errno;
    if (rc)
        return rc;
    fd = open_locked(dir_fd, dir, name);
    return fd < 0 ? fd : dup2(fd, STDERR_FILENO) < 0 ? -errno : 0;
}

/* Bound the log before a line is written. */
static void service_log_make_room(void)
{
    struct stat st;
    struct error before;
    char path[PATH_MAX], dir[PATH_MAX];
    if (fstat(STDERR_FILENO, &st) || !S_ISREG(st.st_mode) || st.st_size < SERVICE_LOG_MAX || !stderr_file(path))
        return;
    bool own = own_file(path, dir);
    if (!own && !is_fallback(path))
        return;
    error_take(&before, 0);
    if ((!own || rotate(path, dir)) && ftruncate(STDERR_FILENO, 0))
        (void)0; /* a full log must not end the server */
    (void)error_restore(&before);
}

#define OWN_NAME "granary: "

/* In the order of enum log_level. */
static const char *const level_names[] = {"error", "warning", "info", "debug"};

/* Write one line in the form that fits standard error. */
static void write_line(enum log_level level, const char *prefix, const char *line)
{
    static const int priorities[] = {3, 4, 6, 7}; /* of syslog */
    char now[TEXT_TIME_MAX];
    service_log_make_room();
    if (to_journal())
        fprintf(stderr, "<%d>%s%s\n", priorities[level], prefix, line);
    else
        fprintf(stderr, "%s %s %s%s\n", text_format_time(time(NULL), now), level_names[level], prefix, line);
}

/* The log's sink: this process's own lines have its name in front. */
static void sink(enum log_level level, const char *line)
{
    write_line(level, OWN_NAME, line);
}

void service_log_begin(void)
{
    log_to(sink, LOG_LEVEL_INFO);
}

/* A child's line has its level in words, since it comes through a pipe. A front end writes "granary: LEVEL: text"; that
 * level is not repeated. */
void service_log_line(const char *line)
{
    for (unsigned i = 0; i < GR_ARRAY_SIZE(level_names); i++) {
        char own[32];
        int len = snprintf(own, sizeof own, OWN_NAME "%s: ", level_names[i]);
        if (!strncmp(line, own, (size_t)len)) {
            write_line(i, OWN_NAME, line + len);
            return;
        }
    }
    write_line(strstr(line, "warning: ") ? LOG_LEVEL_WARNING
               : strstr(line, "error: ") ? LOG_LEVEL_ERROR
               : strstr(line, "debug: ") ? LOG_LEVEL_DEBUG
                                         : LOG_LEVEL_INFO,
               "", line);
}

/* For `granary status`: a path, or what stands for it. */
char *service_log_where(char out[PATH_MAX])
{
    char dir[PATH_MAX];
    if (to_journal())
        snprintf(out, PATH_MAX, "journal");
    else if (!own_file(out, dir))
        snprintf(out, PATH_MAX, "standard error");
    return out;
}

/* ---- of a process to be started ---- */

/* The path in the run directory that leads to the log. */
static void link_name(const char *run_dir, const char *name, char out[PATH_SIZE])
{
    snprintf(out, PATH_SIZE, "%s/%s", run_dir, name);
}

/* Whether file is STEM-ID.log, or its .1, and no run directory ID exists beside run_dir. */
static bool is_of_none(const char *file, const char *stem, const char *run_dir)
{
    char other[PATH_MAX];
    size_t len = strlen(stem);
    const char *end = strstr(file, ".log"), *id = file + len + 1;
    if (strncmp(file, stem, len) || file[len] != '-' || !end || end <= id || (end[4] && strcmp(end + 4, ".1")))
        return false;
    int parent = (int)(strrchr(run_dir, '/') - run_dir);
    return snprintf(other, sizeof other, "%.*s/%.*s", parent, run_dir, (int)(end - id), id) < (int)sizeof other &&
           access(other, F_OK) && errno == ENOENT;
}

/* Remove FILE or FILE.1, unless it is newer than oldest or a process writes to FILE. */
static void remove_old(int dir_fd, const char *file, time_t oldest)
{
    struct stat st;
    char current[NAME_MAX + 1];
    snprintf(current, sizeof current, "%.*s.log", (int)(strstr(file, ".log") - file), file);
    if (fstatat(dir_fd, file, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode) || st.st_mtime >= oldest)
        return;
    CLEANUP_FD int fd = openat(dir_fd, current, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 ? errno != ENOENT : flock(fd, LOCK_EX | LOCK_NB) != 0)
        return;
    if (unlinkat(dir_fd, file, 0))
        log_debug("cannot remove the old log %s: %s", file, strerror(errno));
}

/* Remove old logs: a machine that mounts at new directories every day would collect them without end. */
static void sweep_old(int dir_fd, const char *stem, const char *run_dir)
{
    time_t oldest = time(NULL) - (time_t)SERVICE_LOG_KEPT_DAYS * 24 * 3600;
    int fd = openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *e; d && (e = readdir(d));)
        if (is_of_none(e->d_name, stem, run_dir))
            remove_old(dir_fd, e->d_name, oldest);
    if (d)
        closedir(d);
    else if (fd >= 0)
        close(fd);
}

/* Open the log in the log directory, and link to it from the run directory. */
static int open_in_log_directory(const char *run_dir, const char *name)
{
    char dir[PATH_MAX], parent[PATH_MAX], stem[32], file[NAME_MAX + 1], target[PATH_MAX + NAME_MAX + 2],
        link[PATH_SIZE];
    snprintf(stem, sizeof stem, "%.*s", (int)strcspn(name, "."), name);
    snprintf(file, sizeof file, "%s-%.100s.log", stem, strrchr(run_dir, '/') + 1);
    int rc = service_log_directory(dir);
    if (!rc) {
        snprintf(parent, sizeof parent, "%.*s", (int)GR_MAX(strrchr(dir, '/') - dir, (ptrdiff_t)1), dir);
        rc = io_mkdirs(parent);
    }
    if (rc)
        return rc;
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int fd = -1;
    rc = safe_dir_open(dir, SAFE_DIR_MAKE | SAFE_DIR_ROOTS_GROUP, &dir_fd);
    if (rc)
        return rc;
    fd = open_locked(dir_fd, dir, file);
    if (fd < 0)
        return fd;
    sweep_old(dir_fd, stem, run_dir);
    snprintf(target, sizeof target, "%s/%s", dir, file);
    link_name(run_dir, name, link);
    if ((unlink(link) && errno != ENOENT) || symlink(target, link))
        return error_set(-errno, "cannot make %s: %s", link, strerror(errno));
    return steal_fd(&fd);
}

/* Open the log in the run directory, with a warning that has the thread's error. */
static int open_in_run_dir(const char *run_dir, const char *name)
{
    struct stat st;
    char path[PATH_SIZE];
    link_name(run_dir, name, path);
    log_warning("%s; the log is %s, which goes with the mount", error_text(), path);
    if (!lstat(path, &st) && S_ISLNK(st.st_mode)) /* to the log directory, made by an earlier start */
        unlink(path);
    int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC, 0600);
    return fd < 0 ? error_set(-errno, "cannot create %s: %s", path, strerror(errno)) : fd;
}

/* A log directory that cannot be used is no reason not to start; the run directory then has the log. */
int service_log_open(const char *run_dir, const char *name)
{
    char now[TEXT_TIME_MAX];
    int fd = open_in_log_directory(run_dir, name);
    if (fd < 0)
        fd = open_in_run_dir(run_dir, name);
    if (fd >= 0 && dprintf(fd, "%s info granary: a process is started\n", text_format_time(time(NULL), now)) < 0)
        log_debug("cannot write to the log of %s", run_dir); /* a full disk does not prevent a mount */
    return fd;
}

/* Return the sentence of an error line, or NULL for any other line. It follows the time and level or, when the program
 * failed before it began to log, the program's name. The last line of a server that was killed explains nothing. */
static const char *error_in(const char *line)
{
    static const char *const prefixes[] = {"granary: serve: ", "granary: keep: ", "granary: mount: "};
    static const char stamp[] = "2026-11-20T23:01:02Z error ";
    const size_t at = sizeof stamp - 1, level = 19; /* of the stamp: what is the same in all */
    bool stamped = strlen(line) > at && !memcmp(line + level, stamp + level, at - level);
    line += stamped ? at : 0;
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes); i++)
        if (!strncmp(line, prefixes[i], strlen(prefixes[i])))
            return line + strlen(prefixes[i]);
    return stamped ? line : NULL;
}

/* The program that failed is gone, so its last line is the only explanation there is. */
int service_log_explain(const char *run_dir, const char *name, const char *what, int rc)
{
    char path[PATH_SIZE];
    struct error known;
    CLEANUP_BYTES text = BYTES_INIT(TAIL_MAX);
    error_take(&known, rc);
    link_name(run_dir, name, path);
    if (io_read_file(path, &text))
        return error_restore(&known);
    while (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    if (!bytes_string(&text))
        return error_restore(&known);
    const char *last = strrchr((char *)text.data, '\n');
    const char *sentence = error_in(last ? last + 1 : (char *)text.data);
    return sentence && *sentence ? error_set(rc, "%s: %s", what, sentence) : error_restore(&known);
}

/* ---- signals and the service manager ---- */

int service_signals(int *out_fd)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *out_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *out_fd >= 0 ? 0 : error_set(-errno, "signalfd: %s", strerror(errno));
}

/* A failure is only logged: a service works without its manager's knowledge. */
void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (*path == '@')
        address.sun_path[0] = 0;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, len) < 0)
        log_warning("cannot tell the service manager %s: %s", state, strerror(errno));
}
