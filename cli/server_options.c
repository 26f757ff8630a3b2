/* The options come from the table in stack_options.h, which front ends use too. Here its values are
 *
 *   checked    as the server will parse them, so that a mistake is reported under the option's name before anything
 *              starts
 *   completed  by a default cache, or by GRANARY_CACHE
 *   written    as words again, for a front end (KEY=VALUE) or for granary serve (--KEY=VALUE)
 *
 * A default cache must never keep a server from starting. So everything for which the server would refuse the directory
 * is tried here first: its owner, its locks, reserving space. Any failure means a server without a disk cache, and a
 * line that says why. Two locks: default.lock is the claim of a command, taken before its server's process exists; the
 * cache's own lock is the server's. The second is only probed here and released again.
 *
 * Operands are resolved to digests by a resolver that also uses the export tables in the cache directories that the
 * server will use, so that a server can start while its store is down.
 */
#include "cli/server_options.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/safe_dir.h"
#include "base/text.h"
#include "cache/cache_tools.h"
#include "format/signature.h"

const struct option_row server_option_rows[] = {SERVER_ROWS{0}};

/* The member of the values that a row sets. */
static const void *value_of(const struct server_values *v, const struct option_row *row)
{
    return (const char *)v + row->offset;
}

/* Return how often an option was given. */
static size_t count_of(const struct server_values *v, const struct option_row *row)
{
    switch (row->kind) {
    case OPTION_SWITCH:
        return *(const enum option_switch *)value_of(v, row) != SWITCH_UNSET;
    case OPTION_LIST:
        return ((const struct option_list *)value_of(v, row))->count;
    default:
        return *(const char *const *)value_of(v, row) != NULL;
    }
}

/* The endpoint does not count, since the command itself needs it too. */
const char *server_options_given(const struct server_values *v, bool joins)
{
    for (const struct option_row *row = server_option_rows; row->kind; row++)
        if (row->offset != offsetof(struct server_values, endpoint) && count_of(v, row) &&
            !(joins && row->offset == offsetof(struct server_values, trust)))
            return row->name;
    return NULL;
}

/* Return the i-th value of an option as text. */
static const char *text_of(const struct server_values *v, const struct option_row *row, size_t i)
{
    switch (row->kind) {
    case OPTION_SWITCH:
        return *(const enum option_switch *)value_of(v, row) == SWITCH_YES ? "yes" : "no";
    case OPTION_LIST:
        return ((const struct option_list *)value_of(v, row))->items[i];
    default:
        return *(const char *const *)value_of(v, row);
    }
}

/* ---- checks ---- */

/* Whether an option has no effect without a cache on disk. */
static bool is_of_disk_cache(const struct option_row *row)
{
    static const char *const names[] = {"cache-compressed", "quota", "watermark", "disk-timeout", "eviction"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++)
        if (!strcmp(row->name, names[i]))
            return true;
    return false;
}

/* Parse every value as the server will, for the sentence only. */
static int check_words(const struct server_values *v)
{
    struct stack_options parsed;
    int rc = 0;
    stack_options_init(&parsed);
    for (const struct option_row *row = server_option_rows; !rc && row->kind; row++)
        for (size_t i = 0; !rc && i < count_of(v, row); i++)
            rc = stack_options_set_option(&parsed, row->name, text_of(v, row, i));
    stack_options_release(&parsed);
    return rc;
}

/* Options of the disk cache without a disk cache are refused, rather than ignored. */
int server_options_check(const struct server_values *v)
{
    bool none = server_options_no_cache(v);
    if (v->fence && !strcmp(v->fence, "warmed") && none && !v->memory)
        return options_wrong("--fence needs --cache DIR:SIZE or --memory SIZE: without a cache nothing can be read");
    for (const struct option_row *row = server_option_rows; none && row->kind; row++)
        if (is_of_disk_cache(row) && count_of(v, row))
            return options_wrong("--%s needs --cache DIR:SIZE", row->name);
    return check_words(v) ? CLI_USAGE : 0;
}

/* ---- the environment and the configuration file ---- */

/* GRANARY_CACHE stands in for --cache. NULL: not set. */
static const char *default_cache_environment(void)
{
    const char *text = getenv("GRANARY_CACHE");
    return text && *text ? text : NULL;
}

/* Copy a row's member; a list moves. */
static void move_value(struct server_values *to, struct server_values *from, const struct option_row *row)
{
    static const size_t sizes[] = {[OPTION_SWITCH] = sizeof(enum option_switch),
                                   [OPTION_TEXT] = sizeof(char *),
                                   [OPTION_URL] = sizeof(char *),
                                   [OPTION_LIST] = sizeof(struct option_list)};
    void *member = (char *)from + row->offset;
    memcpy((char *)to + row->offset, member, sizes[row->kind]);
    memset(member, 0, sizes[row->kind]);
}

