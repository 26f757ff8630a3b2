/* A store in a directory of HDFS, over WebHDFS (net/hdfs/webhdfs.h).
 *
 * A put writes a temporary file in .granary-tmp/ (never listed), checks its length and renames it into place. HDFS
 * renames atomically, so a reader, or a crash, sees the old object, the new one or none:
 *
 *   ALWAYS     RENAME with OVERWRITE
 *   IF_ABSENT  RENAME without it, which refuses an existing name
 *   IF_MATCH   -ENOTSUP: HDFS has no compare-and-swap, and a lock would outlive a killed holder
 *
 * So there is no probe_conditional, and the last writer of a tag wins. HttpFS does not pass on the options of RENAME;
 * through it a store is read-only.
 *
 * A RENAME whose answer was lost cannot be told from one whose source was missing. Both are -EAGAIN, and the whole put
 * is repeated with another temporary name. Files left in .granary-tmp/ by killed writers are removed by a later one
 * after a day. */
#include "store/store_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/vec.h"
#include "net/hdfs/webhdfs.h"

enum { FULL_PATH_MAX = 16 << 10, LIST_DEPTH_MAX = 32, TMP_AGE_MAX_S = 24 * 3600 };

#define TMP_DIR ".granary-tmp"

/* A store in HDFS. client is constant and thread-safe. */
struct store_hdfs {
    struct store base;
    struct webhdfs *client;
    _Atomic bool swept; /* this process has removed old files from TMP_DIR */
};

static struct webhdfs *client_of(struct store *s)
{
    return ((struct store_hdfs *)s)->client;
}

/* Write the path of `name` below the store's directory, NUL-terminated. */
static int path_below(struct store *s, const char *name, struct bytes *out)
{
    int rc = bytes_printf(out, "%s/%s", webhdfs_address(client_of(s))->path, name);
    return rc || !bytes_string(out) ? error_set(-EINVAL, "store %s: a path is too long", s->url) : 0;
}

/* Write the path of a caller's key. -EINVAL: the key is reserved for the store's own files. */
static int locate(struct store *s, const char *key, struct bytes *out)
{
    if (!strncmp(key, TMP_DIR, strlen(TMP_DIR)))
        return error_set(-EINVAL, "store %s: keys that begin with " TMP_DIR " are the store's own", s->url);
    return path_below(s, key, out);
}

#define CLEANUP_PATH CLEANUP(bytes_release) struct bytes
#define PATH_INIT BYTES_INIT(FULL_PATH_MAX)

/* Look up a file's size and time. -ENOENT also for a directory, which is not an object. */
static int store_hdfs_look_at(struct store *s, const struct bytes *path, const char *key, struct store_item *out)
{
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    int rc = webhdfs_stat(client_of(s), (const char *)path->data, path->len, &page);
    if (rc)
        return rc;
    const struct webhdfs_status *status = webhdfs_page_status(page, 0);
    if (status->type != WEBHDFS_FILE)
        return error_set(-ENOENT, "store %s: %s is not there", s->url, key);
    *out = (struct store_item){.key = key, .size = status->size, .mtime = status->mtime_ms / 1000};
    return 0;
}

static int hdfs_stat(struct store *s, const char *key, struct store_item *out)
{
    CLEANUP_PATH path = PATH_INIT;
    int rc = locate(s, key, &path);
    return rc ? rc : store_hdfs_look_at(s, &path, key, out);
}

/* ------------------------------------------------------------------ reading */

/* WebHDFS ends a read silently at the end of the file, so the length is checked here. */
static int hdfs_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                    store_sink *sink, void *arg)
{
    CLEANUP_PATH path = PATH_INIT;
    const struct http_part part = {.off = off, .len = len, .fresh = context->fresh};
    uint64_t done = 0;
    store_note_try(s, context);
    int rc = locate(s, key, &path);
    if (!rc)
        rc = webhdfs_read(client_of(s), (const char *)path.data, path.len, &part, sink, arg, &done);
    return rc || done == len ? rc : store_shorter(s, key);
}

