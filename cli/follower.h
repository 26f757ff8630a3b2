/* The follower: keeps a directory at the newest version of a tag (docs/internals/follow.md). The order of the steps;
 * the directory itself is attach/follow/follow.h. One thread. */
#ifndef GRANARY_CLI_FOLLOWER_H
#define GRANARY_CLI_FOLLOWER_H

#include "attach/attach.h"

enum { FOLLOWER_POLL_S = 30, FOLLOWER_VERSIONS = 3 }; /* the defaults */

/* What is followed, and how. Borrowed. */
struct follower_config {
    const char *dir, *image;
    uint64_t poll_ms;
    size_t keep;        /* versions that are alive at most, 2 to FOLLOW_VERSIONS_MAX */
    const char *hook;   /* a program; NULL: none */
    bool keeps_nothing; /* the server has no cache: nothing is fetched before a switch */
    /* Read the tag. *out_from_store: the store answered now, not a table of earlier answers. -errno. */
    int (*ask)(void *arg, struct digest *out, bool *out_from_store);
    /* Mount the image that `ask` found last on a directory. */
    int (*mount)(void *arg, const char *dir, struct mount_state *out);
    void *arg;
    const volatile int *cancel; /* set by SIGTERM or SIGINT */
};

struct follower {
    const struct follower_config *c;
    struct follow_state f;
    int lock; /* the claim; -1: none */
    struct mount_tending tending;
    uint64_t look_at_ms, ask_at_ms;     /* when the mounts are looked at next, and the tag */
    uint64_t report_at_ms;              /* when the server is told next */
    uint64_t room_at_ms, room_pause_ms; /* when versions in use are tried again */
    bool moved_on;                      /* the tag names another version than the one that is being fetched */
    struct log_limit limit;
};

/* Claim the directory, and show the version that the tag names, or go on with what an earlier follower has left.
 * *out_begun: the directory was made now. A failure undoes what was made, and leaves what was there. follower_close it
 * in any case. */
GR_MUST_CHECK int follower_open(struct follower *w, const struct follower_config *c, bool *out_begun);
/* Drop the claim. Everything that is mounted stays. */
void follower_close(struct follower *w);

/* Follow the tag, until the directory is gone or *cancel is set; then take everything down. Sends READY=1 to the
 * service manager first. 0: it was told to end, and nothing is left; a second signal ends the process, and everything
 * stays. -ENOENT: others have unmounted the directory; -EIO: nothing answers its reads any more, and it was taken down
 * under its readers. */
GR_MUST_CHECK int follower_run(struct follower *w);

#endif
