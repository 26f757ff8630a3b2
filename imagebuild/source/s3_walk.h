/* Every object under a prefix of a bucket, listed by several threads at once: what is left of the keys is split into
 * ranges again and again, whatever the keys look like. */
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
    const struct rules
        *rules;       /* what lies in directories that these leave out may not be visited; NULL: everything is */
    unsigned threads; /* at most; 0: S3_WALK_THREADS_MAX */
    /* Emit a key, once for each (but see rules), in no order; any of the threads. */
    int (*emit)(void *arg, struct walker *walker, const struct s3_object *o);
    void *arg;
};

/* What `emit` emits is visited by the calling thread. Failures are retried as the source says; -EIO: the server lists
 * out of order. */
GR_MUST_CHECK int s3_walk(const struct s3_walk_config *config, source_visit *visit, void *arg);

/* The order of two keys: that of their bytes, as memcmp. */
int key_order(const void *a, size_t a_len, const void *b, size_t b_len);

/* Replace *out by a key behind `after` and before `end`, about half way by the bytes they differ in: printable ASCII
 * behind what they share, valid UTF-8 if they are. end NULL: what begins with the first prefix_len bytes of after
 * (which end begins with too) may follow. 1: found; 0: there is none to be had; -ENOMEM. */
GR_MUST_CHECK int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
                            struct bytes *out);

#endif