static int hdfs_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    CLEANUP_PATH path = PATH_INIT;
    size_t before = out->len;
    uint64_t done;
    /* The length is not known; out->max stops a larger object. */
    const struct http_part all = {.len = UINT64_MAX};
    int rc = locate(s, key, &path);
    if (!rc)
        rc = webhdfs_read(client_of(s), (const char *)path.data, path.len, &all, store_append, out, &done);
    if (!rc && version) {
        struct digest d = digest_of(out->data + before, out->len - before);
        digest_hex(&d, version);
    }
    return rc;
}

/* ------------------------------------------------------------------ writing */

/* Remove temporary files of processes that were killed. Failures are ignored: a later process tries again. */
static void sweep_temporary(struct store *s)
{
    CLEANUP_PATH dir = PATH_INIT, path = PATH_INIT;
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    if (atomic_exchange(&((struct store_hdfs *)s)->swept, true) || path_below(s, TMP_DIR, &dir) ||
        webhdfs_list(client_of(s), (const char *)dir.data, dir.len, NULL, &page))
        return;
    int64_t oldest = (int64_t)time(NULL) - TMP_AGE_MAX_S;
    for (size_t i = 0; i < webhdfs_page_count(page); i++) {
        const struct webhdfs_status *status = webhdfs_page_status(page, i);
        bytes_clear(&path);
        if (!strncmp(status->name, "put-", 4) && status->mtime_ms / 1000 < oldest &&
            !bytes_printf(&path, "%s/%s", (const char *)dir.data, status->name) && bytes_string(&path) &&
            webhdfs_delete(client_of(s), (const char *)path.data))
            return;
    }
}

