/* A table of keys, each with its parser; every parser takes one value and says what was wrong with
 * it. */
#include "plugin/options.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "format/cache_spec.h"
#include "net/listen.h"

enum { INDEX_MEMORY_MIN = 1 << 20 };

const char options_help[] = "image=[NAME=]STORE/IMAGE[:TAG]\n"
                            "                    (required, repeatable) An image to export, e.g.\n"
                            "                    s3://bucket/prefix/faces:latest or /srv/store/faces.\n"
                            "                    The export's name is NAME, else the image's own.\n"
                            "                    \"image=\" may be left out.\n"
                            "cache=DIR:SIZE[:ssd|hdd]\n"
                            "                    (repeatable) Keep chunks in DIR, SIZE bytes at most, e.g.\n"
                            "                    /var/cache/granary:200G, or a part of the filesystem, e.g.\n"
                            "                    90%. Without it nothing is kept.\n"
                            "                    What is hot on an hdd moves up to an ssd (the default).\n"
                            "memory=SIZE         Keep what is read most in memory too, SIZE bytes at most, e.g.\n"
                            "                    8G (default: none). Works without cache=, too.\n"
                            "quota=NAME:SIZE     (repeatable) Chunks first kept for the image NAME take SIZE\n"
                            "                    bytes of the cache directories at most.\n"
                            "watermark=HIGH:LOW  When the filesystem of a cache directory is more than HIGH\n"
                            "                    percent full, give room back until LOW, e.g. 95:90.\n"
                            "disk-timeout=TIME   A read waits so long for the disks of the cache (default 2s);\n"
                            "                    then its chunks are fetched.\n"
                            "eviction=POLICY     What makes room in the cache: auto (default), lru, s3fifo or\n"
                            "                    sticky (what is in stays).\n"
                            "fence=warmed        Readers get what is cached and EIO for the rest: nothing is\n"
                            "                    fetched but by warming (default none).\n"
                            "warm=metadata       Have the images' metadata cached and pinned from the start\n"
                            "                    on, in the background (default none).\n"
                            "endpoint=URL        The S3 server, where it is not AWS or AWS_ENDPOINT_URL.\n"
                            "l2=URL              (repeatable) A caching HTTP proxy in front of the store, e.g.\n"
                            "                    http://cache1:8080/faces, asked for packs first. All images\n"
                            "                    are of one store then.\n"
                            "cache-compressed=yes Keep compressed chunks compressed in the cache directories:\n"
                            "                    more fit, every read of one decodes it (default no).\n"
                            "index-memory=SIZE   Memory for index nodes of all images (default 64M).\n"
                            "readahead=SIZE      Fetched ahead of a sequential reader at most (default 1M; 0: none).\n"
                            "fill=auto|off       Complete what shuffled reads touch in the background, where the\n"
                            "                    cache can hold the image (default auto).\n"
                            "connections=N       Requests to stores at a time, at most (default 64): as many\n"
                            "                    are sent as fill the link.\n"
                            "bwlimit=RATE        Bytes a second from the store and its tiers together, for all\n"
                            "                    exports, e.g. 100M (default: no limit).\n"
                            "hedge=PERCENT       Ask again when a get is silent for longer than 95 in 100\n"
                            "                    lately; PERCENT such gets in a hundred at most (default 5;\n"
                            "                    0: none).\n"
                            "timeout=TIME        Repeat failing requests for so long, e.g. 90s, 5m, 1h\n"
                            "                    (default 5m); then the read fails with EIO.\n"
                            "slow-read=TIME      Log reads that take so long (default 10s; 0: none), and in\n"
                            "                    which layer the time went.\n"
                            "control=PATH        A unix socket that answers GET /metrics and GET /status,\n"
                            "                    and that granary status, cache, warm, trace ask.\n"
                            "exports=FILE        Note there what exports the control socket adds, and serve them\n"
                            "                    from the start when the file is there.\n"
                            "metrics=HOST:PORT   Answer GET /metrics there too, over TCP, to whoever asks.\n"
                            "\n"
                            "Start nbdkit with -t 256: a read that waits for a store holds a thread.\n";

void options_init(struct options *o)
{
    memset(o, 0, sizeof *o);
    o->stack.index_memory = OPTIONS_INDEX_MEMORY_DEFAULT;
    o->stack.readahead = OPTIONS_READAHEAD_DEFAULT;
    o->stack.store.timeout_ms = OPTIONS_TIMEOUT_DEFAULT_S * 1000ull;
    o->stack.slow_read_ms = OPTIONS_SLOW_READ_DEFAULT_S * 1000ull;
    o->stack.cache.fetch.workers = OPTIONS_CONNECTIONS_DEFAULT;
    o->stack.cache.fetch.hedge_percent = OPTIONS_HEDGE_DEFAULT;
}

