/* nbdkit-granary-plugin: nbdkit's callbacks on the stack, and nothing else.
 *
 *   config            options.c
 *   get_ready         stores, cache directories, images, sockets: all that can be wrong
 *                     with the parameters is said here, while somebody reads standard error
 *   after_fork        threads (nbdkit may fork in between)
 *   open ... pread    a connection's handle is its export; read, cache and extents may run in any
 *                     number of threads
 *   unload            the counters in a debug line, and all of it down again; no client waits any more, so what is
 *                     still fetched for none is not tried again
 *
 * nbdkit knows one plugin a process and passes it no pointer: `plugin` below is the only state with
 * static storage here.
 */
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>

#include <errno.h>
#include <liburing.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/log_limit.h"
#include "cache/cache_meta.h"
#include "plugin/control.h"
#include "plugin/metrics_server.h"
#include "plugin/options.h"
#include "plugin/server_threads.h"
#include "plugin/start_warm.h"

#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL

enum { REQUEST_MAX = 32 << 20 }; /* what nbdkit accepts of any client is 64 MiB */

/* "granary content-root sha256:<64> image sha256:<64> metadata <offset>+<length> front <length>" */
enum { DESCRIPTION_MAX = 288 };

struct export
{
    struct image *image;
    char description[DESCRIPTION_MAX];
};

static struct {
    struct options options;
    struct stack *stack;
    struct control *control;
    struct metrics_server *metrics;
    struct start_warm *start_warm;
    struct log_limit failures;
    VEC(struct export) exports; /* one an image; a connection's handle points to its own */
    volatile int ending;        /* the stores' cancel */
} plugin = {.failures = LOG_LIMIT_INIT};

/* ---- errors and log ---- */

static void log_to_nbdkit(enum log_level level, const char *line)
{
    if (level == LOG_LEVEL_ERROR)
        nbdkit_error("%s", line);
    else if (level == LOG_LEVEL_WARNING)
        nbdkit_error("warning: %s", line);
    else
        nbdkit_debug("%s", line);
}

/* For callbacks without a client: the sentence alone. */
static int failed(int rc)
{
    nbdkit_error("%s", error_text());
    return rc ? -1 : 0;
}

/* For requests, whose failures may be a storm: NBD has few codes, and only out of memory is worth telling from the
 * rest. */
static int request_failed(int rc)
{
    uint64_t passed_over;
    if (log_limit_pass(&plugin.failures, clock_now_ms(), &passed_over)) {
        if (passed_over)
            nbdkit_error("%llu more requests failed than are logged", (unsigned long long)passed_over);
        nbdkit_error("%s", error_text());
    }
    nbdkit_set_error(rc == -ENOMEM ? ENOMEM : EIO);
    return -1;
}

/* ---- starting ---- */

static void granary_load(void)
{
    log_to(log_to_nbdkit, LOG_LEVEL_DEBUG);
    options_init(&plugin.options);
}

static int granary_config(const char *key, const char *value)
{
    int rc = options_set(&plugin.options, key, value);
    return rc ? failed(rc) : 0;
}

static int granary_config_complete(void)
{
    int rc = options_complete(&plugin.options);
    return rc ? failed(rc) : 0;
}

static void warn_of_few_threads(void)
{
    unsigned threads = server_threads();
    if (threads < SERVER_THREADS_FEW)
        log_warning("nbdkit works on %u requests of a connection at a time; a read that waits for a store holds one "
                    "of them, and when all wait, reads of cached data wait too; start nbdkit with -t 256",
                    threads);
}

static int describe_exports(void)
{
    char root[DIGEST_HEX_SIZE], digest[DIGEST_HEX_SIZE];
    for (size_t i = 0; i < stack_image_count(plugin.stack); i++) {
        struct export e = {.image = stack_image_at(plugin.stack, i)};
        const struct manifest *m = image_manifest(e.image);
        snprintf(e.description, sizeof e.description,
                 "granary content-root sha256:%s image sha256:%s metadata %llu+%llu front %llu",
                 digest_hex(&m->content_root, root), digest_hex(image_digest(e.image), digest),
                 (unsigned long long)m->metadata_offset, (unsigned long long)m->metadata_len,
                 (unsigned long long)m->front_len);
        if (vec_push(&plugin.exports, e))
            return error_set(-ENOMEM, "out of memory");
        log_info("export '%s': %llu bytes, %s", stack_export_name(plugin.stack, i), (unsigned long long)m->size,
                 e.description);
    }
    return 0;
}

