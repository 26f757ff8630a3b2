/* nbdkit-granary-plugin: nbdkit's callbacks around what every front end serves (serving.h).
 *
 *   config            options, by stack_options.h
 *   get_ready         stores, cache directories, images, sockets. Everything that can be wrong with the
 *                     parameters is reported here, while standard error is still read
 *   after_fork        threads (nbdkit may fork in between)
 *   open ... close    a connection's handle holds its export and its client; pread, cache and extents may run in
 *                     any number of threads
 *   unload            closes everything
 *
 * nbdkit loads one plugin per process and passes it no pointer, so `serving` and `clients` below are static. They are
 * the only static state here, apart from a flag for a warning. */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <liburing.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "plugin/plugin_internal.h"
#include "server/serving.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum { REQUEST_MAX = 32 << 20 }; /* bytes; nbdkit itself accepts 64 MiB from any client */

static struct serving serving;
static struct plugin_clients *clients;

/* A connection's handle, which nbdkit passes to each of its requests. */
struct connection {
    struct serving_export *export;
    struct plugin_client *client;
};

/* ---- errors and log ---- */

/* The log's sink: nbdkit has no warnings, and info goes to its debug output. */
static void log_to_nbdkit(enum log_level level, const char *line)
{
    if (level == LOG_LEVEL_ERROR)
        nbdkit_error("%s", line);
    else if (level == LOG_LEVEL_WARNING)
        nbdkit_error("warning: %s", line);
    else
        nbdkit_debug("%s", line);
}

/* End a callback that has no client: report the thread's error if rc is one, and return what nbdkit wants. */
static int callback_end(int rc)
{
    if (rc)
        nbdkit_error("%s", error_text());
    return rc ? -1 : 0;
}

/* End a request: return 0, or -1 after setting the errno for the client. When the client is gone there is nothing to
 * log. */
static int request_end(const struct connection *c, int rc)
{
    bool there = plugin_client_end(c->client);
    if (rc)
        nbdkit_set_error(there ? serving_request_failed(&serving, rc) : EIO);
    return rc ? -1 : 0;
}

/* ---- starting ---- */

/* Called once, before any parameter. */
static void granary_load(void)
{
    log_to(log_to_nbdkit, LOG_LEVEL_DEBUG);
    serving_init(&serving);
}

/* Called for each KEY=VALUE. */
static int granary_config(const char *key, const char *value)
{
    return callback_end(stack_options_set(&serving.options, key, value));
}

static int granary_config_complete(void)
{
    return callback_end(stack_options_complete(&serving.options));
}

/* Everything that can fail at the start fails here, while nbdkit still has its standard error. nbdkit's default of 16
 * threads a connection is too few: each waiting read holds one. */
static int granary_get_ready(void)
{
    unsigned threads = server_threads();
    if (threads < SERVER_THREADS_FEW)
        log_warning("nbdkit works on %u requests of a connection at a time; a read that waits for a store holds one "
                    "of them, and when all wait, reads of cached data wait too; start nbdkit with -t 256",
                    threads);
    int rc = serving_open(&serving);
    if (!rc)
        rc = plugin_clients_open(serving.options.control, &clients);
    return callback_end(rc);
}

/* Threads start in the process that serves. SIGTERM kills a supervised process at once, as SIGKILL would: after it,
 * nbdkit answers every request with ESHUTDOWN, which a mount takes for a disk error; a lost connection it survives. */
static int granary_after_fork(void)
{
    static const int signals[] = {SIGTERM, SIGINT, SIGQUIT};
    for (size_t i = 0; getenv("GRANARY_SUPERVISOR") && i < GR_ARRAY_SIZE(signals); i++)
        signal(signals[i], SIG_DFL);
    int rc = serving_start(&serving);
    if (!rc)
        rc = plugin_clients_start(clients);
    return callback_end(rc);
}

/* nbdkit has closed every connection by now. */
static void granary_unload(void)
{
    serving_close(&serving);
    plugin_clients_close(clients);
}

/* ---- exports ---- */

