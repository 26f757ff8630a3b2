#include "fake/hdfs_fake.h"

#include <assert.h>
#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "net/http.h"

enum { LIST_LIMIT = 3 };

struct inode {
    char *path; /* "" is the root */
    bool directory;
    void *data;
    size_t len;
    long long mtime_ms;
    unsigned id;
};

struct node_arg {
    struct hdfs_fake *f;
    char node;
};

struct hdfs_fake {
    struct http_fake *nodes[2];
    struct node_arg args[2];
    char names[2][64];
    pthread_mutex_t mutex;    /* guards the rest; held while a request is answered by the fake itself */
    VEC(struct inode) inodes; /* by path */
    unsigned ids;
    hdfs_fake_hook *hook;
    void *hook_arg;
};

/* ------------------------------------------------------------------ the tree */

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct inode *)a)->path, ((const struct inode *)b)->path);
}

static struct inode *find(struct hdfs_fake *f, const char *path)
{
    for (size_t i = 0; i < f->inodes.len; i++)
        if (!strcmp(f->inodes.items[i].path, path))
            return &f->inodes.items[i];
    return NULL;
}

static void drop(struct hdfs_fake *f, struct inode *i)
{
    free(i->path);
    free(i->data);
    *i = f->inodes.items[--f->inodes.len];
    qsort(f->inodes.items, f->inodes.len, sizeof *i, by_path);
}

/* path is taken over */
static void add(struct hdfs_fake *f, char *path, bool directory, const void *data, size_t len, long long mtime_ms)
{
    struct inode fresh = {.path = path, .directory = directory, .len = len, .mtime_ms = mtime_ms, .id = ++f->ids};
    fresh.data = malloc(len + 1);
    assert(path && fresh.data);
    if (len)
        memcpy(fresh.data, data, len);
    int rc = vec_push(&f->inodes, fresh);
    assert(!rc);
    qsort(f->inodes.items, f->inodes.len, sizeof fresh, by_path);
}

static void make_directories(struct hdfs_fake *f, const char *path)
{
    for (const char *p = path;; p++) {
        p = strchr(p, '/');
        char *dir = p ? strndup(path, (size_t)(p - path)) : strdup(path);
        if (find(f, dir))
            free(dir);
        else
            add(f, dir, true, NULL, 0, 1000);
        if (!p)
            return;
    }
}

static void put_locked(struct hdfs_fake *f, const char *path, const void *data, size_t len, long long mtime_ms)
{
    char *parent = strdup(path);
    *strrchr(parent, '/') = 0;
    make_directories(f, parent);
    free(parent);
    struct inode *old = find(f, path);
    if (old)
        drop(f, old);
    add(f, strdup(path), false, data, len, mtime_ms);
}

void hdfs_fake_put(struct hdfs_fake *f, const char *path, const void *data, size_t len, long long mtime_ms)
{
    SCOPED_LOCK(&f->mutex);
    put_locked(f, path, data, len, mtime_ms);
}

void hdfs_fake_remove(struct hdfs_fake *f, const char *path)
{
    SCOPED_LOCK(&f->mutex);
    struct inode *i = find(f, path);
    assert(i);
    drop(f, i);
}

/* ------------------------------------------------------------------ answers */

static void answer(int fd, const char *status, const char *headers, const void *body, size_t len)
{
    http_fake_text(fd, "HTTP/1.1 %s\r\n%sContent-Length: %zu\r\n\r\n", status, headers, len);
    http_fake_send(fd, body, len);
}

/* root is taken over */
static void answer_json(int fd, const char *status, json_t *root)
{
    char *text = json_dumps(root, JSON_COMPACT);
    assert(text);
    answer(fd, status, "Content-Type: application/json\r\n", text, strlen(text));
    free(text);
    json_decref(root);
}

void hdfs_fake_refuse(int fd, const char *status, const char *exception, const char *message)
{
    answer_json(fd, status,
                json_pack("{s:{s:s,s:s,s:s}}", "RemoteException", "exception", exception, "javaClassName", exception,
                          "message", message));
}

static void absent(int fd)
{
    hdfs_fake_refuse(fd, "404 Not Found", "FileNotFoundException", "File does not exist");
}

