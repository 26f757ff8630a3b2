/* An image as a directory: a server, a block device with its reconnect daemon, and a mount, made together and taken
 * down together. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_H
#define GRANARY_ATTACH_MOUNT_MOUNT_H

#include "attach/state.h"
#include "base/bytes.h"
#include "base/log.h"
#include "format/image_ref.h"

/* What to mount where, and how. */
struct mount_config {
    const char *dir;              /* the mount point; see mount_check_dir */
    const char *image;            /* the reference as the user gave it */
    const char *pinned;           /* the same image by digest: the server is started with it */
    const struct bytes *resolved; /* resolver_hand's table, for the server; not used with keys */
    const struct bytes *keys;     /* S3 keys of the mount's own, in the form of s3_keys_parse: it has an export of its
                                     own then; NULL: the server's */
    const char *export_name;
    const char *fs; /* "erofs", "ext4" */
    struct digest digest, content_root;
    uint64_t size, metadata_offset, metadata_len, front_len; /* as in the manifest */

    const char *socket; /* socket of a running server, with fuse its directory; NULL: start or share one */
    const char *const *server_options; /* options for `granary serve` if one is started */
    size_t server_option_count;
    bool joins;         /* no option of a server was given: that at its usual place is joined, if one runs there */
    bool starts_none;   /* with joins: where no such server answers, the mount fails */
    bool fenced;        /* with starts_none: in cache-only mode, beside mounts of that server that are not */
    uint64_t quota;     /* likewise: bytes of its cache for the image and its other versions; 0: none */
    bool unwarmed;      /* likewise: the server does not warm the export that is added */
    bool cold;          /* the mount neither warms the metadata nor reads it ahead */
    bool keeps_nothing; /* such a server has neither a disk cache nor a memory tier */
    bool passing;       /* a version of a tag that moves: a server that this mount starts begins without an image, so
                           that this one can be removed from it again */
    bool noexec;        /* mount with noexec */
    bool fuse;          /* FUSE and a loop device instead of kernel nbd */
    bool ublk;          /* ublk instead; not with fuse */
    const char *image_file; /* a file with the image's bytes, which erofs mounts by itself: there is no server, and what
                               is said of one is ignored; NULL: none */
    unsigned connections;   /* of kernel nbd; 0: the default, 4 */
    unsigned timeout_s, dead_s; /* of kernel nbd: struct device_nbd */
    const volatile int *cancel; /* ends it with -ECANCELED, everything undone; may be NULL */
};

/* Check that dir can be mounted on: an empty directory that is not a mount point. -ENOENT, -ENOTEMPTY, -EBUSY. */
GR_MUST_CHECK int mount_check_dir(const char *dir);

/* Whether this kernel's erofs mounts images: their blocks have 4096 bytes, and before Linux 6.4 it takes only blocks of
 * the size of its pages, which on arm64 may be 16 or 64 KiB. */
bool mount_erofs_fits(void);
/* Whether this kernel's erofs also mounts images of more than MANIFEST_EROFS_32BIT_MAX bytes: Linux 6.15 and later. */
bool mount_erofs_large_fits(void);

/* Return the method ("nbd", "ublk", "fuse") of a server that a mount with this config would share or join, by its
 * server_options, joins and starts_none: two servers cannot have one cache. NULL: there is none. */
const char *mount_server_method(const struct mount_config *config);

/* Mount read-only, nodev, nosuid. *out: what was made. A failure undoes everything. -ENOTSUP, -ENODEV: with image_file,
 * this kernel cannot mount it. */
GR_MUST_CHECK int mount_image(const struct mount_config *config, struct mount_state *out);

/* Write the reference, by digest, to what is mounted: the tag may name another image by now. Errors of
 * image_ref_parse. */
GR_MUST_CHECK int mount_pinned(const struct mount_state *s, char out[IMAGE_REF_MAX]);
/* Give new S3 keys to a mount that has keys of its own, also to one whose server has lost them; its reads go on with
 * these. image: the reference that it was mounted by; *out: its state. -ENOENT: nothing of ours is mounted on dir;
 * -EBUSY: another image is; -EIO: the server refuses the keys, in its words, and the old ones stay. */
GR_MUST_CHECK int mount_give_keys(const char *dir, const char *image, const struct bytes *keys,
                                  const volatile int *cancel, struct mount_state *out);

/* Take down what mount_image made: the mount, the reconnect daemon, the device, the export at the server (which ends
 * with its last mount), and the state; also what killed mounts have left. Parts that are gone already are skipped, and
 * a dead server does not make it hang. force: readers get EIO, and a mount in use is unmounted too. *out_removed (may
 * be NULL): false when nothing was mounted there any more, which is no failure. -ENOENT: no such directory, it lies
 * inside one of our mounts, or what is mounted there is not ours; -EBUSY: the mount is in use and was left alone, or it
 * is in use only in another mount namespace: then it is unmounted here, and the next call does the rest. */
GR_MUST_CHECK int mount_remove(const char *dir, bool force, bool *out_removed);

/* The same for a mount that nobody uses. -EBUSY: it is in use, here or in another mount namespace; then it stays, or is
 * mounted there again within a second; if that fails a warning says so (mount_put_back). */
GR_MUST_CHECK int mount_remove_unused(const char *dir);

/* Mount the device of a mount at its place again, where nothing is mounted any more while the device is in use
 * elsewhere: such a mount can be neither taken down nor made anew. *out: its state. 1: done; 0: there is nothing to do.
 * -ENOENT as for mount_remove; -EBUSY: another process works on the mount; errors of mount(2). */
GR_MUST_CHECK int mount_put_back(const char *dir, struct mount_state *out);

/* Return the state of a mount point. -ENOENT as for mount_remove. */
GR_MUST_CHECK int mount_find(const char *dir, struct mount_state *out);

/* Is the mount of this state there, in this mount namespace? */
bool mount_is_there(const struct mount_state *s);
/* state_each, restricted to states of which that is true. */
int mount_each(state_visit *visit, void *arg);

/* Whether the mount is of a file, and has neither a server nor a device. */
bool mount_is_direct(const struct mount_state *state);

/* Whether the device is still the one that was attached for this mount. */
bool mount_device_attached(const struct mount_state *state);

/* How a mount is tended: what mount_tend remembers between two calls. Declare it with MOUNT_TENDING_INIT; mounts of one
 * server may share it. */
struct mount_tending {
    uint64_t start_at_ms, start_pause_ms; /* the earliest next restart of the server; a pause that doubles */
    struct log_limit limit;
};
#define MOUNT_TENDING_INIT                                                                                             \
    {                                                                                                                  \
        .limit = LOG_LIMIT_INIT                                                                                        \
    }

/* Restart the device's reconnect daemon and the server of a mount if they died; what cannot be restarted is logged, and
 * tried again by the next call. Call it once a second or so. -EIO: nothing will answer the mount's reads any more. */
GR_MUST_CHECK int mount_tend(struct mount_tending *t, const struct mount_state *s);

/* Stay while the mount exists: send READY=1 to the service manager, and restart the device's reconnect daemon or server
 * when they die. SIGTERM or SIGINT (or *cancel, set before) takes the mount down: 0. While it is in use that is tried
 * again; a second signal stops trying: -EBUSY, and everything is left as it is. -ENOENT: another process unmounted it,
 * and the rest was taken down; -EIO: nothing answers its reads any more, and it was taken down under its readers.
 * Blocks these signals and SIGCHLD and reaps all children; call it from a process with one thread. */
GR_MUST_CHECK int mount_hold(const struct mount_state *state, const volatile int *cancel);

#endif
