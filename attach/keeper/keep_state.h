/* What a keeper knows of its device, kept in /run/granary/nbdN.json so that another can go on where one was killed. Who
 * keeps the device holds a lock on that file: nothing is left of a keeper that died.
 */
#ifndef GRANARY_ATTACH_KEEPER_KEEP_STATE_H
#define GRANARY_ATTACH_KEEPER_KEEP_STATE_H

#include <limits.h>

#include "attach/device/device.h"

enum { KEEP_EXPORT_MAX = 4097 };

struct keep_state {
    char device[DEVICE_NAME_MAX];
    char mark[DEVICE_MARK_MAX];        /* device_nbd_mark when it was written: of no other attachment it counts */
    char address[PATH_MAX];            /* of the server: a unix path or HOST:PORT */
    char export_name[KEEP_EXPORT_MAX]; /* of the image on it */
    uint64_t size;                     /* the image's, as is */
    struct digest content_root;
    bool tagged; /* the kernel knows the content root as the backend */
    unsigned timeout_s, dead_s;
};

/* The directory is made where it is missing. Takes node_lock. */
GR_MUST_CHECK int keep_state_save(const struct keep_state *s);
/* -ENOENT: none, or of an earlier attachment of the device; -EBADMSG: damaged. */
GR_MUST_CHECK int keep_state_load(const char *device, struct keep_state *out);
void keep_state_remove(const char *device);
/* Remove those that killed processes have left: half-written ones, and of attachments that are no more. The caller has
 * node_lock. */
void keep_states_sweep_locked(void);

/* Become the device's one keeper, until *out_fd is closed or the process ends. Reads no state afterwards: that would
 * let go. -EBUSY: another process is. */
GR_MUST_CHECK int keep_claim(const char *device, int *out_fd);
/* Forget the state that was claimed: the device was detached. One written since, of a later attachment, is left. */
void keep_release(const char *device, int claim_fd);
/* The process that keeps it; 0: none. */
pid_t keep_holder(const char *device);

#endif