char *hdfs_fake_parameter(const struct http_fake_request *r, const char *name)
{
    size_t len = strlen(name);
    for (const char *p = strchr(r->target, '?'); p; p = strchr(p + 1, '&'))
        if (!strncmp(p + 1, name, len) && p[1 + len] == '=') {
            char *value = strndup(p + 2 + len, strcspn(p + 2 + len, "&"));
            long decoded = http_percent_decode(value, strlen(value));
            assert(decoded >= 0);
            value[decoded] = 0;
            return value;
        }
    return NULL;
}

static json_t *status_of(const struct inode *i, const char *suffix)
{
    return json_pack("{s:s,s:s,s:I,s:I,s:s,s:s,s:s,s:I}", "pathSuffix", suffix, "type",
                     i->directory ? "DIRECTORY" : "FILE", "length", (json_int_t)i->len, "modificationTime",
                     (json_int_t)i->mtime_ms, "permission", i->directory ? "755" : "640", "owner", "root", "group",
                     "nobody-knows-this-group", "fileId", (json_int_t)i->id);
}

static void list_directory(struct hdfs_fake *f, const char *path, const char *after, int fd)
{
    json_t *items = json_array();
    size_t len = strlen(path), remaining = 0;
    for (size_t k = 0; k < f->inodes.len; k++) {
        const struct inode *i = &f->inodes.items[k];
        if (strncmp(i->path, path, len) || i->path[len] != '/' || strchr(i->path + len + 1, '/') ||
            (after && strcmp(i->path + len + 1, after) <= 0))
            continue;
        if (json_array_size(items) == LIST_LIMIT)
            remaining++;
        else
            json_array_append_new(items, status_of(i, i->path + len + 1));
    }
    answer_json(fd, "200 OK",
                json_pack("{s:{s:{s:{s:o}},s:I}}", "DirectoryListing", "partialListing", "FileStatuses", "FileStatus",
                          items, "remainingEntries", (json_int_t)remaining));
}

static void move(struct hdfs_fake *f, const char *from, const char *to, bool replace, int fd)
{
    struct inode *i = find(f, from), *there = find(f, to);
    CLEANUP_FREE char *parent = strdup(to);
    *strrchr(parent, '/') = 0;
    if (!i || !find(f, parent)) {
        absent(fd);
        return;
    }
    if (there && !replace) {
        hdfs_fake_refuse(fd, "403 Forbidden", "FileAlreadyExistsException", "rename destination exists");
        return;
    }
    if (there)
        drop(f, there);
    i = find(f, from);
    free(i->path);
    i->path = strdup(to);
    qsort(f->inodes.items, f->inodes.len, sizeof *i, by_path);
    answer(fd, "200 OK", "", NULL, 0);
}

static void redirect(struct hdfs_fake *f, const struct http_fake_request *r, int fd)
{
    http_fake_text(fd, "HTTP/1.1 307 Temporary Redirect\r\nLocation: http://%s%s\r\nContent-Length: 0\r\n\r\n",
                   f->names[1], r->target);
}

/* ------------------------------------------------------------------ the nodes */

static void namenode(struct hdfs_fake *f, const struct http_fake_request *r, const char *op, const char *path, int fd)
{
    struct inode *i = find(f, path);
    if (!strcmp(op, "GETFILESTATUS")) {
        if (i)
            answer_json(fd, "200 OK", json_pack("{s:o}", "FileStatus", status_of(i, "")));
        else
            absent(fd);
    } else if (!strcmp(op, "LISTSTATUS_BATCH")) {
        CLEANUP_FREE char *after = hdfs_fake_parameter(r, "startAfter");
        if (i)
            list_directory(f, path, after, fd);
        else
            absent(fd);
    } else if (!strcmp(op, "OPEN")) {
        CLEANUP_FREE char *offset = hdfs_fake_parameter(r, "offset");
        if (!i || i->directory)
            absent(fd);
        else if (strtoull(offset, NULL, 10) >= i->len && i->len)
            hdfs_fake_refuse(fd, "403 Forbidden", "IOException", "out of the range");
        else
            redirect(f, r, fd);
    } else if (!strcmp(op, "CREATE")) {
        redirect(f, r, fd);
    } else if (!strcmp(op, "MKDIRS")) {
        make_directories(f, path);
        answer_json(fd, "200 OK", json_pack("{s:b}", "boolean", 1));
    } else if (!strcmp(op, "RENAME")) {
        CLEANUP_FREE char *to = hdfs_fake_parameter(r, "destination"), *how = hdfs_fake_parameter(r, "renameoptions");
        move(f, path, to, !strcmp(how, "OVERWRITE"), fd);
    } else {
        assert(!strcmp(op, "DELETE"));
        if (i)
            drop(f, i);
        answer_json(fd, "200 OK", json_pack("{s:b}", "boolean", i != NULL));
    }
}

