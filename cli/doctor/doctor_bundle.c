/* One .tar.gz with what a bug report needs. Its entries are documents that Granary makes for people or scripts anyway,
 * and they hold no secrets: keys are in none of them, and URLs are shown without user names and passwords. What others
 * may have written into, the logs and the journal, goes through doctor_redact().
 *
 *   doctor.json  versions  settings.json  mountinfo  state/  logs/  servers/N/status.json  servers/N/metrics
 *   journal  kernel
 */
#include <archive.h>
#include <archive_entry.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/doctor/doctor.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

enum {
    TEXT_MAX = 64 << 20, /* bytes of a document */
    LOG_TAIL = 1 << 20   /* bytes of a log, or of the journal */
};
#define JOURNAL_LINES "2000"
#define KERNEL_LINES "10000" /* of which few are about nbd and erofs */

struct bundle {
    struct archive *archive;
    struct doctor_report *report;
};

/* Add an entry. */
static int add(struct bundle *b, const char *name, const void *data, size_t len)
{
    struct archive_entry *e = archive_entry_new();
    if (!e)
        return error_no_memory();
    archive_entry_set_pathname(e, name);
    archive_entry_set_size(e, (la_int64_t)len);
    archive_entry_set_filetype(e, AE_IFREG);
    archive_entry_set_perm(e, 0600);
    archive_entry_set_mtime(e, time(NULL), 0);
    bool failed = archive_write_header(b->archive, e) != ARCHIVE_OK ||
                  (len && archive_write_data(b->archive, data, len) != (la_ssize_t)len);
    archive_entry_free(e);
    return failed ? error_set(-EIO, "%s", archive_error_string(b->archive)) : 0;
}

/* Add a JSON document, and free it. */
static int add_json(struct bundle *b, const char *name, json_t *object)
{
    CLEANUP_FREE char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
    json_decref(object);
    return text ? add(b, name, text, strlen(text)) : error_no_memory();
}

/* Note what is left out; the sentence says why. */
static void leave_out(struct bundle *b, const char *name)
{
    doctor_add(b->report, DOCTOR_WARN, "bundle", NULL, "%s is left out: %s", name, error_text());
}

/* Read a file into the empty buffer, or the lines in its last LOG_TAIL bytes if it is longer: half a line might begin
 * after the name by which doctor_redact() knows a secret. */
static int read_tail(int fd, const char *path, struct bytes *out)
{
    struct stat st;
    if (fstat(fd, &st) || lseek(fd, st.st_size > LOG_TAIL ? st.st_size - LOG_TAIL : 0, SEEK_SET) < 0)
        return error_set(-errno, "%s: %s", path, strerror(errno));
    int rc = io_read_rest(fd, path, out);
    if (rc || st.st_size <= LOG_TAIL)
        return rc;
    const uint8_t *newline = memchr(out->data, '\n', out->len);
    size_t cut = newline ? (size_t)(newline - out->data) + 1 : out->len;
    out->len -= cut;
    memmove(out->data, out->data + cut, out->len);
    return 0;
}

/* Whether a file in the directory belongs in the bundle. */
typedef bool bundle_choice(const char *name);

static bool is_log(const char *name)
{
    return strstr(name, ".log");
}

/* Add a file, or the end of a long one. */
static int add_file(struct bundle *b, const char *name, const char *path)
{
    CLEANUP_BYTES text = BYTES_INIT(TEXT_MAX);
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int rc = fd < 0 ? error_set(-errno, "%s: %s", path, strerror(errno)) : read_tail(fd, path, &text);
    if (!rc && is_log(name))
        doctor_redact(&text);
    if (!rc)
        return add(b, name, text.data, text.len);
    leave_out(b, name);
    return 0;
}

/* The records of mounts and devices. */
static bool is_state(const char *name)
{
    size_t len = strlen(name);
    return !strcmp(name, "state.json") || (!strncmp(name, "nbd", 3) && len > 5 && !strcmp(name + len - 5, ".json"));
}

/* Add the chosen regular files of a directory, and of its directories down to `depth` levels. */
static int add_directory(struct bundle *b, const char *name, const char *path, bundle_choice *chosen, int depth)
{
    DIR *dir = opendir(path);
    struct dirent *e;
    int rc = 0;
    while (dir && !rc && (e = readdir(dir))) {
        CLEANUP_FREE char *inner = NULL, *from = NULL;
        struct stat st;
        if (e->d_name[0] == '.')
            continue;
        if (asprintf(&inner, "%s/%s", name, e->d_name) < 0)
            inner = NULL;
        if (asprintf(&from, "%s/%s", path, e->d_name) < 0)
            from = NULL;
        if (!inner || !from)
            rc = error_no_memory();
        else if (lstat(from, &st))
            continue; /* gone meanwhile */
        else if (S_ISREG(st.st_mode) && chosen(e->d_name))
            rc = add_file(b, inner, from);
        else if (S_ISDIR(st.st_mode) && depth > 0)
            rc = add_directory(b, inner, from, chosen, depth - 1);
    }
    if (dir)
        closedir(dir);
    return rc;
}

