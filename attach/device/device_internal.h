/* What the devices consist of: negotiation with an NBD server, the check of its export, and the kernel's nbd over
 * netlink. Reconnect daemons and mounts use them too. */
#ifndef GRANARY_ATTACH_DEVICE_DEVICE_INTERNAL_H
#define GRANARY_ATTACH_DEVICE_DEVICE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "attach/device/device.h"
#include "base/bytes.h"
#include "base/cleanup.h"

/* ---- sysfs (device.c) ---- */

enum { DEVICE_ATTRIBUTE_MAX = 8192 }; /* bytes */

/* Read /sys/block/<device>/<name>, with a NUL after it. False: the device has no such file. */
GR_MUST_CHECK bool device_attribute(const char *device, const char *name, struct bytes *out);

/* ---- a negotiated connection to an NBD server, not used yet, as the kernel takes it over (nbd_dial.c) ---- */

/* What a server reports about an export during negotiation. */
struct nbd_export {
    uint64_t size;
    uint16_t flags; /* NBD's transmission flags, in the form the kernel wants */
    bool rooted;    /* the export is Granary's, and has this content root */
    struct digest content_root;
};

/* Connect to a unix path (it begins with '/') or HOST:PORT, and negotiate the export with simple replies, since the
 * kernel knows no structured ones. Waits at most timeout_s for each answer. *out_fd: close it; it has no timeouts.
 * -ETIMEDOUT, -ECONNREFUSED, -ECONNRESET and others: no server is there; -ENOENT: no such export, or no such socket;
 * -EACCES: the server wants TLS, which the kernel lacks, or refuses; -EPROTO: it does not speak NBD; -EIO: it refuses
 * the export. */
GR_MUST_CHECK int nbd_dial(const char *address, const char *export_name, unsigned timeout_s, struct nbd_export *out,
                           int *out_fd);

/* Find the content root in an export's description ("... content-root sha256:<hex> ..."; NULL: there is no
 * description). -EINVAL, without a sentence: it has none. */
GR_MUST_CHECK int nbd_content_root(const char *description, struct digest *out);

/* Compare an export with the image that it must have. -ESTALE, with both in the sentence: it is another image, or not
 * Granary's.
 */
GR_MUST_CHECK int nbd_export_check(const char *address, const char *export_name, const struct nbd_export *got,
                                   uint64_t size, const struct digest *content_root);

/* Read len bytes at off over a connection that nothing else uses. -EIO: the server cannot read them; others: the server
 * is gone. The sentence does not name the server. */
GR_MUST_CHECK int nbd_read(int fd, uint64_t off, void *out, uint32_t len);

/* ---- is a server's export the right image? Checked before a device is attached to it (export_check.c) ---- */

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

/* Wait until check->server listens on the socket; a server that was there before must listen already. check->cancel
 * ends the wait. The errors of export_check. */
GR_MUST_CHECK int export_check_wait(const struct export_check *check, const char *socket);

/* Whether to go on waiting for an answer: 0, or why not, with the errors of export_check. deadline_ms: for a server
 * that was there before. */
GR_MUST_CHECK int export_check_still(const struct export_check *check, uint64_t deadline_ms);

/* ---- a device that granary-ublk makes (device_ublk.c) ---- */

/* Have the server at check->socket show the export as a device, and compare that with the image. out: the device's
 * path; out_mark: its device_ublk_mark. *out_fd: the device is removed when this is closed before device_ublk_keep.
 * -ESTALE: it is another image; -EIO: the server refuses, in its words; others as export_check. */
GR_MUST_CHECK int device_ublk_attach(const struct export_check *check, char out[DEVICE_NAME_MAX],
                                     char out_mark[DEVICE_MARK_MAX], int *out_fd);
/* The device is written down: it stays when fd is closed. Errors as above. */
GR_MUST_CHECK int device_ublk_keep(const struct export_check *check, int fd);

/* ---- the kernel's nbd devices over generic netlink, which needs CAP_SYS_ADMIN (nbd_netlink.c) ---- */

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

/* ---- where to get a module (module_remedy.c) ---- */

/* module_remedy_here() for the distribution of os_release (the text of /etc/os-release) and the kernel `release` (uname
 * -r). */
const char *module_remedy(const char *module, const char *os_release, const char *release, char out[MODULE_REMEDY_MAX]);

#endif
