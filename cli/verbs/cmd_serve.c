/* granary serve [IMAGE...]
 *
 *   check options -> resolve tags to digests -> choose a cache -> supervise (attach/server/server.h)
 *
 * Tags are resolved once, here. Restarts and upgrades serve the same images, whatever the tags name by then. With
 * --check nothing is resolved or opened; the front end only checks its parameters.
 */
#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/vec.h"
#include "cli/server_options.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "format/export_table.h"
#include "net/listen.h"

enum { CONTROL_PATH_MAX = 256 };

struct serve_values {
    struct server_values server;
    const char *socket, *listen, *ublk, *fuse, *control;
    const char *socket_mode, *socket_owner, *control_mode, *control_owner;
    const char *tls_certificates, *tls_psk;
    uint64_t threads;
    const char *hook;
    uint64_t poll_s, keep_versions;
    bool tls_verify_peer, check, follow;
};

static_assert(!offsetof(struct serve_values, server), "SERVER_ROWS");

#define AT(field) offsetof(struct serve_values, field), 0, 0

static const struct serve_values defaults = {.threads = SERVER_THREADS};

static const struct option_row rows[] = {
    SERVER_ROWS /* with a comma */
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket), "unix socket to listen on (default " SERVE_SOCKET ")"},
    {OPTION_TEXT, 0, "listen", "HOST:PORT", AT(listen), "listen on TCP instead; port 0 takes a free one"},
    {OPTION_TEXT, 0, "ublk", "PATH", AT(ublk), "make block devices for mounts, which ask at PATH, without NBD"},
    {OPTION_TEXT, 0, "fuse", "DIR", AT(fuse), "show the images as files in DIR instead, without NBD"},
    {OPTION_TEXT, 0, "control", "PATH", AT(control), "control socket (default: the socket's path and .control)"},
    {OPTION_NUMBER, 't', "threads", "N", offsetof(struct serve_values, threads), 1, 4096,
     "threads that read, in all; a read that waits for the store holds one (default 256)"},
    {OPTION_TEXT, 0, "socket-mode", "MODE", AT(socket_mode),
     "the unix socket's mode (default 0600; with a group 0660)"},
    {OPTION_TEXT, 0, "socket-owner", "[USER][:GROUP]", AT(socket_owner),
     "its owner; users who may connect can read the images"},
    {OPTION_TEXT, 0, "control-mode", "MODE", AT(control_mode), "the control socket's mode"},
    {OPTION_TEXT, 0, "control-owner", "[USER][:GROUP]", AT(control_owner),
     "its owner; users who may connect can evict, pin and warm"},
    {OPTION_TEXT, 0, "tls-certificates", "DIR", AT(tls_certificates),
     "with --listen: only TLS, with ca-cert.pem, server-cert.pem and server-key.pem in DIR"},
    {OPTION_TEXT, 0, "tls-psk", "FILE", AT(tls_psk), "with --listen: only TLS, for clients with a key in FILE"},
    {OPTION_FLAG, 0, "tls-verify-peer", NULL, AT(tls_verify_peer),
     "only clients with a certificate that ca-cert.pem signed"},
    {OPTION_FLAG, 0, "follow", NULL, AT(follow),
     "follow the images' tags: new connections get the newest version, open ones keep theirs"},
    {OPTION_DURATION, 0, "poll", "TIME", AT(poll_s), "with --follow: how often the tags are read (default 30s)"},
    {OPTION_NUMBER, 0, "keep-versions", "N", offsetof(struct serve_values, keep_versions), 2, FOLLOW_VERSIONS_MAX,
     "with --follow: at most this many versions of an image are served at once (default 3)"},
    {OPTION_TEXT, 0, "hook", "PROGRAM", AT(hook),
     "with --follow: run it after each switch, with the version in its environment"},
    {OPTION_FLAG, 0, "check", NULL, AT(check), "check whether the server accepts the options, and exit"},
    {0},
};

/* What on_ready prints. */
struct serving {
    struct pin *pins;
    size_t count;
    bool tcp, ublk, fuse;
};

/* Do standard output and standard error go to one file, as those of a mount's server do? */
static bool is_log(void)
{
    struct stat out, err;
    return !fstat(STDOUT_FILENO, &out) && !fstat(STDERR_FILENO, &err) && S_ISREG(out.st_mode) &&
           out.st_dev == err.st_dev && out.st_ino == err.st_ino;
}

