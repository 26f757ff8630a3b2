/* The record consists of strings, each ended by NUL, since a path may have any other byte: the format, the process's
 * number and start time, the words of its command line. It is written between fork and exec (process.c's gate), so
 * every running server has a record. */
#include "attach/server/server_internal.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/server/service.h"
#include "attach/state.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"

#define LOG "serve.log"
#define FORMAT "granary server 1"

enum { RECORD_MAX = 1 << 20 /* bytes */, CLEAR_MS = 15000 };

/* A record that was read. */
struct record {
    struct process process;
    VEC(const char *) argv; /* points into text; without the NULL at the end */
    struct bytes text;
};

static void record_release(struct record *r)
{
    vec_release(&r->argv);
    bytes_release(&r->text);
}
#define CLEANUP_RECORD CLEANUP(record_release) struct record

/* The path of a directory's record. */
static void server_dir_path(const char *dir, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, "%s/server", dir);
}

/* Write the record. */
static int server_dir_save(const char *dir, const struct process *p, const char *const *argv)
{
    char path[PATH_MAX];
    CLEANUP_BYTES text = BYTES_INIT(RECORD_MAX);
    int rc = bytes_printf(&text, FORMAT "%c%d%c%llu%c", 0, (int)p->pid, 0, (unsigned long long)p->started, 0);
    for (; !rc && *argv; argv++)
        rc = bytes_append(&text, *argv, strlen(*argv) + 1);
    if (rc)
        return rc == -EMSGSIZE ? error_set(rc, "the server's options have more than %d bytes; pass fewer", RECORD_MAX)
                               : rc;
    server_dir_path(dir, path);
    return io_write_file_atomic(path, text.data, text.len, false);
}

/* Read the record; *out must be released in any case. */
static int server_dir_load(const char *dir, struct record *out)
{
    enum { HEAD = 3 }; /* format, process number and start time; what remains is the command line */
    char path[PATH_MAX];
    *out = (struct record){.text = BYTES_INIT(RECORD_MAX)};
    server_dir_path(dir, path);
    int rc = io_read_file(path, &out->text);
    if (rc)
        return rc == -ENOENT ? error_set(rc, "%s: no server was started there", dir) : rc;
    const char *at = (const char *)out->text.data, *end = at + out->text.len;
    for (const char *nul; at < end; at = nul + 1) {
        nul = memchr(at, 0, (size_t)(end - at));
        if (!nul)
            return error_set(-EBADMSG, "%s is damaged", path);
        if (vec_push(&out->argv, at))
            return -ENOMEM;
    }
    long pid = out->argv.len > HEAD ? strtol(out->argv.items[1], NULL, 10) : 0;
    if (pid <= 0 || pid > INT_MAX || strcmp(out->argv.items[0], FORMAT) != 0)
        return error_set(-EBADMSG, "%s is damaged", path);
    out->process = (struct process){.pid = (pid_t)pid, .started = strtoull(out->argv.items[2], NULL, 10)};
    out->argv.len -= HEAD;
    memmove(out->argv.items, out->argv.items + HEAD, out->argv.len * sizeof *out->argv.items);
    return 0;
}

/* All zero if no server runs there: no record, a damaged one, or a process that has ended. */
struct process server_dir_alive(const char *dir)
{
    CLEANUP_RECORD r;
    return server_dir_load(dir, &r) || !process_alive(&r.process) ? (struct process){0} : r.process;
}

/* A server being started, for write_down. */
struct starting {
    const char *dir, *const *argv;
    struct process process;
};

/* Record the process before its program begins. */
static int write_down(void *arg, pid_t pid)
{
    struct starting *new = arg;
    new->process = process_identify(pid);
    return server_dir_save(new->dir, &new->process, new->argv);
}

int server_dir_start(const char *dir, const char *const *argv, struct process *out)
{
    struct starting new = {.dir = dir, .argv = argv};
    pid_t pid;
    CLEANUP_FD int log = service_log_open(dir, LOG);
    if (log < 0)
        return log;
    struct process_spec spec = {
        .argv = argv, .output = log, .listen_fd = -1, .session = true, .write_down = write_down, .arg = &new};
    int rc = process_spawn(&spec, &pid);
    *out = new.process;
    return rc;
}

/* What an earlier server left is removed first, and its directory is made anew; a device that is still mounted
 * somewhere keeps its record, for the server that begins here. */
int server_dir_make(const char *dir)
{
    server_dir_remove(dir);
    if (mkdir(dir, 0700) && errno != EEXIST)
        return error_set(-errno, "cannot make %s: %s", dir, strerror(errno));
    return 0;
}

/* The recorded command line, but with this program: an update may have replaced the one that started the server. */
int server_dir_start_again(const char *dir, struct process *out)
{
    char program[PATH_MAX];
    CLEANUP_RECORD was;
    int rc = server_dir_load(dir, &was);
    if (!rc)
        rc = process_own_program(program);
    if (!rc)
        rc = vec_push(&was.argv, NULL);
    if (rc)
        return rc;
    was.argv.items[0] = program;
    return server_dir_start(dir, was.argv.items, out);
}

int server_dir_explain(const char *dir, int rc)
{
    return service_log_explain(dir, LOG, "the server cannot serve the image", rc);
}

/* Remove the ublk devices of a server that was killed: the directory has their records. Returns whether none is left.
 */
static bool clear_devices(const char *dir)
{
    char path[PATH_MAX];
    bool any = false;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && !any && (e = readdir(d));)
        any = text_begins_with(e->d_name, SERVER_UBLK_SOCKET ".device-"); /* a name of ublk/record.c */
    if (d)
        closedir(d);
    if (!any)
        return true;
    CLEANUP_FREE char *program = NULL;
    snprintf(path, sizeof path, "%s/" SERVER_UBLK_SOCKET, dir);
    int rc = server_program(SERVER_UBLK, &program);
    const char *const argv[] = {program, "--clear", path, NULL};
    if (!rc)
        rc = process_run(argv, CLEAR_MS);
    if (rc)
        log_warning(
            "%s is kept: a ublk device of its server could not be removed, and the next server there takes it over: %s",
            dir, error_text());
    return !rc;
}

/* The devices and the FUSE mount of a dead server must go first. */
void server_dir_remove(const char *dir)
{
    char path[PATH_MAX];
    if (!clear_devices(dir))
        return;
    snprintf(path, sizeof path, "%s/fuse", dir);
    fuse_mount_clear(path); /* what a server that was killed has left */
    state_remove_dir(dir);
}
