/* granary serve IMAGE...: resolves the tags once, then supervises a server of the digests. */
#include <errno.h>
#include <string.h>

#include "attach/server.h"
#include "base/error.h"
#include "base/io.h"
#include "base/rate.h"
#include "base/vec.h"
#include "cache/evict.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/pin.h"
#include "cli/verbs.h"
#include "format/cache_spec.h"
#include "net/listen.h"

struct serve_values {
    struct option_list caches, quotas, tiers;
    bool cache_compressed;
    const char *watermark, *disk_timeout, *memory, *eviction, *socket, *listen, *control, *metrics, *bwlimit, *endpoint;
    uint64_t threads;
};

#define AT(field) offsetof(struct serve_values, field), 0, 0

static const struct serve_values defaults = {.threads = SERVER_THREADS};

static const struct option_row rows[] = {
    {OPTION_LIST, 0, "cache", "DIR:SIZE[:ssd|hdd]", AT(caches),
     "keep chunks in DIR, at most SIZE bytes; may be repeated"},
    {OPTION_FLAG, 0, "cache-compressed", NULL, AT(cache_compressed),
     "keep compressed chunks compressed there: more fit, each read decodes"},
    {OPTION_LIST, 0, "quota", "NAME:SIZE", AT(quotas),
     "chunks first kept for the image NAME take at most SIZE bytes of it; may be repeated"},
    {OPTION_TEXT, 0, "memory", "SIZE", AT(memory), "keep what is read most in memory too, at most SIZE bytes"},
    {OPTION_TEXT, 0, "watermark", "HIGH:LOW", AT(watermark),
     "give room back while the caches' filesystem is more than HIGH percent full, until LOW"},
    {OPTION_TEXT, 0, "disk-timeout", "TIME", AT(disk_timeout),
     "a read waits so long for the caches' disks (default 2s), then its chunks are fetched"},
    {OPTION_TEXT, 0, "eviction", "POLICY", AT(eviction),
     "what makes room there: auto (default), lru, s3fifo or sticky"},
    {OPTION_TEXT, 0, "socket", "PATH", AT(socket), "unix socket to listen on (default " PIN_SOCKET ")"},
    {OPTION_TEXT, 0, "listen", "HOST:PORT", AT(listen), "listen on TCP instead; port 0 takes a free one"},
    {OPTION_TEXT, 0, "control", "PATH", AT(control), "control socket (default: the socket's path and .control)"},
    {OPTION_TEXT, 0, "metrics", "HOST:PORT", AT(metrics), "answer GET /metrics there, over TCP, to whoever asks"},
    {OPTION_NUMBER, 't', "threads", "N", offsetof(struct serve_values, threads), 1, 4096,
     "threads a connection; a read that waits for the store holds one (default 256)"},
    {OPTION_LIST, 0, "l2", "URL", AT(tiers),
     "a caching HTTP proxy in front of the store, asked for packs first; may be repeated"},
    {OPTION_TEXT, 0, "bwlimit", "RATE", AT(bwlimit),
     "bytes a second from the stores and tiers together, e.g. 100M (default: no limit)"},
    ENDPOINT_ROW(struct serve_values),
    {0},
};

struct serving {
    struct pin *pins;
    size_t count;
    bool tcp;
};

static void on_ready(void *arg, const char *where)
{
    const struct serving *s = arg;
    for (size_t i = 0; i < s->count; i++)
        if (s->tcp)
            printf("serving %s at nbd://%s/%s\n", s->pins[i].given, where, s->pins[i].ref.name);
        else
            printf("serving %s at nbd+unix:///%s?socket=%s\n", s->pins[i].given, s->pins[i].ref.name, where);
    fflush(stdout);
}

/* Sockets without a path of the user's live in PIN_RUN_DIR. Each nbdkit would find the supervisor's socket at its
 * control socket's path, and end. */
static int choose_sockets(const struct serve_values *v, struct server_config *c, char control[PIN_PATH_MAX])
{
    c->socket = v->socket ? v->socket : v->listen ? NULL : PIN_SOCKET;
    c->listen = v->listen;
    snprintf(control, PIN_PATH_MAX, "%s.control", c->socket ? c->socket : PIN_SOCKET);
    c->control = v->control ? v->control : control;
    if (c->socket && !strcmp(c->socket, c->control)) {
        (void)error_set(0, "--control %s is the socket that clients come to; give it another path", c->control);
        return CLI_USAGE;
    }
    return v->socket ? 0 : io_mkdirs(PIN_RUN_DIR);
}

