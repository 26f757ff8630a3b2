/* The kernel's nbd devices over generic netlink: attach, replace dead connections, detach. Needs CAP_SYS_ADMIN. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_NETLINK_H
#define GRANARY_ATTACH_DEVICE_NBD_NETLINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"

/* A pair of netlink sockets; watches one device; one thread at a time. */
struct nbd_netlink;

/* The settings that every command about an attachment repeats. */
struct nbd_link {
    int index;           /* N of /dev/nbdN */
    const char *backend; /* the identifier given at the attach, or the kernel refuses; NULL: none was given */
    unsigned timeout_s;  /* the kernel resends an unanswered request elsewhere after this; not 0 */
    unsigned dead_s;     /* how long requests wait while no connection is alive; then EIO */
};

/* Open the command socket. -ENOTSUP: the module is not loaded, or Linux is older than 4.12; -EIO, -ENOMEM. */
GR_MUST_CHECK int nbd_netlink_open(struct nbd_netlink **out);
void nbd_netlink_close(struct nbd_netlink *n);
DEFINE_CLEANUP(nbd_netlink, struct nbd_netlink *, nbd_netlink_close)

/* Attach negotiated connections (nbd_dial) to a free device, which the kernel chooses or makes. flags: the server's.
 * The kernel holds its own references: the caller closes fds. *out_index: N. -EPERM: no CAP_SYS_ADMIN; others: the
 * kernel's, with a sentence. */
GR_MUST_CHECK int nbd_netlink_connect(struct nbd_netlink *n, const struct nbd_link *link, uint64_t size, uint16_t flags,
                                      const int *fds, size_t count, int *out_index);

/* Set both times of an attached device. -EINVAL: its backend is another one, or it was attached without netlink. */
GR_MUST_CHECK int nbd_netlink_policy(struct nbd_netlink *n, const struct nbd_link *link);

/* Offer the kernel one connection in place of a dead one. *out_taken false: none was dead. The caller closes fd either
 * way, and must not have set SO_SNDTIMEO on it. The errors of nbd_netlink_policy. */
GR_MUST_CHECK int nbd_netlink_hand_over(struct nbd_netlink *n, const struct nbd_link *link, int fd, bool *out_taken);

/* Detach the device, even if it is in use: its readers get EIO. Returns 0 when it is not attached. */
GR_MUST_CHECK int nbd_netlink_disconnect(struct nbd_netlink *n, int index);

/* Subscribe to the kernel's news of dead connections, for nbd_netlink_wait_dead. */
GR_MUST_CHECK int nbd_netlink_watch(struct nbd_netlink *n);

/* Wait at most timeout_ms for a connection of the device to die. *out_dead: one died, or some news was lost because too
 * much arrived. Several deaths may be reported as one. */
GR_MUST_CHECK int nbd_netlink_wait_dead(struct nbd_netlink *n, int index, int timeout_ms, bool *out_dead);

#endif
