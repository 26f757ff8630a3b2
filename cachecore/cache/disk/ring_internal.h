/* What the files of the rings share: rings.c (the pool), ring.c (what one ring does). */
#ifndef GRANARY_CACHE_DISK_RING_INTERNAL_H
#define GRANARY_CACHE_DISK_RING_INTERNAL_H

#include <liburing.h>
#include <pthread.h>

#include "cache/disk/ring.h"

struct ring {
    struct rings *owner;
    struct ring *next, *prev; /* idle or zombie, or out: under the owner's lock */
    uint8_t *bounce;
    struct io_thread *thread; /* NULL: none needed so far */
    struct io_op ops[RING_READS_MAX];
    struct buf *held; /* what the thread writes from */
    bool has_uring, fixed_files, fixed_bounce;
    bool lost;                   /* a deadline was missed */
    _Atomic uint32_t files;      /* bits of those with reads or writes of the latest call */
    _Atomic uint64_t busy_until; /* the deadline of the reads under way; 0: none */
    size_t in_flight;            /* reads the io_uring has taken and not answered */
    struct io_uring uring;
};

struct rings {
    pthread_mutex_t lock;    /* innermost, but for a ring's thread's */
    pthread_mutex_t mapping; /* one thread makes slices; before lock */
    pthread_cond_t returned;
    struct ring *idle;
    unsigned idle_count, idle_least; /* of them now; the least since rings_trim */
    struct slice *spare;             /* places for rings, in huge pages that have others */
    struct ring *zombies;
    struct ring *out;
    unsigned made; /* rings that are out or idle */
    _Atomic unsigned zombie_count;
    bool refused; /* io_uring is not to be had here: said once */
    unsigned limit;
    bool huge_bounce;
    int fds[RING_FILES_MAX];
    bool async;
    bool direct[RING_FILES_MAX];   /* past the page cache */
    bool blocking[RING_FILES_MAX]; /* this file cannot be read without blocking */
    size_t fd_count;
    struct io_calls calls;
    struct rings_stats *stats;
};

/* A place for a ring that none has yet. */
struct slice {
    struct slice *next;
};

/* Give the ring an io_uring, where there is one to be had; take it away. */
void ring_attach_uring(struct ring *r);
void ring_drop_uring(struct ring *r);
/* Has the disk answered all that a ring that was lost asked of it? */
bool ring_is_over(struct ring *r);

#endif
