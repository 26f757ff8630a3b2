/* Block devices under a mount: kernel nbd over netlink, and a direct-I/O loop device on a file where the kernel has no
 * nbd. */
#ifndef GRANARY_ATTACH_DEVICE_DEVICE_H
#define GRANARY_ATTACH_DEVICE_DEVICE_H

#include "attach/process.h"
#include "base/digest.h"

enum {
    DEVICE_NAME_MAX = 32,
    DEVICE_MARK_MAX = 24,
    DEVICE_BACKEND_MAX = DIGEST_HEX_SIZE + 7, /* "sha256:" */
    DEVICE_NBD_TIMEOUT_S = 10,                /* what is usual of struct device_nbd */
    DEVICE_NBD_DEAD_S = 600
};

/* Load the module where it is missing. -ENODEV with the remedy. */
GR_MUST_CHECK int device_nbd_available(void);

/* What a kernel nbd device is to show, and how patient its readers are. */
struct device_nbd {
    const char *address; /* of the server: a unix path or HOST:PORT */
    const char *export_name;
    unsigned connections;
    uint64_t size; /* the image's, checked on each connection, as is */
    struct digest content_root;
    unsigned timeout_s; /* a request without an answer for so long is sent again elsewhere; not 0 */
    unsigned dead_s;    /* while no connection is alive requests wait so long, then EIO */
};

/* Attach a free /dev/nbdN to an export; never one in use. out: its path. A device that could not be
 * attached right is detached again. -ESTALE: another image is there. */
GR_MUST_CHECK int device_nbd_attach(const struct device_nbd *d, char out[DEVICE_NAME_MAX]);
/* What the kernel is told of an attachment's contents (/sys/block/nbdN/backend); returns out. */
char *device_nbd_backend(const struct digest *content_root, char out[DEVICE_BACKEND_MAX]);
/* The N of /dev/nbdN. -EINVAL: it is none. */
GR_MUST_CHECK int device_nbd_number(const char *device, int *out);
/* What tells this attachment of the device from a later one, somebody else's: the kernel's note of
 * who made it. Empty: not attached. */
void device_nbd_mark(const char *device, char out[DEVICE_MARK_MAX]);
/* An attached device that the process of this number made of this content; -ENOENT without a sentence: there is none.
 */
GR_MUST_CHECK int device_nbd_find(pid_t maker, const struct digest *content_root, char out[DEVICE_NAME_MAX]);
/* Detached already, or attached anew by others (another mark): 0, untouched. -EBUSY: something is
 * still mounted from it. cut: detach even so; what reads from it gets EIO. -ETIMEDOUT: the kernel gives no answer
 * (deadline.h says what that leaves). */
GR_MUST_CHECK int device_nbd_detach(const char *device, const char *mark, bool cut);

/* A read-only direct-I/O loop device over file. It goes by itself at the last close. *out_fd: keep
 * it open until the device is mounted. */
GR_MUST_CHECK int device_loop_attach(const char *file, char out[DEVICE_NAME_MAX], int *out_fd);
bool device_loop_stands_on(const char *device, const char *file);
/* Not standing on file (any more): 0. */
GR_MUST_CHECK int device_loop_detach(const char *device, const char *file);

/* Is a filesystem mounted from it, in whichever mount namespace? That takes a second, so that nothing passing is taken
 * for one. */
bool device_claimed(const char *device);

/* Larger requests and readahead than a block device starts with; what the kernel refuses is left. */
void device_tune(const char *device);

/* Read [off, off+len) through the device's page cache, at most a quarter of the memory available:
 * filesystems read their metadata in serial 4 KiB pieces otherwise. fd: of the device, mounted already. */
GR_MUST_CHECK int device_warm(int fd, const char *device, uint64_t off, uint64_t len, const volatile int *cancel);

#endif
