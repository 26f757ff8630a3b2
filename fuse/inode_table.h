/* Maps inode numbers to exports, and knows which files are open: their exports cannot be removed.
 *
 * A number is computed from the export's name and its image, so that a process that takes over a mount recognises the
 * files that the kernel has open. It learns of each by the first read. It cannot know how often the file is open, so
 * the first release drops the connection to the export, and another read makes it again. */
#ifndef GRANARY_FUSE_INODE_TABLE_H
#define GRANARY_FUSE_INODE_TABLE_H

#include <pthread.h>

#include "base/vec.h"
#include "stack.h"

/* An open file. */
struct inode_table_file {
    uint64_t number;
    struct stack_export *export; /* connected, so that it is not removed */
    unsigned opens;              /* 0: opened through an earlier process, how often is unknown */
};

/* The open files. */
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

#endif
