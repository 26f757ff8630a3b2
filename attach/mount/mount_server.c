/* A shared server has a directory, /run/granary/server-<hash of its options>, with its sockets, its log and a record of
 * its process. It is in use while the state of some mount names that directory; any process that finds it unused ends
 * it. So there is no reference count to get wrong, and each call repairs what a killed process left. A server that died
 * under its mounts is restarted as it was, with all added exports, by the next process that notices.
 *
 * The name of an image's export is chosen, and saved in the mount's state, before the export is added. A process that
 * removes an export reads all states first. Both happen under the node's lock, so no export is removed that a new mount
 * counts on.
 *
 * A mount with S3 keys of its own has an export of its own, named after the mount: no other mount joins it, or its keys
 * would read for others. So it is never on a server's command line, and only its request has the keys.
 */
#include "attach/mount/mount_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/control_client.h"
#include "attach/device/device_internal.h"
#include "attach/server/server_internal.h"
#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/vec.h"
#include "format/image_ref.h"
#include "net/http.h"
#include "net/listen.h"

#define PREFIX "server-"

enum {
    END_MS = 15000, /* for a server to end, longer than its own END_MS */
    LOOK_US = 50000,
    RELEASE_TRIES = 100, /* of LOOK_US: the server notices a moment later that a device is gone */
    OPTIONS_MAX = 1 << 20,
    NAME_DIGEST = 12 /* digits that distinguish two images with the same name */
};

static bool is_fuse(const struct mount_state *s)
{
    return !strcmp(s->method, "fuse");
}

/* How the servers of the methods differ. */
static const struct method {
    const char *name, *socket, *option; /* of state.method; the socket or directory; the option of `granary serve` */
} methods[] = {{"nbd", "nbd.sock", "--socket"}, {"ublk", SERVER_UBLK_SOCKET, "--ublk"}, {"fuse", "fuse", "--fuse"}};

static const struct method *method_of(const struct mount_state *s)
{
    const struct method *m = methods;
    while (strcmp(m->name, s->method) != 0 && m + 1 < methods + GR_ARRAY_SIZE(methods))
        m++;
    return m;
}

/* ---- the directory ---- */

/* Derive the server's directory and sockets from its options and the method: mounts with equal options share a server.
 */
static int name_dir(const struct mount_config *c, struct mount_state *s)
{
    CLEANUP_BYTES text = BYTES_INIT(OPTIONS_MAX);
    char hex[DIGEST_HEX_SIZE];
    int rc = bytes_append(&text, s->method, strlen(s->method) + 1);
    for (size_t i = 0; !rc && i < c->server_option_count; i++)
        rc = bytes_append(&text, c->server_options[i], strlen(c->server_options[i]) + 1);
    if (rc == -EMSGSIZE)
        return error_set(-E2BIG, "the server's options are longer than %d bytes together", OPTIONS_MAX);
    if (rc)
        return error_no_memory();
    struct digest d = digest_of(text.data, text.len);
    snprintf(s->server_dir, sizeof s->server_dir, "%s/" PREFIX "%.16s", STATE_ROOT, digest_hex(&d, hex));
    snprintf(s->socket, sizeof s->socket, "%s/%s", s->server_dir, method_of(s)->socket);
    (void)control_beside(s->socket, s->control);
    return 0;
}

/* ---- unused servers ---- */

/* Does this mount use the server of that directory? */
static int visit_user(void *arg, const struct mount_state *s)
{
    return !strcmp(arg, s->server_dir);
}

/* End the server in a directory that no mount uses, and remove the directory. */
static void sweep_one(const char *name)
{
    char dir[sizeof((struct mount_state *)0)->server_dir];
    snprintf(dir, sizeof dir, "%s/%.40s", STATE_ROOT, name);
    if (state_each(visit_user, dir))
        return;
    struct process p = server_dir_alive(dir);
    if (p.pid && process_end(&p, END_MS))
        log_warning("the server of mounts that are gone does not end: %s", error_text());
    else
        server_dir_remove(dir);
}

