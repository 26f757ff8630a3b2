/* Shared by the files of the directory store; private to them. */
#ifndef GRANARY_STORE_BACKEND_STORE_FILE_INTERNAL_H
#define GRANARY_STORE_BACKEND_STORE_FILE_INTERNAL_H

#include <stdatomic.h>

#include "store/store_impl.h"

/* Where objects are written before they are moved into place; STORE_FILE_PIECE: bytes between two payments to the
 * rate. */
#define STORE_FILE_TMP_DIR ".granary-tmp"
enum { STORE_FILE_PIECE = 128 << 10 };

/* A store in a directory. Constant after opening, except swept, so any thread may use it. */
struct store_file {
    struct store base;
    char *root;                 /* absolute path, without a final slash */
    struct rate *rate;          /* NULL: no limit */
    const volatile int *cancel; /* interrupts waiting for the rate; may be NULL */
    _Atomic bool swept;         /* this process has removed old files from STORE_FILE_TMP_DIR */
};

static inline struct store_file *store_file_of(struct store *s)
{
    return (struct store_file *)s;
}

/* Set the sentence for a system call that failed on a key: what was tried, why it failed (err, an errno), what helps.
 * Return the -errno of store.h that fits: -EACCES, -ENOSPC, -ENOENT, -EAGAIN for stale handles and a lack of
 * descriptors, otherwise -err. */
int store_file_fail(const struct store_file *f, const char *doing, const char *key, int err);

/* Wait as the rate demands for n bytes read or written. -EAGAIN: interrupted. */
GR_MUST_CHECK int store_file_pay(const struct store_file *f, uint64_t n);

/* Return the path of a key or of one of the store's own files, for the caller to free; NULL: out of memory, with a
 * sentence. */
char *store_file_path(const struct store_file *f, const char *key);
/* The same for a caller's key. -EINVAL: the key is reserved for the store's own files; -ENOMEM. */
GR_MUST_CHECK int store_file_locate(const struct store_file *f, const char *key, char **out_path);

/* Operations of struct store_ops. */
int store_file_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int store_file_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
int store_file_stat(struct store *s, const char *key, struct store_item *out);
int store_file_put(struct store *s, const struct store_put *put);
int store_file_remove(struct store *s, const char *key);

#endif
