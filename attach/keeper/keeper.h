/* The keeper of a kernel nbd device: a process that gives the kernel new connections to the server in place of dead
 * ones. Without it a server's end is the device's.
 */
#ifndef GRANARY_ATTACH_KEEPER_KEEPER_H
#define GRANARY_ATTACH_KEEPER_KEEPER_H

#include "attach/keeper/keep_state.h"

/* Keep the device until it is detached: 0. Only connections to the very image count: one to another is refused, told
 * of, and tried again; a server that is gone is waited for, however long. ready: called once it is kept; may be NULL.
 * -EBUSY: another process keeps it already; -EINVAL: it was attached without netlink. */
GR_MUST_CHECK int keeper_run(const struct keep_state *s, void (*ready)(void *arg), void *arg);

/* Save the state and have `granary keep` keep the device: as systemd's unit granary-keep@nbdN where systemd runs and
 * has it, else in a session of its own, its words going to output. Returns once it does. -EIO: it ended; its words say
 * why. */
GR_MUST_CHECK int keeper_start(const struct keep_state *s, int output);
/* End it, if there is one, and forget the state. The device is not touched. */
GR_MUST_CHECK int keeper_stop(const char *device);

/* What to keep of a device that others attached over netlink, from the server that they attached it to: out->device,
 * address, export_name and the times are set already. -EINVAL: it is not attached; -ESTALE: the export is not what
 * the device shows, by its size, its backend or, where it has none, some of its bytes. */
GR_MUST_CHECK int keeper_adopt(struct keep_state *out);

#endif