bool server_options_in_config(const struct option_row *row)
{
    return strcmp(row->name, "quota") != 0 && strcmp(row->name, "endpoint") != 0;
}

/* Whether a value is a path that depends on the directory in which a command happens to run. */
static bool is_relative(const struct config_entry *e)
{
    struct public_key key;
    if (*e->value == '/')
        return false;
    if (!strcmp(e->key, "trust")) /* the key itself, or its file */
        return public_key_decode(e->value, strlen(e->value), &key) != 0;
    return !strcmp(e->key, "cache") && strcmp(e->value, "none") != 0;
}

/* Parse a value as the server will. A server refuses a quota of an image that it does not serve, and an endpoint is
 * also for commands that start no server. */
static int check_entry(const struct config *c, const struct config_entry *e, struct stack_options *parsed)
{
    if (!strcmp(e->key, "endpoint"))
        (void)config_wrong(c, e, "[server] has no endpoint; set it in [s3://BUCKET], or in [s3://] for every bucket");
    else if (!strcmp(e->key, "quota"))
        (void)config_wrong(c, e, "[server] has no quota: that is for one server; give it --quota");
    else if (is_relative(e))
        (void)config_wrong(c, e, "%s: write the whole path, from / on: commands run in any directory", e->key);
    else
        return stack_options_set_option(parsed, e->key, e->value) ? options_wrong_in_file(c, e) : 0;
    return CLI_USAGE;
}

/* Parse the section's values as the server will. */
static int check_section(const struct config *c)
{
    struct stack_options parsed;
    int rc = 0;
    stack_options_init(&parsed);
    for (size_t i = 0; !rc && i < c->entries.len; i++) {
        const struct config_entry *e = &c->entries.items[i];
        if (!strcmp(e->section, "server"))
            rc = check_entry(c, e, &parsed);
    }
    stack_options_release(&parsed);
    return rc;
}

int server_options_read_config(const struct config *c, struct server_values *out)
{
    int rc = options_read_section(c, "server", server_option_rows, out);
    return rc ? rc : check_section(c);
}

int server_options_take_config(struct server_values *v)
{
    const struct config *c;
    struct server_values file = {0};
    if (config_get(&c))
        return CLI_USAGE;
    int rc = server_options_read_config(c, &file);
    if (!rc) { /* these two decide whether there is a disk cache, which others need */
        if (!v->caches.count && !default_cache_environment()) {
            v->caches = file.caches;
            file.caches = (struct option_list){0};
        }
        v->memory = v->memory ? v->memory : file.memory;
    }
    for (const struct option_row *row = server_option_rows; !rc && row->kind; row++)
        if (row->offset != offsetof(struct server_values, caches) && !count_of(v, row) &&
            !(is_of_disk_cache(row) && server_options_no_cache(v)))
            move_value(v, &file, row);
    options_release_lists(server_option_rows, &file);
    return rc;
}

/* ---- the default cache ---- */

static const uint64_t LEAST = 64ull << 20; /* smallest size, and the step of sizes */
enum {
    PROBE = 1 << 20,    /* bytes reserved as a trial */
    SHARE_PERCENT = 50, /* of the free space for the cache */
    LEFT_PERCENT = 10,  /* of the filesystem that stays free */
    LOCK_MS = 5000,     /* how long to wait for a killed server's front end */
    LOCK_STEP_US = 50000
};

bool server_options_default_cache(char out[PATH_MAX])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int len = 0;
    if (!geteuid())
        len = snprintf(out, PATH_MAX, "/var/cache/granary");
    else if (cache && *cache == '/')
        len = snprintf(out, PATH_MAX, "%s/granary", cache);
    else if (home && *home == '/')
        len = snprintf(out, PATH_MAX, "%s/.cache/granary", home);
    return len > 0 && len < PATH_MAX;
}

/* Take the cache's lock, waiting a little: the front end of a killed server has it for a moment longer than the claim.
 * Without the wait the next server would have no cache for its whole life. */
static int lock_soon(int dir_fd, const char *dir, int *out_fd)
{
    uint64_t deadline = clock_now_ms() + LOCK_MS;
    for (;;) {
        int rc = cache_lock_take(dir_fd, dir, true, out_fd);
        if (rc != -EBUSY || clock_now_ms() >= deadline)
            return rc;
        usleep(LOCK_STEP_US);
    }
}

