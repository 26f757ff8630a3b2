/* granary mount IMAGE DIR, granary keep DEVICE
 *
 *   environment -> options -> directory, kernel -> store: resolve the image -> mount_image (attach/mount) -> print
 *                                                                                         --foreground: mount_hold
 *
 * Everything that can be wrong with the command line, the directory or the kernel is checked before the store is
 * contacted. The exception is where there may be a file with the whole image: a front is then chosen only if there is
 * none. With --foreground the process stays for as long as the mount exists.
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

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "cli/verbs/cmd_mount.h"
#include "format/export_table.h"
#include "format/image_ref.h"

/* ---- how long readers of a kernel nbd device wait: options of mount and keep ---- */

/* clang-format off */
#define KEEP_TIMES_UNSET {UINT64_MAX, UINT64_MAX}
#define KEEP_ROWS                                                                                                      \
    {OPTION_DURATION, 0, "nbd-timeout", "TIME", AT(times.timeout_s),                                                   \
     "a request that the server has not answered for this long is sent again (default 10s)"},                          \
    {OPTION_DURATION, 0, "dead-timeout", "TIME", AT(times.dead_s),                                                     \
     "reads wait this long for a server that is gone, then fail (default 10m)"}
/* clang-format on */

enum { TIMEOUT_MAX_S = 3600, DEAD_MAX_S = 30 * 24 * 3600 };

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

/* ---- mount ---- */

static_assert(!offsetof(struct mount_values, server), "SERVER_ROWS");

static const struct mount_values defaults = {.times = KEEP_TIMES_UNSET};

#define AT(field) offsetof(struct mount_values, field), 0, 0

static const struct option_row rows[] = {
    SERVER_ROWS /* with a comma */
    {OPTION_SWITCH, 0, "direct", NULL, AT(direct),
     "from a file with the whole image, without a server (Linux 6.12 and later); the first mount writes it; no: even "
     "if it is there, by a server"},
    {OPTION_SWITCH, 0, "ublk", NULL, AT(ublk),
     "by ublk, or fail; no: by kernel nbd, else FUSE, even if the kernel has ublk"},
    {OPTION_SWITCH, 0, "fuse", NULL, AT(fuse), "by FUSE and a loop device, even if the kernel has ublk or nbd"},
    {OPTION_FLAG, 0, "mkdir", NULL, AT(mkdir), "make DIR where it is missing"},
    {OPTION_FLAG, 'f', "foreground", NULL, AT(foreground),
     "stay until SIGTERM or SIGINT, then unmount: for containers and service managers"},
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket),
     "join the server that listens there (with --ublk: one for ublk; with --fuse: has its files there)"},
    {OPTION_SWITCH, 0, "join", NULL, AT(join), "join the server that a user started at its usual place; start none"},
    {OPTION_NUMBER, 'C', "connections", "N", offsetof(struct mount_values, connections), 1, 64,
     "connections to the server (default 4); not with --ublk, --fuse"},
    KEEP_ROWS,
    {OPTION_SWITCH, 0, "noexec", NULL, AT(noexec), "no program is started from the mount"},
    {OPTION_TEXT, 0, "env-file", "FILE", AT(env_file),
     "NAME=VALUE lines for the environment: credentials, the S3 server"},
    {OPTION_TEXT, 0, "keys", "FILE", AT(keys_file),
     "S3 keys of this mount's own; for a directory that IMAGE is mounted on: its new keys"},
    {OPTION_FLAG, 0, "follow", NULL, AT(follow),
     "DIR/current shows the newest version of IMAGE, a tag; DIR/@DIGEST has each version that is mounted"},
    {OPTION_DURATION, 0, "poll", "TIME", AT(poll_s), "with --follow: how often the tag is read (default 30s)"},
    {OPTION_NUMBER, 0, "keep-versions", "N", offsetof(struct mount_values, keep_versions), 2, FOLLOW_VERSIONS_MAX,
     "with --follow: at most this many versions are mounted at once (default 3)"},
    {OPTION_TEXT, 0, "hook", "PROGRAM", AT(hook),
     "with --follow: run it after each switch, with the version in its environment"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print what was made as one JSON object"},
    {0},
};

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

/* Mount, print, and stay if asked to. A process that stays with the mount does not keep the keys. */
static int attach(struct mount_values *v, const struct invocation *inv, const struct mount_resolved *image,
                  struct own_keys *keys, const string_list *words)
{
    struct mount_state state;
    int rc = v->direct == SWITCH_YES || v->direct_auto ? mount_make_direct(v, image, words, inv->operands[1], &state)
                                                       : mount_make(v, image, words, inv->operands[1], &state);
    own_keys_wipe(keys);
    if (!rc)
        rc = mount_print(v, &state, NULL);
    if (rc || !v->foreground)
        return rc;
    (void)fflush(stdout); /* main reports a failed write at the end */
    return mount_hold(&state, interrupt_watch());
}

/* What the [mount] section of the configuration file may say. */
const struct option_row mount_config_rows[] = {
    {OPTION_SWITCH, 0, "direct", NULL, AT(direct), "as --direct, where it is possible"},
    {OPTION_SWITCH, 0, "ublk", NULL, AT(ublk), "as --ublk"},
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
    if (rc)
        return rc;
    if (out->ublk == SWITCH_YES && out->fuse == SWITCH_YES)
        rc = options_exclude("ublk", "fuse", "a mount has one device");
    else
        rc = keep_times_check(&out->times);
    if (rc)
        (void)error_prefix(0, "%s", c->path);
    return rc;
}

int mount_check_config(const struct config *c)
{
    struct mount_values unused;
    return mount_read_config(c, &unused);
}

