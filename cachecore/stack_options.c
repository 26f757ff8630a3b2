/* The parsers of the server options. The macro list STACK_OPTIONS is expanded twice: into a put_FIELD function for
 * each VALUE row, which stores a number at the row's place in struct stack_options, and into `table`, which the
 * functions at the end search. An OWN row has its own parser, set_NAME; a VALUE row is parsed by its type and checked
 * against its limits, which are themselves written as a user would.
 *
 * In every parser `what` is the beginning of a message: "cache=" or "--cache ", as the user wrote it. */
#include "stack_options.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/rate.h"
#include "base/text.h"
#include "net/listen.h"
#include "net/peer_key.h"

void stack_options_release(struct stack_options *o)
{
    for (size_t i = 0; i < o->strings.len; i++)
        free(o->strings.items[i]);
    peer_key_free(o->stack.node.key);
    vec_release(&o->strings);
    vec_release(&o->images);
    vec_release(&o->followed);
}

/* Cut `what` down to the name: "cache=" to "cache", "--cache " to "--cache". Return out. */
static const char *name_of(const char *what, char out[64])
{
    snprintf(out, 64, "%.*s", (int)strcspn(what, "= "), what);
    return out;
}

/* Return a copy of text[0..len) that lives as long as o; NULL: out of memory. */
static char *stack_options_keep(struct stack_options *o, const char *text, size_t len)
{
    CLEANUP_FREE char *copy = strndup(text, len);
    if (!copy || vec_push(&o->strings, copy))
        return NULL;
    return steal_ptr(&copy);
}

/* Keep an absolute copy of a path, the first len bytes of value. */
static int keep_absolute(struct stack_options *o, const char *what, const char *value, size_t len, char **out)
{
    char dir[PATH_MAX] = "", whole[2 * PATH_MAX];
    if (*value != '/' && !getcwd(dir, sizeof dir))
        return error_set(-errno, "%s%s: the working directory is not known: %s", what, value, strerror(errno));
    if (len >= PATH_MAX)
        return error_set(-EINVAL, "%s%s: the path is too long", what, value);
    int n = snprintf(whole, sizeof whole, "%s%s%.*s", dir, *dir ? "/" : "", (int)len, value);
    *out = stack_options_keep(o, whole, (size_t)n);
    return *out ? 0 : error_no_memory();
}

/* Parse an image. A reference has no '=' before its first '/', which tells NAME=REF from REF. */
static int parse_image(struct stack_options *o, const char *value, struct stack_image *out)
{
    struct stack_image image = {0};
    size_t name_len = strcspn(value, "=/");
    if (value[name_len] == '=') {
        image.export_name = stack_options_keep(o, value, name_len);
        if (!image.export_name)
            return error_no_memory();
        value += name_len + 1;
    }
    image.ref = stack_options_keep(o, value, strlen(value));
    if (!image.ref)
        return error_no_memory();
    *out = image;
    return 0;
}

static int set_image(struct stack_options *o, const char *what, const char *value)
{
    struct stack_image image;
    int rc = parse_image(o, value, &image);
    return rc ? rc : vec_push(&o->images, image) ? error_no_memory() : 0;
}

static int set_follow(struct stack_options *o, const char *what, const char *value)
{
    struct stack_image image;
    int rc = parse_image(o, value, &image);
    return rc ? rc : vec_push(&o->followed, image) ? error_no_memory() : 0;
}

/* The hook is started by env(1), which would take a path with '=' for a variable. */
static int set_hook(struct stack_options *o, const char *what, const char *value)
{
    if (*value != '/' || strchr(value, '='))
        return error_set(-EINVAL, "%s%s: write the absolute path of a program, without '='", what, value);
    o->hook = stack_options_keep(o, value, strlen(value));
    return o->hook ? 0 : error_no_memory();
}

/* ---- caches ---- */

enum { SIZE_LEAST = 16 << 20 }; /* bytes, of a cache and of a quota */

/* Parse "DIR:SIZE" or "DIR:PERCENT%". */
static int parse_plain(const char *what, const char *text, struct cache_spec *out)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || !colon[1])
        return error_set(-EINVAL, "%s%s: write %sDIR:SIZE, e.g. %s/var/cache/granary:200G or :90%%", what, text, what,
                         what);
    *out = (struct cache_spec){.dir_len = (size_t)(colon - text)};
    size_t len = strlen(colon + 1);
    if (colon[len] == '%')
        return text_parse_percent("cache size", colon + 1, 1, 99, &out->percent);
    int rc = text_parse_size("cache size", colon + 1, &out->size);
    if (!rc && out->size < SIZE_LEAST)
        rc = error_set(-EINVAL, "%s%s: at least 16M", what, text);
    return rc;
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    return len > strlen(end) && !strcmp(text + len - strlen(end), end);
}

