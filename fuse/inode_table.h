/* Which export a file's number stands for, and which files are open: their exports cannot be removed.
 *
 * The number is made of the export's name and its image, so that a process that takes over a mount knows the files that
 * the kernel has open. It learns of each by the first read; how often one is open it does not know, so the first
 * release ends its hold on the export, and another read begins it anew. */
#ifndef GRANARY_FUSE_INODE_TABLE_H
#define GRANARY_FUSE_INODE_TABLE_H

#include <pthread.h>

#include "base/vec.h"
#include "stack.h"

struct inode_table_file {
    uint64_t number;
    struct stack_export *export; /* connected */
    unsigned opens;              /* 0: open since another process's days */
};

struct inode_table {
    struct stack *stack;   /* not owned */
    pthread_rwlock_t lock; /* of files; nothing else is locked under it */
    VEC(struct inode_table_file) files;
};

void inode_table_init(struct inode_table *s, struct stack *stack);
void inode_table_release(struct inode_table *s);

/* Of an export's file; above 1. */
uint64_t inode_table_number(const struct stack_export *e);

/* The rest: any thread. */

/* The export of a file, for stack_put. NULL: there is none any more. */
struct stack_export *inode_table_get(struct inode_table *s, uint64_t number);
/* The same for one that is to be read, and so is open. NULL also when out of memory. */
struct stack_export *inode_table_get_open(struct inode_table *s, uint64_t number);
/* -ESTALE: it is not there any more. -ENOMEM. Without a sentence: the kernel is told. */
GR_MUST_CHECK int inode_table_open(struct inode_table *s, uint64_t number);
void inode_table_close(struct inode_table *s, uint64_t number);

#endif
