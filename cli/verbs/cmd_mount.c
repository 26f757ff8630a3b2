/* granary mount IMAGE DIR, granary keep DEVICE
 *
 *   environment -> options -> directory, kernel -> store: resolve the image -> mount_image (attach/mount) -> print
 *                                                                                         --foreground: mount_hold
 *
 * Everything that can be wrong with the command line, the directory or the kernel is checked before the store is
 * contacted. With --foreground the process stays for as long as the mount exists.
 *
 * keep is the reconnect daemon, which lets an attached device outlive its server (attach/keeper). Its state comes from
 *
 *   --socket, --connect   the server that nbd-client attached the device to: compared with the device, then adopted
 *   neither               the file that a mount or an earlier daemon saved
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/server_options.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "format/export_table.h"

/* ---- how long readers of a kernel nbd device wait: options of mount and keep ---- */

/* Seconds; UINT64_MAX: not given, as 0 is a valid --dead-timeout. */
struct keep_times {
    uint64_t timeout_s, dead_s;
};

/* clang-format off */
#define KEEP_TIMES_UNSET {UINT64_MAX, UINT64_MAX}
#define KEEP_ROWS                                                                                                      \
    {OPTION_DURATION, 0, "nbd-timeout", "TIME", AT(times.timeout_s),                                                   \
     "a request that the server has not answered for this long is sent again (default 10s)"},                          \
    {OPTION_DURATION, 0, "dead-timeout", "TIME", AT(times.dead_s),                                                     \
     "reads wait this long for a server that is gone, then fail (default 10m)"}
/* clang-format on */

enum { TIMEOUT_MAX_S = 3600, DEAD_MAX_S = 30 * 24 * 3600 };

static bool keep_times_given(const struct keep_times *t)
{
    return t->timeout_s != UINT64_MAX || t->dead_s != UINT64_MAX;
}

/* CLI_USAGE, with a sentence: a time is out of range. --nbd-timeout 0 would mean "no timeout" to the kernel;
 * --dead-timeout 0 means that reads fail at once. */
static int keep_times_check(const struct keep_times *t)
{
    if (t->timeout_s != UINT64_MAX && (!t->timeout_s || t->timeout_s > TIMEOUT_MAX_S))
        return options_wrong("--nbd-timeout must be from 1s to 1h: without one a lost request would wait for ever");
    if (t->dead_s != UINT64_MAX && t->dead_s > DEAD_MAX_S)
        return options_wrong("--dead-timeout must be at most 30d");
    return 0;
}

/* Replace the times that were given. */
static void keep_times_apply(const struct keep_times *t, unsigned *timeout_s, unsigned *dead_s)
{
    if (t->timeout_s != UINT64_MAX)
        *timeout_s = (unsigned)t->timeout_s;
    if (t->dead_s != UINT64_MAX)
        *dead_s = (unsigned)t->dead_s;
}

/* ---- mount ---- */

struct mount_values {
    struct server_values server;
    const char *socket;
    uint64_t connections;
    struct keep_times times;
    const char *env_file, *keys_file;
    enum option_switch fuse, join, noexec;
    bool mkdir, foreground, json;
    bool joins; /* no option: none of the server's was given */
};

static_assert(!offsetof(struct mount_values, server), "SERVER_ROWS");

static const struct mount_values defaults = {.times = KEEP_TIMES_UNSET};

#define AT(field) offsetof(struct mount_values, field), 0, 0

