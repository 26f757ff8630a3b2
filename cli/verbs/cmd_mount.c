/* granary mount IMAGE DIR, granary umount DIR
 *
 *   environment -> options -> directory, kernel -> store: resolve the image -> mount_image (attach/mount) -> print
 *                                                                                         --foreground: mount_hold
 *
 * Everything that can be wrong with the command line, the directory or the kernel is checked before the store is
 * contacted. With --foreground the process stays for as long as the mount exists.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/env_file.h"
#include "cli/interrupt.h"
#include "cli/keep_options.h"
#include "cli/output.h"
#include "cli/server_options.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "format/export_table.h"

struct mount_values {
    struct server_values server;
    const char *socket;
    uint64_t connections;
    struct keep_times times;
    const char *env_file;
    bool fuse, mkdir, foreground, noexec, json;
    bool environment_cache; /* no option: --cache was not given */
};

static_assert(!offsetof(struct mount_values, server), "SERVER_ROWS");

static const struct mount_values defaults = {.times = KEEP_TIMES_UNSET};

#define AT(field) offsetof(struct mount_values, field), 0, 0

static const struct option_row rows[] = {
    SERVER_ROWS /* with a comma */
    {OPTION_FLAG, 0, "fuse", NULL, AT(fuse), "FUSE and a loop device, also where the kernel has nbd"},
    {OPTION_FLAG, 0, "mkdir", NULL, AT(mkdir), "make DIR where it is missing"},
    {OPTION_FLAG, 'f', "foreground", NULL, AT(foreground),
     "stay until SIGTERM or SIGINT, then unmount: for containers and service managers"},
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket),
     "join the server that listens there (with --fuse: has its files there)"},
    {OPTION_NUMBER, 'C', "connections", "N", offsetof(struct mount_values, connections), 1, 64,
     "connections to the server (default 4); not with --fuse"},
    KEEP_ROWS(struct mount_values, times),
    {OPTION_FLAG, 0, "noexec", NULL, AT(noexec), "no program is started from the mount"},
    {OPTION_TEXT, 0, "env-file", "FILE", AT(env_file),
     "NAME=VALUE lines for the environment: credentials, the S3 server"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print what was made as one JSON object"},
    {0},
};

/* Describe the mount for --json. */
static json_t *state_json(const struct mount_state *s)
{
    return json_pack("{s:o,s:o,s:o,s:o,s:s,s:s,s:o,s:o,s:I}", "dir", json_lossy(s->dir), "image", json_lossy(s->image),
                     "digest", print_json_digest(&s->digest), "content_root", print_json_digest(&s->content_root),
                     "method", s->method, "device", s->device, "socket", json_lossy(s->socket), "control",
                     json_lossy(s->control), "server_pid", (json_int_t)s->server.pid);
}

/* Return the server's cache directories, [{path, size}]; NULL: the server does not answer. */
static json_t *caches_of(const struct mount_state *s)
{
    json_t *status = NULL, *dir, *out;
    size_t i;
    if (!*s->control || server_status_get(s->control, &status))
        return NULL;
    out = json_array();
    json_array_foreach(json_object_get(status, "cache_directories"), i, dir)
    {
        json_array_append_new(
            out, json_pack("{s:O,s:O}", "path", json_object_get(dir, "path"), "size", json_object_get(dir, "size")));
    }
    json_decref(status);
    return out;
}

/* A mount without a disk cache works, but fetches again what leaves memory; users should know. */
static void print_caches(json_t *caches)
{
    size_t i;
    json_t *dir;
    if (!json_array_size(caches))
        printf("cache: none on disk: what leaves memory is fetched again; --cache DIR:SIZE keeps it\n");
    json_array_foreach(caches, i, dir)
    {
        char size[TEXT_SIZE_MAX];
        const char *path = server_status_text(dir, "path");
        fputs(i ? ", " : "cache: ", stdout);
        print_name(stdout, path, strlen(path), print_escapes(stdout));
        printf(", %s%s", text_format_size(control_number(dir, "size"), size),
               i + 1 == json_array_size(caches) ? "\n" : "");
    }
}

