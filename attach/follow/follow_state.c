/* The file is JSON, replaced atomically, as the states of mounts are (state.c); it counts only if it is complete and of
 * version 1. The claim is a lock on its directory. */
#include "attach/follow/follow.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/mount/mountinfo.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"

#define PREFIX "tag-"
#define VERSIONS STATE_ROOT "-versions"
#define FILE_NAME "follow.json"

enum { FILE_MAX_BYTES = 64 << 10, PATH_BYTES = 96, NAME_DIGITS = 12 };

#define TEXT(field) JSON_TEXT(struct follow_state, field)
static const struct json_text_field texts[] = {TEXT(dir), TEXT(image), TEXT(control), TEXT(reason)};

/* Fill in the paths of a directory (absolute, without symlinks). */
static void name_state(const char *dir, struct follow_state *out)
{
    struct mount_state named = {.id = ""};
    state_name(dir, &named);
    *out = (struct follow_state){.count = 0};
    snprintf(out->run_dir, sizeof out->run_dir, "%s/" PREFIX "%s", STATE_ROOT, named.id);
    snprintf(out->dir, sizeof out->dir, "%s", dir);
}

static void state_file(const struct follow_state *f, char out[PATH_BYTES])
{
    snprintf(out, PATH_BYTES, "%s/" FILE_NAME, f->run_dir);
}

/* ---- the file ---- */

static json_t *versions_to_json(const struct follow_state *f)
{
    json_t *all = json_array();
    for (size_t i = 0; i < f->count; i++) {
        char hex[DIGEST_HEX_SIZE];
        json_array_append_new(all, json_pack("{s:s,s:I}", "digest", digest_hex(&f->versions[i].digest, hex), "shown",
                                             (json_int_t)f->versions[i].shown));
    }
    return all;
}

int follow_save(const struct follow_state *f)
{
    char shown[DIGEST_HEX_SIZE], wanted[DIGEST_HEX_SIZE], path[PATH_BYTES];
    CLEANUP_JSON json_t *root = json_pack(
        "{s:i,s:I,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:o}", "version", 1, "device", (json_int_t)f->device, "pid",
        (json_int_t)f->follower.pid, "started", (json_int_t)f->follower.started, "shown", digest_hex(&f->shown, shown),
        "wanted", digest_hex(&f->wanted, wanted), "switches", (json_int_t)f->switches, "switched",
        (json_int_t)f->switched, "behind", (json_int_t)f->behind, "versions", versions_to_json(f));
    if (root)
        json_text_put(root, texts, GR_ARRAY_SIZE(texts), f);
    CLEANUP_FREE char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    if (!text)
        return error_no_memory();
    state_file(f, path);
    return io_write_file_atomic(path, text, strlen(text), false);
}

/* Read the list of versions; false: it is damaged. */
static bool decode_versions(const json_t *all, struct follow_state *out)
{
    size_t i;
    json_t *version;
    if (!json_is_array(all) || json_array_size(all) > FOLLOW_VERSIONS_MAX)
        return false;
    json_array_foreach((json_t *)all, i, version)
    {
        const char *digest;
        json_int_t shown;
        if (json_unpack(version, "{s:s,s:I}", "digest", &digest, "shown", &shown) ||
            digest_parse(digest, strlen(digest), &out->versions[i].digest))
            return false;
        out->versions[i].shown = shown;
    }
    out->count = json_array_size(all);
    return true;
}

/* Fill in the state from JSON; false: a member is missing or wrong. */
static bool decode(const json_t *root, struct follow_state *out)
{
    const char *shown, *wanted;
    const json_t *versions;
    json_int_t device, pid, started, switches, switched, behind;
    int version;
    if (json_unpack((json_t *)root, "{s:i,s:I,s:I,s:I,s:s,s:s,s:I,s:I,s:I,s:o}", "version", &version, "device", &device,
                    "pid", &pid, "started", &started, "shown", &shown, "wanted", &wanted, "switches", &switches,
                    "switched", &switched, "behind", &behind, "versions", &versions) ||
        version != 1 || pid < 0 || started < 0 || switches < 0 || digest_parse(shown, strlen(shown), &out->shown) ||
        digest_parse(wanted, strlen(wanted), &out->wanted))
        return false;
    out->device = (uint64_t)device;
    out->follower = (struct process){.pid = (pid_t)pid, .started = (uint64_t)started};
    out->switches = (uint64_t)switches;
    out->switched = switched;
    out->behind = behind;
    return json_text_get(root, texts, GR_ARRAY_SIZE(texts), out) && decode_versions(versions, out);
}

/* Read the file of a state whose run_dir is set. -ENOENT and -EBADMSG without a sentence. */
static int read_state(struct follow_state *f)
{
    char path[PATH_BYTES];
    CLEANUP_BYTES text = BYTES_INIT(FILE_MAX_BYTES);
    state_file(f, path);
    int rc = io_read_file(path, &text);
    if (rc)
        return rc;
    CLEANUP_JSON json_t *root = json_loadb((const char *)text.data, text.len, 0, NULL);
    return root && decode(root, f) ? 0 : -EBADMSG;
}

int follow_load(const char *dir, struct follow_state *out)
{
    CLEANUP_FREE char *resolved = realpath(dir, NULL);
    name_state(resolved ? resolved : dir, out);
    CLEANUP_FREE char *expected = strdup(out->dir);
    if (!expected)
        return error_no_memory();
    int rc = read_state(out);
    if (rc == -EBADMSG || (!rc && strcmp(expected, out->dir) != 0))
        return error_set(-EBADMSG, "%s/" FILE_NAME " is damaged; unmount %s and what is in it by hand and remove %s",
                         out->run_dir, expected, out->run_dir);
    return rc;
}