int cache_spec_parse(const char *what, const char *text, struct cache_spec *out)
{
    static const char hdd[] = ":hdd", ssd[] = ":ssd";
    size_t len = strlen(text);
    /* ":hdd" and ":ssd" have the same length, so one cut serves both */
    bool slow = ends_with(text, len, hdd), named = slow || ends_with(text, len, ssd);
    CLEANUP_FREE char *plain = strndup(text, named ? len - strlen(hdd) : len);
    int rc = plain ? parse_plain(what, plain, out) : error_no_memory();
    if (!rc)
        out->hdd = slow;
    return rc;
}

static int set_cache(struct stack_options *o, const char *what, const char *value)
{
    struct cache_config *c = &o->stack.cache;
    struct cache_spec spec;
    /* "none" must be the only cache. */
    bool none = !strcmp(value, "none");
    if (o->no_cache || (none && c->dir_count))
        return error_set(-EINVAL, "%snone: no directory goes beside it", what);
    o->no_cache = none;
    if (none)
        return 0;
    int rc = cache_spec_parse(what, value, &spec);
    if (rc)
        return rc;
    if (c->dir_count == CACHE_DIRS_MAX)
        return error_set(-EINVAL, "%s%s: more than %d directories", what, value, CACHE_DIRS_MAX);
    c->dirs[c->dir_count].size = spec.size;
    c->dirs[c->dir_count].percent = spec.percent;
    c->dirs[c->dir_count].hdd = spec.hdd;
    char *path;
    rc = keep_absolute(o, what, value, spec.dir_len, &path);
    if (!rc)
        c->dirs[c->dir_count++].path = path;
    return rc;
}

int stack_options_parse_quota(const char *what, const char *value, const char *size, uint64_t *out)
{
    int rc = text_parse_size("quota", size, out);
    return !rc && *out < SIZE_LEAST ? error_set(-EINVAL, "%s%s: at least 16M", what, value) : rc;
}

/* Limit what an image may keep in the cache. stack_open checks that the image is served. */
static int set_quota(struct stack_options *o, const char *what, const char *value)
{
    struct cache_config *c = &o->stack.cache;
    const char *colon = strrchr(value, ':');
    uint64_t size;
    if (!colon || colon == value || !colon[1])
        return error_set(-EINVAL, "%s%s: write %sNAME:SIZE with the name of an image, e.g. %sfaces:200G", what, value,
                         what, what);
    int rc = stack_options_parse_quota(what, value, colon + 1, &size);
    if (rc)
        return rc;
    if (c->quota_count == CACHE_QUOTAS_MAX)
        return error_set(-EINVAL, "%s%s: more than %d quotas", what, value, CACHE_QUOTAS_MAX);
    c->quotas[c->quota_count].size = size;
    c->quotas[c->quota_count].name = stack_options_keep(o, value, (size_t)(colon - value));
    if (!c->quotas[c->quota_count].name)
        return error_no_memory();
    c->quota_count++;
    return 0;
}

static int set_watermark(struct stack_options *o, const char *what, const char *value)
{
    const char *colon = strchr(value, ':');
    CLEANUP_FREE char *before = colon ? strndup(value, (size_t)(colon - value)) : NULL;
    uint64_t high, low;
    /* The sentences of text_parse_uint are replaced by this one. */
    if (!before || text_parse_uint("", before, 2, 99, &high) || text_parse_uint("", colon + 1, 1, high - 1, &low))
        return error_set(-EINVAL, "%s%s: write %sHIGH:LOW in percent, e.g. %s90:85", what, value, what, what);
    o->stack.cache.watermark.high = (unsigned)high;
    o->stack.cache.watermark.low = (unsigned)low;
    return 0;
}

static int set_eviction(struct stack_options *o, const char *what, const char *value)
{
    return evict_policy_parse(value, &o->stack.cache.eviction);
}

static int set_warm(struct stack_options *o, const char *what, const char *value)
{
    bool metadata = !strcmp(value, "metadata");
    if (!metadata && strcmp(value, "none"))
        return error_set(-EINVAL, "%s%s: write none or metadata", what, value);
    o->warm_metadata = metadata;
    return 0;
}

