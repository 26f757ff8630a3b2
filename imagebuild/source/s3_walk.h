/* List all objects under a prefix of a bucket with several threads. The range of keys that is left to list is split
 * again and again, so this works whatever the keys look like. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_S3_WALK_H
#define GRANARY_IMAGEBUILD_SOURCE_S3_WALK_H

#include "base/bytes.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source_retry.h"
#include "imagebuild/source/walk.h"
#include "net/aws/s3.h"

enum { S3_WALK_THREADS_MAX = 8 };

struct s3_walk_config {
    struct s3 *s3;
    const char *prefix;
    struct source_retry *retry;
    const struct rules *rules; /* keys in directories that these leave out may be skipped; NULL: none are */
    unsigned threads;          /* limit; 0: S3_WALK_THREADS_MAX */
    /* Pass one object on with walk_emit. Called once for each key that is not skipped, in no order, by any of the
     * threads. */
    int (*emit)(void *arg, struct walker *walker, const struct s3_object *o);
    void *arg;
};

/* List the bucket; the calling thread visits what `emit` emits. Failed requests are retried by config->retry. -EIO: the
 * server lists keys out of order, or its listing does not end. Others come from the server, emit and visit. */
GR_MUST_CHECK int s3_walk(const struct s3_walk_config *config, source_visit *visit, void *arg);

/* Compare two keys by their bytes, as memcmp does. Of two that are equal up to the end of one, the shorter is less. */
int key_order(const void *a, size_t a_len, const void *b, size_t b_len);

/* Replace *out by a key after `after` and before `end`, about half way between them. It has the bytes that both share,
 * then printable ASCII, so it is valid UTF-8 if they are. Both begin with the same prefix_len bytes. end NULL: up to
 * the last key with this prefix.
 *
 * Return 1; 0: no key was found between them; -EMSGSIZE, -ENOMEM. */
GR_MUST_CHECK int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
                            struct bytes *out);

#endif
