/* The devices that a server has: made on request, recovered from the previous server, served from the stack. */
#ifndef GRANARY_UBLK_DEVICES_H
#define GRANARY_UBLK_DEVICES_H

#include "base/digest.h"
#include "server/serving.h"
#include "ublk/kernel.h"

enum { DEVICES_THREADS = 256 /* the default of -t */, CLIENTS_THREADS = 4 /* connections that are served at a time */ };

struct devices;

/* What a client learns of its device. */
struct device_made {
    unsigned number;  /* of /dev/ublkbN */
    uint64_t tag;     /* the driver's mark of it */
    uint64_t diskseq; /* the kernel's number of its disk */
    uint64_t size;    /* bytes */
    struct digest content_root;
};

/* Make the table, and read which devices the previous server has left. socket: the server's, beside which the records
 * are; copied. threads: of all reads that a device's own thread does not answer. *out lives as long as the process: a
 * device ends when it is removed, not with its table. -ENOMEM, or the errno of a thread or of the directory. */
GR_MUST_CHECK int devices_new(struct serving *s, const char *socket, unsigned threads, struct devices **out);
/* The exports are there: s is open and has started. Until then only devices that fail are recovered, and
 * devices_attach waits. */
void devices_open(struct devices *d);

/* Recover each device of the previous server that can be. Returns how many wait, for the old process to be gone or for
 * their image to be there: call it again then. One thread at a time. */
GR_MUST_CHECK unsigned devices_recover(struct devices *d, struct ublk_control *c);

/* Make a device that shows the export of that name. Its record says `new` until devices_keep. -ENOENT: no such export;
 * -EAGAIN: too many wait for the exports; -EINVAL: its size or its name does not do; or the errno of the driver. Any
 * thread, each with a control of its own. */
GR_MUST_CHECK int devices_attach(struct devices *d, struct ublk_control *c, const char *name, struct device_made *out);
/* The client has recorded the device. -ENOENT: it is gone; or record_write's errors. */
GR_MUST_CHECK int devices_keep(struct devices *d, unsigned number);
/* Answer all reads of the device with EIO from now on, in the servers to come as well; also one that waits to be
 * recovered. -ENOENT. */
GR_MUST_CHECK int devices_fail(struct devices *d, unsigned number);

/* Remove every device that a record beside the socket names, and the records: no server will follow that one. A device
 * that is mounted stays, with its record. Takes no table: it is for a process of its own. The first error, after all
 * were tried; -EBUSY: one is mounted. */
GR_MUST_CHECK int devices_clear(struct ublk_control *c, const char *socket);

#endif