/* Called under the node's lock, under which mounts choose their server: a server in use cannot look unused. */
void mount_servers_sweep_locked(void)
{
    DIR *root = opendir(STATE_ROOT);
    for (struct dirent *e; root && (e = readdir(root));)
        if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)))
            sweep_one(e->d_name);
    if (root)
        closedir(root);
}

/* ---- starting ---- */

/* Whether a server that is started gets the image as one more export, not from its start on: the export has keys, or is
 * to be removed while the server goes on. */
static bool starts_bare(const struct mount_config *c)
{
    return c->keys || c->passing;
}

/* Start `granary serve` in the server's directory. The image that was resolved is handed over first, unless it starts
 * without one. */
static int mount_server_start(const struct mount_config *c, struct mount_state *s)
{
    char program[PATH_MAX];
    int rc = process_own_program(program);
    if (rc)
        return rc;
    VEC(const char *) argv = {0};
    const char *const fixed[] = {program, "serve", method_of(s)->option, s->socket, "--control", s->control};
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(fixed); i++)
        rc = vec_push(&argv, fixed[i]);
    if (!rc && !starts_bare(c))
        rc = vec_push(&argv, c->pinned);
    for (size_t i = 0; !rc && i < c->server_option_count; i++)
        rc = vec_push(&argv, c->server_options[i]);
    if (!rc)
        rc = vec_push(&argv, NULL);
    if (!rc)
        rc = server_dir_make(s->server_dir);
    if (!rc && !starts_bare(c))
        server_hand(s->control, c->resolved);
    if (!rc)
        rc = server_dir_start(s->server_dir, argv.items, &s->server);
    vec_release(&argv);
    return rc;
}

/* Restart a server that died. Its front end dies with it, but holds the cache's lock until it is gone; wait for that.
 */
static int start_again_locked(struct mount_state *s)
{
    uint64_t deadline = clock_now_ms() + END_MS;
    do
        usleep(LOOK_US);
    while (listen_answered(s->control) > 0 && clock_now_ms() < deadline);
    if (clock_now_ms() >= deadline)
        return error_set(-EBUSY,
                         "the server of other mounts died, and its front end, which listens on %s, does not "
                         "end; end it ('fuser %s' shows it) and try again",
                         s->control, s->control);
    return server_dir_start_again(s->server_dir, &s->server);
}

/* Checked a second time under the lock, since every mount of the server notices its death. */
int mount_server_tend(const struct mount_state *s)
{
    CLEANUP_FD int lock = -1;
    struct mount_state now = *s;
    if (!*s->server_dir || is_fuse(s) || server_dir_alive(s->server_dir).pid)
        return 0;
    int rc = node_lock(&lock);
    if (!rc)
        rc = state_read(&now);
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    if (!*now.server_dir || server_dir_alive(now.server_dir).pid) /* others were faster */
        return 0;
    rc = start_again_locked(&now);
    return rc ? rc : 1;
}

/* A server of our own counts as long as its supervisor lives: it restarts the front end. */
bool mount_server_answers(const struct mount_state *s)
{
    if (*s->server_dir)
        return server_dir_alive(s->server_dir).pid;
    return listen_answered(is_fuse(s) ? s->control : s->socket) > 0;
}

/* ---- joining ---- */

/* Warn when mounts with other options, or by another front end, have a server: this mount will not share its cache. */
static void warn_of_others(const struct mount_state *s)
{
    DIR *root = opendir(STATE_ROOT);
    for (struct dirent *e; root && (e = readdir(root));) {
        char dir[sizeof s->server_dir];
        snprintf(dir, sizeof dir, "%s/%.40s", STATE_ROOT, e->d_name);
        struct process p = {0};
        if (!strncmp(e->d_name, PREFIX, strlen(PREFIX)) && strcmp(dir, s->server_dir))
            p = server_dir_alive(dir);
        if (p.pid) {
            log_warning("the server of other mounts (process %d) has other options, or another front end (nbd, ublk, "
                        "fuse): this mount has a server of its own, and shares no cache with them; give the same "
                        "options to share",
                        (int)p.pid);
            break;
        }
    }
    if (root)
        closedir(root);
}