static int add_versions(struct bundle *b)
{
    CLEANUP_BYTES text = BYTES_INIT(64 << 10);
    struct utsname u;
    uname(&u);
    int rc =
        bytes_printf(&text, "granary %s\n%s %s %s %s\n\n", GRANARY_VERSION, u.sysname, u.release, u.version, u.machine);
    if (!rc && io_read_file("/etc/os-release", &text))
        leave_out(b, "os-release");
    return rc ? rc : add(b, "versions", text.data, text.len);
}

/* Add what a server answers to GET path. */
static int add_answer(struct bundle *b, size_t number, const char *control, const char *path, const char *file)
{
    CLEANUP_BYTES text = BYTES_INIT(TEXT_MAX);
    char name[64];
    snprintf(name, sizeof name, "servers/%zu/%s", number, file);
    if (!control_get(control, path, &text))
        return add(b, name, text.data, text.len);
    leave_out(b, name);
    return 0;
}

static int add_servers(struct bundle *b)
{
    struct node_servers servers = {0};
    int rc = node_servers_find(&servers);
    if (!rc)
        rc = node_servers_add_units(&servers);
    for (size_t i = 0; !rc && i < servers.found.len; i++) {
        rc = add_answer(b, i, servers.found.items[i].control, "/status", "status.json");
        if (!rc)
            rc = add_answer(b, i, servers.found.items[i].control, "/metrics", "metrics");
    }
    node_servers_release(&servers);
    return rc;
}

/* Keep only the lines about nbd, ublk and erofs. */
static void keep_devices(struct bytes *text)
{
    size_t kept = 0, len;
    for (size_t at = 0; at < text->len; at += len) {
        const uint8_t *line = text->data + at, *newline = memchr(line, '\n', text->len - at);
        len = newline ? (size_t)(newline - line) + 1 : text->len - at;
        if (!memmem(line, len, "nbd", 3) && !memmem(line, len, "ublk", 4) && !memmem(line, len, "erofs", 5))
            continue;
        memmove(text->data + kept, line, len);
        kept += len;
    }
    text->len = kept;
}

/* Add what journalctl prints; keep: choose lines, NULL: all. Without systemd, or if it knows of no such unit, there is
 * nothing to add. */
static int add_journal(struct bundle *b, const char *name, const char *const *argv, void (*keep)(struct bytes *text))
{
    CLEANUP_BYTES text = BYTES_INIT(TEXT_MAX);
    CLEANUP_FD int fd = -1;
    int status = 0, rc = doctor_run(argv, &fd, &status);
    if (rc == -ENOENT)
        return 0;
    if (!rc)
        rc = read_tail(fd, argv[0], &text);
    if (!rc && status && text.len && memmem(text.data, text.len, "No data available", 17))
        return 0;
    if (!rc)
        doctor_redact(&text);
    if (!rc && status)
        rc = error_set(-EIO, "journalctl fails: %.*s", (int)GR_MIN(text.len, (size_t)200), (const char *)text.data);
    if (rc) {
        leave_out(b, name);
        return 0;
    }
    if (keep)
        keep(&text);
    return text.len ? add(b, name, text.data, text.len) : 0;
}

static int add_journals(struct bundle *b)
{
    static const char *const units[] = {"journalctl", "-q",          "--no-pager", "-o",       "short-iso",
                                        "-n",         JOURNAL_LINES, "-u",         "granary*", NULL};
    static const char *const kernel[] = {"journalctl", "-q",         "--no-pager", "-o", "short-iso",
                                         "-n",         KERNEL_LINES, "-k",         NULL};
    int rc = add_journal(b, "journal", units, NULL);
    return rc ? rc : add_journal(b, "kernel", kernel, keep_devices);
}

/* The report comes last, as it names what was left out. */
static int fill(struct bundle *b)
{
    const struct config *c;
    char logs[PATH_MAX];
    int rc = add_versions(b);
    if (!rc && !config_get(&c))
        rc = add_json(b, "settings.json", config_settings(c));
    if (!rc)
        rc = add_file(b, "mountinfo", "/proc/self/mountinfo");
    if (!rc)
        rc = add_directory(b, "state", SERVE_RUN_DIR, is_state, 1);
    if (!rc && !service_log_directory(logs))
        rc = add_directory(b, "logs", logs, is_log, 0);
    if (!rc)
        rc = add_servers(b);
    if (!rc)
        rc = add_journals(b);
    return rc ? rc : add_json(b, "doctor.json", doctor_json(b->report));
}

/* Write the whole archive to fd. */
static int write_archive(struct bundle *b, int fd)
{
    if (archive_write_add_filter_gzip(b->archive) != ARCHIVE_OK ||
        archive_write_set_format_pax_restricted(b->archive) != ARCHIVE_OK ||
        archive_write_open_fd(b->archive, fd) != ARCHIVE_OK)
        return error_set(-EIO, "%s", archive_error_string(b->archive));
    int rc = fill(b);
    if (!rc && archive_write_close(b->archive) != ARCHIVE_OK)
        return error_set(-EIO, "%s", archive_error_string(b->archive));
    return rc;
}

int doctor_bundle(struct doctor_report *r, const char *file)
{
    CLEANUP_FD int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return error_set(-errno, "cannot make %s: %s", file, strerror(errno));
    struct bundle b = {.archive = archive_write_new(), .report = r};
    int rc = b.archive ? write_archive(&b, fd) : error_no_memory();
    archive_write_free(b.archive);
    if (!rc)
        return 0;
    (void)unlink(file);
    return error_prefix(rc, "%s", file);
}