static const struct option_row rows[] = {
    SERVER_ROWS /* with a comma */
    {OPTION_SWITCH, 0, "fuse", NULL, AT(fuse), "FUSE and a loop device, also where the kernel has nbd"},
    {OPTION_FLAG, 0, "mkdir", NULL, AT(mkdir), "make DIR where it is missing"},
    {OPTION_FLAG, 'f', "foreground", NULL, AT(foreground),
     "stay until SIGTERM or SIGINT, then unmount: for containers and service managers"},
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket),
     "join the server that listens there (with --fuse: has its files there)"},
    {OPTION_SWITCH, 0, "join", NULL, AT(join), "join the server that a user started at its usual place; start none"},
    {OPTION_NUMBER, 'C', "connections", "N", offsetof(struct mount_values, connections), 1, 64,
     "connections to the server (default 4); not with --fuse"},
    KEEP_ROWS,
    {OPTION_SWITCH, 0, "noexec", NULL, AT(noexec), "no program is started from the mount"},
    {OPTION_TEXT, 0, "env-file", "FILE", AT(env_file),
     "NAME=VALUE lines for the environment: credentials, the S3 server"},
    {OPTION_TEXT, 0, "keys", "FILE", AT(keys_file),
     "S3 keys of this mount's own; for a directory that IMAGE is mounted on: its new keys"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print what was made as one JSON object"},
    {0},
};

/* Return the server's cache directories, [{path, size}]; NULL: the server does not answer. */
static json_t *caches_of(const struct mount_state *s)
{
    json_t *status = NULL, *dir, *out;
    size_t i;
    if (!*s->control || control_status(s->control, &status))
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
        fputs(i ? ", " : "cache: ", stdout);
        print_text(server_status_text(dir, "path"));
        printf(", %s%s", text_format_size(control_number(dir, "size"), size),
               i + 1 == json_array_size(caches) ? "\n" : "");
    }
}

/* Print what was made, as text or JSON. */
static int print_mounted(const struct mount_values *v, const struct mount_state *s)
{
    json_t *caches = caches_of(s);
    if (v->json)
        return print_json(json_pack("{s:o,s:o,s:o,s:o,s:s,s:s,s:o,s:o,s:I,s:o}", "dir", json_lossy(s->dir), "image",
                                    json_lossy(s->image), "digest", print_json_digest(&s->digest), "content_root",
                                    print_json_digest(&s->content_root), "method", s->method, "device", s->device,
                                    "socket", json_lossy(s->socket), "control", json_lossy(s->control), "server_pid",
                                    (json_int_t)s->server.pid, "caches", caches ? caches : json_null()));
    printf("%s is mounted on %s (%s, %s)\n", s->image, s->dir, strcmp(s->method, "nbd") ? "FUSE" : "kernel nbd",
           s->device);
    if (caches)
        print_caches(caches);
    json_decref(caches);
    return 0;
}

/* Keys that were given for this mount. */
struct own_keys {
    struct bytes text;    /* for the server */
    struct s3_keys *keys; /* for this process; NULL: none were given */
};

static void own_keys_wipe(struct own_keys *k)
{
    bytes_wipe(&k->text);
    if (k->keys)
        s3_keys_wipe(k->keys);
}

static void own_keys_release(struct own_keys *k)
{
    own_keys_wipe(k);
    s3_keys_unref(k->keys);
}
#define CLEANUP_OWN_KEYS CLEANUP(own_keys_release) struct own_keys

/* The server gets the image by digest: it, and each restart of it, serves exactly this image. A process that stays with
 * the mount does not keep the keys. */
static int attach(const struct mount_values *v, const struct invocation *inv, const struct pin *pin,
                  const struct manifest *m, const struct bytes *resolved, struct own_keys *keys,
                  const string_list *words)
{
    struct mount_state state;
    struct mount_config config = {.dir = inv->operands[1],
                                  .image = inv->operands[0],
                                  .pinned = pin->text,
                                  .resolved = resolved,
                                  .keys = keys->keys ? &keys->text : NULL,
                                  .export_name = pin->ref.name,
                                  .fs = manifest_fs_name(m->fs),
                                  .digest = pin->ref.digest,
                                  .content_root = m->content_root,
                                  .size = m->size,
                                  .metadata_offset = m->metadata_offset,
                                  .metadata_len = m->metadata_len,
                                  .front_len = m->front_len,
                                  .socket = v->socket,
                                  .server_options = (const char *const *)words->items,
                                  .server_option_count = words->len,
                                  .joins = v->joins,
                                  .starts_none = v->join == SWITCH_YES,
                                  .keeps_nothing = server_options_no_cache(&v->server) && !v->server.memory,
                                  .noexec = v->noexec == SWITCH_YES,
                                  .fuse = v->fuse == SWITCH_YES,
                                  .connections = (unsigned)v->connections,
                                  .timeout_s = DEVICE_NBD_TIMEOUT_S,
                                  .dead_s = DEVICE_NBD_DEAD_S,
                                  .cancel = interrupt_watch()};
    keep_times_apply(&v->times, &config.timeout_s, &config.dead_s);
    int rc = mount_image(&config, &state);
    own_keys_wipe(keys);
    if (rc)
        return rc;
    rc = print_mounted(v, &state);
    if (rc || !v->foreground)
        return rc;
    (void)fflush(stdout); /* main reports a failed write at the end */
    return mount_hold(&state, config.cancel);
}

