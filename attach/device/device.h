/* Block devices under a mount: kernel nbd over netlink, ublk, and a direct-I/O loop device on a file of granary-fuse
 * where the kernel has neither. */
#ifndef GRANARY_ATTACH_DEVICE_DEVICE_H
#define GRANARY_ATTACH_DEVICE_DEVICE_H

#include <sys/utsname.h>

#include "base/digest.h"
#include "base/process.h"
#include "format/trace.h"

enum {
    DEVICE_NAME_MAX = 32,
    DEVICE_MARK_MAX = 24,
    DEVICE_BACKEND_MAX = DIGEST_HEX_SIZE + 7, /* "sha256:" */
    DEVICE_NBD_TIMEOUT_S = 10,                /* the defaults of struct device_nbd */
    DEVICE_NBD_DEAD_S = 600,
    MODULE_REMEDY_MAX = 256
};

/* Write a clause that says how to get a module that this kernel lacks ("nbd", "ublk_drv", "erofs", "ext4", "fuse" or
 * "loop"), with the package of this distribution where it is known; return out. */
const char *module_remedy_here(const char *module, char out[MODULE_REMEDY_MAX]);

/* Load the nbd module if it is missing. -ENODEV, with a remedy for this distribution. */
GR_MUST_CHECK int device_nbd_available(void);

/* What a kernel nbd device is attached to, and how long its readers wait. */
struct device_nbd {
    const char *address; /* of the server: a unix path or HOST:PORT */
    const char *export_name;
    unsigned connections;
    uint64_t size; /* the image's; checked on each connection, and so is content_root */
    struct digest content_root;
    unsigned timeout_s; /* a request unanswered this long goes to another connection; not 0 */
    unsigned dead_s;    /* how long requests wait while no connection is alive; then EIO */
};

/* Attach a free /dev/nbdN to an export; the kernel chooses it. out: its path. A device that could not be attached
 * properly is detached again. -ESTALE: the server has another image; or as nbd_dial and nbd_netlink_connect. */
GR_MUST_CHECK int device_nbd_attach(const struct device_nbd *d, char out[DEVICE_NAME_MAX]);
/* Write the backend identifier by which the kernel knows an attachment's content (/sys/block/nbdN/backend); return out.
 */
char *device_nbd_backend(const struct digest *content_root, char out[DEVICE_BACKEND_MAX]);
/* Return the N of /dev/nbdN. -EINVAL: device is not such a path. */
GR_MUST_CHECK int device_nbd_number(const char *device, int *out);
/* Read the mark that tells this attachment from a later one of the same device: the kernel's note of the process that
 * attached it. Empty: not attached. */
void device_nbd_mark(const char *device, char out[DEVICE_MARK_MAX]);
/* Find the device that process `maker` attached to this content. -ENOENT, without a sentence: there is none. */
GR_MUST_CHECK int device_nbd_find(pid_t maker, const struct digest *content_root, char out[DEVICE_NAME_MAX]);
/* Detach the device. Returns 0 and does nothing if it is not attached any more, or to something else since (another
 * mark). -EBUSY: something is mounted from it; cut: detach all the same, so that its readers get EIO. -ETIMEDOUT: the
 * kernel does not answer (see deadline_call). */
GR_MUST_CHECK int device_nbd_detach(const char *device, const char *mark, bool cut);

/* Return whether the running kernel is older than that version; false if its version is unknown. *out: uname()'s
 * answer, for messages. */
bool device_kernel_older(unsigned major, unsigned minor, struct utsname *out);

/* Load the ublk module if it is missing. -ENODEV, with a remedy. */
GR_MUST_CHECK int device_ublk_available(void);
/* Whether mounts can use ublk here: the kernel is new enough, the module is there or can be loaded, and granary-ublk
 * may use it. -ENODEV: the kernel has none, or is too old; -ENOTSUP: /dev is no devtmpfs; others: granary-ublk says why
 * not. */