/* Print what was made, as text or JSON. */
static int print_mounted(const struct mount_values *v, const struct mount_state *s)
{
    json_t *caches = caches_of(s);
    if (v->json) {
        json_t *object = state_json(s);
        json_object_set_new(object, "caches", caches ? caches : json_null());
        return print_json(object);
    }
    printf("%s is mounted on %s (%s, %s)\n", s->image, s->dir, strcmp(s->method, "nbd") ? "FUSE" : "kernel nbd",
           s->device);
    if (caches)
        print_caches(caches);
    json_decref(caches);
    return 0;
}

/* The server gets the image by digest: it, and each restart of it, serves exactly this image. */
static int attach(const struct mount_values *v, const struct invocation *inv, const struct pin *pin,
                  const struct manifest *m, const struct bytes *resolved)
{
    struct mount_state state;
    CLEANUP_SERVER_WORDS words = {0};
    int rc = server_options_words(&v->server, SERVER_FOR_SERVE, &words);
    if (rc)
        return rc;
    struct mount_config config = {.dir = inv->operands[1],
                                  .image = inv->operands[0],
                                  .pinned = pin->text,
                                  .resolved = resolved,
                                  .export_name = pin->ref.name,
                                  .fs = manifest_fs_name(m->fs),
                                  .digest = pin->ref.digest,
                                  .content_root = m->content_root,
                                  .size = m->size,
                                  .metadata_offset = m->metadata_offset,
                                  .metadata_len = m->metadata_len,
                                  .front_len = m->front_len,
                                  .socket = v->socket,
                                  .server_options = (const char *const *)words.items,
                                  .server_option_count = words.len,
                                  .environment_cache = v->environment_cache,
                                  .keeps_nothing = server_options_no_cache(&v->server) && !v->server.memory,
                                  .noexec = v->noexec,
                                  .fuse = v->fuse,
                                  .connections = (unsigned)v->connections,
                                  .timeout_s = DEVICE_NBD_TIMEOUT_S,
                                  .dead_s = DEVICE_NBD_DEAD_S,
                                  .cancel = interrupt_watch()};
    (void)keep_times_apply(&v->times, &config.timeout_s, &config.dead_s);
    rc = mount_image(&config, &state);
    if (rc)
        return rc;
    rc = print_mounted(v, &state);
    if (rc || !v->foreground)
        return rc;
    (void)fflush(stdout); /* main reports a failed write at the end */
    return mount_hold(&state, config.cancel);
}

/* mount(2) and nbd need CAP_SYS_ADMIN. The check names the remedy before anything else fails. */
static int need_root(const char *verb)
{
    return geteuid() ? error_set(-EPERM, "granary %s needs root: run it as root, or by sudo", verb) : 0;
}

/* Use kernel nbd, or else FUSE, unless an option needs kernel nbd. */
static int choose_method(struct mount_values *v)
{
    struct error none;
    int rc = v->fuse ? 0 : device_nbd_available();
    if (!rc)
        return 0;
    const char *wish = v->socket        ? "--socket"
                       : v->connections ? "--connections"
                       : v->times.timeout_s != UINT64_MAX || v->times.dead_s != UINT64_MAX
                           ? "--nbd-timeout, --dead-timeout"
                           : NULL;
    error_take(&none, rc);
    if (wish)
        return error_set(rc, "%s; FUSE would do without, but %s needs kernel nbd", none.text, wish);
    if (access("/dev/fuse", F_OK))
        return error_set(rc, "%s, and no /dev/fuse to mount by FUSE instead (modprobe fuse)", none.text);
    log_info("%s: mounting by FUSE", none.text);
    v->fuse = true;
    return 0;
}

