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
enum { FILES_READ_MAX = 1 << 20 };

/* Bytes of replies, of all reads under way; a quarter is kept for reads of what is cached. */
enum { FILES_REPLIES_MAX = 16 << 20 };

struct reply_budget {
    pthread_mutex_t lock; /* innermost */
    pthread_cond_t freed;
    size_t used;
};

struct files {
    struct serving *serving; /* not owned */
    struct inode_table inode_table;
    unsigned requests; /* reads that the kernel has in flight at most */
    struct reply_budget budget;
};

/* A session that answers for f's exports, not mounted yet. f outlives it. *out: fuse_session_destroy. Its callbacks may
 * run in any number of threads. */
GR_MUST_CHECK int files_session(struct files *f, struct fuse_session **out);

void reply_budget_init(struct reply_budget *r);
void reply_budget_release(struct reply_budget *r);
/* Bytes that replies hold now. Any thread. */
size_t reply_budget_used(struct reply_budget *r);

#endif
