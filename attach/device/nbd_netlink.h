/* The kernel's nbd devices over generic netlink: attached, given new connections in place of dead ones, detached. Needs
 * root. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_NETLINK_H
#define GRANARY_ATTACH_DEVICE_NBD_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

/* Talks about one device; one thread. */
struct nbd_netlink;

/* What is told of an attachment each time. */
struct nbd_link {
    int index;           /* of /dev/nbdN */
    const char *backend; /* the same at every call, or the kernel refuses; NULL: it was attached without */
    unsigned timeout_s;  /* so long the kernel waits for an answer, then sends the request again elsewhere; not 0 */
    unsigned dead_s;     /* so long requests wait while no connection is alive, then EIO */
};

/* -ENODEV: the module is not loaded; -ENOTSUP: the kernel is older than 4.12; -EPERM: not root. */
GR_MUST_CHECK int nbd_netlink_open(struct nbd_netlink **out);
void nbd_netlink_close(struct nbd_netlink *n);
DEFINE_CLEANUP(nbd_netlink, struct nbd_netlink *, nbd_netlink_close)

/* Attach connections that are negotiated (nbd_dial) to a free device, which the kernel chooses, or makes where none
 * is free. flags: as the server said. The kernel has them from now on: the caller closes its own. out_index: N. */
GR_MUST_CHECK int nbd_netlink_connect(struct nbd_netlink *n, const struct nbd_link *link, uint64_t size, uint16_t flags,
                                      const int *fds, size_t count, int *out_index);

/* Set both times of a device that is attached already. -EINVAL: another backend, or attached without netlink. */
GR_MUST_CHECK int nbd_netlink_policy(struct nbd_netlink *n, const struct nbd_link *link);

/* One connection in place of a dead one. *out_taken false: none was dead. The caller closes its own either way; it must
 * not have set SO_SNDTIMEO. */
GR_MUST_CHECK int nbd_netlink_hand_over(struct nbd_netlink *n, const struct nbd_link *link, int fd, bool *out_taken);

/* Detach, whoever reads from it: reads end in EIO. Of a device that is not attached: 0. */
GR_MUST_CHECK int nbd_netlink_disconnect(struct nbd_netlink *n, int index);

/* From now on nbd_netlink_wait_dead hears of dead connections. */
GR_MUST_CHECK int nbd_netlink_watch(struct nbd_netlink *n);

/* Wait at most timeout_ms for a connection of the device to die, or for so much news that some was lost. *out_dead:
 * whether it was so. Several deaths may be told as one. */
GR_MUST_CHECK int nbd_netlink_wait_dead(struct nbd_netlink *n, int index, int timeout_ms, bool *out_dead);

#endif
