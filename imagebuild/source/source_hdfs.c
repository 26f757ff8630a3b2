/* A directory of HDFS as a source, over WebHDFS or HttpFS (net/hdfs/webhdfs.h). The walk's places are directories,
 * or the rest of one after the last name of a page.
 *
 * The version of a file is its mtime, length and file id. WebHDFS has no conditional read, so each read is followed
 * by a request for the version: the bytes count only if the name has the wanted version after the last byte.
 *
 *   open+read bytes -> GETFILESTATUS -> same version? -> done
 *         ^                                  \- no: -ESTALE
 *         +-- cut short: continue after the bytes that came
 *
 * One case goes unnoticed: a file is moved away, another one is moved to its name and read, and the first one is
 * moved back, all within one read.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/accounts.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/vec.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source_internal.h"
#include "net/hdfs/webhdfs.h"

/* ------------------------------------------------------------------ owners */

/* Two sorted tables, users and groups, filled by the options and by the host's answers, so that each name is looked
 * up on the host once. A cluster has few owners, so a binary search over a vector does.
 *
 * The mutex guards the tables. It is not held during a lookup on the host, which may ask an LDAP server. Two threads
 * may then look up the same name at once; the table keeps one of the equal answers.
 */

/* A name and its id. unknown: neither the options nor the host know it; the id is 0. */
struct owner {
    char *name;
    uint32_t id;
    bool unknown;
};

/* Users, or groups. */
struct owner_table {
    VEC(struct owner) owners; /* by name */
    size_t unknown;           /* number of unknown names */
    char first_unknown[64];   /* truncated */
};

struct owner_map {
    pthread_mutex_t mutex;
    struct owner_table users, groups;
};

/* Return the index of the name, or where it must be inserted. */
static size_t place_of(const struct owner_table *t, const char *name, bool *out_found)
{
    size_t low = 0, high = t->owners.len;
    *out_found = false;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(t->owners.items[middle].name, name);
        *out_found |= !order;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Add a name; one that the table has already keeps its id. When memory is short the name is not added: the next
 * lookup asks the host again. */
static void owner_map_add(struct owner_table *t, const char *name, uint32_t id, bool unknown)
{
    bool found;
    size_t at = place_of(t, name, &found);
    struct owner fresh = {.name = found ? NULL : strdup(name), .id = id, .unknown = unknown};
    if (!fresh.name || vec_push(&t->owners, fresh)) {
        free(fresh.name);
        return;
    }
    memmove(&t->owners.items[at + 1], &t->owners.items[at], (t->owners.len - 1 - at) * sizeof fresh);
    t->owners.items[at] = fresh;
    if (unknown && !t->unknown++)
        memccpy(t->first_unknown, name, 0, sizeof t->first_unknown - 1);
}

/* Add the names of an option. */
static int add_given(struct owner_table *t, const char *option, const char *const *given, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* the last '=', since an id has none and a name may */
        const char *equals = strrchr(given[i], '=');
        uint64_t id;
        if (!equals || equals == given[i])
            return error_set(-EINVAL, "%s: '%s' is not NAME=ID", option, given[i]);
        int rc = text_parse_uint(option, equals + 1, 0, UINT32_MAX - 1, &id);
        char *name = rc ? NULL : strndup(given[i], (size_t)(equals - given[i]));
        if (!name)
            return rc ? rc : error_no_memory();
        owner_map_add(t, name, (uint32_t)id, false);
        free(name);
    }
    return 0;
}

int owner_map_new(const char *const *users, size_t user_count, const char *const *groups, size_t group_count,
                  struct owner_map **out)
{
    CLEANUP(cleanup_owner_map) struct owner_map *m = calloc(1, sizeof *m);
    if (!m)
        return error_no_memory();
    pthread_mutex_init(&m->mutex, NULL);
    int rc = add_given(&m->users, "--map-user", users, user_count);
    if (!rc)
        rc = add_given(&m->groups, "--map-group", groups, group_count);
    if (!rc)
        *out = steal_ptr(&m);
    return rc;
}

static void owner_map_table_release(struct owner_table *t)
{
    for (size_t i = 0; i < t->owners.len; i++)
        free(t->owners.items[i].name);
    vec_release(&t->owners);
}

void owner_map_free(struct owner_map *m)
{
    owner_map_table_release(&m->users);
    owner_map_table_release(&m->groups);
    pthread_mutex_destroy(&m->mutex);
    free(m);
}

/* Return the id of a name, from the table or from the host. */
static uint32_t look_up(struct owner_map *m, struct owner_table *t, const char *name,
                        bool (*host)(const char *, uint32_t *))
{
    uint32_t id = 0;
    {
        bool found;
        SCOPED_LOCK(&m->mutex);
        size_t at = place_of(t, name, &found);
        if (found)
            return t->owners.items[at].id;
    }
    bool known = *name && host(name, &id);
    SCOPED_LOCK(&m->mutex);
    owner_map_add(t, name, id, !known);
    return id;
}