/* Whether to use a server that a user started at the usual place. */
static bool joins_users(const struct mount_config *c, struct mount_state *s)
{
    char place[sizeof s->socket - 16], control[sizeof s->control];
    snprintf(place, sizeof place, STATE_ROOT "/%s", method_of(s)->socket);
    if (!c->joins || listen_answered(control_beside(place, control)) <= 0)
        return false;
    *s->server_dir = 0;
    snprintf(s->socket, sizeof s->socket, "%s", place);
    snprintf(s->control, sizeof s->control, "%s", control);
    return true;
}

/* A server of mounts counts from the moment in which a mount has chosen it. */
const char *mount_server_method(const struct mount_config *c)
{
    const char *users = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(methods); i++) {
        struct mount_state s = {.id = ""};
        snprintf(s.method, sizeof s.method, "%s", methods[i].name);
        if (!c->starts_none && !name_dir(c, &s) && state_each(visit_user, s.server_dir) > 0)
            return methods[i].name;
        if (!users && joins_users(c, &s))
            users = methods[i].name;
    }
    return users;
}

/* Join that server, and start no other. */
static int join_only(const struct mount_config *c, struct mount_state *s)
{
    if (joins_users(c, s))
        return state_save(s);
    const struct method *m = method_of(s);
    return error_set(-ENOENT,
                     "no server answers at " STATE_ROOT
                     "/%s, and this mount may start none; start 'granary serve %s " STATE_ROOT "/%s'",
                     m->socket, m->option, m->socket);
}

/* Whether a mount of that server has a device. */
static int visit_attached(void *arg, const struct mount_state *s)
{
    return *s->device && visit_user(arg, s);
}

/* Find the server for these options or start one; the state names it before it starts. *out_served: it was started
 * with the image as its export. */
static int find_or_start(const struct mount_config *c, struct mount_state *s, bool *out_served)
{
    CLEANUP_FD int lock = -1;
    *out_served = false;
    int rc = node_lock(&lock);
    if (!rc && c->starts_none)
        return join_only(c, s);
    if (!rc)
        rc = name_dir(c, s);
    if (rc)
        return rc;
    s->server = server_dir_alive(s->server_dir);
    /* Readers of an nbd or ublk device wait for a dead server; those of a FUSE mount got errors. */
    if (!s->server.pid && !is_fuse(s) && state_each(visit_attached, s->server_dir)) {
        rc = start_again_locked(s);
        if (!rc)
            log_info("the server of other mounts had died; it is started again");
        if (rc != -ENOENT && rc != -EBADMSG)
            return rc ? rc : state_save(s);
        log_warning("the server of other mounts had died, and no other can be started: %s", error_text());
    }
    if (s->server.pid || joins_users(c, s))
        return state_save(s);
    warn_of_others(s);
    *out_served = !starts_bare(c);
    if (*out_served)
        snprintf(s->export_name, sizeof s->export_name, "%s", c->export_name);
    rc = state_save(s);
    if (!rc)
        rc = mount_server_start(c, s);
    return rc ? rc : state_save(s);
}

/* The image to be named, and its mount. */
struct naming {
    const struct mount_config *c;
    const struct mount_state *s;
};

/* Whether another mount has chosen the image's own name for another image: its export may be about to be added. */
static int visit_namesake(void *arg, const struct mount_state *other)
{
    const struct naming *n = arg;
    return strcmp(other->id, n->s->id) && !strcmp(other->control, n->s->control) &&
           !strcmp(other->export_name, n->c->export_name) && !digest_equal(&other->digest, &n->c->digest);
}

/* Does the server's export have exactly the mount's own settings (fence, quota, no warming)? Each setting then ends
 * with its last mount. An older server names none. */
static bool own_fits(const struct mount_config *c, const json_t *export)
{
    const char *fence = json_string_value(json_object_get(export, "fence"));
    return (fence && !strcmp(fence, "warmed")) == c->fenced &&
           (uint64_t)json_integer_value(json_object_get(export, "quota")) == c->quota &&
           json_is_true(json_object_get(export, "unwarmed")) == c->unwarmed;
}

