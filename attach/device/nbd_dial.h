/* One connection to an NBD server, negotiated and not used yet: what the kernel takes over. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_DIAL_H
#define GRANARY_ATTACH_DEVICE_NBD_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"

/* What a server says of an export while it is negotiated. */
struct nbd_export {
    uint64_t size;
    uint16_t flags; /* NBD's transmission flags, as the kernel wants them */
    bool rooted;    /* it is one of Granary's: */
    struct digest content_root;
};

/* Connect to a unix path (it begins with '/') or HOST:PORT and negotiate the export with plain replies: structured ones
 * the kernel does not know. Waits at most timeout_s for each answer. *out_fd: close; it has no time limits.
 * -ETIMEDOUT, -ECONNREFUSED, -ECONNRESET and others: no server is there; -ENOENT: it has no such export, or no such
 * socket is there; -EACCES: it wants TLS, which the kernel cannot; -EPROTO: it does not speak NBD. */
GR_MUST_CHECK int nbd_dial(const char *address, const char *export_name, unsigned timeout_s, struct nbd_export *out,
                           int *out_fd);

/* The content root that an export's description tells ("... content-root sha256:<hex> ..."; NULL: it has none). -EINVAL
 * without a sentence: it tells none. */
GR_MUST_CHECK int nbd_content_root(const char *description, struct digest *out);

/* Is it what is wanted? -ESTALE, with both in the sentence: another image. */
GR_MUST_CHECK int nbd_export_check(const char *address, const char *export_name, const struct nbd_export *got,
                                   uint64_t size, const struct digest *content_root);

/* Read by a connection that nobody else uses. -EIO: the server cannot; others: it is gone, without its address in the
 * sentence. */
GR_MUST_CHECK int nbd_read(int fd, uint64_t off, void *out, uint32_t len);

#endif