uint32_t owner_map_user(struct owner_map *m, const char *name)
{
    return look_up(m, &m->users, name, account_user);
}

uint32_t owner_map_group(struct owner_map *m, const char *name)
{
    return look_up(m, &m->groups, name, account_group);
}

size_t owner_map_unknown(struct owner_map *m)
{
    SCOPED_LOCK(&m->mutex);
    return m->users.unknown + m->groups.unknown;
}

static void owner_map_report_unknown(const struct owner_table *t, const char *source, const char *kind,
                                     const char *option)
{
    if (t->unknown)
        log_warning("source: %s: %s names not known here: %zu, '%s' among them; their id is 0: give %s NAME=ID", source,
                    kind, t->unknown, t->first_unknown, option);
}

void owner_map_report(struct owner_map *m, const char *source)
{
    SCOPED_LOCK(&m->mutex);
    owner_map_report_unknown(&m->users, source, "user", "--map-user");
    owner_map_report_unknown(&m->groups, source, "group", "--map-group");
}

/* ------------------------------------------------------------------ the source */

/* PATH_LEN_MAX: bytes of a path of the source; FULL_PATH_MAX: with the path of the source's root before it. */
enum { LIST_THREADS = 8, PATH_LEN_MAX = 64 << 10, FULL_PATH_MAX = 2 * PATH_LEN_MAX };

/* Immutable while it is open, except for the counts of the walk, and client, owners and retry, which have their own
 * locks. */
struct source_hdfs {
    struct source base;
    char *url;
    struct webhdfs *client;
    struct owner_map *owners;
    struct source_retry retry;
    const struct rules *rules;
    unsigned connections;
    struct source_counts counts;
};

static struct source_hdfs *hdfs_of(struct source *s)
{
    return (struct source_hdfs *)s;
}

static void hdfs_source_cancel(struct source *base)
{
    source_retry_cancel(&hdfs_of(base)->retry);
}

/* ------------------------------------------------------------------ from HDFS statuses to versions */

/* Make a version from a status. HDFS gives milliseconds; nanoseconds must not be negative, so times before 1970 are
 * rounded down to the second. */
static void version_of(struct source_hdfs *s, const struct webhdfs_status *status, struct source_version *out)
{
    int64_t ms = status->mtime_ms % 1000;
    ms += ms < 0 ? 1000 : 0;
    *out = (struct source_version){.size = status->size,
                                   .mtime = (status->mtime_ms - ms) / 1000,
                                   .mtime_nsec = (uint32_t)ms * 1000000,
                                   .have_owner = true,
                                   .mode = S_IFREG | status->permission,
                                   .uid = owner_map_user(s->owners, status->owner),
                                   .gid = owner_map_group(s->owners, status->group)};
    out->validator_len = (size_t)snprintf(out->validator, sizeof out->validator, "%" PRId64 "-%" PRIu64 "-%" PRIu64,
                                          status->mtime_ms, status->size, status->file_id);
}

static mode_t mode_of(const struct webhdfs_status *status)
{
    static const mode_t types[] = {
        [WEBHDFS_FILE] = S_IFREG, [WEBHDFS_DIRECTORY] = S_IFDIR, [WEBHDFS_SYMLINK] = S_IFLNK};
    return types[status->type] | status->permission;
}

/* ------------------------------------------------------------------ listing */

/* Visit the entry that a status describes. */
static int emit_status(struct source_hdfs *s, const char *path, size_t path_len, const struct webhdfs_status *status,
                       source_visit *visit, void *arg)
{
    struct source_version version;
    version_of(s, status, &version);
    struct source_entry e = {.path = path,
                             .path_len = path_len,
                             .mode = mode_of(status),
                             .uid = version.uid,
                             .gid = version.gid,
                             .mtime = version.mtime,
                             .mtime_nsec = version.mtime_nsec};
    if (status->type == WEBHDFS_FILE) {
        e.size = version.size;
        e.validator = version.validator;
        e.validator_len = version.validator_len;
    } else if (status->type == WEBHDFS_SYMLINK) {
        e.target = status->target;
        e.target_len = strlen(status->target);
    }
    return visit(arg, &e);
}

/* Make the full path of a path of the source; "" is the source's root. */
static int full_path(const struct source_hdfs *s, const char *path, size_t len, struct bytes *out)
{
    int rc = bytes_printf(out, "%s%s", webhdfs_address(s->client)->path, len ? "/" : "");
    if (!rc)
        rc = bytes_append(out, path, len);
    return rc ? error_set(-EINVAL, "source: %s: a path is too long", s->url) : 0;
}