/* Print where each image is served, or could be; in a log file, as lines of that log, with time and level. */
static void on_ready(void *arg, const char *where)
{
    const struct serving *s = arg;
    bool log = is_log();
    if (!s->count && log)
        log_info("serving no image yet; mounts add theirs to %s", where);
    else if (!s->count)
        printf("serving no image yet; mounts add theirs to %s\n", where);
    for (size_t i = 0; i < s->count; i++) {
        const struct pin *pin = &s->pins[i];
        char at[PATH_MAX + IMAGE_NAME_MAX + 32];
        if (s->fuse)
            snprintf(at, sizeof at, "%s/%s", where, pin->ref.name);
        else if (s->ublk)
            snprintf(at, sizeof at, "%s, to mounts by ublk, as %s", where, pin->ref.name);
        else if (s->tcp)
            snprintf(at, sizeof at, "nbd://%s/%s", where, pin->ref.name);
        else
            snprintf(at, sizeof at, "nbd+unix:///%s?socket=%s", pin->ref.name, where);
        if (log)
            log_info("serving %s at %s", pin->given, at);
        else
            printf("serving %s at %s\n", pin->given, at);
    }
    fflush(stdout);
}

/* Parse who may connect. Returns CLI_USAGE with a sentence, or 0. */
static int parse_access(const struct serve_values *v, struct server_config *out)
{
    int rc = socket_access_parse("socket", v->socket_mode, v->socket_owner, &out->socket_access);
    if (!rc)
        rc = socket_access_parse("control", v->control_mode, v->control_owner, &out->control_access);
    return rc ? CLI_USAGE : 0;
}

/* Return the control socket's path: given, or beside the socket. */
static const char *control_of(const struct serve_values *v, char beside[CONTROL_PATH_MAX])
{
    snprintf(beside, CONTROL_PATH_MAX, "%s.control",
             v->socket ? v->socket
             : v->ublk ? v->ublk
             : v->fuse ? v->fuse
                       : SERVE_SOCKET);
    return v->control ? v->control : beside;
}

/* Choose the sockets' paths; without paths from the user they are in SERVE_RUN_DIR. Refuse a control socket at the
 * serving socket's path: each front end would find the supervisor's socket there, and end. */
static int choose_sockets(const struct serve_values *v, struct server_config *c, char control[CONTROL_PATH_MAX])
{
    c->socket = v->socket ? v->socket : v->ublk ? v->ublk : v->listen || v->fuse ? NULL : SERVE_SOCKET;
    c->ublk = v->ublk;
    c->listen = v->listen;
    c->fuse = v->fuse;
    c->control = control_of(v, control);
    if (c->socket && !strcmp(c->socket, c->control))
        return options_wrong("--control %s is the socket that clients connect to; give it another path", c->control);
    bool all_given = v->socket || v->ublk || v->fuse || (v->listen && v->control);
    return all_given || v->check ? 0 : io_mkdirs(SERVE_RUN_DIR);
}

/* Make the command line by which an upgrade starts the next program: this process's own words, with the images by
 * digest. [0] and [1] are the program's path and the verb. */
static int make_again(const struct invocation *inv, const struct pin *pins, const char ***out)
{
    const char **again = calloc(inv->word_count + 3, sizeof *again);
    if (!again)
        return error_no_memory();
    again[1] = inv->verb->name;
    for (size_t i = 0, k = 0; i < inv->word_count; i++) {
        bool operand = k < inv->operand_count && inv->words[i] == inv->operands[k];
        again[2 + i] = operand ? pins[k++].text : inv->words[i];
    }
    *out = again;
    return 0;
}

/* Add the words of --follow, with the images by tag: a front end that starts again asks for the tags again, and the
 * file of added exports has the versions before. */
static int add_follow_words(const struct serve_values *v, const struct pin *pins, size_t count, string_list *words)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < count; i++)
        rc = string_list_add(words, "follow=%s", pins[i].text);
    if (!rc && v->poll_s)
        rc = string_list_add(words, "poll=%llu", (unsigned long long)v->poll_s);
    if (!rc && v->keep_versions)
        rc = string_list_add(words, "keep-versions=%llu", (unsigned long long)v->keep_versions);
    if (!rc && v->hook)
        rc = string_list_add(words, "hook=%s", v->hook);
    return rc;
}

