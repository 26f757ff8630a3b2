/* An image as a directory: server, block device, its keeper and mount, made together and taken down together. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_H
#define GRANARY_ATTACH_MOUNT_MOUNT_H

#include "attach/state.h"
#include "base/bytes.h"

struct mount_config {
    const char *dir;              /* mount_check_dir */
    const char *image;            /* the reference as given, for people */
    const char *pinned;           /* the same image by digest: what the server is started with */
    const struct bytes *resolved; /* resolver_hand's, for the server */
    const char *export_name;
    const char *fs; /* "erofs", "ext4" */
    struct digest digest, content_root;
    uint64_t size, metadata_offset, metadata_len, front_len; /* as in the manifest */

    const char *socket;                /* of a running server to join, with fuse its directory; NULL: start one */
    const char *const *server_options; /* words for `granary serve`, when one is started; may be none */
    size_t server_option_count;
    bool environment_cache;     /* --cache among them is GRANARY_CACHE: no reason to leave a user's server */
    bool keeps_nothing;         /* that server has neither cache nor memory */
    bool noexec;                /* no program is started from it */
    bool fuse;                  /* FUSE and a loop device instead of kernel nbd */
    unsigned connections;       /* of kernel nbd; 0: 4 */
    unsigned timeout_s, dead_s; /* of kernel nbd: struct device_nbd */
    const volatile int *cancel; /* ends it with -ECANCELED, everything undone; may be NULL */
};

/* Can something be mounted there: an empty directory, and no mount point yet? */
GR_MUST_CHECK int mount_check_dir(const char *dir);

/* Mount read-only, nodev, nosuid. On failure everything made is undone. *out: what was made. */
GR_MUST_CHECK int mount_image(const struct mount_config *config, struct mount_state *out);

/* Take down what mount_image made: mount, keeper, device, its part in the server, which ends with its last mount, the
 * state; and what killed mounts have left. What is gone already is passed over; a dead server does not make it hang.
 * force: readers get EIO, no mount is too much in use. *out_removed (may be NULL): false where nothing was mounted
 * there any more, which is no failure. -ENOENT: there is no such directory, it lies in a mount of mount_image's, or
 * what is mounted there is not mount_image's; -EBUSY: in use, nothing was touched, or in use by a mount elsewhere
 * alone: it is unmounted, and the next call does the rest. */
GR_MUST_CHECK int mount_remove(const char *dir, bool force, bool *out_removed);

/* The state of a mount point. -ENOENT as above. */
GR_MUST_CHECK int mount_find(const char *dir, struct mount_state *out);

/* state_each of what is mounted. */
int mount_each(state_visit *visit, void *arg);

#endif
