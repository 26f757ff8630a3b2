/* The exports of a server as the files of one directory. */
#ifndef GRANARY_FUSE_FILES_H
#define GRANARY_FUSE_FILES_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <pthread.h>

#include "base/compiler.h"
#include "fuse/inode_table.h"
#include "server/serving.h"

/* What a client's request may ask for at most; the mount option max_read says it to the kernel. */
enum { FILES_READ_MAX = 1 << 20 }; /* bytes of one read request; also the mount option max_read */

/* Bytes of the replies of all reads in progress. A quarter is reserved for reads of cached data. */
enum { FILES_REPLIES_MAX = 16 << 20 };

/* How much memory replies hold. lock guards used and is innermost. */
struct reply_budget {
    pthread_mutex_t lock; /* innermost */
    pthread_cond_t freed;
    size_t used;
};

/* What the FUSE callbacks work on. */
struct files {
    struct serving *serving; /* not owned */
    struct inode_table inode_table;
    unsigned requests; /* maximum of reads that the kernel has in flight */
    struct reply_budget budget;
};

/* Make a session that answers for f's exports; it is not mounted yet. f outlives it. *out: fuse_session_destroy it. Its
 * callbacks may run in any number of threads. -EINVAL: libfuse makes no session. */
GR_MUST_CHECK int files_session(struct files *f, struct fuse_session **out);

void reply_budget_init(struct reply_budget *r);
void reply_budget_release(struct reply_budget *r);
/* Return the bytes that replies hold now. Any thread. */
size_t reply_budget_used(struct reply_budget *r);

#endif