/* Request the status of one path, with retries. The caller frees *out. */
static int status_of(struct source_hdfs *s, const char *path, size_t len, struct webhdfs_page **out)
{
    CLEANUP_BYTES full = BYTES_INIT(FULL_PATH_MAX);
    struct source_try try = {0};
    int rc = full_path(s, path, len, &full);
    if (rc)
        return rc;
    while ((rc = webhdfs_stat(s->client, (const char *)full.data, full.len, out)) &&
           !(rc = source_retry_wait(&s->retry, &try, rc)))
        ;
    return rc;
}

/* Request one page of a directory, with retries. The caller frees *out. */
static int fetch_page(struct source_hdfs *s, const struct walk_place *place, struct webhdfs_page **out)
{
    CLEANUP_BYTES full = BYTES_INIT(FULL_PATH_MAX);
    struct source_try try = {0};
    int rc = full_path(s, place->path, place->path_len, &full);
    if (rc)
        return rc;
    while ((rc = webhdfs_list(s->client, (const char *)full.data, full.len, place->after, out)) &&
           !(rc = source_retry_wait(&s->retry, &try, rc)))
        ;
    return rc;
}

/* List one page of a directory. The rest of the directory is pushed first. The stack is last in, first out, so this
 * page's subdirectories are listed before the rest, and few of them wait at a time. */
static int source_hdfs_list_page(void *arg, struct walker *w, const struct walk_place *place)
{
    struct source_hdfs *s = arg;
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    CLEANUP_BYTES path = BYTES_INIT(PATH_LEN_MAX);
    int rc = fetch_page(s, place, &page);
    if (rc)
        return rc;
    size_t count = webhdfs_page_count(page);
    if (webhdfs_page_more(page)) {
        struct walk_place rest = *place;
        rest.after = webhdfs_page_status(page, count - 1)->name;
        rc = walk_push(w, &rest);
    }
    for (size_t i = 0; !rc && i < count; i++) {
        const struct webhdfs_status *status = webhdfs_page_status(page, i);
        bytes_clear(&path);
        rc = bytes_printf(&path, "%s%s%s", place->path, place->path_len && *status->name ? "/" : "", status->name);
        if (rc || !bytes_string(&path))
            return error_set(-EINVAL, "HDFS: a path is longer than %d bytes", PATH_LEN_MAX);
        const struct walk_place below = {.path = (const char *)path.data, .path_len = path.len};
        rc = emit_status(s, below.path, below.path_len, status, walk_emit, w);
        if (!rc && status->type == WEBHDFS_DIRECTORY && rules_take(s->rules, below.path, below.path_len, true))
            rc = walk_push(w, &below);
    }
    return rc;
}

/* The root is visited here: no page has it as an entry. Its status also tells a wrong path from an empty directory. */
static int hdfs_source_list(struct source *base, source_visit *visit, void *arg)
{
    struct source_hdfs *s = hdfs_of(base);
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *root = NULL;
    int rc = status_of(s, "", 0, &root);
    if (rc)
        return rc == -ENOENT ? error_set(rc, "source: there is no %s; check the path", s->url) : rc;
    const struct webhdfs_status *status = webhdfs_page_status(root, 0);
    if (status->type != WEBHDFS_DIRECTORY)
        return error_set(-ENOTDIR, "source: %s is no directory; give the one it is in", s->url);
    s->counts = (struct source_counts){0};
    const struct walk walk = {.url = s->url,
                              .threads = GR_MIN(s->connections, (unsigned)LIST_THREADS),
                              .list = source_hdfs_list_page,
                              .arg = s,
                              .visit = visit,
                              .visit_arg = arg,
                              .counts = &s->counts};
    rc = emit_status(s, "", 0, status, visit, arg);
    return rc ? rc : walk_run(&walk);
}

static void hdfs_source_counts(struct source *base, struct source_counts *out)
{
    struct source_hdfs *s = hdfs_of(base);
    source_counts_add(out, &s->counts);
    out->owners_unknown += owner_map_unknown(s->owners);
}

static int hdfs_source_look(struct source *base, const struct source_ask *ask, source_visit *visit, void *arg)
{
    struct source_hdfs *s = hdfs_of(base);
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    int rc = status_of(s, ask->path, ask->path_len, &page);
    return rc ? rc : emit_status(s, ask->path, ask->path_len, webhdfs_page_status(page, 0), visit, arg);
}

/* ------------------------------------------------------------------ reading */

