/* State files are JSON, replaced atomically. They are read by other processes and by later versions, and a killed
 * process may leave anything, so a file counts only if it is complete, of version 1, and in the directory that its
 * mount point's hash names. */
#include "attach/state.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/json_text.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum { STATE_FILE_MAX = 64 << 10 }; /* bytes */

/* The members that are strings: saved and loaded by this table. */
#define TEXT(field) JSON_TEXT(struct mount_state, field)
static const struct json_text_field texts[] = {TEXT(dir),         TEXT(image),     TEXT(method),      TEXT(socket),
                                               TEXT(control),     TEXT(device),    TEXT(device_mark), TEXT(fuse_file),
                                               TEXT(export_name), TEXT(server_dir)};

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
static void path_of(const struct mount_state *s, char out[96])
{
    snprintf(out, 96, "%s/state.json", s->run_dir);
}

/* Replaced atomically: a reader sees the old file or the new one. */
int state_save(const struct mount_state *s)
{
    char digest[DIGEST_HEX_SIZE], content_root[DIGEST_HEX_SIZE], path[96];
    CLEANUP(cleanup_json)
    json_t *root =
        json_pack("{s:i,s:s,s:s,s:o,s:o,s:b}", "version", 1, "digest", digest_hex(&s->digest, digest), "content_root",
                  digest_hex(&s->content_root, content_root), "server", process_to_json(&s->server), "mounter",
                  process_to_json(&s->mounter), "mounted", s->mounted);
    json_text_put(root, texts, GR_ARRAY_SIZE(texts), s);
    CLEANUP_FREE char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text)
        return error_no_memory();
    path_of(s, path);
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
    return json_text_get(root, texts, GR_ARRAY_SIZE(texts), out);
}

/* Read and decode a state file; s->run_dir is set. -EBADMSG, without a sentence: it is damaged. */
static int read_file(const char *path, struct mount_state *s)
{
    CLEANUP_BYTES text = BYTES_INIT(STATE_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return rc;
    CLEANUP(cleanup_json) json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    return root && decode(root, s) ? 0 : -EBADMSG;
}

int state_read(struct mount_state *s)
{
    char path[96], dir[PATH_MAX];
    path_of(s, path);
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
    path_of(out, path);
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