/* Check what can be checked before the store is contacted. */
static int prepare_mount(struct mount_values *v, const char *dir)
{
    int rc = need_root("mount");
    if (!rc && v->mkdir)
        rc = io_mkdirs(dir);
    if (!rc)
        rc = mount_check_dir(dir);
    return rc ? rc : choose_method(v);
}

/* Load --env-file first: GRANARY_CACHE, which the options' check uses, may be in it. */
static int load_environment(const struct mount_values *v)
{
    int rc = v->env_file ? need_root("mount") : 0;
    return rc || !v->env_file ? rc : env_file_load(v->env_file);
}

/* Check, resolve, mount. --env-file is loaded before anything looks at the environment. */
static int run_mount(const struct invocation *inv)
{
    struct mount_values *v = inv->values;
    const char *given = server_options_given(&v->server);
    int rc = load_environment(v);
    if (rc)
        return rc;
    if (v->socket && given) {
        (void)error_set(0, "--%s is the server's: with --socket the running server has its own", given);
        return CLI_USAGE;
    }
    if (server_options_check(&v->server) || keep_times_check(&v->times))
        return CLI_USAGE;
    if (v->fuse && (v->times.timeout_s != UINT64_MAX || v->times.dead_s != UINT64_MAX))
        return options_exclude("--fuse", "--nbd-timeout, --dead-timeout", "those are of kernel nbd");
    if (v->fuse && v->connections)
        return options_exclude("--fuse", "--connections", "it has none");
    v->environment_cache = !v->socket && !v->server.caches.count;
    rc = prepare_mount(v, inv->operands[1]);
    if (!rc && v->environment_cache) /* becomes part of the server's options, by which mounts share one */
        rc = server_options_take_environment(&v->server);
    if (rc)
        return rc;
    CLEANUP_PINNER pinner;
    struct pin pin;
    struct manifest manifest;
    CLEANUP_BYTES resolved = BYTES_INIT(EXPORT_TABLE_MAX);
    rc = pinner_init(&pinner, &v->server);
    if (!rc)
        rc = pin_resolve(&pinner, inv->operands[0], &pin);
    if (!rc)
        rc = resolver_manifest(pinner.resolver, &pin.ref, &manifest);
    if (!rc)
        rc = resolver_hand(pinner.resolver, &resolved);
    return rc ? rc : attach(v, inv, &pin, &manifest, &resolved);
}

const struct verb verb_mount = {
    .name = "mount",
    .operands = "IMAGE DIR",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Serve an image and mount it on a directory, read-only",
    .details =
        "Starts a server, or adds the image to the one of mounts with the same options, attaches a block device to\n"
        "it, kept alive by 'granary keep' when the server ends and comes back, and mounts that ro,nodev,nosuid.\n"
        "'granary umount DIR' takes everything down again, the server with the last of its mounts.",
    .options = rows,
    .values_size = sizeof(struct mount_values),
    .defaults = &defaults,
    .run = run_mount,
};

struct umount_values {
    bool force, json;
};

static const struct option_row umount_rows[] = {
    {OPTION_FLAG, 0, "force", NULL, offsetof(struct umount_values, force), 0, 0,
     "fail what still reads there with EIO: for mounts whose server is gone"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct umount_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Nothing mounted is success, so that scripts can repeat it. */
static int run_umount(const struct invocation *inv)
{
    const struct umount_values *v = inv->values;
    const char *dir = inv->operands[0];
    bool removed;
    int rc = need_root("umount");
    if (!rc)
        rc = mount_remove(dir, v->force, &removed);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack("{s:o,s:b}", "dir", json_lossy(dir), "unmounted", (int)removed));
    if (!removed)
        log_info("%s is not mounted", dir);
    return 0;
}

const struct verb verb_umount = {
    .name = "umount",
    .operands = "DIR",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Undo 'granary mount': the mount, its device, its server",
    .details = "Where nothing is mounted any more, what is left of it is cleaned up, and the exit code is 0.",
    .options = umount_rows,
    .values_size = sizeof(struct umount_values),
    .run = run_umount,
};
