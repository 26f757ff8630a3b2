/* A directory that shows the newest version of a tag, while readers keep the versions that they have
 * (docs/internals/follow.md):
 *
 *   DIR            a tmpfs
 *   DIR/current    the version that is shown: a second mount of its filesystem, replaced in one step
 *   DIR/@DIGITS    a symbolic link to each version that is alive, by the first digits of its digest
 *   DIR/@current   a symbolic link to the one that is shown
 *
 *   /run/granary-versions/<id>/DIGITS    the version: a mount of its own (mount.h)
 *
 * One process works on a directory at a time: the one that has its claim. Every step can be repeated after a kill. */
#ifndef GRANARY_ATTACH_FOLLOW_FOLLOW_H
#define GRANARY_ATTACH_FOLLOW_FOLLOW_H

#include "attach/mount/mount.h"

enum { FOLLOW_VERSIONS_MAX = 16, FOLLOW_REASON_MAX = 512 };

/* A version that is alive, or being mounted or taken down. */
struct follow_version {
    struct digest digest;
    int64_t shown; /* when it was shown last, seconds since the epoch; 0: never */
};

/* The state of a followed directory, in /run/granary/tag-<id>/follow.json. */
struct follow_state {
    char run_dir[64];          /* STATE_ROOT/tag-<id>; the id is that of the directory's path */
    char dir[PATH_MAX];        /* absolute, without symlinks */
    char image[STATE_REF_MAX]; /* the reference as the user gave it, with a tag */
    char control[PATH_MAX];    /* the control socket of the server of its versions; empty: not known yet */
    uint64_t device;           /* of the tmpfs that is DIR; 0: none was mounted */
    struct process follower;   /* the process that had the claim last */
    struct digest shown;       /* what DIR/current shows; zero: nothing yet */
    struct digest wanted;      /* what the tag named last; zero: not known yet */
    struct follow_version versions[FOLLOW_VERSIONS_MAX]; /* the one that is shown last, before it the one that was shown
                                                            before, and so on */
    size_t count;
    uint64_t switches;              /* how often another version was shown than before */
    int64_t switched;               /* when the last one was, seconds since the epoch; 0: never */
    int64_t behind;                 /* since when what is wanted is not shown, or not known, seconds since the epoch; 0:
                                     * it is shown */
    char reason[FOLLOW_REASON_MAX]; /* why what is wanted is not shown, a sentence; empty: it is shown */
};

/* ---- state (follow_state.c) ---- */

/* Claim a directory for following `image`, until *out_lock is closed or the process ends, and save this process as its
 * follower. *out: what is there from before, or an empty state. -ENOENT: no such directory; -EBUSY: another process
 * follows it, or it follows another image. */
GR_MUST_CHECK int follow_claim(const char *dir, const char *image, struct follow_state *out, int *out_lock);
/* Replace the file atomically. Needs the claim. */
GR_MUST_CHECK int follow_save(const struct follow_state *f);
/* Read the state of a directory. -ENOENT, without a sentence: it is not followed; -EBADMSG: the file is damaged. */
GR_MUST_CHECK int follow_load(const char *dir, struct follow_state *out);
/* Whether the process that follows it lives. */
bool follow_is_alive(const struct follow_state *f);

/* Visit the state of every followed directory, in no order, and return the visitor's non-zero result. Unreadable ones
 * are skipped. */
typedef int follow_visit(void *arg, const struct follow_state *f);
int follow_each(follow_visit *visit, void *arg);

/* Return the version of that digest; NULL: it is not listed. */
const struct follow_version *follow_find(const struct follow_state *f, const struct digest *digest);
/* Write the directory that versions are mounted in, that of a version, or the link to it in DIR; return out. */
char *follow_versions(const struct follow_state *f, char out[PATH_MAX]);
char *follow_version_dir(const struct follow_state *f, const struct digest *digest, char out[PATH_MAX]);
char *follow_version_link(const struct follow_state *f, const struct digest *digest, char out[PATH_MAX]);
/* Whether a mount point is that of the version which a followed directory, *out, shows. */
bool follow_shows_mount(const char *mount_dir, struct follow_state *out);
/* Whether a mount point is that of a version of this directory. */
bool follow_has_mount(const struct follow_state *f, const char *mount_dir);
/* Find the mount that a directory stands for: one of its own, or the version that a followed directory, or `current`
 * in it, shows. Errors as for mount_find. */
GR_MUST_CHECK int follow_find_mount(const char *dir, struct mount_state *out);

/* ---- what its server shows in its metrics (follow_report.c) ---- */

/* Report the state to the server of the versions, which forgets it when it ends. Takes 2 s at most. 0, also when no
 * server is known yet; errors of control_tell. */
GR_MUST_CHECK int follow_report(const struct follow_state *f);
/* Have the server forget the directory; a failure is logged. */
void follow_report_end(const struct follow_state *f);

/* ---- the directory (follow_dir.c); all of it needs the claim ---- */

/* Make the tmpfs and the links in it, if it is not there; then *out_made, and nothing is shown. -EBUSY, -ENOTEMPTY: as
 * for mount_check_dir. */
GR_MUST_CHECK int follow_make(struct follow_state *f, bool *out_made);
/* Find what a follower that was killed has left at DIR/current, and save that as what is shown. */
GR_MUST_CHECK int follow_recognize(struct follow_state *f);

/* List a version, and make its directory and its link, before it is mounted there. -ENOSPC: FOLLOW_VERSIONS_MAX are
 * listed. */
GR_MUST_CHECK int follow_add(struct follow_state *f, const struct digest *digest);

/* Show a version, whose mount is there, at DIR/current, and save that. Returns 1 if another one was shown before, also
 * if a process was killed after it had shown this one but before it saved that; 0. -ENOENT: its mount is not there. */
GR_MUST_CHECK int follow_show(struct follow_state *f, const struct digest *digest);

/* Whether something is mounted at DIR/current: 1, or 0. -ENOENT: DIR is not mounted any more, others unmounted it. */
GR_MUST_CHECK int follow_shows(const struct follow_state *f);

/* Whether another process is unmounting the directory (follow_remove): then nothing is to be shown. */
bool follow_is_ending(const struct follow_state *f);

/* Take a version down and forget it, if nobody uses it. -EBUSY: it is in use, and stays as it is. */
GR_MUST_CHECK int follow_retire(struct follow_state *f, const struct digest *digest);

/* Take everything down: the follower if it is another process, what is shown, the versions, the directory, the state.
 * force: as for mount_remove. The caller has the claim, or none: lock -1. -ENOENT, without a sentence: the directory is
 * not followed; -EBUSY: something is in use. While that is DIR/current nothing has changed; otherwise what is taken
 * down by then stays down, and no process follows any more. */
GR_MUST_CHECK int follow_remove(const char *dir, bool force, int lock);

#endif