void options_release(struct options *o)
{
    for (size_t i = 0; i < o->strings.len; i++)
        free(o->strings.items[i]);
    vec_release(&o->strings);
    vec_release(&o->images);
}

static int no_memory(void)
{
    return error_set(-ENOMEM, "out of memory");
}

/* A copy of text[0..len) that lives as long as o; NULL: out of memory. */
static char *keep(struct options *o, const char *text, size_t len)
{
    CLEANUP_FREE char *copy = strndup(text, len);
    if (!copy || vec_push(&o->strings, copy))
        return NULL;
    return steal_ptr(&copy);
}

static char *keep_absolute(struct options *o, const char *path, size_t len)
{
    if (*path == '/')
        return keep(o, path, len);
    char dir[PATH_MAX], whole[2 * PATH_MAX];
    if (!getcwd(dir, sizeof dir) || len >= PATH_MAX)
        return NULL;
    snprintf(whole, sizeof whole, "%s/%.*s", dir, (int)len, path);
    return keep(o, whole, strlen(whole));
}

/* A reference has no '=' before its first '/', so NAME=REF is told from REF. */
static int set_image(struct options *o, const char *value)
{
    struct stack_image image = {0};
    size_t name_len = strcspn(value, "=/");
    if (value[name_len] == '=') {
        image.export_name = keep(o, value, name_len);
        if (!image.export_name)
            return no_memory();
        value += name_len + 1;
    }
    image.ref = keep(o, value, strlen(value));
    if (!image.ref || vec_push(&o->images, image))
        return no_memory();
    return 0;
}

static int set_cache(struct options *o, const char *value)
{
    struct cache_config *c = &o->stack.cache;
    struct cache_spec spec;
    int rc = cache_spec_parse("cache=", value, &spec);
    if (rc)
        return rc;
    if (c->dir_count == CACHE_DIRS_MAX)
        return error_set(-EINVAL, "cache=%s: more than %d directories", value, CACHE_DIRS_MAX);
    c->dirs[c->dir_count].size = spec.size;
    c->dirs[c->dir_count].percent = spec.percent;
    c->dirs[c->dir_count].hdd = spec.hdd;
    c->dirs[c->dir_count].path = keep_absolute(o, value, spec.dir_len);
    if (!c->dirs[c->dir_count].path)
        return error_set(-EINVAL, "cache=%s: the directory's path is too long", value);
    c->dir_count++;
    return 0;
}

static int set_quota(struct options *o, const char *value)
{
    struct cache_config *c = &o->stack.cache;
    size_t name_len;
    uint64_t size;
    int rc = quota_spec_parse("quota=", value, &name_len, &size);
    if (rc)
        return rc;
    if (c->quota_count == CACHE_QUOTAS_MAX)
        return error_set(-EINVAL, "quota=%s: more than %d quotas", value, CACHE_QUOTAS_MAX);
    c->quotas[c->quota_count].size = size;
    c->quotas[c->quota_count].name = keep(o, value, name_len);
    if (!c->quotas[c->quota_count].name)
        return no_memory();
    c->quota_count++;
    return 0;
}

static int set_memory(struct options *o, const char *value)
{
    return memory_spec_parse("memory=", value, &o->stack.cache.memory);
}

static int set_cache_compressed(struct options *o, const char *value)
{
    o->stack.cache.compressed = !strcmp(value, "yes");
    if (o->stack.cache.compressed || !strcmp(value, "no"))
        return 0;
    return error_set(-EINVAL, "cache-compressed=%s: write yes or no", value);
}

static int set_watermark(struct options *o, const char *value)
{
    struct cache_config *c = &o->stack.cache;
    return watermark_spec_parse("watermark=", value, &c->watermark.high, &c->watermark.low);
}

static int set_disk_timeout(struct options *o, const char *value)
{
    return disk_timeout_spec_parse("disk-timeout=", value, &o->stack.cache.disk_timeout_ms);
}

static int set_eviction(struct options *o, const char *value)
{
    return evict_policy_parse(value, &o->stack.cache.eviction);
}

static int set_fence(struct options *o, const char *value)
{
    return fence_spec_parse("fence=", value, &o->stack.cache.fenced);
}

static int set_warm(struct options *o, const char *value)
{
    return warm_spec_parse("warm=", value, &o->warm_metadata);
}

static int set_endpoint(struct options *o, const char *value)
{
    o->endpoint = keep(o, value, strlen(value));
    return o->endpoint ? 0 : no_memory();
}

