/* The exports of a server as the files of one directory. */
#ifndef GRANARY_FUSE_FILES_H
#define GRANARY_FUSE_FILES_H

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>
#include <pthread.h>

#include "base/compiler.h"
#include "base/vec.h"
#include "server/serving.h"

/* ---- open files: inode_table.c ---- */

/* An open file. */
struct inode_table_file {
    uint64_t number;
    struct stack_export *export; /* connected, so that it is not removed */
    unsigned opens;              /* 0: opened through an earlier process, how often is unknown */
};

/* Maps inode numbers to exports, and knows which files are open: their exports cannot be removed.
 *
 * A number is computed from the export's name and its image, so that a process that takes over a mount recognises the
 * files that the kernel has open. It learns of each by the first read. It cannot know how often the file is open, so
 * the first release drops the connection to the export, and another read makes it again. */
struct inode_table {
    struct stack *stack;   /* not owned */
    pthread_rwlock_t lock; /* guards files; no other lock is taken under it */
    VEC(struct inode_table_file) files;
};

void inode_table_init(struct inode_table *s, struct stack *stack);
void inode_table_release(struct inode_table *s);

/* Return the inode number of an export's file; above 1, which is the directory's. */
uint64_t inode_table_number(const struct stack_export *e);

/* The rest: any thread. */

/* Return the export of a file; stack_put it. NULL: there is none any more. */
struct stack_export *inode_table_get(struct inode_table *s, uint64_t number);
/* The same for a read, which proves that the file is open: connect to the export if that is not done yet. NULL also
 * when out of memory. */
struct stack_export *inode_table_get_open(struct inode_table *s, uint64_t number);
/* Count an open, or the release of one. -ESTALE: the export is gone; -ENOMEM. Sets no sentence, since the kernel gets
 * the errno. */
GR_MUST_CHECK int inode_table_open(struct inode_table *s, uint64_t number);
void inode_table_close(struct inode_table *s, uint64_t number);

/* ---- the directory and its reads: files.c ---- */

/* Bytes of one read request at most; also the mount option max_read. */
enum { FILES_READ_MAX = 1 << 20 };

/* Bytes of the replies of all reads in flight; slots for the stores' shares of them. */
enum { FILES_REPLIES_MAX = 16 << 20, FILES_STORES = 64 };

/* Direct and readahead reads that the kernel sends before it waits for replies; those of all files count. Reads that
 * wait hold no thread, so this may exceed the threads by far. */
enum { FILES_REQUESTS_MAX = 4096 };

struct waiting_read;

struct read_list {
    struct waiting_read *first, *last;
};

/* One store's reads in flight, and its waiting reads. Stores are told apart by a hash: two that share a slot share its
 * part of the budget. */
struct read_share {
    size_t bytes;
    unsigned reads;
    struct read_list waiting;
};

/* Memory of replies and threads, which reads share. A read that would exceed its store's part waits in a list, without
 * a thread, so a silent store holds up neither reads of other stores nor reads of cached data.
 *
 * Uncached reads may have three quarters of either. A store may have at most twice what is left of that
 * (share_allows_part), so there is always room for another store's read. Cached reads may have all of it. */
struct read_budget {
    pthread_mutex_t lock; /* innermost */
    unsigned threads;     /* that answer requests */
    size_t bytes;
    unsigned reads;
    struct read_share stores[FILES_STORES];
    struct read_list cached; /* waiting reads of cached data */
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
/* Drop waiting reads without a reply: the kernel gives them to the next session. No thread answers any more. */
void read_budget_release(struct read_budget *b);
/* Return the bytes that replies hold now. Any thread. */
size_t read_budget_used(struct read_budget *b);

#endif
