/* A store in a directory: a key is a path below it. This file opens and lists; store_file_read.c reads,
 * store_file_put.c writes and removes.
 *
 * A listing walks the tree depth first and enters only directories that can hold the prefix. It has no order, so there
 * is no list_after, and store_retry does not resume a listing that fails after its first key. */
#include "store/backend/store_file_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

/* Bounds the recursion and the open descriptors of a listing; keys of Granary have two slashes at most. */
enum { LIST_DEPTH_MAX = 32 };

/* A listing: the key under construction, and the visitor. */
struct walk {
    struct store_file *f;
    const char *prefix;
    store_visit *visit;
    void *arg;
    char key[STORE_KEY_MAX + 1];
    unsigned depth; /* directories that are open */
};

/* Can w->key, or keys below it, begin with the prefix? */
static bool on_the_way(const struct walk *w, size_t key_len)
{
    return strncmp(w->key, w->prefix, GR_MIN(key_len, strlen(w->prefix))) == 0;
}

static int walk_dir(struct walk *w, int parent, const char *name, size_t key_len);

/* Visit one directory entry. Entries that vanish meanwhile are skipped: others write to the store. */
static int walk_entry(struct walk *w, int dir, const char *name, size_t key_len)
{
    int n = snprintf(w->key + key_len, sizeof w->key - key_len, "%s%s", key_len ? "/" : "", name);
    size_t len = key_len + (size_t)n;
    if (len >= sizeof w->key || !on_the_way(w, len))
        return 0; /* no put makes a key that long */
    struct stat st;
    if (fstatat(dir, name, &st, 0))
        return errno == ENOENT ? 0 : store_file_fail(w->f, "list", w->key, errno);
    if (S_ISDIR(st.st_mode))
        return walk_dir(w, dir, name, len);
    if (!S_ISREG(st.st_mode) || len < strlen(w->prefix))
        return 0;
    struct store_item item = {.key = w->key, .size = (uint64_t)st.st_size, .mtime = st.st_mtim.tv_sec};
    return w->visit(w->arg, &item);
}

static int walk_dir(struct walk *w, int parent, const char *name, size_t key_len)
{
    if (w->depth >= LIST_DEPTH_MAX)
        return error_set(-ELOOP, "store %s: directories below %.200s are nested too deeply", w->f->base.url, w->key);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A directory that was removed meanwhile is empty; a missing root is an error. */
    if (fd < 0)
        return errno == ENOENT && key_len ? 0 : store_file_fail(w->f, "list", key_len ? w->key : "it", errno);
    DIR *d = fdopendir(fd);
    if (!d) {
        close(fd);
        return error_no_memory();
    }
    w->depth++;
    int rc = 0;
    struct dirent *e;
    while (!rc && (errno = 0, e = readdir(d))) {
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, STORE_FILE_TMP_DIR))
            rc = walk_entry(w, fd, e->d_name, key_len);
        w->key[key_len] = 0;
    }
    if (!e && !rc && errno)
        rc = store_file_fail(w->f, "list", w->key, errno);
    w->depth--;
    closedir(d);
    return rc;
}

static int file_list(struct store *s, const char *prefix, store_visit *visit, void *arg)
{
    struct walk w = {.f = store_file_of(s), .prefix = prefix, .visit = visit, .arg = arg};
    return walk_dir(&w, AT_FDCWD, w.f->root, 0);
}

/* link(2) and flock(2) provide the conditions; see store_file_put.c. */
static int file_probe_conditional(struct store *s, bool *out)
{
    *out = true;
    return 0;
}

static void file_close(struct store *s)
{
    struct store_file *f = store_file_of(s);
    free(f->root);
    free((char *)f->base.url);
    free(f);
}

static struct store_file *new_store(const char *root)
{
    static const struct store_ops ops = {
        .get = store_file_get,
        .get_small = store_file_get_small,
        .put = store_file_put,
        .stat = store_file_stat,
        .list = file_list,
        .remove = store_file_remove,
        .probe_conditional = file_probe_conditional,
        .close = file_close,
    };
    size_t len = strlen(root);
    while (len > 1 && root[len - 1] == '/')
        len--;
    struct store_file *f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    f->base.ops = &ops;
    f->root = strndup(root, len);
    char *url = NULL;
    if (f->root && asprintf(&url, "file://%s", f->root) >= 0) {
        f->base.url = url;
        return f;
    }
    free(f->root);
    free(f);
    return NULL;
}

int store_file_open(const char *url, const struct store_options *options, struct store **out)
{
    const char *root = strncmp(url, "file://", 7) == 0 ? url + 7 : url;
    if (root[0] != '/')
        return error_set(-EINVAL, "store %s: the directory must be absolute, as in file:///srv/store", url);
    struct stat st;
    if (stat(root, &st) == 0 && !S_ISDIR(st.st_mode))
        return error_set(-EINVAL, "store %s: this is not a directory", url);
    struct store_file *f = new_store(root);
    if (!f)
        return error_no_memory();
    if (options) {
        f->rate = options->rate;
        f->cancel = options->cancel;
    }
    *out = &f->base;
    return 0;
}