/* What the [mount] section of the configuration file may say. */
const struct option_row mount_config_rows[] = {
    {OPTION_SWITCH, 0, "fuse", NULL, AT(fuse), "as --fuse"},
    {OPTION_NUMBER, 0, "connections", "N", offsetof(struct mount_values, connections), 1, 64, "as --connections"},
    {OPTION_SWITCH, 0, "join", NULL, AT(join), "as --join"},
    KEEP_ROWS,
    {OPTION_SWITCH, 0, "noexec", NULL, AT(noexec), "as --noexec"},
    {0},
};

/* Read the [mount] section. */
int mount_read_config(const struct config *c, struct mount_values *out)
{
    *out = defaults;
    int rc = options_read_section(c, "mount", mount_config_rows, out);
    if (!rc && keep_times_check(&out->times)) {
        (void)error_prefix(0, "%s", c->path);
        rc = CLI_USAGE;
    }
    return rc;
}

int mount_check_config(const struct config *c)
{
    struct mount_values unused;
    return mount_read_config(c, &unused);
}

/* Read the configuration file for what the command line does not say. A server that is joined has its own settings; the
 * keys that are trusted hold for this command all the same (pinner_init). */
static int take_config(struct mount_values *v, struct mount_values *out_file)
{
    const struct config *c;
    if (!v->socket && server_options_take_config(&v->server))
        return CLI_USAGE;
    if (config_get(&c) || mount_read_config(c, out_file))
        return CLI_USAGE;
    if (!v->noexec)
        v->noexec = out_file->noexec;
    if (!v->join)
        v->join = out_file->join;
    return 0;
}

/* Settings of kernel nbd hold for it alone: a node without it mounts by FUSE all the same. */
void mount_take_nbd_config(struct mount_values *v, const struct mount_values *file)
{
    if (v->fuse == SWITCH_YES)
        return;
    if (!v->connections)
        v->connections = file->connections;
    if (v->times.timeout_s == UINT64_MAX)
        v->times.timeout_s = file->times.timeout_s;
    if (v->times.dead_s == UINT64_MAX)
        v->times.dead_s = file->times.dead_s;
}

int need_root(const char *verb)
{
    return geteuid() ? error_set(-EPERM, "granary %s needs root: run it as root, or by sudo", verb) : 0;
}

/* Return an option that was given and needs kernel nbd; NULL: none. */
static const char *needs_nbd(const struct mount_values *v)
{
    return v->socket                     ? "--socket"
           : v->connections              ? "--connections"
           : keep_times_given(&v->times) ? "--nbd-timeout, --dead-timeout"
                                         : NULL;
}

/* Use kernel nbd, or else FUSE, unless an option needs kernel nbd. preferred: the configuration file says fuse. */
static int choose_method(struct mount_values *v, bool preferred)
{
    struct error none;
    if (!v->fuse && preferred && !needs_nbd(v))
        v->fuse = SWITCH_YES;
    int rc = v->fuse == SWITCH_YES ? 0 : device_nbd_available();
    if (!rc)
        return 0;
    const char *wish = needs_nbd(v);
    error_take(&none, rc);
    if (wish)
        return error_set(rc, "%s; FUSE would do without, but %s needs kernel nbd", none.text, wish);
    if (access("/dev/fuse", F_OK))
        return error_set(rc, "%s, and no /dev/fuse to mount by FUSE instead (modprobe fuse)", none.text);
    log_info("%s: mounting by FUSE", none.text);
    v->fuse = SWITCH_YES;
    return 0;
}