static int granary_list_exports(int readonly, int is_tls, struct nbdkit_exports *exports)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    char description[SERVING_DESCRIPTION_MAX];
    const char *name;
    for (size_t i = 0; (name = stack_followed(serving.stack, i)); i++) {
        CLEANUP(cleanup_stack_export) struct stack_export *to = stack_get(serving.stack, name);
        if (!to) /* it leads nowhere yet */
            continue;
        if (nbdkit_add_export(exports, name, serving_describe(to, description)) < 0)
            return -1;
    }
    while ((e = stack_next(serving.stack, e)))
        if (nbdkit_add_export(exports, stack_export_name(e), serving_describe(e, description)) < 0)
            return -1;
    return 0;
}

/* Return the export for a client that asks for "": the only one, if there is only one. */
static const char *granary_default_export(int readonly, int is_tls)
{
    const char *followed = stack_followed_as(serving.stack, "");
    if (followed)
        return followed;
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(serving.stack, "");
    return e ? nbdkit_strdup_intern(stack_export_name(e)) : "";
}

/* Whether an address is on this machine; unix sockets are. */
static bool is_loopback(const struct sockaddr_storage *address)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address;
    if (address->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET;
    return address->ss_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
}

/* Warn once per process about a client from another machine without TLS. nbdkit does not tell a plugin where it
 * listens, so the first such client has to show it. */
static void warn_of_plain_tcp(const struct plugin_client_peer *peer)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    bool plain = peer->address_len && nbdkit_is_tls() == 0 && !is_loopback(&peer->address);
    if (plain && !atomic_flag_test_and_set(&warned))
        log_warning(
            "a client reads over TCP without TLS from another address: anyone who reaches the port can read the "
            "images, and the network sees them; start nbdkit with -U SOCKET, or with --tls=require");
}

/* Make the client of the connection that this thread opens. */
static int find_client(struct plugin_client **out)
{
    struct plugin_client_peer peer = {.address_len = sizeof peer.address};
    if (nbdkit_peer_name((struct sockaddr *)&peer.address, &peer.address_len) < 0)
        peer.address_len = 0;
    warn_of_plain_tcp(&peer);
    if (peer.address_len && peer.address.ss_family == AF_UNIX)
        peer.pid = nbdkit_peer_pid();
    return plugin_client_new(clients, &peer, out);
}

/* NULL refuses the client; nbdkit sends it the errno. */
static void *granary_open(int readonly)
{
    const char *name = nbdkit_export_name();
    CLEANUP_FREE struct connection *c = malloc(sizeof *c);
    int rc = c ? serving_connect(&serving, name ? name : "", &c->export) : error_no_memory();
    if (!rc) {
        rc = find_client(&c->client);
        if (!rc)
            return steal_ptr(&c);
        serving_disconnect(c->export);
    }
    nbdkit_error("%s", error_text());
    nbdkit_set_error(-rc);
    return NULL;
}

/* nbdkit calls this after the connection's last request. */
static void granary_close(void *handle)
{
    struct connection *c = handle;
    plugin_client_free(c->client);
    serving_disconnect(c->export);
    free(c);
}

static const char *granary_export_description(void *handle)
{
    const struct connection *c = handle;
    char description[SERVING_DESCRIPTION_MAX];
    return nbdkit_strdup_intern(serving_describe(c->export->export, description));
}

static int64_t granary_get_size(void *handle)
{
    const struct connection *c = handle;
    return (int64_t)image_manifest(c->export->image)->size;
}

/* Clients may ask for any byte; whole chunks are cheapest. */
static int granary_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
    const struct connection *c = handle;
    *minimum = 1;
    *preferred = image_manifest(c->export->image)->chunk_size;
    *maximum = REQUEST_MAX;
    return 0;
}

static int granary_yes(void *handle)
{
    return 1;
}

/* The export is read-only and all connections see the same bytes, so multi-conn is safe; not by a name that follows a
 * tag, since a client's next connection may have the next version. */
static int granary_can_multi_conn(void *handle)
{
    const struct connection *c = handle;
    return !c->export->followed;
}

