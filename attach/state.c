/* State files are JSON, replaced atomically. They are read by other processes and by later versions, and a killed
 * process may leave anything, so a file counts only if it is complete, of version 1, and in the directory that its
 * mount point's hash names.
 *
 * Locks are flocks on the directories themselves, so no lock file is left behind. A run directory may be removed by the
 * process that holds its lock; one that waited for the lock then holds a directory that is not there any more, so it
 * compares inodes and starts again. */
#include "attach/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum {
    STATE_FILE_MAX = 64 << 10, /* bytes */
    WAIT_MS = 60000,           /* how long node_lock waits, */
    MOUNT_WAIT_MS = 20000,     /* and node_lock_mount, */
    STEP_US = 20000            /* between two tries */
};

/* ---- strings in JSON ---- */

/* JSON strings are UTF-8, paths are any bytes. A byte is stored as the character with its number (Latin-1 read as
 * Unicode): below 0x80 as itself, above in two bytes. ASCII paths stay readable, and every other path survives. Returns
 * NULL when memory is short. */
static json_t *text_to_json(const char *text)
{
    CLEANUP_BYTES out = BYTES_INIT(2 * PATH_MAX);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char pair[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
        if (c < 0x80 ? bytes_append(&out, &c, 1) : bytes_append(&out, pair, 2))
            return NULL;
    }
    return json_stringn(out.len ? (const char *)out.data : "", out.len);
}

/* Read such a string back. Returns false when value is no string, has a character above 0xff, or does not fit. */
static bool text_from_json(const json_t *value, char *out, size_t size)
{
    const unsigned char *p = (const unsigned char *)json_string_value(value);
    size_t len = 0;
    if (!p)
        return false;
    for (; *p && len + 1 < size; p++)
        if (*p < 0x80)
            out[len++] = (char)*p;
        else if ((*p & 0xfc) == 0xc0 && p[1])
            out[len++] = (char)((*p & 3) << 6 | (p[1] & 0x3f)), p++;
        else
            return false;
    out[len] = 0;
    return !*p;
}

/* When memory is short, a member is missing; readers refuse such an object. */
void json_text_put(json_t *object, const struct json_text_field *fields, size_t count, const void *from)
{
    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, fields[i].name, text_to_json((const char *)from + fields[i].offset));
}

bool json_text_get(const json_t *object, const struct json_text_field *fields, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++)
        if (!text_from_json(json_object_get(object, fields[i].name), (char *)to + fields[i].offset, fields[i].size))
            return false;
    return true;
}

/* ---- the state of a mount ---- */

/* The members that are strings: saved and loaded by this table. */
#define TEXT(field) JSON_TEXT(struct mount_state, field)
static const struct json_text_field texts[] = {TEXT(dir),         TEXT(image),     TEXT(method),      TEXT(socket),
                                               TEXT(control),     TEXT(device),    TEXT(device_mark), TEXT(fuse_file),
                                               TEXT(export_name), TEXT(server_dir)};

static const struct json_text_field image_file[] = {TEXT(image_file)}; /* an earlier version has none */

/* A mount point's path is hashed, because it may be longer than a file name and contains slashes. */
void state_name(const char *dir, struct mount_state *out)
{
    char hex[DIGEST_HEX_SIZE];
    struct digest d = digest_of(dir, strlen(dir));
    snprintf(out->id, sizeof out->id, "%.16s", digest_hex(&d, hex));
    snprintf(out->run_dir, sizeof out->run_dir, "%s/%s", STATE_ROOT, out->id);
    snprintf(out->dir, sizeof out->dir, "%s", dir);
}

static json_t *process_to_json(const struct process *p)
{
    return json_pack("{s:I,s:I}", "pid", (json_int_t)p->pid, "started", (json_int_t)p->started);
}

/* Read a process; false when value is none. */
static bool process_from_json(const json_t *value, struct process *out)
{
    json_int_t pid, started;
    if (json_unpack((json_t *)value, "{s:I,s:I}", "pid", &pid, "started", &started) || pid < 0 || started < 0)
        return false;
    *out = (struct process){.pid = (pid_t)pid, .started = (uint64_t)started};
    return true;
}

/* The path of a state file. */
static void state_path(const struct mount_state *s, char out[96])
{
    snprintf(out, 96, "%s/state.json", s->run_dir);
}

/* Replaced atomically: a reader sees the old file or the new one. */
int state_save(const struct mount_state *s)
{
    char digest[DIGEST_HEX_SIZE], content_root[DIGEST_HEX_SIZE], path[96];
    CLEANUP_JSON
    json_t *root =
        json_pack("{s:i,s:s,s:s,s:o,s:o,s:b}", "version", 1, "digest", digest_hex(&s->digest, digest), "content_root",
                  digest_hex(&s->content_root, content_root), "server", process_to_json(&s->server), "mounter",
                  process_to_json(&s->mounter), "mounted", s->mounted);
    json_text_put(root, texts, GR_ARRAY_SIZE(texts), s);
    json_object_set_new(root, "fs", json_string(s->fs));
    json_object_set_new(root, "noexec", json_boolean(s->noexec));
    if (*s->image_file) {
        json_text_put(root, image_file, 1, s);
        json_object_set_new(root, "image_inode", json_integer((json_int_t)s->image_inode));
    }
    if (s->fenced)
        json_object_set_new(root, "fence", json_string("warmed"));
    if (s->quota)
        json_object_set_new(root, "quota", json_integer((json_int_t)s->quota));
    if (s->unwarmed)
        json_object_set_new(root, "warm", json_string("none"));
    CLEANUP_FREE char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text)
        return error_no_memory();
    state_path(s, path);
    return io_write_file_atomic(path, text, strlen(text), false);
}