int follow_each(follow_visit *visit, void *arg)
{
    glob_t found = {0};
    CLEANUP_FREE struct follow_state *f = malloc(sizeof *f);
    int rc = f && glob(STATE_ROOT "/" PREFIX "*/" FILE_NAME, 0, NULL, &found) != GLOB_NOSPACE ? 0 : error_no_memory();
    for (size_t i = 0; !rc && i < found.gl_pathc; i++) {
        *f = (struct follow_state){.count = 0};
        const char *path = found.gl_pathv[i];
        snprintf(f->run_dir, sizeof f->run_dir, "%.*s", (int)(strlen(path) - strlen("/" FILE_NAME)), path);
        if (!read_state(f))
            rc = visit(arg, f);
    }
    globfree(&found);
    return rc;
}

/* ---- the claim ---- */

bool follow_is_alive(const struct follow_state *f)
{
    return process_alive(&f->follower);
}

/* Name the process that has the claim; returns -EBUSY. */
static int is_claimed(const char *dir)
{
    struct follow_state other;
    if (!follow_load(dir, &other) && follow_is_alive(&other))
        return error_set(-EBUSY, "process %d follows %s on %s already; run 'granary umount %s' first",
                         (int)other.follower.pid, other.image, other.dir, other.dir);
    return error_set(-EBUSY, "another process is making %s, or taking it down; try again", dir);
}

int follow_claim(const char *dir, const char *image, struct follow_state *out, int *out_lock)
{
    CLEANUP_FREE char *resolved = realpath(dir, NULL);
    CLEANUP_FD int lock = -1;
    if (!resolved)
        return error_set(-errno, "%s: %s; give an empty directory, or have --mkdir make it", dir, strerror(errno));
    name_state(resolved, out);
    int rc = io_mkdirs(STATE_ROOT);
    if (!rc)
        rc = node_lock_mount(out->run_dir, false, &lock);
    if (rc)
        return rc == -EBUSY ? is_claimed(resolved) : rc;
    rc = follow_load(resolved, out);
    if (!rc && strcmp(out->image, image) != 0)
        return error_set(-EBUSY, "%s follows %s; run 'granary umount %s' first", out->dir, out->image, out->dir);
    if (rc && rc != -ENOENT)
        return rc;
    snprintf(out->image, sizeof out->image, "%s", image);
    out->follower = process_identify(getpid());
    rc = follow_save(out);
    if (!rc)
        *out_lock = steal_fd(&lock);
    return rc;
}

/* ---- versions ---- */

const struct follow_version *follow_find(const struct follow_state *f, const struct digest *digest)
{
    for (size_t i = 0; i < f->count; i++)
        if (digest_equal(&f->versions[i].digest, digest))
            return &f->versions[i];
    return NULL;
}

/* Versions are not mounted in DIR, nor in STATE_ROOT, which containers of the chart have: a container that mounts those
 * would have all versions, and keep them alive. */
char *follow_versions(const struct follow_state *f, char out[PATH_MAX])
{
    snprintf(out, PATH_MAX, VERSIONS "/%s", f->run_dir + strlen(STATE_ROOT "/" PREFIX));
    return out;
}

char *follow_version_dir(const struct follow_state *f, const struct digest *digest, char out[PATH_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    size_t len = strlen(follow_versions(f, out));
    snprintf(out + len, PATH_MAX - len, "/%.*s", NAME_DIGITS, digest_hex(digest, hex));
    return out;
}

char *follow_version_link(const struct follow_state *f, const struct digest *digest, char out[PATH_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, PATH_MAX, "%.*s/@%.*s", PATH_MAX - NAME_DIGITS - 3, f->dir, NAME_DIGITS, digest_hex(digest, hex));
    return out;
}

bool follow_has_mount(const struct follow_state *f, const char *mount_dir)
{
    char versions[PATH_MAX];
    size_t len = strlen(follow_versions(f, versions));
    return !strncmp(mount_dir, versions, len) && mount_dir[len] == '/';
}

struct shown_search {
    const char *mount_dir;
    struct follow_state *out;
};

static int visit_shown(void *arg, const struct follow_state *f)
{
    const struct shown_search *search = arg;
    char version[PATH_MAX];
    if (digest_is_zero(&f->shown) || strcmp(follow_version_dir(f, &f->shown, version), search->mount_dir) != 0)
        return 0;
    *search->out = *f;
    return 1;
}

bool follow_shows_mount(const char *mount_dir, struct follow_state *out)
{
    return follow_each(visit_shown, &(struct shown_search){mount_dir, out}) > 0;
}

/* Load the state of the directory, or of the one that it is `current` of. */
static int load_around(const char *dir, struct follow_state *out)
{
    char path[PATH_MAX];
    int rc = follow_load(dir, out);
    if (rc != -ENOENT)
        return rc;
    snprintf(path, sizeof path, "%s", dir);
    char *slash = strrchr(path, '/');
    while (slash && !slash[1] && slash > path) { /* DIR/current/ */
        *slash = 0;
        slash = strrchr(path, '/');
    }
    if (!slash || strcmp(slash + 1, "current") != 0)
        return -ENOENT;
    *(slash == path ? slash + 1 : slash) = 0;
    return follow_load(path, out);
}

/* A mount of its own first: a version's directory is one. The thread's sentence stays that of mount_find. */
int follow_find_mount(const char *dir, struct mount_state *out)
{
    char version[PATH_MAX];
    struct follow_state f;
    struct error first;
    int rc = mount_find(dir, out);
    if (rc != -ENOENT)
        return rc;
    error_take(&first, rc);
    if (!load_around(dir, &f) && !digest_is_zero(&f.shown))
        return mount_find(follow_version_dir(&f, &f.shown, version), out);
    return error_restore(&first);
}