/* A start that is a supervisor's restart goes on with tags that were resolved when it began. */
static int64_t resolved_when(void)
{
    const char *text = getenv("GRANARY_RESOLVED");
    long long when = text ? strtoll(text, NULL, 10) : 0;
    return when > 0 ? when : 0;
}

static int open_metrics(const char *address)
{
    int rc = metrics_server_open(address, plugin.stack, &plugin.metrics);
    if (!rc)
        log_info("metrics at %s, port %u", address, metrics_server_port(plugin.metrics));
    return rc;
}

static int granary_get_ready(void)
{
    warn_of_few_threads();
    plugin.options.stack.resolved = resolved_when();
    plugin.options.stack.store.cancel = &plugin.ending;
    int rc = stack_open(&plugin.options.stack, &plugin.stack);
    if (!rc)
        rc = describe_exports();
    if (!rc && plugin.options.metrics)
        rc = open_metrics(plugin.options.metrics);
    /* The last: a supervisor takes a server whose control socket is there for one that has started. */
    if (!rc && plugin.options.control)
        rc = control_open(plugin.options.control, plugin.stack, &plugin.control);
    return rc ? failed(rc) : 0;
}

/* Under `granary serve` this process must not outlive its supervisor, for it holds the caches'
 * locks. nbdkit's own parent-death signal is SIGTERM, which waits for idle connections.
 */
static int follow_supervisor(void)
{
    const char *supervisor = getenv("GRANARY_SUPERVISOR");
    if (!supervisor)
        return 0;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL))
        return error_set(-errno, "cannot follow the supervisor: %s", strerror(errno));
    if (getppid() != strtol(supervisor, NULL, 10)) /* it ended before prctl */
        return error_set(-ECANCELED, "the supervisor is gone");
    return 0;
}

static int granary_after_fork(void)
{
    int rc = follow_supervisor();
    if (!rc)
        rc = stack_start_threads(plugin.stack);
    if (!rc && plugin.control)
        rc = control_start(plugin.control);
    if (!rc && plugin.metrics)
        rc = metrics_server_start(plugin.metrics);
    const struct cache_config *cache = &plugin.options.stack.cache;
    if (!rc && plugin.options.warm_metadata && (cache->dir_count || cache->memory))
        rc = start_warm_begin(plugin.stack, &plugin.start_warm);
    return rc ? failed(rc) : 0;
}

/* ---- ending ---- */

static void debug_counter(void *arg, const struct counter_row *row)
{
    nbdkit_debug("%s %llu", row->name, (unsigned long long)row->value);
}

static void granary_unload(void)
{
    __atomic_store_n(&plugin.ending, 1, __ATOMIC_RELAXED);
    start_warm_end(plugin.start_warm);
    metrics_server_close(plugin.metrics);
    control_close(plugin.control);
    if (plugin.stack) {
        stack_counters(plugin.stack, debug_counter, NULL);
        nbdkit_debug("hit ratio %.4f", control_hit_ratio(plugin.stack));
        stack_close(plugin.stack);
    }
    vec_release(&plugin.exports);
    options_release(&plugin.options);
}

/* ---- exports ---- */

static int granary_list_exports(int readonly, int is_tls, struct nbdkit_exports *exports)
{
    for (size_t i = 0; i < plugin.exports.len; i++)
        if (nbdkit_add_export(exports, stack_export_name(plugin.stack, i), plugin.exports.items[i].description) < 0)
            return -1;
    return 0;
}

/* What a client gets that asks for "": the image, when there is no choice. */
static const char *granary_default_export(int readonly, int is_tls)
{
    return plugin.exports.len == 1 ? stack_export_name(plugin.stack, 0) : "";
}

static void say_unknown_export(const char *name)
{
    CLEANUP_BYTES known = BYTES_INIT(ERROR_TEXT_MAX);
    int rc = 0;
    for (size_t i = 0; i < plugin.exports.len && !rc; i++)
        rc = bytes_printf(&known, "%s'%s'", i ? ", " : "", stack_export_name(plugin.stack, i));
    error_set(-ENOENT, "no export '%.100s' here; there are %.*s%s", name, (int)known.len, (const char *)known.data,
              rc ? ", ..." : "");
    nbdkit_error("%s", error_text());
    nbdkit_set_error(ENOENT);
}