/* Make the server's config and run it, or only check it. */
static int cmd_serve_serve(const struct serve_values *v, const struct invocation *inv, struct pin *pins,
                           const struct bytes *resolved)
{
    size_t count = inv->operand_count;
    CLEANUP_FREE const char **again = NULL;
    char control[CONTROL_PATH_MAX];
    struct serving serving = {.pins = pins, .count = count, .tcp = v->listen, .ublk = v->ublk, .fuse = v->fuse};
    struct server_config config = {.threads = (unsigned)v->threads,
                                   .tls_certificates = v->tls_certificates,
                                   .tls_psk = v->tls_psk,
                                   .tls_verify_peer = v->tls_verify_peer,
                                   .ready = on_ready,
                                   .arg = &serving};
    CLEANUP_STRING_LIST words = {0};
    VEC(const char *) images = {0};
    int rc = parse_access(v, &config);
    if (!rc)
        rc = choose_sockets(v, &config, control);
    if (!rc)
        rc = make_again(inv, pins, &again);
    if (!rc)
        rc = server_options_words(&v->server, SERVER_FOR_FRONT_END, &words);
    if (!rc && v->follow)
        rc = add_follow_words(v, pins, count, &words);
    for (size_t i = 0; !rc && !v->follow && i < count; i++)
        rc = vec_push(&images, pins[i].text);
    config.images = images.items;
    config.image_count = images.len;
    config.parameters = (const char *const *)words.items;
    config.parameter_count = words.len;
    config.again = again;
    if (!rc && resolved->len)
        server_hand(config.control, resolved);
    if (!rc)
        rc = v->check ? server_check(&config) : server_run(&config);
    vec_release(&images);
    return rc;
}

/* Whether an earlier image has the same export name. The server would refuse that too, but under the names of its own
 * parameters. */
static int check_name(const struct pin *pins, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (!strcmp(pins[j].ref.name, pins[i].ref.name))
            return options_wrong("%s and %s would both be exported as '%s'; serve them by two servers", pins[j].given,
                                 pins[i].given, pins[i].ref.name);
    return 0;
}

/* For --check and --follow: take the references as they are, unresolved. */
static int cmd_serve_parse(const struct serve_values *v, const struct invocation *inv, struct pin *pins)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < inv->operand_count; i++) {
        pins[i].given = inv->operands[i];
        rc = image_ref_parse(inv->operands[i], &pins[i].ref) ? CLI_USAGE : 0;
        snprintf(pins[i].text, sizeof pins[i].text, "%s", inv->operands[i]);
        if (!rc)
            rc = check_name(pins, i);
        if (!rc && v->follow && pins[i].ref.by_digest)
            rc = options_wrong("--follow %s: give a tag; a digest always names the same image", pins[i].given);
    }
    return rc;
}

/* Resolve the references. If any has a tag, fetch the manifests too and hand them to the server. With digests only,
 * they are left to the server: the mount that started this process has handed them over. With --trust they are handed
 * over in any case, with the signatures, and an upgrade finds here what the process before it handed over: tags may
 * name other images by then. */
static int resolve(const struct serve_values *v, const struct invocation *inv, struct pin *pins, struct bytes *resolved)
{
    bool tags = false;
    char control[CONTROL_PATH_MAX], handed[PATH_MAX];
    CLEANUP_PINNER pinner;
    CLEANUP_FREE struct image_ref *refs = calloc(inv->operand_count + 1, sizeof *refs);
    size_t n = 0;
    snprintf(handed, sizeof handed, "%s" EXPORT_TABLE_HANDED, control_of(v, control));
    int rc = pinner_init(&pinner, &v->server, handed, NULL);
    if (!rc && !refs)
        rc = error_no_memory();
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        n += !image_ref_parse(inv->operands[i], &refs[n]);
    for (size_t i = 0; i < n; i++)
        tags |= !refs[i].by_digest;
    const bool hands = tags || pinner.trust.count;
    if (!rc && n > 1 && tags)
        rc = resolver_ahead(pinner.resolver, refs, n, true);
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = pin_resolve(&pinner, inv->operands[i], &pins[i]);
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = check_name(pins, i);
    struct manifest manifest;
    for (size_t i = 0; !rc && hands && i < inv->operand_count; i++)
        rc = resolver_manifest(pinner.resolver, &pins[i].ref, &manifest);
    return rc || !hands ? rc : resolver_hand(pinner.resolver, resolved);
}

