/* The state of a mount: what it consists of. It is kept in /run/granary/<id>/state.json, so that umount, status and
 * later repairs know it. The id is a hash of the mount point's path, so each path has one state. */
#ifndef GRANARY_ATTACH_STATE_H
#define GRANARY_ATTACH_STATE_H

#include <limits.h>
#include <stdbool.h>

#include "base/digest.h"
#include "base/process.h"

#define STATE_ROOT "/run/granary"
enum { STATE_ID_MAX = 17, STATE_REF_MAX = 1400 };

/* A mount's state. It is saved after each step of mounting, before the next begins, so a killed mount leaves nothing
 * unrecorded. */
struct mount_state {
    char id[STATE_ID_MAX];
    char run_dir[64];          /* STATE_ROOT/<id> */
    char dir[PATH_MAX];        /* mount point */
    char image[STATE_REF_MAX]; /* the reference as the user gave it */
    struct digest digest, content_root;
    char method[8];                  /* "nbd", "ublk", "fuse" or "direct" */
    char socket[PATH_MAX];           /* the server's; for "fuse" the directory that shows its files */
    char control[PATH_MAX];          /* the server's control socket; empty: unknown */
    char device[32];                 /* "/dev/nbd0", "/dev/ublkb0", "/dev/loop0"; empty: none yet */
    char device_mark[24];            /* device_nbd_mark or device_ublk_mark at the attach */
    char fuse_file[PATH_MAX];        /* the loop device's backing file; empty: none */
    char export_name[STATE_REF_MAX]; /* export that mounts added or found; empty: none yet, or --socket */
    char server_dir[64];             /* directory of a server that mounts share; empty: a user's server */
    struct process server;           /* that server's supervisor; pid 0: not started by mounts */
    struct process mounter;          /* the process that mounted */
    char fs[8];                      /* "erofs", "ext4" */
    char image_file[PATH_MAX];       /* for "direct", which has no server: the file that is mounted; else empty */
    uint64_t image_inode;            /* its inode: the name may be another file's by now */
    bool noexec;
    bool mounted;
    bool fenced;    /* the export has a fence of its own */
    uint64_t quota; /* bytes that it brought for the image; 0: none */
    bool unwarmed;  /* it was added without warming */
};

/* Fill in id, run_dir and dir for a mount point (absolute, without symlinks). */
void state_name(const char *dir, struct mount_state *out);
/* Write s->run_dir/state.json atomically; the directory exists. */
GR_MUST_CHECK int state_save(const struct mount_state *s);
/* Fill in s, whose run_dir and dir are set, from its file. -ENOENT: there is none; -EBADMSG: it is damaged, or another
 * mount point's; -EACCES: only root may read it. */
GR_MUST_CHECK int state_read(struct mount_state *s);
/* state_name and state_read of a mount point (absolute, without symlinks). */
GR_MUST_CHECK int state_load(const char *dir, struct mount_state *out);

/* Remove a directory below STATE_ROOT with all files in it, also half-written ones of killed processes. Logs a warning
 * for what cannot be removed. */
void state_remove_dir(const char *path);

/* Visits a state; non-zero ends the walk. */
typedef int state_visit(void *arg, const struct mount_state *s);
/* Visit every state of this machine, in no order, and return the visitor's non-zero result. Unreadable states are
 * skipped. -errno: not all were seen. */
int state_each(state_visit *visit, void *arg);

#endif