/* Choose a size: half of the free space, but leave a tenth of the filesystem. -ENOSPC: even LEAST does not fit. */
static int choose_size(const char *dir, uint64_t *out)
{
    uint64_t free_space, total;
    int rc = cache_dir_free_space(dir, &free_space, &total);
    if (rc)
        return rc;
    uint64_t left = total / 100 * LEFT_PERCENT, size = free_space / 100 * SHARE_PERCENT;
    size = GR_MIN(size, free_space > left ? free_space - left : 0) / LEAST * LEAST;
    if (!size) {
        char have[TEXT_SIZE_MAX];
        return error_set(-ENOSPC, "the filesystem of %s has too little room, %s", dir,
                         text_format_size(free_space, have));
    }
    *out = size;
    return 0;
}

/* Make the default directory (0700), claim it and choose a size. -EBUSY: another server uses it; -ENOENT: no directory;
 * -ENOSPC: no room; others: it belongs to another user, or its filesystem cannot reserve space. */
static int default_cache_make(struct server_cache *out)
{
    char dir[PATH_MAX], parent[PATH_MAX];
    CLEANUP_FD int dir_fd = -1;
    CLEANUP_FD int lock = -1;
    CLEANUP_FD int claimed = -1;
    CLEANUP_FD int probe = -1;
    uint64_t size = 0;
    if (!server_options_default_cache(dir))
        return error_set(-ENOENT, "this user has neither XDG_CACHE_HOME nor HOME");
    snprintf(parent, sizeof parent, "%.*s", (int)(strrchr(dir, '/') - dir), dir);
    int rc = io_mkdirs(parent);
    if (!rc) /* this user's alone: another user who may write there could plant chunks */
        rc = safe_dir_open(dir, SAFE_DIR_MAKE, &dir_fd);
    if (!rc)
        rc = safe_file_open(dir_fd, dir, "default.lock", O_RDWR | O_CREAT, &claimed);
    if (rc)
        return rc;
    if (flock(claimed, LOCK_EX | LOCK_NB))
        return error_set(-errno, "%s is in use by another server", dir);
    rc = lock_soon(dir_fd, dir, &lock);
    if (rc)
        return rc;
    probe = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (probe < 0 || fallocate(probe, 0, 0, PROBE))
        return error_set(-errno, "the filesystem of %s cannot reserve room: %s", dir, strerror(errno));
    rc = choose_size(dir, &size);
    if (rc)
        return rc;
    snprintf(out->spec, sizeof out->spec, "%s:%" PRIu64, dir, size);
    out->claim_fd = steal_fd(&claimed);
    return 0;
}

/* With --memory and no --cache there is no disk cache: the user has chosen where chunks are kept. */
bool server_options_no_cache(const struct server_values *v)
{
    if (v->caches.count)
        return !strcmp(v->caches.items[0], "none");
    const char *text = default_cache_environment();
    return text ? !strcmp(text, "none") : v->memory && strtoull(v->memory, NULL, 10) > 0;
}

/* Put a --cache into the values; spec is not copied. */
static int take_cache(struct server_values *v, const char *spec)
{
    v->caches.items = calloc(1, sizeof *v->caches.items);
    if (!v->caches.items)
        return error_no_memory();
    v->caches.items[v->caches.count++] = spec;
    return 0;
}

/* Only parsed here; the values then hold the variable's text. */
int server_options_take_environment(struct server_values *v)
{
    const char *text = default_cache_environment();
    struct stack_options parsed;
    if (v->caches.count || !text)
        return 0;
    stack_options_init(&parsed);
    int rc = stack_options_set(&parsed, "cache", text);
    stack_options_release(&parsed);
    if (!rc)
        return take_cache(v, text);
    (void)error_prefix(0, "GRANARY_CACHE");
    return CLI_USAGE;
}

/* Failing to make a default cache is a warning: the server works without one. */
int server_options_choose_cache(struct server_values *v, struct server_cache *chosen)
{
    if (v->caches.count || server_options_no_cache(v))
        return 0;
    if (default_cache_environment())
        return server_options_take_environment(v);
    if (default_cache_make(chosen)) {
        log_warning("no cache on disk: %s; give --cache DIR:SIZE, or --cache none", error_text());
        return 0;
    }
    const char *spec = chosen->spec, *colon = strrchr(spec, ':');
    char size[TEXT_SIZE_MAX];
    log_info(
        "cache: %.*s, %s: half of the space that is free there; --cache DIR:SIZE chooses, --cache none keeps nothing",
        (int)(colon - spec), spec, text_format_size(strtoull(colon + 1, NULL, 10), size));
    if (!v->watermark)
        v->watermark = "90:85";
    return take_cache(v, spec);
}

void server_cache_release(struct server_cache *chosen)
{
    if (chosen->claim_fd >= 0)
        close(chosen->claim_fd);
}

