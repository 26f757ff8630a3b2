/* What the files of the store in a directory share; nobody else includes it. */
#ifndef GRANARY_STORE_BACKEND_STORE_FILE_INTERNAL_H
#define GRANARY_STORE_BACKEND_STORE_FILE_INTERNAL_H

#include <stdatomic.h>

#include "store/store_impl.h"

#define STORE_FILE_TMP_DIR ".granary-tmp"
enum { STORE_FILE_PIECE = 128 << 10 };

struct store_file {
    struct store base;
    char *root;
    struct rate *rate; /* NULL: no limit */
    const volatile int *cancel;
    _Atomic bool swept; /* STORE_FILE_TMP_DIR was looked through */
};

static inline struct store_file *store_file_of(struct store *s)
{
    return (struct store_file *)s;
}

/* One sentence for a system call that failed on a key: what was tried, why it failed (err: an errno), what helps.
 * Returns its -errno. */
int store_file_fail(const struct store_file *f, const char *doing, const char *key, int err);

/* n bytes are read or written: wait as the rate says. 0, or -EAGAIN when cancelled. */
GR_MUST_CHECK int store_file_pay(const struct store_file *f, uint64_t n);

/* The path of a key, or of the store's own files; NULL: out of memory, with a sentence. The caller frees it. */
char *store_file_path(const struct store_file *f, const char *key);
/* The same for a key that is checked first. */
GR_MUST_CHECK int store_file_locate(const struct store_file *f, const char *key, char **out_path);

/* Of struct store_ops. */
int store_file_get(struct store *s, const char *key, uint64_t off, uint64_t len, store_sink *sink, void *arg);
int store_file_get_small(struct store *s, const char *key, struct bytes *out, char version[STORE_VERSION_MAX]);
int store_file_stat(struct store *s, const char *key, struct store_item *out);
int store_file_put(struct store *s, const struct store_put *put);
int store_file_remove(struct store *s, const char *key);

#endif