/* Return an option that goes without --direct; NULL: none. A server that is joined has a cache of its own somewhere. */
static const char *without_direct(const struct mount_values *v)
{
    return v->follow               ? "--follow"
           : v->socket             ? "--socket"
           : v->join == SWITCH_YES ? "--join"
           : v->keys_file          ? "--keys"
                                   : NULL;
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
    v->direct_must = v->direct == SWITCH_YES;
    if (!v->direct && !without_direct(v))
        v->direct = out_file->direct;
    return 0;
}

int need_root(const char *verb)
{
    return geteuid() ? error_set(-EPERM, "granary %s needs root: run it as root, or by sudo", verb) : 0;
}

/* Resolve with this mount's own keys if it has some: what others' have read, in tables, does not count then. */
static int resolve_and_attach(struct mount_values *v, const struct invocation *inv, struct own_keys *keys,
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
    const struct mount_resolved image = {
        .pin = &pin, .manifest = &manifest, .table = &resolved, .keys = keys->keys ? &keys->text : NULL};
    return rc ? rc : attach(v, inv, &image, keys, words);
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
    return mount_print(v, &state, NULL);
}

/* Return an option of a server that was given, other than those that a mount may have by itself; NULL: none. */
static const char *given_beside_own(const struct mount_values *v)
{
    struct server_values others = v->server;
    others.fence = others.warm = NULL;
    others.quotas.count = 0;
    return server_options_given(&others, v->socket);
}

/* Take the quota of the image, which is the only one that a mount that joins may set: it may leave out the name. */
static int take_quota(struct mount_values *v, const struct option_list *given, const char *image)
{
    struct image_ref ref;
    const char *colon = given->count ? strrchr(given->items[0], ':') : NULL;
    if (!given->count)
        return 0;
    if (given->count > 1)
        return options_wrong("--quota is given twice; an image has one quota");
    if (image_ref_parse(image, &ref))
        return CLI_USAGE;
    size_t len = colon ? (size_t)(colon - given->items[0]) : 0;
    if (colon && (len != strlen(ref.name) || memcmp(given->items[0], ref.name, len) != 0))
        return options_wrong("--quota %s is of another image than '%s': a mount that only joins a server sets that of "
                             "its image",
                             given->items[0], ref.name);
    const char *size = colon ? colon + 1 : given->items[0];
    return stack_options_parse_quota("--quota ", given->items[0], size, &v->quota) ? CLI_USAGE : 0;
}

/* A mount that only joins a server may have a fence, a quota and no warming by itself. given: what the command line
 * says of these; what the file says is the server's. */
static int take_own(struct mount_values *v, const struct server_values *given, const char *image)
{
    v->cold = given->warm && !strcmp(given->warm, "none");
    if (v->join != SWITCH_YES)
        return 0;
    if (given->fence && strcmp(given->fence, "none") != 0 && strcmp(given->fence, "warmed") != 0)
        return options_wrong("--fence is none or warmed, not '%s'", given->fence);
    v->fenced = given->fence && !strcmp(given->fence, "warmed");
    v->server.fence = NULL;
    v->server.quotas.count = 0;
    return take_quota(v, &given->quotas, image);
}

/* Check, resolve, mount. --env-file is loaded before anything looks at the environment: GRANARY_CACHE, which the
 * options' check uses, may be in it. */
static int run_mount(const struct invocation *inv)
{
    struct mount_values *v = inv->values;
    const char *given = server_options_given(&v->server, v->socket);
    const char *other = given_beside_own(v);
    const struct server_values own = v->server;
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
    if (take_config(v, &file) || take_own(v, &own, inv->operands[0]) || server_options_check(&v->server) ||
        keep_times_check(&v->times))
        return CLI_USAGE;
    if (v->join == SWITCH_YES && other)
        return options_wrong("--%s is the server's: a mount that only joins a server cannot have it", other);
    if (v->fuse == SWITCH_YES && keep_times_given(&v->times))
        return options_exclude("--fuse", "--nbd-timeout, --dead-timeout", "those are of kernel nbd");
    if (v->fuse == SWITCH_YES && v->connections)
        return options_exclude("--fuse", "--connections", "it has none");
    if (v->direct_must && without_direct(v))
        return options_exclude("--direct", without_direct(v), "there a mount needs its server");
    if (v->ublk == SWITCH_YES && v->fuse == SWITCH_YES)
        return options_exclude("--ublk", "--fuse", "a mount has one device");
    if (v->ublk == SWITCH_YES && keep_times_given(&v->times))
        return options_exclude("--ublk", "--nbd-timeout, --dead-timeout", "those are of kernel nbd");
    if (v->ublk == SWITCH_YES && v->connections)
        return options_exclude("--ublk", "--connections", "it has none");
    if (mount_follow_check(v, inv->operands[0]))
        return CLI_USAGE;
    v->joins = !v->socket && (v->join == SWITCH_YES || !given);
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
    if (!rc && !mount_follow_continues(v, inv->operands[1]))
        rc = mount_check_dir(inv->operands[1]);
    v->file = &file;
    v->direct_auto = !v->direct && !without_direct(v) && mount_may_be_direct(v);
    v->front_chosen = v->direct != SWITCH_YES && !(v->direct_auto && mount_has_residents(v));
    if (!rc && v->front_chosen) /* a direct mount needs none of them */
        rc = mount_choose_method(v, &words);
    if (rc)
        return rc;
    return v->follow ? mount_follow(v, inv, &words) : resolve_and_attach(v, inv, &keys, &words);
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
        "With --follow a process stays that does the same for each new version of a tag, once its changes are cached.\n"
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