/* Resolve with this mount's own keys if it has some: what others' have read, in tables, does not count then. */
static int resolve_and_attach(const struct mount_values *v, const struct invocation *inv, struct own_keys *keys,
                              const string_list *words)
{
    CLEANUP_PINNER pinner;
    struct pin pin;
    struct manifest manifest;
    CLEANUP_BYTES resolved = BYTES_INIT(EXPORT_TABLE_MAX);
    int rc = pinner_init(&pinner, &v->server, NULL, keys->keys);
    if (!rc)
        rc = pin_resolve(&pinner, inv->operands[0], &pin);
    if (!rc)
        rc = resolver_manifest(pinner.resolver, &pin.ref, &manifest);
    if (!rc)
        rc = resolver_hand(pinner.resolver, &resolved);
    return rc ? rc : attach(v, inv, &pin, &manifest, &resolved, keys, words);
}

/* Give new keys to a mount that is there. *out_done: it is; else there is none yet. */
static int replace_keys(const struct mount_values *v, const struct invocation *inv, const struct own_keys *keys,
                        bool *out_done)
{
    struct mount_state state;
    int rc = mount_give_keys(inv->operands[1], inv->operands[0], &keys->text, interrupt_watch(), &state);
    *out_done = !rc;
    if (rc)
        return rc == -ENOENT ? 0 : rc;
    log_info("%s has new keys", state.dir);
    return print_mounted(v, &state);
}

/* Check, resolve, mount. --env-file is loaded before anything looks at the environment: GRANARY_CACHE, which the
 * options' check uses, may be in it. */
static int run_mount(const struct invocation *inv)
{
    struct mount_values *v = inv->values;
    const char *given = server_options_given(&v->server, v->socket);
    int rc = v->env_file ? need_root("mount") : 0;
    if (!rc && v->env_file)
        rc = env_file_load(v->env_file);
    if (rc)
        return rc;
    if (v->socket && v->keys_file)
        return options_exclude("--socket", "--keys", "the running server has the image already, and its own keys");
    if (v->socket && given)
        return options_wrong("--%s is the server's: with --socket the running server has its own", given);
    if (v->socket && v->join == SWITCH_YES)
        return options_exclude("--socket", "--join", "a server is in one place");
    struct mount_values file;
    CLEANUP_STRING_LIST words = {0};
    if (!v->socket) /* the server reads the file itself: mounts with equal options share one, whatever the file says */
        rc = server_options_take_environment(&v->server);
    if (!rc)
        rc = server_options_words(&v->server, SERVER_FOR_SERVE, &words);
    if (rc)
        return rc;
    if (take_config(v, &file) || server_options_check(&v->server) || keep_times_check(&v->times))
        return CLI_USAGE;
    if (v->join == SWITCH_YES && given)
        return options_wrong("--%s is the server's: a mount that only joins a server cannot have it", given);
    if (v->fuse == SWITCH_YES && keep_times_given(&v->times))
        return options_exclude("--fuse", "--nbd-timeout, --dead-timeout", "those are of kernel nbd");
    if (v->fuse == SWITCH_YES && v->connections)
        return options_exclude("--fuse", "--connections", "it has none");
    v->joins = !v->socket && !given;
    CLEANUP_OWN_KEYS keys = {.text = BYTES_INIT(S3_KEYS_TEXT_MAX)};
    bool done = false;
    rc = need_root("mount");
    if (!rc && v->keys_file)
        rc = keys_file_load(v->keys_file, &keys.text, &keys.keys);
    if (!rc && keys.keys)
        rc = replace_keys(v, inv, &keys, &done);
    if (rc || done)
        return rc;
    if (v->mkdir)
        rc = io_mkdirs(inv->operands[1]);
    if (!rc)
        rc = mount_check_dir(inv->operands[1]);
    if (!rc)
        rc = choose_method(v, file.fuse == SWITCH_YES);
    if (!rc)
        mount_take_nbd_config(v, &file);
    if (rc)
        return rc;
    return resolve_and_attach(v, inv, &keys, &words);
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

/* ---- keep ---- */

struct keep_values {
    struct keep_times times;
    const char *socket, *connect, *export;
};

#undef AT
#define AT(field) offsetof(struct keep_values, field), 0, 0

static const struct option_row keep_rows[] = {
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket), "the unix socket of the server that it was attached to"},
    {OPTION_TEXT, 0, "connect", "HOST:PORT", AT(connect), "the same, over TCP"},
    {OPTION_TEXT, 0, "export", "NAME", AT(export), "the export on it (default: the nameless one)"},
    KEEP_ROWS,
    {0},
};