static void *granary_open(int readonly)
{
    const char *name = nbdkit_export_name();
    const struct image *image = name ? stack_find(plugin.stack, name) : NULL;
    for (size_t i = 0; i < plugin.exports.len && image; i++)
        if (plugin.exports.items[i].image == image)
            return &plugin.exports.items[i];
    say_unknown_export(name ? name : "");
    return NULL;
}

static const char *granary_export_description(void *handle)
{
    const struct export *e = handle;
    return e->description;
}

static int64_t granary_get_size(void *handle)
{
    const struct export *e = handle;
    return (int64_t)image_manifest(e->image)->size;
}

/* Any byte may be asked for; whole chunks are the cheapest. */
static int granary_block_size(void *handle, uint32_t *minimum, uint32_t *preferred, uint32_t *maximum)
{
    const struct export *e = handle;
    *minimum = 1;
    *preferred = image_manifest(e->image)->chunk_size;
    *maximum = REQUEST_MAX;
    return 0;
}

static int granary_yes(void *handle)
{
    return 1;
}

static int granary_can_cache(void *handle)
{
    return NBDKIT_CACHE_NATIVE;
}

/* ---- requests ---- */

static int granary_pread(void *handle, void *buf, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct export *e = handle;
    int rc = image_read(e->image, buf, offset, count);
    return rc ? request_failed(rc) : 0;
}

static int granary_cache(void *handle, uint32_t count, uint64_t offset, uint32_t flags)
{
    const struct export *e = handle;
    int rc = image_prefetch(e->image, offset, count);
    return rc ? request_failed(rc) : 0;
}

struct extents_request {
    struct nbdkit_extents *extents;
    bool one, failed;
};

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
    const struct export *e = handle;
    struct extents_request r = {.extents = extents, .one = flags & NBDKIT_FLAG_REQ_ONE};
    int rc = image_extents(e->image, offset, count, add_extent, &r);
    if (rc)
        return request_failed(rc);
    return r.failed ? -1 : 0; /* nbdkit_add_extent has said why */
}

/* ---- about ---- */

static bool have_io_uring(void)
{
    struct io_uring ring;
    if (io_uring_queue_init(2, &ring, 0) < 0)
        return false;
    io_uring_queue_exit(&ring);
    return true;
}

static void granary_dump_plugin(void)
{
    printf("granary_version=%s\n", GRANARY_VERSION);
    printf("granary_cache_format_version=%d\n", CACHE_META_VERSION);
    printf("granary_io_uring=%s\n", have_io_uring() ? "yes" : "no");
    printf("granary_readahead_default=%d\n", OPTIONS_READAHEAD_DEFAULT);
    printf("granary_connections_default=%d\n", OPTIONS_CONNECTIONS_DEFAULT);
    printf("granary_timeout_default=%ds\n", OPTIONS_TIMEOUT_DEFAULT_S);
    printf("granary_slow_read_default=%ds\n", OPTIONS_SLOW_READ_DEFAULT_S);
    printf("granary_index_memory_default=%d\n", OPTIONS_INDEX_MEMORY_DEFAULT);
    printf("granary_stores=file s3 hdfs swebhdfs http https\n");
}

static struct nbdkit_plugin registration = {
    .name = "granary",
    .longname = "Granary dataset images",
    .version = GRANARY_VERSION,
    .description = "Serves images that 'granary build' made, read-only, from an object store through an SSD cache.",
    .magic_config_key = "image",
    .config_help = options_help,
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
    .export_description = granary_export_description,
    .get_size = granary_get_size,
    .block_size = granary_block_size,
    .can_multi_conn = granary_yes,
    .can_extents = granary_yes,
    .can_cache = granary_can_cache,
    .pread = granary_pread,
    .cache = granary_cache,
    .extents = granary_extents,
};

struct nbdkit_plugin *plugin_init(void); /* nbdkit's macro defines it undeclared, which clang minds */
NBDKIT_REGISTER_PLUGIN(registration)