static int set_l2(struct options *o, const char *value)
{
    struct stack_config *c = &o->stack;
    int rc = tier_spec_check("l2=", value);
    if (rc)
        return rc;
    if (c->tier_count == STORE_TIERS_MAX)
        return error_set(-EINVAL, "l2=: more than %d shared tiers", STORE_TIERS_MAX);
    c->tiers[c->tier_count] = keep(o, value, strlen(value));
    return c->tiers[c->tier_count++] ? 0 : no_memory();
}

static int set_control(struct options *o, const char *value)
{
    o->control = keep_absolute(o, value, strlen(value));
    return o->control ? 0 : error_set(-EINVAL, "control=%s: the path is too long", value);
}

static int set_exports(struct options *o, const char *value)
{
    o->exports = keep_absolute(o, value, strlen(value));
    return o->exports ? 0 : error_set(-EINVAL, "exports=%s: the path is too long", value);
}

static int set_metrics(struct options *o, const char *value)
{
    int rc = listen_tcp_check(value);
    if (rc)
        return error_prefix(rc, "metrics");
    o->metrics = keep(o, value, strlen(value));
    return o->metrics ? 0 : no_memory();
}

static int set_index_memory(struct options *o, const char *value)
{
    uint64_t size;
    int rc = text_parse_size("index-memory", value, &size);
    if (!rc && size < INDEX_MEMORY_MIN)
        rc = error_set(-EINVAL, "index-memory=%s: at least 1M", value);
    if (!rc)
        o->stack.index_memory = size;
    return rc;
}

static int set_readahead(struct options *o, const char *value)
{
    uint64_t size;
    int rc = readahead_spec_parse("readahead=", value, &size);
    if (!rc)
        o->stack.readahead = (uint32_t)size;
    return rc;
}

static int set_fill(struct options *o, const char *value)
{
    bool on;
    int rc = fill_spec_parse("fill=", value, &on);
    o->stack.no_completion = !on;
    return rc;
}

static int set_connections(struct options *o, const char *value)
{
    return connections_spec_parse("connections=", value, &o->stack.cache.fetch.workers);
}

static int set_bwlimit(struct options *o, const char *value)
{
    return rate_parse("bwlimit", value, &o->stack.bwlimit);
}

static int set_hedge(struct options *o, const char *value)
{
    return hedge_spec_parse("hedge=", value, &o->stack.cache.fetch.hedge_percent);
}

static int set_timeout(struct options *o, const char *value)
{
    return timeout_spec_parse("timeout=", value, &o->stack.store.timeout_ms);
}

static int set_slow_read(struct options *o, const char *value)
{
    return slow_read_spec_parse("slow-read=", value, &o->stack.slow_read_ms);
}

static const struct {
    const char *key;
    int (*set)(struct options *o, const char *value);
} table[] = {
    {"image", set_image},
    {"cache", set_cache},
    {"watermark", set_watermark},
    {"disk-timeout", set_disk_timeout},
    {"endpoint", set_endpoint},
    {"l2", set_l2},
    {"index-memory", set_index_memory},
    {"readahead", set_readahead},
    {"fill", set_fill},
    {"connections", set_connections},
    {"bwlimit", set_bwlimit},
    {"hedge", set_hedge},
    {"timeout", set_timeout},
    {"slow-read", set_slow_read},
    {"control", set_control},
    {"exports", set_exports},
    {"metrics", set_metrics},
    {"cache-compressed", set_cache_compressed},
    {"memory", set_memory},
    {"quota", set_quota},
    {"eviction", set_eviction},
    {"fence", set_fence},
    {"warm", set_warm},
};

int options_set(struct options *o, const char *key, const char *value)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (!strcmp(key, table[i].key))
            return table[i].set(o, value);
    return error_set(-EINVAL, "unknown parameter '%s'; 'nbdkit granary --help' lists the known ones", key);
}

int options_complete(struct options *o)
{
    if (!o->images.len)
        return error_set(-EINVAL, "no image; give image=STORE/IMAGE, e.g. image=s3://bucket/prefix/faces");
    if (o->stack.cache.fenced && !o->stack.cache.dir_count && !o->stack.cache.memory)
        return error_set(-EINVAL, "fence=warmed lets nothing be read without a cache; give cache=DIR:SIZE");
    if (o->stack.cache.fenced)
        o->stack.readahead = 0;
    o->stack.images = o->images.items;
    o->stack.image_count = o->images.len;
    o->stack.store.endpoint = o->endpoint;
    o->stack.cache.fetch.timeout_ms = o->stack.store.timeout_ms;
    o->stack.store.connections = o->stack.cache.fetch.workers; /* which never wait for each other's */
    return 0;
}