static const struct keep_values keep_defaults = {.times = KEEP_TIMES_UNSET};

/* Load the state that the mount or an earlier daemon saved. */
static int load_state(const struct keep_values *v, const char *device, struct keep_state *s)
{
    int rc = keep_state_load(device, s);
    if (rc == -ENOENT)
        return error_set(rc,
                         "%s was not attached by 'granary mount'; say by --socket or --connect, and --export, what it "
                         "was attached to",
                         device);
    if (rc || !keep_times_given(&v->times))
        return rc;
    keep_times_apply(&v->times, &s->timeout_s, &s->dead_s);
    return keep_state_save(s);
}

/* Make a state from the options, and check it against what the device shows. */
static int adopt(const struct keep_values *v, const char *device, struct keep_state *s)
{
    *s = (struct keep_state){.timeout_s = DEVICE_NBD_TIMEOUT_S, .dead_s = DEVICE_NBD_DEAD_S};
    keep_times_apply(&v->times, &s->timeout_s, &s->dead_s);
    snprintf(s->device, sizeof s->device, "%s", device);
    snprintf(s->export_name, sizeof s->export_name, "%s", v->export ? v->export : "");
    if (v->connect)
        snprintf(s->address, sizeof s->address, "%s", v->connect);
    else if (!realpath(v->socket, s->address)) /* the server may be found from anywhere */
        return error_set(-errno, "no server listens on %s: %s", v->socket, strerror(errno));
    int rc = keeper_adopt(s);
    return rc ? rc : keep_state_save(s);
}

/* Announce it, to the log and to systemd. */
static void on_ready(void *arg)
{
    const struct keep_state *s = arg;
    printf("keeping %s (export '%s' of %s)\n", s->device, s->export_name, s->address);
    fflush(stdout);
    notify("READY=1");
}

/* All options are checked before the device is touched. */
static int cmd_keep_run(const struct invocation *inv)
{
    const struct keep_values *v = inv->values;
    const char *device = inv->operands[0];
    struct keep_state state;
    int number;
    if (v->socket && v->connect)
        return options_exclude("--socket", "--connect", "a server is in one place");
    if (v->export && !v->socket && !v->connect)
        return options_wrong("--export goes with --socket or --connect");
    if (keep_times_check(&v->times) || device_nbd_number(device, &number))
        return CLI_USAGE;
    pid_t holder = keep_holder(device);
    if (holder)
        return error_set(-EBUSY, "process %d keeps %s already", (int)holder, device);
    int rc = v->socket || v->connect ? adopt(v, device, &state) : load_state(v, device, &state);
    return rc ? rc : keeper_run(&state, on_ready, &state);
}

const struct verb verb_keep = {
    .name = "keep",
    .operands = "DEVICE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Keep an attached /dev/nbdN alive when its server ends",
    .details = "Gives the kernel new connections in place of dead ones, only to the same image, until the device is\n"
               "detached. 'granary mount' starts one by itself; one that was killed is started again by this, and a\n"
               "device that nbd-client attached is adopted with --socket or --connect.",
    .options = keep_rows,
    .service = true,
    .values_size = sizeof(struct keep_values),
    .defaults = &keep_defaults,
    .run = cmd_keep_run,
};