/* Fill in the state from JSON; false when a member is missing or wrong. */
static bool decode(const json_t *root, struct mount_state *out)
{
    const char *digest, *content_root;
    const json_t *server, *mounter;
    int version, mounted;
    if (json_unpack((json_t *)root, "{s:i,s:s,s:s,s:o,s:o,s:b}", "version", &version, "digest", &digest, "content_root",
                    &content_root, "server", &server, "mounter", &mounter, "mounted", &mounted) ||
        version != 1 || digest_parse(digest, strlen(digest), &out->digest) ||
        digest_parse(content_root, strlen(content_root), &out->content_root) ||
        !process_from_json(server, &out->server) || !process_from_json(mounter, &out->mounter))
        return false;
    out->mounted = mounted;
    out->fenced = json_object_get(root, "fence"); /* an earlier version writes none of these */
    const char *fs = json_string_value(json_object_get(root, "fs"));
    snprintf(out->fs, sizeof out->fs, "%s", fs ? fs : "erofs");
    out->noexec = json_is_true(json_object_get(root, "noexec"));
    out->quota = (uint64_t)json_integer_value(json_object_get(root, "quota"));
    out->unwarmed = json_object_get(root, "warm");
    out->image_inode = (uint64_t)json_integer_value(json_object_get(root, "image_inode"));
    if (json_object_get(root, "image_file") && !json_text_get(root, image_file, 1, out))
        return false;
    return json_text_get(root, texts, GR_ARRAY_SIZE(texts), out);
}

/* Read and decode a state file; s->run_dir is set. -EBADMSG, without a sentence: it is damaged. */
static int read_file(const char *path, struct mount_state *s)
{
    CLEANUP_BYTES text = BYTES_INIT(STATE_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return rc;
    CLEANUP_JSON json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    return root && decode(root, s) ? 0 : -EBADMSG;
}

int state_read(struct mount_state *s)
{
    char path[96], dir[PATH_MAX];
    state_path(s, path);
    snprintf(dir, sizeof dir, "%s", s->dir);
    int rc = read_file(path, s);
    /* The id is 64 bits of a hash, so the file may be another path's, however unlikely. */
    if (rc == -EBADMSG || (!rc && strcmp(s->dir, dir)))
        return error_set(-EBADMSG, "%s is damaged; unmount %s by hand and remove the directory %s", path, dir,
                         s->run_dir);
    if (rc == -EACCES)
        return error_set(rc, "what is known of the mount on %s is root's alone to read (%s); run this as root", dir,
                         path);
    return rc;
}

int state_load(const char *dir, struct mount_state *out)
{
    *out = (struct mount_state){.id = ""};
    state_name(dir, out);
    return state_read(out);
}

/* One level is enough: run directories contain no directories except empty ones, which remove() deletes. */
void state_remove_dir(const char *path)
{
    char name[PATH_MAX];
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && remove(name) && errno != ENOENT)
            log_warning("cannot remove %s: %s", name, strerror(errno));
    }
    if (dir)
        closedir(dir);
    if (rmdir(path) && errno != ENOENT)
        log_warning("cannot remove %s: %s", path, strerror(errno));
}

/* Read the state with that id. Returns false when it is unreadable, or the mount point in it belongs to another id. */
static bool read_named(const char *id, struct mount_state *out)
{
    struct mount_state named = {.id = ""};
    char path[96];
    *out = (struct mount_state){.id = ""};
    snprintf(out->id, sizeof out->id, "%s", id);
    snprintf(out->run_dir, sizeof out->run_dir, "%s/%s", STATE_ROOT, out->id);
    state_path(out, path);
    if (read_file(path, out))
        return false;
    state_name(out->dir, &named);
    return !strcmp(named.id, out->id);
}

/* An unreadable or foreign state is skipped: other versions and killed processes may have left it. */
int state_each(state_visit *visit, void *arg)
{
    DIR *root = opendir(STATE_ROOT);
    bool nothing = root || errno == ENOENT || errno == EACCES; /* other users' mounts are not visible */
    int rc = nothing ? 0 : error_set(-errno, "cannot list %s: %s", STATE_ROOT, strerror(errno));
    CLEANUP_FREE struct mount_state *s = root ? malloc(sizeof *s) : NULL;
    if (root && !s)
        rc = error_no_memory();
    for (struct dirent *e; s && !rc && (e = readdir(root));)
        if (strlen(e->d_name) == STATE_ID_MAX - 1 && read_named(e->d_name, s))
            rc = visit(arg, s);
    if (root)
        closedir(root);
    return rc;
}

/* ---- locks ---- */

/* Try again and again instead of blocking, so that a lock that is never released becomes an error. */
int node_lock(int *out_fd)
{
    int rc = io_mkdirs(STATE_ROOT);
    if (rc)
        return rc;
    CLEANUP_FD int fd = open(STATE_ROOT, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return error_set(-errno, "cannot open %s: %s", STATE_ROOT, strerror(errno));
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

bool state_is_at(const char *path, int fd)
{
    struct stat there, opened;
    return !stat(path, &there) && !fstat(fd, &opened) && there.st_ino == opened.st_ino && there.st_dev == opened.st_dev;
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
            if (!state_is_at(run_dir, fd))
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
