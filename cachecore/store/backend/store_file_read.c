/* Reads objects of a directory: each key is a regular file. Also maps system errors to the store's errors, for all
 * files of this backend. Writers replace files by rename, so a file that is open here never changes under its
 * reader. */
#include "store/backend/store_file_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/pages.h"

int store_file_fail(const struct store_file *f, const char *doing, const char *key, int err)
{
    const char *url = f->base.url;
    switch (err) {
    case ENOSPC:
    case EDQUOT:
        return error_set(-ENOSPC, "store %s: cannot %s %s: %s; free some space there or use another store", url, doing,
                         key, strerror(err));
    case EROFS:
    case EACCES:
    case EPERM:
        return error_set(-EACCES, "store %s: cannot %s %s: %s; check the directory's owner, mode and mount options",
                         url, doing, key, strerror(err));
    case ENOENT:
    case ENOTDIR:
        if (access(f->root, F_OK))
            return error_set(-ENOENT, "store %s: there is no such directory", url);
        return error_set(-ENOENT, "store %s: %s is not there", url, key);
    /* ESTALE: NFS, the file was replaced on the server; opening it again helps. The others pass, too. */
    case ESTALE:
    case EMFILE:
    case ENFILE:
        return error_set(-EAGAIN, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    default:
        return error_set(-err, "store %s: cannot %s %s: %s", url, doing, key, strerror(err));
    }
}

int store_file_pay(const struct store_file *f, uint64_t n)
{
    return rate_take(f->rate, n, f->cancel) ? 0 : error_set(-EAGAIN, "store %s: interrupted", f->base.url);
}

char *store_file_path(const struct store_file *f, const char *key)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", f->root, key) < 0) {
        (void)error_no_memory();
        return NULL;
    }
    return path;
}

int store_file_locate(const struct store_file *f, const char *key, char **out_path)
{
    if (strncmp(key, STORE_FILE_TMP_DIR, strlen(STORE_FILE_TMP_DIR)) == 0)
        return error_set(-EINVAL, "store %s: keys that begin with " STORE_FILE_TMP_DIR " are the store's own",
                         f->base.url);
    *out_path = store_file_path(f, key);
    return *out_path ? 0 : -ENOMEM;
}

/* Open the file of a key. -ENOENT if it is not a regular file. */
static int open_object(const struct store_file *f, const char *key, int *out_fd, struct stat *st)
{
    CLEANUP_FREE char *path = NULL;
    int rc = store_file_locate(f, key, &path);
    if (rc)
        return rc;
    /* O_NONBLOCK: opening a fifo must not block */
    CLEANUP_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, st))
        return store_file_fail(f, "read", key, errno);
    if (!S_ISREG(st->st_mode))
        return store_file_fail(f, "read", key, ENOENT); /* "packs" is a directory, not an object */
    *out_fd = steal_fd(&fd);
    return 0;
}

int store_file_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st = {0};
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    uint64_t size = (uint64_t)st.st_size;
    if (off > size || len > size - off)
        return error_set(-EBADMSG, "store %s: %s has %llu bytes, %llu at %llu were asked for: it is damaged", s->url,
                         key, (unsigned long long)size, (unsigned long long)len, (unsigned long long)off);
    /* Pieces instead of one buffer, because a get may cover a whole pack. */
    CLEANUP_PAGES piece = {.len = (size_t)GR_MIN(len, (uint64_t)STORE_FILE_PIECE)};
    piece.data = pages_get(piece.len);
    if (!piece.data)
        return error_no_memory();
    for (uint64_t done = 0; done < len;) {
        size_t want = (size_t)GR_MIN(len - done, (uint64_t)STORE_FILE_PIECE);
        ssize_t n = io_pread_full(fd, piece.data, want, off + done);
        if (n < 0)
            return store_file_fail(f, "read", key, (int)-n);
        if ((size_t)n < want)
            return error_set(-EBADMSG, "store %s: %s became shorter while it was read", s->url, key);
        rc = store_file_pay(f, want);
        if (!rc)
            rc = sink(arg, piece.data, want);
        if (rc)
            return rc;
        done += want;
    }
    return 0;
}

/* A version is the SHA-256 of the contents, in hex. */
static void version_of(const void *data, size_t len, char version[STORE_VERSION_MAX])
{
    struct digest d = digest_of(data, len);
    digest_hex(&d, version);
}

int store_file_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX])
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FD int fd = -1;
    struct stat st = {0};
    int rc = open_object(f, key, &fd, &st);
    if (rc)
        return rc;
    if (out->len > out->max || (uint64_t)st.st_size > out->max - out->len)
        return error_set(-EMSGSIZE, "store %s: %s has %lld bytes, more than the %zu it may have", s->url, key,
                         (long long)st.st_size, out->max);
    size_t before = out->len, size = (size_t)st.st_size;
    uint8_t *into = NULL;
    rc = bytes_extend(out, size, &into);
    if (rc)
        return rc;
    /* Fewer bytes, if another program truncated the file, are left to the caller's decoder. */
    ssize_t n = io_pread_full(fd, into, size, 0);
    out->len = n < 0 ? before : before + (size_t)n;
    if (n < 0)
        return store_file_fail(f, "read", key, (int)-n);
    if (version)
        version_of(into, (size_t)n, version);
    rc = store_file_pay(f, (uint64_t)n);
    if (rc)
        out->len = before;
    return rc;
}

int store_file_stat(struct store *s, const char *key, struct store_item *out)
{
    struct store_file *f = store_file_of(s);
    CLEANUP_FREE char *path = NULL;
    int rc = store_file_locate(f, key, &path);
    if (rc)
        return rc;
    struct stat st;
    if (stat(path, &st))
        return store_file_fail(f, "look at", key, errno);
    if (!S_ISREG(st.st_mode))
        return store_file_fail(f, "look at", key, ENOENT);
    *out = (struct store_item){.key = key, .size = (uint64_t)st.st_size, .mtime = st.st_mtim.tv_sec};
    return 0;
}