static int serve(const struct serve_values *v, struct pin *pins, size_t count)
{
    char control[PIN_PATH_MAX];
    struct serving serving = {.pins = pins, .count = count, .tcp = v->listen};
    struct server_config config = {.caches = v->caches.items,
                                   .cache_count = v->caches.count,
                                   .quotas = v->quotas.items,
                                   .quota_count = v->quotas.count,
                                   .tiers = v->tiers.items,
                                   .tier_count = v->tiers.count,
                                   .cache_compressed = v->cache_compressed,
                                   .memory = v->memory,
                                   .watermark = v->watermark,
                                   .disk_timeout = v->disk_timeout,
                                   .eviction = v->eviction,
                                   .metrics = v->metrics,
                                   .bwlimit = v->bwlimit,
                                   .endpoint = v->endpoint,
                                   .threads = (unsigned)v->threads,
                                   .ready = on_ready,
                                   .arg = &serving};
    VEC(const char *) images = {0};
    int rc = choose_sockets(v, &config, control);
    for (size_t i = 0; !rc && i < count; i++)
        if (vec_push(&images, pins[i].text))
            rc = error_set(-ENOMEM, "out of memory");
    config.images = images.items;
    config.image_count = images.len;
    if (!rc)
        rc = server_run(&config);
    vec_release(&images);
    return rc;
}

/* Are the exports before this one called otherwise? nbdkit's plugin would name its own parameters as the remedy. */
static int check_name(const struct pin *pins, size_t i)
{
    for (size_t j = 0; j < i; j++)
        if (!strcmp(pins[j].ref.name, pins[i].ref.name)) {
            (void)error_set(0, "%s and %s would both be exported as '%s'; serve them by two servers", pins[j].given,
                            pins[i].given, pins[i].ref.name);
            return CLI_USAGE;
        }
    return 0;
}

/* The stores are let go before the server starts. */
static int resolve(const struct serve_values *v, const struct invocation *inv, struct pin *pins)
{
    CLEANUP_PINNER pinner;
    int rc = pinner_init(&pinner, &v->caches, v->endpoint);
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = pin_resolve(&pinner, inv->operands[i], &pins[i]);
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = check_name(pins, i);
    return rc;
}

/* What the plugin would refuse, by its parameters' names, once it has been started. */
static int check_words(const struct serve_values *v)
{
    size_t name_len;
    uint64_t size;
    uint32_t ms;
    unsigned high, low;
    enum evict_policy policy;
    int rc = v->eviction ? evict_policy_parse(v->eviction, &policy) : 0;
    if (!rc && v->memory)
        rc = memory_spec_parse("--memory ", v->memory, &size);
    if (!rc && v->watermark)
        rc = watermark_spec_parse("--watermark ", v->watermark, &high, &low);
    if (!rc && v->disk_timeout)
        rc = disk_timeout_spec_parse("--disk-timeout ", v->disk_timeout, &ms);
    if (!rc && v->bwlimit)
        rc = rate_parse("--bwlimit", v->bwlimit, &size);
    for (size_t i = 0; !rc && i < v->quotas.count; i++)
        rc = quota_spec_parse("--quota ", v->quotas.items[i], &name_len, &size);
    for (size_t i = 0; !rc && i < v->tiers.count; i++)
        rc = tier_spec_check("--l2 ", v->tiers.items[i]);
    return rc;
}

static int check(const struct serve_values *v)
{
    const char *of_cache = v->quotas.count       ? "quota"
                           : v->watermark        ? "watermark"
                           : v->disk_timeout     ? "disk-timeout"
                           : v->eviction         ? "eviction"
                           : v->cache_compressed ? "cache-compressed"
                                                 : NULL;
    if (v->socket && v->listen)
        return options_exclude("--socket", "--listen", "a server listens in one place");
    if (v->listen && listen_tcp_check(v->listen)) {
        (void)error_prefix(0, "--listen");
        return CLI_USAGE;
    }
    if (v->metrics && listen_tcp_check(v->metrics)) {
        (void)error_prefix(0, "--metrics");
        return CLI_USAGE;
    }
    if (of_cache && !v->caches.count) {
        (void)error_set(0, "--%s needs --cache DIR:SIZE", of_cache);
        return CLI_USAGE;
    }
    return check_words(v) ? CLI_USAGE : 0;
}

static int run(const struct invocation *inv)
{
    const struct serve_values *v = inv->values;
    if (check(v))
        return CLI_USAGE;
    CLEANUP_FREE struct pin *pins = calloc(inv->operand_count, sizeof *pins);
    if (!pins)
        return error_set(-ENOMEM, "out of memory");
    int rc = resolve(v, inv, pins);
    return rc ? rc : serve(v, pins, inv->operand_count);
}

const struct verb verb_serve = {
    .name = "serve",
    .operands = "IMAGE...",
    .min_operands = 1,
    .max_operands = 1024,
    .summary = "Serve images over NBD until a signal ends it",
    .details = "Supervises nbdkit with the granary plugin: holds the listening socket and starts nbdkit again when it\n"
               "dies. Each image is an export of its own name. Tags are resolved once, here.",
    .options = rows,
    .values_size = sizeof(struct serve_values),
    .defaults = &defaults,
    .run = run,
};
