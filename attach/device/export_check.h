/* Is the right image behind a server's export? Asked before a device is attached to it. */
#ifndef GRANARY_ATTACH_DEVICE_EXPORT_CHECK_H
#define GRANARY_ATTACH_DEVICE_EXPORT_CHECK_H

#include "attach/process.h"
#include "base/digest.h"

struct export_check {
    const char *socket;           /* unix path; need not exist yet; with control: a directory of files */
    const char *control;          /* the control socket of a server that shows its exports as files; NULL: it has NBD */
    const char *name;             /* of the export */
    uint64_t size;                /* what it must have */
    struct digest content_root;   /* what its description must say */
    const struct process *server; /* stop waiting when it is gone; NULL: the server is there already */
    const volatile int *cancel;   /* may be NULL */
};

/* Wait until the export answers and compare. -ESTALE: another image is there; -EIO: the server ended
 * or refuses; -ETIMEDOUT: one that is there already hangs; -ECANCELED. */
GR_MUST_CHECK int export_check(const struct export_check *check);

#endif