static int hdfs_source_stat(struct source *base, const char *path, size_t len, struct source_version *out)
{
    struct source_hdfs *s = hdfs_of(base);
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    int rc = status_of(s, path, len, &page);
    if (rc)
        return rc;
    const struct webhdfs_status *status = webhdfs_page_status(page, 0);
    if (status->type != WEBHDFS_FILE)
        return error_set(-ENOENT, "source: %s: '%.*s' is no file any more", s->url, (int)len, path);
    version_of(s, status, out);
    return 0;
}

/* An http_sink that copies to *arg and moves it on. */
static int take_bytes(void *arg, const void *data, size_t len)
{
    uint8_t **to = arg; /* webhdfs_read passes on no more bytes than were requested */
    memcpy(*to, data, len);
    *to += len;
    return 0;
}

/* After a read: return 0 if the file still has the wanted version. Without a listed version nothing is checked. */
static int check_version(struct source_hdfs *s, const struct source_read *r)
{
    struct source_version now;
    int rc = r->validator_len ? hdfs_source_stat(&s->base, r->path, r->path_len, &now) : 0;
    if (rc || !r->validator_len)
        return rc;
    if (now.validator_len == r->validator_len && !memcmp(now.validator, r->validator, r->validator_len))
        return 0;
    return error_set(-ESTALE, "source: %s: '%.*s' changed", s->url, (int)r->path_len, r->path);
}

/* Try once to read what is missing after the first *done bytes, and add what came to *done. The version is checked
 * even if the bytes were cut short, so that bytes of two versions never mix. */
static int read_on(struct source_hdfs *s, const struct source_read *r, const struct bytes *path, uint64_t *done)
{
    uint8_t *to = r->dst + *done;
    uint64_t got = 0;
    const struct http_part part = {.off = r->offset + *done, .len = r->len - *done};
    int rc = webhdfs_read(s->client, (const char *)path->data, path->len, &part, take_bytes, &to, &got);
    *done += got;
    if (rc)
        return rc;
    rc = check_version(s, r);
    if (rc || *done == r->len)
        return rc;
    return error_set(-EAGAIN, "source: %s: the answer for '%.*s' was cut short", s->url, (int)r->path_len, r->path);
}

/* Read with retries. Bytes that have come are kept, and progress resets the time limit: a large file over a poor
 * connection may take longer than the limit. */
static int hdfs_source_read(struct source *base, const struct source_read *r)
{
    struct source_hdfs *s = hdfs_of(base);
    CLEANUP_BYTES path = BYTES_INIT(FULL_PATH_MAX);
    struct source_try try = {0};
    uint64_t done = 0, before;
    int rc = full_path(s, r->path, r->path_len, &path);
    if (rc || !r->len)
        return rc;
    do {
        before = done;
        rc = read_on(s, r, &path, &done);
        if (rc && done > before)
            try = (struct source_try){0};
    } while (rc && !(rc = source_retry_wait(&s->retry, &try, rc)));
    return rc;
}

/* ------------------------------------------------------------------ life */

static void hdfs_source_close(struct source *base)
{
    struct source_hdfs *s = hdfs_of(base);
    webhdfs_free(s->client);
    if (s->owners) {
        owner_map_report(s->owners, s->url); /* of lists and single paths alike */
        owner_map_free(s->owners);
    }
    source_retry_release(&s->retry);
    free(s->url);
    free(s);
}

static void cleanup_source_hdfs(struct source_hdfs **s)
{
    if (*s)
        hdfs_source_close(&(*s)->base);
}

int source_hdfs_open(const char *url, const struct source_options *options, struct source **out)
{
    static const struct source_ops ops = {.list = hdfs_source_list,
                                          .counts = hdfs_source_counts,
                                          .look = hdfs_source_look,
                                          .read = hdfs_source_read,
                                          .stat = hdfs_source_stat,
                                          .cancel = hdfs_source_cancel,
                                          .close = hdfs_source_close};
    CLEANUP(cleanup_source_hdfs) struct source_hdfs *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    source_retry_init(&s->retry, url, options);
    s->url = strdup(url);
    if (!s->url)
        return error_no_memory();
    s->retry.url = s->url;
    s->rules = options->rules;
    s->connections = options->connections ? options->connections : LIST_THREADS;
    const struct source_hdfs_options *h = &options->hdfs;
    int rc = owner_map_new(h->map_users, h->map_user_count, h->map_groups, h->map_group_count, &s->owners);
    const struct webhdfs_config config = {
        .token_file = h->token_file,
        .http = {.connections = options->connections, .rate = options->rate, .cancel = options->cancel}};
    if (!rc)
        rc = webhdfs_new(url, &config, &s->client);
    if (rc)
        return rc;
    s->base = (struct source){.ops = &ops, .url = s->url};
    *out = &steal_ptr(&s)->base;
    return 0;
}
