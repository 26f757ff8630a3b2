/* The kernel's side of a device: the control commands (control.c), and the ring by which requests come (queue.c). All
 * that the rest of ublk/ knows of the driver is here; the unit tests have a fake in its place.
 *
 * Functions that return int return 0 or -errno with a sentence. */
#ifndef GRANARY_UBLK_KERNEL_H
#define GRANARY_UBLK_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum {
    UBLK_DEPTH = 64,            /* requests in hand of a device */
    UBLK_REQUEST_MAX = 1 << 20, /* bytes of one */
    UBLK_BLOCK = 512,           /* a device has whole ones */
    UBLK_NUMBERS = 1 << 20      /* the numbers of devices are below this */
};

/* ---- control ---- */

/* A connection to /dev/ublk-control. One thread uses it at a time; each command blocks. */
struct ublk_control;

/* *out: ublk_control_close it. -ENODEV: this kernel has no ublk; -EPERM, -EACCES: only root may; -ENOMEM and others: no
 * ring. */
GR_MUST_CHECK int ublk_control_open(struct ublk_control **out);
void ublk_control_close(struct ublk_control *c);
DEFINE_CLEANUP(ublk_control, struct ublk_control *, ublk_control_close)

/* Whether the driver can make devices that outlive their server. -EOPNOTSUPP: it cannot; others: it does not tell. */
GR_MUST_CHECK int ublk_probe(struct ublk_control *c);

/* What the driver knows of a device. */
struct ublk_info {
    uint64_t tag;     /* as ublk_add got it */
    bool dead;        /* it was never started, or is stopped */
    unsigned depth;   /* UBLK_DEPTH, unless another version made it */
    size_t bytes_max; /* of a request */
};

/* Make a device of size bytes (a multiple of UBLK_BLOCK) that nothing serves yet. *out: the N of /dev/ublkcN. After a
 * failure there is none. -EOPNOTSUPP: this driver lets no device outlive its server; -ENOSPC: there are as many as the
 * module allows. */
GR_MUST_CHECK int ublk_add(struct ublk_control *c, uint64_t size, uint64_t tag, unsigned *out);
/* The queue fetches: make /dev/ublkbN. *out_diskseq: the kernel's number of this disk, which no other gets and which a
 * recovery keeps. */
GR_MUST_CHECK int ublk_start(struct ublk_control *c, unsigned number, uint64_t *out_diskseq);
/* -ENODEV: there is no such device. */
GR_MUST_CHECK int ublk_info(struct ublk_control *c, unsigned number, struct ublk_info *out);
/* Take over a device whose server is gone, also one that was killed after it had called this. -EBUSY, without a
 * sentence: it is not wholly gone yet; try again. */
GR_MUST_CHECK int ublk_recover(struct ublk_control *c, unsigned number);
/* The new queue fetches: requests that waited come now. */
GR_MUST_CHECK int ublk_recovered(struct ublk_control *c, unsigned number);
/* End the device of that number if it has this tag: no request comes any more, its queue ends, and it is deleted when
 * nothing has it open. -EBUSY: it is mounted, in whatever mount namespace, and goes on; a filesystem would read zeros.
 * 0 also when it is gone, or another device. Two removals of a number never run at once. */
GR_MUST_CHECK int ublk_remove(struct ublk_control *c, unsigned number, uint64_t tag);
/* The same for the device whose disk has this number, and wait until it is gone. */
GR_MUST_CHECK int ublk_remove_disk(struct ublk_control *c, unsigned number, uint64_t diskseq);

/* ---- the queue ---- */

struct ublk_queue;

/* A request to read. buffer has room for it, and belongs to the reader until the request is done. */
struct ublk_request {
    unsigned tag; /* below the depth; no other request has it meanwhile */
    uint64_t off;
    uint32_t len;
    void *buffer;
    bool alone; /* no other request of the device came with it, or is in hand */
};

enum { UBLK_LATER = 1 }; /* a reader's answer: ublk_queue_done follows */

/* What answers the requests of a device. */
struct ublk_reader {
    /* Answer a request, on the queue's thread: 0 (all bytes are in the buffer), -errno, or UBLK_LATER. */
    int (*read)(void *arg, const struct ublk_request *r);
    /* The device was stopped. Called last, on the queue's thread; then the queue lets go of it and frees itself. */
    void (*ended)(void *arg);
    void *arg;
};

/* Serve /dev/ublkcN in a thread. Returns when all of its requests are fetched. depth, bytes_max: those of the device.
 * *out is set before the first request comes, and valid until reader->ended has returned. */
GR_MUST_CHECK int ublk_queue_start(unsigned number, unsigned depth, size_t bytes_max, const struct ublk_reader *reader,
                                   struct ublk_queue **out);
/* A request that was to be answered later: rc is 0 or -errno. Any thread. */
void ublk_queue_done(struct ublk_queue *q, unsigned tag, int rc);

#endif
