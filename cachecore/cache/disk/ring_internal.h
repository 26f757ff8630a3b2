/* What the files of the rings share: rings.c (the pool), ring.c (what one ring does). */
#ifndef GRANARY_CACHE_DISK_RING_INTERNAL_H
#define GRANARY_CACHE_DISK_RING_INTERNAL_H

#include <liburing.h>
#include <pthread.h>

#include "base/log.h"
#include "cache/disk/ring.h"

/* One ring. The borrower's alone while it is lent, but for the two atomics, which the disk monitor reads. */
struct ring {
    struct rings *owner;
    struct ring *next, *prev; /* in the owner's idle, zombie or out list, under its lock */
    uint8_t *bounce;          /* its buffer; the ring itself stands after it in the same mapping */
    struct io_thread *thread; /* NULL: not needed so far */
    struct io_op ops[RING_READS_MAX];
    struct buf *held[RING_WRITES_MAX]; /* what writes in flight read from */
    size_t held_count;
    bool has_uring, fixed_files, fixed_bounce;
    bool lost;                   /* a deadline was missed */
    bool starved;                /* memory was short when it submitted: another io_uring may do */
    uint32_t prepared;           /* files of reads that were prepared and not submitted, as bits */
    _Atomic uint32_t files;      /* files of the latest call or submission, as bits; of a zombie, what is unanswered */
    _Atomic uint64_t busy_until; /* deadline of the reads in flight (clock_now_ms); 0: none */
    size_t in_flight;            /* operations that the io_uring has taken and not answered */
    struct io_uring uring;
};

/* The pool. `lock` guards the lists and counts; the rest is constant. */
struct rings {
    pthread_mutex_t lock;    /* innermost, except for the lock of a ring's thread */
    pthread_mutex_t mapping; /* held by the one thread that makes slices; taken before lock */
    pthread_cond_t returned; /* a ring was returned, or a place became free */
    struct ring *idle;
    unsigned idle_count, idle_least; /* idle rings now; the fewest since rings_trim */
    struct slice *spare;             /* unused slices of huge pages whose other slices are used */
    struct ring *zombies;
    struct ring *out;
    unsigned made; /* rings that are lent, idle or being made */
    _Atomic unsigned zombie_count;
    _Atomic unsigned waiting; /* threads that wait for a ring */
    _Atomic bool refused;     /* the kernel refuses io_uring; logged once */
    unsigned limit;
    bool huge_bounce;
    int fds[RING_FILES_MAX];
    bool async;
    bool direct[RING_FILES_MAX];   /* opened with O_DIRECT */
    bool blocking[RING_FILES_MAX]; /* its filesystem cannot read without blocking */
    size_t fd_count;
    struct io_calls calls;
    struct rings_stats *stats;
    struct log_limit complaints;
};

/* An unused place for a ring, within a huge page. */
struct slice {
    struct slice *next;
};

/* Give the ring an io_uring, where the kernel allows one; free it. */
void ring_attach_uring(struct ring *r);
void ring_drop_uring(struct ring *r);
/* Has the disk answered everything that a lost ring asked for? */
bool ring_is_over(struct ring *r);
/* Drop the references to what its writes read from. */
void ring_let_go(struct ring *r);

#endif
