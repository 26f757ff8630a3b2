/* The reconnect daemon of a kernel nbd device (in names: keeper): a process that gives the kernel new connections in
 * place of dead ones. Without it the device fails when its server ends. */
#ifndef GRANARY_ATTACH_KEEPER_KEEPER_H
#define GRANARY_ATTACH_KEEPER_KEEPER_H

#include <limits.h>

#include "attach/device/device.h"
#include "base/error.h"

/* ---- the state of a device (keep_state.c) ----
 *
 * It is kept in /run/granary/nbdN.json, so that another daemon can continue where one was killed. A daemon holds a lock
 * on that file; the lock ends with its process. */

enum { KEEP_EXPORT_MAX = 4097 };

/* An attachment and its server. */
struct keep_state {
    char device[DEVICE_NAME_MAX];
    char mark[DEVICE_MARK_MAX]; /* device_nbd_mark when this was written: the state is void for a later attachment */
    char address[PATH_MAX];     /* the server: a unix path or HOST:PORT */
    char export_name[KEEP_EXPORT_MAX]; /* of the image on it */
    uint64_t size;                     /* the image's; so is content_root */
    struct digest content_root;
    bool tagged; /* the kernel has the content root as the attachment's backend identifier */
    unsigned timeout_s, dead_s;
};

/* Write the state; makes STATE_ROOT if it is missing. Takes node_lock. */
GR_MUST_CHECK int keep_state_save(const struct keep_state *s);
/* -ENOENT: there is none, or it is of an earlier attachment; -EBADMSG: it is damaged. */
GR_MUST_CHECK int keep_state_load(const char *device, struct keep_state *out);
void keep_state_remove(const char *device);
/* Remove what killed processes left: half-written files, and states of attachments that no longer exist. The caller has
 * node_lock. */
void keep_states_sweep_locked(void);

/* Become the device's only reconnect daemon, until *out_fd is closed or the process ends. Do not read the state
 * afterwards: POSIX drops the lock when any descriptor of the file is closed. -EBUSY: another process keeps the device;
 * -ENOENT: there is no state. */
GR_MUST_CHECK int keep_claim(const char *device, int *out_fd);
/* Remove the claimed state, since the device was detached. A state written since, for a later attachment, stays. */
void keep_release(const char *device, int claim_fd);
/* Return the process that keeps the device; 0: none. */
pid_t keep_holder(const char *device);

/* ---- what the server is told (keep_report.c) ---- */

struct keep_figures {
    uint64_t reconnects;          /* connections that the daemon has replaced */
    char failure[ERROR_TEXT_MAX]; /* the last failure's sentence; "": there was none */
    uint64_t failed_ms;           /* when that was (clock_now_ms) */
};

/* Report to the control socket of a server on this machine, for at most 2 s. A failure is a line of the debug log. */
void keep_report(const struct keep_state *s, const struct keep_figures *f);
/* Have the server at that address forget the device. */
void keep_report_end(const char *device, const char *address);

/* ---- the daemon (keeper.c) ---- */

/* Keep the device until it is detached, then return 0. A connection to another image is refused, logged, and tried
 * again. There is no limit to the wait for a server that is gone. ready (may be NULL) is called once the device is
 * kept. -EBUSY: another process keeps it; -EINVAL: it was attached without netlink. */
GR_MUST_CHECK int keeper_run(const struct keep_state *s, void (*ready)(void *arg), void *arg);

/* Save the state and start `granary keep`: as systemd's unit granary-keep@nbdN where systemd runs and has it, else in
 * its own session with its output going to output. Returns once the device is kept. -EIO: the daemon ended, and its
 * output says why; -ETIMEDOUT: it did not get to work. */
GR_MUST_CHECK int keeper_start(const struct keep_state *s, int output);
/* End the daemon, if there is one, have the server at that address forget the device, and remove the state. The device
 * is not touched. -ETIMEDOUT: it does not end. */
GR_MUST_CHECK int keeper_stop(const char *device, const char *address);

/* Fill in the state of a device that another program attached over netlink, from the server it was attached to. device,
 * address, export_name and the times are set already. -EINVAL: the device is not attached; -ESTALE: the export differs
 * from what the device shows, in size, backend identifier or, without one, some of its bytes. */
GR_MUST_CHECK int keeper_adopt(struct keep_state *out);

#endif