/* Make a random path in TMP_DIR. WebHDFS has no counterpart of mkstemp. */
static int temporary_path(struct store *s, struct bytes *out)
{
    uint64_t random[2];
    char name[64];
    int rc = io_random(random, sizeof random);
    if (rc)
        return rc;
    snprintf(name, sizeof name, TMP_DIR "/put-%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
    return path_below(s, name, out);
}

static int make_parent(struct store *s, const struct bytes *path)
{
    CLEANUP_FREE char *dir = strdup((const char *)path->data);
    if (!dir)
        return error_no_memory();
    *strrchr(dir, '/') = 0;
    return webhdfs_mkdirs(client_of(s), dir);
}

/* Rename the temporary file to its key. A missing directory is made on the first failure, since most exist already. */
static int move_into_place(struct store *s, const struct store_put *put, const struct bytes *from,
                           const struct bytes *to)
{
    const char *old = (const char *)from->data, *new = (const char *)to->data;
    bool replace = put->mode == STORE_PUT_ALWAYS;
    int rc = webhdfs_rename(client_of(s), old, new, replace);
    if (rc == -ENOENT) {
        rc = make_parent(s, to);
        if (!rc)
            rc = webhdfs_rename(client_of(s), old, new, replace);
    }
    if (rc == -ENOENT)
        return error_set(-EAGAIN, "store %s: what was written for %s is gone before it could be moved there", s->url,
                         put->key);
    return rc == -EEXIST ? error_set(rc, "store %s: %s exists already", s->url, put->key) : rc;
}

/* Write the temporary file and check its length: a DataNode may accept fewer bytes than were sent. */
static int store_hdfs_write_temporary(struct store *s, const struct store_put *put, const struct bytes *path)
{
    struct store_item written;
    int rc = webhdfs_create(client_of(s), (const char *)path->data, put->data, put->len);
    if (rc == -EEXIST) /* an earlier try of the client made it */
        rc = error_set(-EAGAIN, "%s", error_text());
    if (!rc)
        rc = store_hdfs_look_at(s, path, put->key, &written);
    if (!rc && written.size != put->len)
        return error_set(-EAGAIN, "store %s: %llu of the %zu bytes of %s arrived", s->url,
                         (unsigned long long)written.size, put->len, put->key);
    return rc == -ENOENT ? error_set(-EAGAIN, "%s", error_text()) : rc;
}

/* Write, then rename; remove the temporary file after a failure. */
static int put_object(struct store *s, const struct store_put *put, const struct bytes *to)
{
    CLEANUP_PATH temporary = PATH_INIT;
    int rc = temporary_path(s, &temporary);
    if (rc)
        return rc;
    rc = store_hdfs_write_temporary(s, put, &temporary);
    if (!rc)
        rc = move_into_place(s, put, &temporary, to);
    if (rc) {
        struct error failed;
        error_take(&failed, rc);
        /* If this fails, a later writer removes it. */
        (void)!webhdfs_delete(client_of(s), (const char *)temporary.data);
        return error_restore(&failed);
    }
    return rc;
}

static int hdfs_put(struct store *s, const struct store_put *put)
{
    CLEANUP_PATH path = PATH_INIT;
    struct store_item there;
    int rc = locate(s, put->key, &path);
    if (rc)
        return rc;
    if (put->mode == STORE_PUT_IF_MATCH)
        return error_set(-ENOTSUP, "store %s: HDFS cannot replace %s on condition of its version", s->url, put->key);
    sweep_temporary(s);
    if (put->mode == STORE_PUT_IF_ABSENT) { /* only saves the writing; the rename decides */
        rc = store_hdfs_look_at(s, &path, put->key, &there);
        if (rc != -ENOENT)
            return rc ? rc : error_set(-EEXIST, "store %s: %s exists already", s->url, put->key);
    }
    return put_object(s, put, &path);
}

static int hdfs_remove(struct store *s, const char *key)
{
    CLEANUP_PATH path = PATH_INIT;
    int rc = locate(s, key, &path);
    return rc ? rc : webhdfs_delete(client_of(s), (const char *)path.data);
}

/* ------------------------------------------------------------------ listing */

/* An entry of a directory. The name of a directory ends in a slash: sorted in this way, keys ascend in byte order over
 * the whole walk ("a-b" before "a/c"). */
struct listed {
    char *name;
    uint64_t size;
    int64_t mtime;
};

typedef VEC(struct listed) listed_vec;

static void listed_release(listed_vec *v)
{
    for (size_t i = 0; i < v->len; i++)
        free(v->items[i].name);
    vec_release(v);
}

/* A listing. */
struct walk {
    struct store *s;
    const char *prefix, *after; /* after: "" for all keys */
    store_visit *visit;
    void *arg;
    char key[STORE_KEY_MAX + 2];
    unsigned depth;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct listed *)a)->name, ((const struct listed *)b)->name);
}

/* Add a page of entries to the list, without symbolic links, which are not objects. */
static int take_page(struct walk *w, const struct webhdfs_page *page, listed_vec *out)
{
    for (size_t i = 0; i < webhdfs_page_count(page); i++) {
        const struct webhdfs_status *status = webhdfs_page_status(page, i);
        struct listed l = {.size = status->size, .mtime = status->mtime_ms / 1000};
        if (status->type == WEBHDFS_SYMLINK || !strcmp(status->name, TMP_DIR))
            continue;
        if (asprintf(&l.name, "%s%s", status->name, status->type == WEBHDFS_DIRECTORY ? "/" : "") < 0)
            return error_no_memory();
        if (vec_push(out, l)) {
            free(l.name);
            return error_no_memory();
        }
    }
    return 0;
}

/* Read all entries of the directory w->key ("" or ending in a slash), sorted. A missing directory has no entries. */
static int read_dir(struct walk *w, listed_vec *out)
{
    CLEANUP_PATH path = PATH_INIT;
    CLEANUP_FREE char *after = NULL;
    int rc = path_below(w->s, w->key, &path);
    while (path.len && path.data[path.len - 1] == '/')
        path.len--;
    for (bool more = true; !rc && more;) {
        CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
        rc = webhdfs_list(client_of(w->s), (const char *)path.data, path.len, after, &page);
        if (rc)
            return rc == -ENOENT && w->key[0] ? 0 : rc;
        rc = take_page(w, page, out);
        more = webhdfs_page_more(page);
        free(after);
        after = more ? strdup(webhdfs_page_status(page, webhdfs_page_count(page) - 1)->name) : NULL;
        if (more && !after)
            rc = error_no_memory();
    }
    if (!rc && out->len)
        qsort(out->items, out->len, sizeof out->items[0], by_name);
    return rc;
}

