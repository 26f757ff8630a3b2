/* A negotiated connection to an NBD server that has not been used yet, as the kernel takes it over. */
#ifndef GRANARY_ATTACH_DEVICE_NBD_DIAL_H
#define GRANARY_ATTACH_DEVICE_NBD_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/digest.h"

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

/* Compare an export with the wanted image. -ESTALE, with both in the sentence: it is another image, or not Granary's.
 */
GR_MUST_CHECK int nbd_export_check(const char *address, const char *export_name, const struct nbd_export *got,
                                   uint64_t size, const struct digest *content_root);

/* Read len bytes at off over a connection that nothing else uses. -EIO: the server cannot read them; others: the server
 * is gone. The sentence does not name the server. */
GR_MUST_CHECK int nbd_read(int fd, uint64_t off, void *out, uint32_t len);

#endif