/* ---- words ---- */

/* Return the front end's name for the option. */
static const char *parameter_of(const struct option_row *row)
{
#define SERVER_KEY(field, how, key, option, ...) {option, key},
    static const struct {
        const char *option, *key;
    } names[] = {STACK_OPTIONS(SERVER_KEY, SERVER_KEY)};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++)
        if (!strcmp(names[i].option, row->name))
            return names[i].key;
    return row->name;
}

const char *server_options_default(const struct option_row *row)
{
    return stack_options_default(parameter_of(row));
}

/* A front end gets the key itself: when it starts again, the file may be gone, or have another key. */
static int add_parameter(const struct option_row *row, const char *value, string_list *out)
{
    struct trust trust = {.count = 0};
    char key[PUBLIC_KEY_TEXT_MAX];
    if (row->offset == offsetof(struct server_values, trust)) {
        if (trust_add(&trust, "--trust ", value))
            return CLI_USAGE;
        value = public_key_text(&trust.keys[0], key);
    }
    return string_list_add(out, "%s=%s", parameter_of(row), value);
}

/* Options in the table's order, not the command line's: mounts with the same options share a server. */
int server_options_words(const struct server_values *v, enum server_form form, string_list *out)
{
    int rc = 0;
    for (const struct option_row *row = server_option_rows; row->kind; row++)
        for (size_t i = 0; !rc && i < count_of(v, row); i++)
            rc = form == SERVER_FOR_FRONT_END ? add_parameter(row, text_of(v, row, i), out)
                                              : string_list_add(out, "--%s=%s", row->name, text_of(v, row, i));
    return rc;
}

/* ---- images by digest ---- */

/* Add the directory of DIR:SIZE. what: the option, for a sentence. */
static int add_cache(string_list *out, const char *what, const char *text)
{
    struct cache_spec spec;
    if (cache_spec_parse(what, text, &spec))
        return CLI_USAGE;
    return string_list_add(out, "%.*s", (int)spec.dir_len, text);
}

int server_options_cache_dirs(const struct server_values *server, string_list *out)
{
    char standard[PATH_MAX];
    const char *text = default_cache_environment();
    if (server_options_no_cache(server))
        return 0;
    if (!server->caches.count && text)
        return add_cache(out, "GRANARY_CACHE=", text);
    if (!server->caches.count)
        return server_options_default_cache(standard) ? string_list_add(out, "%s", standard) : 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < server->caches.count; i++)
        rc = add_cache(out, "--cache ", server->caches.items[i]);
    return rc;
}

int server_options_add_trust(const char *what, const struct option_list *keys, struct trust *out)
{
    for (size_t i = 0; i < keys->count; i++)
        if (trust_add(out, what, keys->items[i]))
            return CLI_USAGE;
    return 0;
}

int server_options_trust(const struct option_list *given, struct trust *out)
{
    const struct config *c;
    struct server_values file = {0};
    if (given->count)
        return server_options_add_trust("--trust ", given, out);
    int rc = config_get(&c) ? CLI_USAGE : server_options_read_config(c, &file);
    if (!rc)
        rc = server_options_add_trust("trust = ", &file.trust, out);
    options_release_lists(server_option_rows, &file);
    return rc;
}

/* The directories are needed before the options are complete, so the default cache is named here but not created. */
int pinner_init(struct pinner *p, const struct server_values *server, const char *handed, struct s3_keys *own)
{
    *p = (struct pinner){.config = {.store = {.endpoint = server->endpoint, .keys = own}, .handed = handed}};
    p->config.trust = &p->trust;
    uint64_t timeout_s = 0; /* the store's own */
    int rc = server->timeout && text_parse_duration("--timeout", server->timeout, &timeout_s) ? CLI_USAGE : 0;
    p->config.store.timeout_ms = timeout_s * 1000;
    if (!rc)
        rc = server_options_trust(&server->trust, &p->trust);
    if (!rc && !own)
        rc = server_options_cache_dirs(server, &p->dirs);
    if (rc)
        return rc;
    p->config.dirs = (const char *const *)p->dirs.items;
    p->config.dir_count = p->dirs.len;
    return resolver_new(&p->config, &p->resolver);
}

void pinner_release(struct pinner *p)
{
    cleanup_resolver(&p->resolver);
    string_list_release(&p->dirs);
}

int pin_resolve(struct pinner *p, const char *given, struct pin *out)
{
    if (image_ref_parse(given, &out->ref))
        return CLI_USAGE;
    out->given = given;
    int rc = resolver_resolve(p->resolver, &out->ref);
    if (!rc)
        image_ref_text(&out->ref, out->text);
    return rc;
}