GR_MUST_CHECK int device_ublk_probe(void);
/* Read the mark that tells this disk from a later one of the same device. Empty: there is none. */
void device_ublk_mark(const char *device, char out[DEVICE_MARK_MAX]);
/* Have the server at the socket answer all reads of the device with EIO, and those in progress once they time out.
 * wait_ms: for a server that was just started. -EIO, in the server's words; -ECONNREFUSED, -ENOENT: no server is there;
 * -ETIMEDOUT. */
GR_MUST_CHECK int device_ublk_fail(const char *socket, const char *device, uint64_t wait_ms);
/* Wait a moment for a removal of the device by another process, if there is one. -EBUSY: it has not ended; -EINVAL:
 * device is no /dev/ublkbN. */
GR_MUST_CHECK int device_ublk_await_removal(const char *device);
/* Remove the device, also when its server is gone. Returns 0 and does nothing if it is gone, or another disk (another
 * mark). -EBUSY: it is mounted, and is never removed under a mount, since erofs would read zeros; or another process
 * removes it, and has not ended.
 * -ETIMEDOUT: a server that is stopped holds it. */
GR_MUST_CHECK int device_ublk_remove(const char *device, const char *mark);

/* Attach a read-only direct-I/O loop device to file. It detaches itself at its last close: keep *out_fd open until the
 * device is mounted. */
GR_MUST_CHECK int device_loop_attach(const char *file, char out[DEVICE_NAME_MAX], int *out_fd);
/* Whether file is the loop device's backing file. */
bool device_loop_stands_on(const char *device, const char *file);
/* Wait until the device detaches itself from file, and detach it if it does not. Returns 0 when file is not its backing
 * file. */
GR_MUST_CHECK int device_loop_detach(const char *device, const char *file);

/* Is a filesystem mounted from the device, in any mount namespace? Checks for a second, so that a brief exclusive open
 * does not count. */
bool device_claimed(const char *device);

/* Set larger requests and readahead than a block device starts with. Settings that the kernel refuses stay as they are.
 */
void device_tune(const char *device);

/* Read [off, off+len) into the device's page cache, at most a quarter of the available memory; otherwise filesystems
 * read their metadata one 4 KiB piece after the other. fd: of the device, which is mounted already. -ECANCELED; -EIO:
 * the device ends early; or the errno of read. */
GR_MUST_CHECK int device_warm(int fd, const char *device, uint64_t off, uint64_t len, const volatile int *cancel);

/* ---- without a device: have a server cache an export over NBD alone, by NBD_CMD_CACHE, which Granary answers once the
 * range is cached (nbd_warm.c) ---- */

enum { NBD_WARM_NAMED = 10, NBD_WARM_FAILED_MAX = 1000 };

/* The progress. */
struct nbd_warm_state {
    uint64_t bytes_done, bytes_total;
    uint64_t failed_chunks, failed_bytes, failed_at[NBD_WARM_NAMED]; /* failed_at: offsets of the first failed chunks */
};

/* What to cache: everything, unless metadata or trace restrict it. */
struct nbd_warm {
    const char *uri;
    bool metadata;             /* only the metadata, as the export's description places it */
    uint64_t bwlimit;          /* bytes of the export per second; 0: no limit */
    const struct trace *trace; /* only metadata and this trace's chunks, in its order; NULL: no trace */
    void (*progress)(void *arg, const struct nbd_warm_state *state);
    void *arg;
};

/* Cache it, with 16 chunks a request and 64 requests in flight; a failed request is repeated chunk by chunk. Returns 0
 * also when chunks failed, which *out counts. -EIO: no connection, or more than NBD_WARM_FAILED_MAX chunks failed;
 * -ENOTSUP: the server cannot cache on demand, or its export does not tell where the metadata is; -EINVAL: the trace is
 * of other content. */
GR_MUST_CHECK int nbd_warm(const struct nbd_warm *config, struct nbd_warm_state *out);

#endif