/* Write the name of an export that has something by itself. */
static void name_own(const struct mount_config *c, const char *hex, struct mount_state *s)
{
    char quota[32] = "";
    if (c->quota)
        snprintf(quota, sizeof quota, "-quota%llu", (unsigned long long)c->quota);
    snprintf(s->export_name, sizeof s->export_name, "%s@%.*s%s%s%s", c->export_name, NAME_DIGEST, hex,
             c->fenced ? "-warmed" : "", quota, c->unwarmed ? "-unwarmed" : "");
}

/* Choose the export's name: the one by which the server already has the image, or the image's own name, or that with
 * digits of the digest when the name is taken; one with a fence, a quota or no warming always has these, and tells
 * which. With keys of the mount's own: a name that no other mount has. */
static int choose_name(const struct mount_config *c, struct mount_state *s)
{
    CLEANUP_JSON json_t *root = NULL;
    char hex[DIGEST_HEX_SIZE];
    json_t *export;
    size_t i;
    if (c->keys) {
        snprintf(s->export_name, sizeof s->export_name, "%s@%s", c->export_name, s->id);
        return 0;
    }
    bool taken = state_each(visit_namesake, &(struct naming){c, s});
    int rc = control_status(s->control, &root);
    if (rc)
        return rc;
    digest_hex(&c->digest, hex);
    json_array_foreach(json_object_get(root, "exports"), i, export)
    {
        const char *name = json_string_value(json_object_get(export, "name"));
        const char *digest = json_string_value(json_object_get(export, "digest"));
        if (name && image_ref_is_version(name, c->export_name)) {
            taken = true; /* the server follows a tag, and removes this when no client is connected */
            continue;
        }
        if (name && digest && !strncmp(digest, "sha256:", 7) && !strcmp(digest + 7, hex) &&
            !json_is_true(json_object_get(export, "own_keys")) && own_fits(c, export)) {
            snprintf(s->export_name, sizeof s->export_name, "%s", name);
            return 0;
        }
        taken = taken || (name && !strcmp(name, c->export_name));
    }
    json_array_foreach(json_object_get(root, "waiting_exports"), i, export)
    {
        const char *name = json_string_value(json_object_get(export, "name"));
        taken = taken || (name && !strcmp(name, c->export_name));
    }
    if (c->fenced || c->quota || c->unwarmed)
        name_own(c, hex, s);
    else
        snprintf(s->export_name, sizeof s->export_name, taken ? "%s@%.*s" : "%s", c->export_name, NAME_DIGEST, hex);
    return 0;
}

/* *arg becomes whether the export was removed. */
static int take_removed(void *arg, const char *line, size_t len)
{
    json_t *object;
    int rc = control_object(line, len, &object);
    json_t *removed = json_object_get(json_object_get(object, "removed"), "removed");
    if (removed)
        *(bool *)arg = json_is_true(removed);
    json_decref(object);
    return rc;
}

/* Make the request's path, with the export's name escaped. */
static int export_path(const struct mount_state *s, struct bytes *out)
{
    int rc = bytes_printf(out, "/exports/");
    if (!rc)
        rc = http_percent_encode(out, s->export_name, strlen(s->export_name), false);
    return rc || !bytes_string(out) ? error_no_memory() : 0;
}

/* Add the image to the server under the mount's name for it, with keys of the mount's own if there are any. */
static int put_export(const struct mount_state *s, const char *pinned, const struct bytes *keys,
                      const volatile int *cancel)
{
    CLEANUP_BYTES path = BYTES_INIT(16 << 10);
    char quota[24];
    const char *params[12] = {"image", pinned, "mount", "1"};
    size_t n = 4;
    struct control_turn turn = {.cancel = cancel};
    snprintf(quota, sizeof quota, "%llu", (unsigned long long)s->quota);
    const struct {
        bool given;
        const char *name, *value;
    } own[] = {{s->fenced, "fence", "warmed"}, {s->quota, "quota", quota}, {s->unwarmed, "warm", "none"}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(own); i++)
        if (own[i].given) {
            params[n++] = own[i].name;
            params[n++] = own[i].value;
        }
    int rc = export_path(s, &path);
    if (rc)
        return rc;
    do
        rc = control_put(s->control, (const char *)path.data, params, keys, control_check_line, NULL);
    while (control_turn(rc, &turn));
    return rc;
}