static int walk_dir(struct walk *w, size_t key_len);

/* Visit an entry: enter a directory, or pass a file to the visitor. */
static int walk_entry(struct walk *w, const struct listed *l, size_t dir_len)
{
    size_t len = dir_len + strlen(l->name), prefix_len = strlen(w->prefix);
    bool directory = l->name[strlen(l->name) - 1] == '/';
    if (len - directory > STORE_KEY_MAX)
        return 0; /* no put makes a key that long */
    snprintf(w->key + dir_len, sizeof w->key - dir_len, "%s", l->name);
    if (strncmp(w->key, w->prefix, GR_MIN(len, prefix_len)))
        return 0;
    if (directory) /* all keys below begin with this one: skip the directory if they all come before `after` */
        return strcmp(w->key, w->after) < 0 && strncmp(w->key, w->after, len) ? 0 : walk_dir(w, len);
    if (len < prefix_len || strcmp(w->key, w->after) <= 0)
        return 0;
    struct store_item item = {.key = w->key, .size = l->size, .mtime = l->mtime};
    return w->visit(w->arg, &item);
}

static int walk_dir(struct walk *w, size_t key_len)
{
    CLEANUP(listed_release) listed_vec entries = {0};
    if (w->depth >= LIST_DEPTH_MAX)
        return error_set(-ELOOP, "store %s: directories below %.200s are nested too deeply", w->s->url, w->key);
    int rc = read_dir(w, &entries);
    w->depth++;
    for (size_t i = 0; !rc && i < entries.len; i++) {
        rc = walk_entry(w, &entries.items[i], key_len);
        w->key[key_len] = 0;
    }
    w->depth--;
    return rc;
}

/* The walk begins in the deepest directory that the prefix names. */
static int hdfs_list_after(struct store *s, const char *prefix, const char *after, store_visit *visit, void *arg)
{
    struct walk w = {.s = s, .prefix = prefix, .after = after ? after : "", .visit = visit, .arg = arg};
    const char *slash = strrchr(prefix, '/');
    size_t len = slash ? (size_t)(slash - prefix) + 1 : 0;
    memcpy(w.key, prefix, len);
    return walk_dir(&w, len);
}

static int hdfs_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    return hdfs_list_after(s, prefix, NULL, visit, arg);
}

/* ------------------------------------------------------------------ life */

static void hdfs_close(struct store *s)
{
    webhdfs_free(client_of(s));
    free((char *)s->url);
    free(s);
}

int store_hdfs_open(const char *url, const struct store_options *options, struct store **out)
{
    static const struct store_ops ops = {
        .get = hdfs_get,
        .get_small = hdfs_get_small,
        .put = hdfs_put,
        .stat = hdfs_stat,
        .list = hdfs_list,
        .remove = hdfs_remove,
        .close = hdfs_close,
        .list_after = hdfs_list_after,
    };
    CLEANUP_FREE struct store_hdfs *t = calloc(1, sizeof *t);
    CLEANUP_FREE char *copy = strdup(url);
    if (!t || !copy)
        return error_no_memory();
    struct webhdfs_config config = {.token_file = options ? options->hdfs_token_file : NULL};
    if (options)
        store_http_config(options, &config.http);
    int rc = webhdfs_new(url, &config, &t->client);
    if (rc)
        return rc;
    t->base = (struct store){.ops = &ops, .url = steal_ptr(&copy)};
    *out = &steal_ptr(&t)->base;
    return 0;
}
