/* The reconnect daemon ("keeper") of a kernel nbd device: a process that gives the kernel new connections in place of
 * dead ones. Without it the device fails when its server ends. */
#ifndef GRANARY_ATTACH_KEEPER_KEEPER_H
#define GRANARY_ATTACH_KEEPER_KEEPER_H

#include "attach/keeper/keep_state.h"

/* Keep the device until it is detached, then return 0. A connection to another image is refused, logged, and tried
 * again. There is no limit to the wait for a server that is gone. ready (may be NULL) is called once the device is
 * kept. -EBUSY: another process keeps it; -EINVAL: it was attached without netlink. */
GR_MUST_CHECK int keeper_run(const struct keep_state *s, void (*ready)(void *arg), void *arg);

/* Save the state and start `granary keep`: as systemd's unit granary-keep@nbdN where systemd runs and has it, else in
 * its own session with its output going to output. Returns once the device is kept. -EIO: the keeper ended, and its
 * output says why; -ETIMEDOUT: it did not get to work. */
GR_MUST_CHECK int keeper_start(const struct keep_state *s, int output);
/* End the keeper, if there is one, and remove the state. The device is not touched. -ETIMEDOUT: it does not end. */
GR_MUST_CHECK int keeper_stop(const char *device);

/* Fill in the state of a device that another program attached over netlink, from the server it was attached to. device,
 * address, export_name and the times are set already. -EINVAL: the device is not attached; -ESTALE: the export differs
 * from what the device shows, in size, backend identifier or, without one, some of its bytes. */
GR_MUST_CHECK int keeper_adopt(struct keep_state *out);

#endif
