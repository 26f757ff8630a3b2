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

/* Bytes of replies, of all reads under way. */
enum { FILES_REPLIES_MAX = 16 << 20, FILES_STORES = 64 };

/* Direct and readahead reads that the kernel sends before it waits for replies; those of all files count. Reads that
 * wait hold no thread, so this may exceed the threads by far. */
enum { FILES_REQUESTS_MAX = 4096 };

struct waiting_read;

struct read_list {
    struct waiting_read *first, *last;
};

/* What reads of one store have under way, and those that wait. Stores are told apart by a hash: two that share a slot
 * share what it may have. */
struct read_share {
    size_t bytes;
    unsigned reads;
    struct read_list waiting;
};

/* Memory of replies and threads, which reads share. A read that would exceed its store's part waits in a list, without
 * a thread, so a store that is silent keeps neither reads of other stores nor of what is cached waiting.
 *
 * Uncached reads may have three quarters of either. A store may have at most twice what is left of that (dynamic
 * thresholds: one store gets two thirds of it, two get two fifths each, and there is always room for another store's
 * read). Cached reads may have all of it. */
struct read_budget {
    pthread_mutex_t lock; /* innermost */
    unsigned threads;     /* that answer requests */
    size_t bytes;
    unsigned reads;
    struct read_share stores[FILES_STORES];
    struct read_list cached; /* reads of what is cached that wait */
};

/* What the FUSE callbacks work on. */
struct files {
    struct serving *serving; /* not owned */
    struct inode_table inode_table;
    struct read_budget budget;
};

/* Make a session that answers for f's exports; it is not mounted yet. f outlives it. *out: fuse_session_destroy it. Its
 * callbacks may run in any number of threads. -EINVAL: libfuse makes no session. */
GR_MUST_CHECK int files_session(struct files *f, struct fuse_session **out);

void read_budget_init(struct read_budget *b, unsigned threads);
/* Reads that wait are dropped without a reply: the kernel gives them to the next session. No thread answers any more.
 */
void read_budget_release(struct read_budget *b);
/* Return the bytes that replies hold now. Any thread. */
size_t read_budget_used(struct read_budget *b);

#endif
