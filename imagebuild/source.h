/* A source: a remote tree of files that a build lists once and then reads in path order. One
 * vtable; read is called from many threads at once, everything else from one. The fakes of the
 * tests implement it too.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_H
#define GRANARY_IMAGEBUILD_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"

enum { SOURCE_VALIDATOR_MAX = 255 }; /* = CATALOG_VALIDATOR_MAX */

/* What a listing says of one path. Strings belong to the source and live during the callback only.
 */
struct source_entry {
    const char *path; /* bytes, relative, no leading or trailing slash; the root itself is the empty path */
    size_t path_len;
    uint32_t mode; /* type and permissions */
    uint32_t uid, gid;
    uint64_t rdev;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    const char *validator; /* identifies this version of the body: at most SOURCE_VALIDATOR_MAX bytes; no NUL */
    size_t validator_len;
    const char *target; /* symlink text */
    size_t target_len;
    uint64_t link_dev, link_ino; /* equal non-zero pairs are hard links of one file; 0: none */
    const void *xattrs;          /* sequence of {le16 name_len, le32 value_len, name, value}; NULL: none */
    size_t xattrs_len;
};

/* Non-zero ends the listing with that value. */
typedef int source_visit(void *arg, const struct source_entry *entry);

struct source_read {
    const char *path;
    size_t path_len;
    const char *validator; /* of the version wanted */
    size_t validator_len;
    uint64_t offset, len;
    uint8_t *dst; /* len bytes */
};

/* The version of a regular file that is there now. */
struct source_version {
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
    bool have_owner; /* mode, uid and gid are known */
    uint32_t mode, uid, gid;
    char validator[SOURCE_VALIDATOR_MAX + 1]; /* with a final NUL */
    size_t validator_len;
};

struct source;
struct source_ops {
    /* Every path once, in any order; a file's parents need not be listed (they are made 0755). A
     * key that no filesystem can hold is passed as it is: the tree judges names. */
    int (*list)(struct source *s, source_visit *visit, void *arg);
    /* Exactly len bytes of that version. -ESTALE: another version is there now, or the end came
     * early; -ENOENT: gone; -EAGAIN/-ETIMEDOUT after the source's own retries. Any thread. */
    int (*read)(struct source *s, const struct source_read *read);
    /* The version that is there now. -ENOENT: gone, or no regular file any more. Any thread. */
    int (*stat)(struct source *s, const char *path, size_t path_len, struct source_version *out);
    /* The build is over: waits between retries end, reads running and to come may fail with
     * -ECANCELED. NULL: nothing here waits. Any thread. */
    void (*cancel)(struct source *s);
    void (*close)(struct source *s);
};

struct source {
    const struct source_ops *ops;
    const char *url; /* for messages */
};

struct source_options {
    const char *endpoint; /* s3 */
    unsigned connections; /* at least the build's jobs */
    uint64_t timeout_ms;  /* retries of one operation go on for so long; 0: 5 minutes */
    /* Set asynchronously (a signal) to end waits between retries with -ECANCELED; may be NULL. */
    const volatile int *cancel;
};

/* /dir, file:///dir, s3://bucket/prefix. -EINVAL: unknown scheme, listing the known ones; -ENOENT.
 */
GR_MUST_CHECK int source_open(const char *url, const struct source_options *options, struct source **out);

static inline void source_close(struct source *s)
{
    if (s)
        s->ops->close(s);
}

#endif
