/* Is a server's export the right image? Checked before a device is attached to it. */
#ifndef GRANARY_ATTACH_DEVICE_EXPORT_CHECK_H
#define GRANARY_ATTACH_DEVICE_EXPORT_CHECK_H

#include "attach/process.h"
#include "base/digest.h"

/* The export, and what it should be. */
struct export_check {
    const char *socket;           /* unix path, which may not exist yet; with control: the directory of files */
    const char *control;          /* control socket of a server that shows exports as files; NULL: it speaks NBD */
    const char *name;             /* of the export */
    uint64_t size;                /* the size it must have */
    struct digest content_root;   /* the content root its description must contain */
    const struct process *server; /* stop waiting when it ends; NULL: the server was there before */
    const volatile int *cancel;   /* may be NULL */
};

/* Wait until the export answers, and compare. -ESTALE: it is another image; -EIO: the server ended or refuses;
 * -ECONNREFUSED: no server listens; -ETIMEDOUT: a server that was there before does not answer; -ECANCELED. */
GR_MUST_CHECK int export_check(const struct export_check *check);

#endif