static void datanode(struct hdfs_fake *f, const struct http_fake_request *r, const char *op, const char *path, int fd)
{
    if (!strcmp(op, "CREATE")) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        put_locked(f, path, r->body, r->body_len, (long long)now.tv_sec * 1000);
        answer(fd, "201 Created", "Connection: close\r\n", NULL, 0);
        return;
    }
    struct inode *i = find(f, path);
    CLEANUP_FREE char *offset = hdfs_fake_parameter(r, "offset"), *length = hdfs_fake_parameter(r, "length");
    if (!i) {
        absent(fd);
        return;
    }
    size_t off = strtoull(offset, NULL, 10), n = i->len - off;
    if (length && strtoull(length, NULL, 10) < n)
        n = strtoull(length, NULL, 10);
    answer(fd, "200 OK", "Connection: close\r\n", (char *)i->data + off, n);
}

static enum http_fake_next handle(void *arg, const struct http_fake_request *r, int fd)
{
    struct node_arg *a = arg;
    struct hdfs_fake *f = a->f;
    enum http_fake_next next = a->node == 'n' ? HTTP_FAKE_KEEP : HTTP_FAKE_CLOSE;
    pthread_mutex_lock(&f->mutex);
    hdfs_fake_hook *hook = f->hook;
    void *hook_arg = f->hook_arg;
    pthread_mutex_unlock(&f->mutex);
    if (hook && hook(hook_arg, a->node, r, fd, &next))
        return next;
    CLEANUP_FREE char *op = hdfs_fake_parameter(r, "op");
    char path[8192];
    assert(op && !strncmp(r->target, "/webhdfs/v1", 11));
    snprintf(path, sizeof path, "%.*s", (int)strcspn(r->target + 11, "?"), r->target + 11);
    long len = http_percent_decode(path, strlen(path));
    path[len > 1 || path[0] != '/' ? len : 0] = 0;
    SCOPED_LOCK(&f->mutex);
    (a->node == 'n' ? namenode : datanode)(f, r, op, path, fd);
    return next;
}

struct hdfs_fake *hdfs_fake_new(void)
{
    struct hdfs_fake *f = calloc(1, sizeof *f);
    assert(f);
    pthread_mutex_init(&f->mutex, NULL);
    make_directories(f, "");
    for (int i = 0; i < 2; i++) {
        f->args[i] = (struct node_arg){.f = f, .node = "nd"[i]};
        f->nodes[i] = http_fake_start(handle, &f->args[i]);
        snprintf(f->names[i], sizeof f->names[i], "%s", http_fake_url(f->nodes[i]) + strlen("http://"));
    }
    return f;
}

void hdfs_fake_free(struct hdfs_fake *f)
{
    for (int i = 0; i < 2; i++)
        http_fake_stop(f->nodes[i]);
    while (f->inodes.len)
        drop(f, &f->inodes.items[0]);
    vec_release(&f->inodes);
    pthread_mutex_destroy(&f->mutex);
    free(f);
}

void hdfs_fake_set_hook(struct hdfs_fake *f, hdfs_fake_hook *hook, void *arg)
{
    SCOPED_LOCK(&f->mutex);
    f->hook = hook;
    f->hook_arg = arg;
}

const char *hdfs_fake_namenode(const struct hdfs_fake *f)
{
    return f->names[0];
}

const char *hdfs_fake_datanode(const struct hdfs_fake *f)
{
    return f->names[1];
}