static int set_endpoint(struct stack_options *o, const char *what, const char *value)
{
    o->endpoint = stack_options_keep(o, value, strlen(value));
    return o->endpoint ? 0 : error_no_memory();
}

/* The file is read now: a server that runs keeps the keys that it was started with. */
static int set_trust(struct stack_options *o, const char *what, const char *value)
{
    return trust_add(&o->stack.trust, what, value);
}

static int set_l2(struct stack_options *o, const char *what, const char *value)
{
    struct stack_config *c = &o->stack;
    /* The sentence does not show the address, since it may contain a password. */
    if (*value != '/' && !text_begins_with(value, "http://") && !text_begins_with(value, "https://") &&
        !text_begins_with(value, "dns+"))
        return error_set(
            -EINVAL,
            "%s...: write the http:// or https:// address of a proxy in front of the store, e.g. "
            "%shttp://cache1:8080/faces, the absolute path of a file of such addresses, or dns+http://NAME:8080/faces "
            "for all addresses of a name",
            what, what);
    if (c->l2_count == STORE_L2_LISTS_MAX)
        return error_set(-EINVAL, "%s...: it may be repeated up to %d times; a file may have %d addresses", what,
                         STORE_L2_LISTS_MAX, STORE_L2_MAX);
    c->l2[c->l2_count] = stack_options_keep(o, value, strlen(value));
    return c->l2[c->l2_count++] ? 0 : error_no_memory();
}

static int set_control(struct stack_options *o, const char *what, const char *value)
{
    return keep_absolute(o, what, value, strlen(value), &o->control);
}

static int set_exports(struct stack_options *o, const char *what, const char *value)
{
    return keep_absolute(o, what, value, strlen(value), &o->exports);
}

/* Keep HOST:PORT. */
static int keep_address(struct stack_options *o, const char *what, const char *value, char **out)
{
    char name[64];
    int rc = listen_tcp_check(value);
    if (rc)
        return error_prefix(rc, "%s", name_of(what, name));
    *out = stack_options_keep(o, value, strlen(value));
    return *out ? 0 : error_no_memory();
}

static int set_metrics(struct stack_options *o, const char *what, const char *value)
{
    return keep_address(o, what, value, &o->metrics);
}

static int set_console(struct stack_options *o, const char *what, const char *value)
{
    return keep_address(o, what, value, &o->console);
}

static int set_console_token(struct stack_options *o, const char *what, const char *value)
{
    return keep_absolute(o, what, value, strlen(value), &o->console_token);
}

static int set_console_admin_token(struct stack_options *o, const char *what, const char *value)
{
    return keep_absolute(o, what, value, strlen(value), &o->console_admin_token);
}

static int set_peer_listen(struct stack_options *o, const char *what, const char *value)
{
    char name[64];
    const char *port = strrchr(value, ':');
    if (port && !strcmp(port, ":0"))
        return error_set(-EINVAL, "%s: %s needs a port, the one that the list of nodes names", name_of(what, name),
                         value);
    return keep_address(o, what, value, &o->peer_listen);
}

/* "none" is for those who restrict access by network, and is not the default. */
static int set_peer_key(struct stack_options *o, const char *what, const char *value)
{
    char name[64];
    char *path;
    if (o->stack.node.key || o->open_to_peers)
        return error_set(-EINVAL, "%s is given twice; a file may hold several keys", name_of(what, name));
    o->open_to_peers = !strcmp(value, "none");
    if (o->open_to_peers)
        return 0;
    int rc = keep_absolute(o, what, value, strlen(value), &path);
    if (!rc)
        rc = peer_key_open(path, &o->stack.node.key);
    return rc ? error_prefix(rc, "%s", name_of(what, name)) : 0;
}

/* The files are used by others; a missing one is reported here, before anything starts. */
static int set_peer_tls(struct stack_options *o, const char *what, const char *value)
{
    static const char *const names[] = {"ca.crt", "tls.crt", "tls.key"};
    char *directory, path[2 * PATH_MAX];
    int rc = keep_absolute(o, what, value, strlen(value), &directory);
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(names); i++) {
        snprintf(path, sizeof path, "%s/%s", directory, names[i]);
        if (access(path, R_OK))
            rc = error_set(-errno, "%s%s: cannot read %s: %s; put ca.crt, tls.crt and tls.key there", what, value,
                           names[i], strerror(errno));
    }
    if (!rc)
        o->stack.node.tls = directory;
    return rc;
}

