/* What a mount consists of, kept in /run/granary/<id>/state.json so that umount, status and a later
 * repair know it. The id is made from the mount point, so that one path has one state.
 */
#ifndef GRANARY_ATTACH_STATE_H
#define GRANARY_ATTACH_STATE_H

#include <limits.h>
#include <stdbool.h>

#include "attach/process.h"
#include "base/digest.h"

#define STATE_ROOT "/run/granary"
enum { STATE_ID_MAX = 17, STATE_REF_MAX = 1400 };

struct mount_state {
    char id[STATE_ID_MAX];
    char run_dir[64];          /* STATE_ROOT/<id> */
    char dir[PATH_MAX];        /* mount point */
    char image[STATE_REF_MAX]; /* the reference as it was given */
    struct digest digest, content_root;
    char method[8];                  /* "nbd" or "fuse" */
    char socket[PATH_MAX];           /* of the server; of "fuse" the directory with its files */
    char control[PATH_MAX];          /* its control socket; empty: unknown */
    char device[32];                 /* "/dev/nbd0", "/dev/loop0"; empty: none yet */
    char device_mark[24];            /* of an nbd device: device_nbd_mark */
    char fuse_file[PATH_MAX];        /* what the loop device stands on; empty: none */
    char export_name[STATE_REF_MAX]; /* that mounts have added, or found; empty: none yet, or --socket */
    char server_dir[64];             /* of a server that mounts share; empty: another's */
    struct process server;           /* its supervisor; pid 0: not ours */
    struct process mounter;          /* who began to mount */
    bool mounted;
};

/* The id and run_dir of a mount point (absolute, without symlinks). */
void state_name(const char *dir, struct mount_state *out);
/* Write s->run_dir/state.json; the directory exists. */
GR_MUST_CHECK int state_save(const struct mount_state *s);
/* The opposite: fill s, whose run_dir and dir are set, from its file. -ENOENT: none; -EBADMSG: it is
 * damaged, or another mount point's. */
GR_MUST_CHECK int state_read(struct mount_state *s);
/* Both: the state of a mount point (absolute, without symlinks). */
GR_MUST_CHECK int state_load(const char *dir, struct mount_state *out);

/* Remove a directory below STATE_ROOT and what lies in it, half-written files of killed processes too. Warns of what
 * stays. */
void state_remove_dir(const char *path);

/* Visit every state of this machine, in no order; what cannot be read is passed over. Non-zero ends it with that
 * value. -errno: not all were seen. */
typedef int state_visit(void *arg, const struct mount_state *s);
int state_each(state_visit *visit, void *arg);

#endif