/* Choose a name and save it, under the node's lock, then add the export without the lock: the server may have to fetch
 * the manifest. */
static int add_export(const struct mount_config *c, struct mount_state *s)
{
    CLEANUP_FD int lock = -1;
    int rc = node_lock(&lock);
    if (!rc)
        rc = choose_name(c, s);
    s->fenced = c->fenced;
    s->quota = c->quota;
    s->unwarmed = c->unwarmed;
    if (!rc)
        rc = state_save(s);
    if (!rc && !c->keys)
        server_hand(s->control, c->resolved);
    if (lock >= 0)
        close(steal_fd(&lock)); /* the name is taken; other mounts need not wait for the store */
    return rc ? rc : put_export(s, c->pinned, c->keys, c->cancel);
}

/* A server that was just started has the image from its command line; export_check waits for it. */
int mount_server_have(const struct mount_config *c, struct mount_state *s)
{
    bool served;
    int rc = find_or_start(c, s, &served);
    if (rc || served)
        return rc;
    rc = export_check_wait(&(struct export_check){.server = &s->server, .cancel = c->cancel}, s->control);
    if (rc == -EIO)
        return mount_server_explain(s, rc);
    return rc ? rc : add_export(c, s);
}

/* The state is read again after the repair, which may have started another process. */
int mount_server_give_keys(struct mount_state *s, const char *pinned, const struct bytes *keys,
                           const volatile int *cancel)
{
    int rc = mount_server_tend(s);
    if (rc > 0)
        rc = state_read(s);
    if (!rc && *s->server_dir)
        s->server = server_dir_alive(s->server_dir);
    if (!rc)
        rc = export_check_wait(&(struct export_check){.server = s->server.pid ? &s->server : NULL, .cancel = cancel},
                               s->control);
    return rc ? rc : put_export(s, pinned, keys, cancel);
}

int mount_server_explain(const struct mount_state *s, int rc)
{
    return *s->server_dir ? server_dir_explain(s->server_dir, rc) : rc;
}

/* ---- leaving ---- */

/* A mount, and what is known of the others. */
struct others {
    const struct mount_state *s;
    bool export; /* another mount uses the same export */
};

/* Whether another mount uses the same export of the same server. */
static int visit_other(void *arg, const struct mount_state *s)
{
    struct others *o = arg;
    o->export |=
        strcmp(s->id, o->s->id) && !strcmp(s->control, o->s->control) && !strcmp(s->export_name, o->s->export_name);
    return o->export;
}

/* Remove the export with its last mount. The server may need a moment to notice that the connections are closed, so
 * this is tried again; a node's server would keep it for good. Another client may keep it longer. Best effort. */
static void remove_export(const struct mount_state *s)
{
    CLEANUP_BYTES path = BYTES_INIT(16 << 10);
    const char *const params[] = {"mount", "1", NULL};
    bool removed = false;
    int rc = export_path(s, &path);
    for (int i = 0; !rc && !removed && i < RELEASE_TRIES; i++) {
        CLEANUP_FD int lock = -1;
        struct others others = {.s = s};
        if (i)
            usleep(LOOK_US);
        rc = node_lock(&lock);
        if (rc || state_each(visit_other, &others))
            return;
        rc = control_call(s->control, "DELETE", (const char *)path.data, params, take_removed, &removed);
        if (rc == -EBUSY)
            rc = 0;
    }
}

/* The state forgets the server first. Then the sweep decides by the other mounts' states whether it is still needed. */
int mount_server_leave(struct mount_state *s)
{
    if (!*s->export_name && !*s->server_dir)
        return 0;
    const struct mount_state before = *s;
    {
        CLEANUP_FD int lock = -1;
        int rc = node_lock(&lock);
        if (rc)
            return rc;
        /* Saved before anything is removed: if this process is killed now, the next sweep ends the server. */
        *s->server_dir = *s->export_name = 0;
        s->server = (struct process){0};
        rc = state_save(s);
        if (rc)
            return rc;
        mount_servers_sweep_locked();
    }
    if (*before.export_name && listen_answered(before.control) > 0)
        remove_export(&before);
    return 0;
}