static int set_bwlimit(struct stack_options *o, const char *what, const char *value)
{
    char name[64];
    return rate_parse(name_of(what, name), value, &o->stack.bwlimit);
}

/* ---- the table ---- */

/* A row of the table. */
struct row {
    const char *key, *option; /* option "": only a parameter */
    int (*set)(struct stack_options *o, const char *what, const char *value);
    void (*put)(struct stack_options *o, uint64_t n); /* if set is NULL */
    enum stack_option_type type;
    bool zero;
    const char *shape, *low, *high, *standard; /* as a user would write them; standard: the default; NULL: none */
};

/* The first expansion: put_FIELD() for each VALUE row. */
#define NO_PUT(...)
#define PUT(field, how, key, option, shape, type, low, high, zero, standard, place, help)                              \
    static void put_##field(struct stack_options *o, uint64_t n)                                                       \
    {                                                                                                                  \
        o->place = (__typeof__(o->place))n;                                                                            \
    }
STACK_OPTIONS(NO_PUT, PUT)

/* The second expansion: the table. */
#define OWN_ROW(field, how, key, option, shape, set, help)                                                             \
    {key, option, set, NULL, STACK_OPTION_OWN, false, shape, "", "", NULL},
#define VALUE_ROW(field, how, key, option, shape, type, low, high, zero, standard, place, help)                        \
    {key, option, NULL, put_##field, type, zero, shape, low, high, standard},
static const struct row table[] = {STACK_OPTIONS(OWN_ROW, VALUE_ROW)};

/* ---- values ---- */

/* Return the index of value among the words "a|b|c", or -1. */
static int word_index(const char *words, const char *value)
{
    for (int i = 0;; i++) {
        size_t len = strcspn(words, "|");
        if (strlen(value) == len && !memcmp(words, value, len))
            return i;
        if (!words[len])
            return -1;
        words += len + 1;
    }
}

/* Parse a number by its type. Times are seconds here. */
static int parse_number(enum stack_option_type type, const char *text, uint64_t *out)
{
    switch (type) {
    case STACK_OPTION_SIZE:
        return text_parse_size("", text, out);
    case STACK_OPTION_TIME:
        return text_parse_duration("", text, out);
    default:
        return text_parse_uint("", text, 0, UINT32_MAX, out);
    }
}

/* Is n within the row's limits? */
static bool in_range(const struct row *row, uint64_t n)
{
    uint64_t low = 0, high = UINT64_MAX;
    bool sound = (!*row->low || !parse_number(row->type, row->low, &low)) &&
                 (!*row->high || !parse_number(row->type, row->high, &high));
    return sound && n <= high && (n >= low || (row->zero && !n));
}

/* The sentence that lists the allowed words. */
static int wrong_word(const struct row *row, const char *what, const char *value)
{
    char words[128] = "";
    for (const char *p = row->shape; *p;) {
        size_t len = strcspn(p, "|"), used = strlen(words);
        snprintf(words + used, sizeof words - used, "%s%.*s", used ? " or " : "", (int)len, p);
        p += len + (p[len] != 0);
    }
    return error_set(-EINVAL, "%s%s: write %s", what, value, words);
}

/* The sentence that shows the allowed range. */
static int wrong_number(const struct row *row, const char *what, const char *value)
{
    const char *kind = row->type == STACK_OPTION_SIZE ? "size" : row->type == STACK_OPTION_TIME ? "time" : "number";
    char range[64];
    if (*row->low && *row->high)
        snprintf(range, sizeof range, "from %s to %s", row->low, row->high);
    else
        snprintf(range, sizeof range, "of at %s %s", *row->low ? "least" : "most", *row->low ? row->low : row->high);
    return error_set(-EINVAL, "%s%s: write a %s %s%s", what, value, kind, range,
                     row->zero && strcmp(row->low, "0") != 0 ? ", or 0 for none" : "");
}

/* Parse and store one value. Times are stored in milliseconds. */
static int set_row(struct stack_options *o, const struct row *row, const char *what, const char *value)
{
    uint64_t n = 0;
    if (row->set)
        return row->set(o, what, value);
    if (row->type == STACK_OPTION_WORD) {
        int index = word_index(row->shape, value);
        if (index < 0)
            return wrong_word(row, what, value);
        n = (uint64_t)index;
    } else if (parse_number(row->type, value, &n) || !in_range(row, n)) {
        return wrong_number(row, what, value);
    }
    row->put(o, row->type == STACK_OPTION_TIME ? n * 1000 : n);
    return 0;
}

/* ---- front end ---- */

void stack_options_init(struct stack_options *o)
{
    memset(o, 0, sizeof *o);
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++) {
        /* A default that its own row refuses is a bug. */
        int rc = table[i].standard ? set_row(o, &table[i], "", table[i].standard) : 0;
        assert(!rc);
        (void)rc;
    }
}