/* Check the options against each other, before a server starts: an access option that had no effect would leave a door
 * open that its user believes closed. */
static int check(const struct serve_values *v)
{
    struct server_config unused = {0};
    if (v->socket && v->listen)
        return options_exclude("--socket", "--listen", "a server listens in one place");
    if (v->fuse && (v->socket || v->listen))
        return options_exclude("--fuse", v->socket ? "--socket" : "--listen", "a server has one kind of client");
    if (v->ublk && (v->socket || v->listen || v->fuse))
        return options_exclude("--ublk",
                               v->socket   ? "--socket"
                               : v->listen ? "--listen"
                                           : "--fuse",
                               "a server has one kind of client");
    if (v->listen && listen_tcp_check(v->listen)) {
        (void)error_prefix(0, "--listen");
        return CLI_USAGE;
    }
    if (!v->follow && (v->poll_s || v->keep_versions || v->hook))
        return options_wrong("--%s needs --follow", v->poll_s ? "poll" : v->keep_versions ? "keep-versions" : "hook");
    if (v->hook && (*v->hook != '/' || strchr(v->hook, '=')))
        return options_wrong("--hook %s: give the absolute path of a program, without '='", v->hook);
    if (v->follow && (v->fuse || v->ublk))
        return options_exclude("--follow", v->fuse ? "--fuse" : "--ublk",
                               "only NBD clients keep a version; granary mount --follow mounts the versions of a tag");
    if ((v->socket_mode || v->socket_owner) && v->listen)
        return options_exclude(v->socket_mode ? "--socket-mode" : "--socket-owner", "--listen", "there is no socket");
    if (parse_access(v, &unused))
        return CLI_USAGE;
    if ((v->tls_certificates || v->tls_psk) && !v->listen)
        return options_wrong(
            "--%s needs --listen HOST:PORT: the kernel connects to the unix socket and cannot speak TLS",
            v->tls_psk ? "tls-psk" : "tls-certificates");
    if (v->tls_certificates && v->tls_psk)
        return options_exclude("--tls-certificates", "--tls-psk", "a server has one way to authenticate clients");
    if (v->tls_verify_peer && !v->tls_certificates)
        return options_wrong("--tls-verify-peer needs --tls-certificates DIR");
    return server_options_check(&v->server);
}

/* The claim on the default cache is held until the server ends. */
static int cmd_serve_run(const struct invocation *inv)
{
    struct serve_values *v = inv->values;
    CLEANUP_SERVER_CACHE chosen = SERVER_CACHE_NONE;
    if (server_options_take_config(&v->server))
        return CLI_USAGE;
    if (!v->server.warm)
        v->server.warm = "metadata";
    if (check(v))
        return CLI_USAGE;
    if (v->follow && !inv->operand_count)
        return options_wrong("--follow needs an image, e.g. granary serve --follow s3://bucket/images/faces:daily");
    CLEANUP_FREE struct pin *pins = calloc(inv->operand_count + 1, sizeof *pins);
    if (!pins)
        return error_no_memory();
    CLEANUP_BYTES resolved = BYTES_INIT(EXPORT_TABLE_MAX);
    int rc = v->check || v->follow ? cmd_serve_parse(v, inv, pins) : resolve(v, inv, pins, &resolved);
    if (!rc && !v->check)
        rc = server_options_choose_cache(&v->server, &chosen);
    return rc ? rc : cmd_serve_serve(v, inv, pins, &resolved);
}

const struct verb verb_serve = {
    .name = "serve",
    .operands = "[IMAGE...]",
    .max_operands = 1024,
    .summary = "Serve images as block devices or as files, until a signal ends it",
    .details =
        "Supervises granary-nbd: holds the listening socket and starts granary-nbd again when it\n"
        "dies. Each image is an export of its own name. Tags are resolved once, here. With --fuse it is granary-fuse\n"
        "instead, and each image a file; with --ublk it is granary-ublk, which makes a block device for each mount. "
        "Mounts without options of a server add their images to the one "
        "at " SERVE_SOCKET "\nor, by FUSE, " SERVE_RUN_DIR "/fuse, by ublk " SERVE_RUN_DIR "/" SERVER_UBLK_SOCKET ".",
    .options = rows,
    .service = true,
    .values_size = sizeof(struct serve_values),
    .defaults = &defaults,
    .run = cmd_serve_run,
};