/* NBD_CMD_CACHE is handled by granary_cache, not by a read whose bytes are dropped. */
static int granary_can_cache(void *handle)
{
    return NBDKIT_CACHE_NATIVE;
}

/* ---- requests ---- */

/* Blocks until the bytes are there, or until the client is gone. */
static int granary_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct connection *c = handle;
    plugin_client_begin(c->client);
    return request_end(c, image_read(c->export->image, buf, offset, count));
}

/* Blocks until the range is in the cache. */
static int granary_cache(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct connection *c = handle;
    plugin_client_begin(c->client);
    return request_end(c, image_prefetch(c->export->image, offset, count));
}

/* An extents request. one: the client wants only the first extent. */
struct extents_request {
    struct nbdkit_extents *extents;
    bool one, failed;
};

/* Take one extent; non-zero ends the walk. */
static int add_extent(void *arg, uint64_t off, uint64_t len, bool hole)
{
    struct extents_request *r = arg;
    uint32_t type = hole ? NBDKIT_EXTENT_HOLE | NBDKIT_EXTENT_ZERO : 0;
    r->failed = nbdkit_add_extent(r->extents, off, len, type) < 0;
    return r->failed || r->one;
}

static int granary_extents(void *handle, uint32_t count, uint64_t offset, uint32_t flags,
                           struct nbdkit_extents *extents)
{
    const struct connection *c = handle;
    struct extents_request r = {.extents = extents, .one = flags & NBDKIT_FLAG_REQ_ONE};
    plugin_client_begin(c->client);
    if (request_end(c, image_extents(c->export->image, offset, count, add_extent, &r)))
        return -1;
    return r.failed ? -1 : 0; /* nbdkit_add_extent has said why */
}

/* ---- about ---- */

/* Does the kernel allow io_uring? Containers often forbid it. */
static bool have_io_uring(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(2, &ring, 0) < 0)
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

/* For `nbdkit granary --dump-plugin`; scripts read these lines. */
static void granary_dump_plugin(void)
{
    printf("granary_version=%s\n", GRANARY_VERSION);
    printf("granary_cache_format_version=%u\n", cache_format_version());
    printf("granary_io_uring=%s\n", have_io_uring() ? "yes" : "no");
    printf("granary_readahead_default=%s\n", stack_options_default("readahead"));
    printf("granary_connections_default=%s\n", stack_options_default("connections"));
    printf("granary_timeout_default=%s\n", stack_options_default("timeout"));
    printf("granary_slow_read_default=%s\n", stack_options_default("slow-read"));
    printf("granary_index_memory_default=%s\n", stack_options_default("index-memory"));
    printf("granary_stores=file s3 hdfs swebhdfs http https\n");
}

static struct nbdkit_plugin registration = {
    .name = "granary",
    .longname = "Granary dataset images",
    .version = GRANARY_VERSION,
    .description = "Serves images that 'granary build' made, read-only, from an object store through an SSD cache.",
    .magic_config_key = "image",
    .config_help = STACK_OPTIONS_HELP "\nStart nbdkit with -t 256: a read that waits for a store holds a thread.\n",
    .load = granary_load,
    .unload = granary_unload,
    .dump_plugin = granary_dump_plugin,
    .config = granary_config,
    .config_complete = granary_config_complete,
    .get_ready = granary_get_ready,
    .after_fork = granary_after_fork,
    .list_exports = granary_list_exports,
    .default_export = granary_default_export,
    .open = granary_open,
    .close = granary_close,
    .export_description = granary_export_description,
    .get_size = granary_get_size,
    .block_size = granary_block_size,
    .can_multi_conn = granary_can_multi_conn,
    .can_extents = granary_yes,
    .can_cache = granary_can_cache,
    .pread = granary_pread,
    .cache = granary_cache,
    .extents = granary_extents,
};

struct nbdkit_plugin *plugin_init(void); /* nbdkit's macro defines it undeclared, which clang minds */
NBDKIT_REGISTER_PLUGIN(registration)