static const struct row *find_key(const char *key)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (!strcmp(key, table[i].key))
            return &table[i];
    return NULL;
}

int stack_options_set(struct stack_options *o, const char *key, const char *value)
{
    char what[64];
    const struct row *row = find_key(key);
    if (!row)
        return error_set(-EINVAL, "unknown parameter '%s'; --help lists the known ones", key);
    snprintf(what, sizeof what, "%s=", key);
    return set_row(o, row, what, value);
}

int stack_options_set_option(struct stack_options *o, const char *option, const char *value)
{
    char what[64];
    snprintf(what, sizeof what, "--%s ", option);
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (*option && !strcmp(option, table[i].option))
            return set_row(o, &table[i], what, value);
    return error_set(-EINVAL, "--%s: no server has this option", option);
}

const char *stack_options_default(const char *key)
{
    const struct row *row = find_key(key);
    return row ? row->standard : NULL;
}

/* What a node needs, and what only a node may have. A key and certificates are also for who asks nodes and is none. */
static int check_node(const struct stack_options *o)
{
    const struct store_node *node = &o->stack.node;
    const char *given = o->open_to_peers                            ? "peer-key=none"
                        : o->stack.cache.others != CACHE_OTHERS_ALL ? "peer-keep"
                                                                    : NULL;
    if (!o->peer_listen && given)
        return error_set(-EINVAL, "%s needs peer-listen: it is for nodes that answer each other", given);
    if ((node->key || node->tls) && !o->stack.l2_count)
        return error_set(-EINVAL, "%s needs the list of nodes; give l2=URL, l2=FILE or l2=dns+URL",
                         node->key ? "peer-key" : "peer-tls");
    if (!o->peer_listen)
        return 0;
    if (!o->stack.l2_count || !o->stack.cache.dir_count)
        return error_set(-EINVAL, "peer-listen=%s needs %s", o->peer_listen,
                         o->stack.l2_count ? "a cache directory to answer from; give cache=DIR:SIZE"
                                           : "the list of all nodes, with this one; give l2=FILE or l2=dns+URL");
    if (!node->key && !node->tls && !o->open_to_peers)
        return error_set(
            -EINVAL,
            "peer-listen=%s needs peer-key=FILE, a key that all nodes have (openssl rand -hex 32 >FILE), or "
            "peer-tls=DIR, their certificates; or peer-key=none, to answer everybody who reaches the port",
            o->peer_listen);
    return 0;
}

int stack_options_complete(struct stack_options *o)
{
    if (!o->images.len && !o->followed.len && !o->exports) /* a server may get all its images later */
        return error_set(-EINVAL, "no image; give image=STORE/IMAGE, e.g. image=s3://bucket/prefix/faces");
    if ((o->console_token || o->console_admin_token) && !o->console)
        return error_set(-EINVAL, "console-token and console-admin-token need console=HOST:PORT");
    /* Without a cache, cache-only mode would fail every read. */
    if (o->stack.cache.fenced && !o->stack.cache.dir_count && !o->stack.cache.memory)
        return error_set(-EINVAL, "fence=warmed needs a cache, or nothing can be read; give cache=DIR:SIZE");
    if (o->stack.cache.fenced)
        /* Readahead would fetch, which cache-only mode must not do. */
        o->stack.readahead = 0;
    int rc = check_node(o);
    if (rc)
        return rc;
    o->stack.node.address = o->peer_listen;
    o->stack.cache.as_stored = o->peer_listen;
    o->stack.images = o->images.items;
    o->stack.image_count = o->images.len;
    o->stack.followed = o->followed.items;
    o->stack.followed_count = o->followed.len;
    o->stack.store.endpoint = o->endpoint;
    /* A read waits for as long as the store retries. */
    o->stack.cache.fetch.timeout_ms = o->stack.store.timeout_ms;
    /* A connection for each worker, so that workers never wait for one, those for other nodes among them. */
    o->stack.store.connections = o->stack.cache.fetch.workers + (o->peer_listen ? CACHE_OTHERS_GETS : 0);
    return 0;
}
