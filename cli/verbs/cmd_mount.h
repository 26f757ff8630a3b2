/* What granary mount shares with its option --follow: its values, and the steps from a resolved image to a mount. */
#ifndef GRANARY_CLI_VERBS_CMD_MOUNT_H
#define GRANARY_CLI_VERBS_CMD_MOUNT_H

#include "attach/attach.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "format/manifest.h"

/* How long readers of a kernel nbd device wait. Seconds; UINT64_MAX: not given, as 0 is a valid --dead-timeout. */
struct keep_times {
    uint64_t timeout_s, dead_s;
};
/* Replace the times that were given. */
void keep_times_apply(const struct keep_times *t, unsigned *timeout_s, unsigned *dead_s);

struct mount_values {
    struct server_values server;
    const char *socket;
    uint64_t connections;
    struct keep_times times;
    const char *env_file, *keys_file;
    enum option_switch direct, ublk, fuse, join, noexec;
    bool mkdir, foreground, json, follow;
    uint64_t poll_s, keep_versions; /* of --follow; 0: not given */
    const char *hook;
    const struct mount_values *file; /* no option: what the configuration file says */
    bool direct_must;                /* no option: --direct was given, so what prevents it is an error */
    bool front_chosen;               /* no option: mount_choose_method was called */
    bool direct_auto; /* no option: nothing says whether to mount directly; then direct is SWITCH_UNSET */
    bool joins;       /* no option: none of the server's was given, or it may join alone */
    bool fenced;      /* no option: --fence of a mount that only joins, which is of this mount alone */
    uint64_t quota;   /* likewise of --quota, in bytes; 0: none */
    bool cold;        /* no option: --warm none */
};

/* Read the section [mount] of the configuration file. CLI_USAGE, with a sentence. */
GR_MUST_CHECK int mount_read_config(const struct config *c, struct mount_values *out);

/* Whether any of them was given. */
bool keep_times_given(const struct keep_times *t);

/* ---- by which way (mount_choose.c) ---- */

/* Choose what was asked for, on the command line or else in the configuration file; else ublk, kernel nbd or FUSE, the
 * first that this machine has; a line of the log says why it is FUSE. Options and settings of kernel nbd ask for that.
 * words: the options of the server that would be started. Errors of what was asked for. */
GR_MUST_CHECK int mount_choose_method(struct mount_values *v, const string_list *words);

/* Whether the command line or the configuration file asks for ublk or FUSE, or has an option of kernel nbd. */
bool mount_asks_for_front(const struct mount_values *v);

/* Whether a server that a user started at the usual place answers, and this mount would join it. */
bool mount_would_join(const struct mount_values *v);

/* Let the file's settings of kernel nbd fill in what the command line does not say, if the mount is by kernel nbd. */
void mount_take_nbd_config(struct mount_values *v, const struct mount_values *file);

/* ---- from an image to a mount (mount_make.c) ---- */

/* An image that was resolved. Borrowed. */
struct mount_resolved {
    const struct pin *pin;
    const struct manifest *manifest;
    const struct bytes *table; /* resolver_hand's */
    const struct bytes *keys;  /* S3 keys of the mount's own; NULL: the server's */
    const char *file;          /* its bytes beside the cache, complete; NULL: to be mounted by a server */
};

/* Mount it on a directory. words: the options for `granary serve`. *out: what was made; a failure undoes everything. */
GR_MUST_CHECK int mount_make(const struct mount_values *v, const struct mount_resolved *image, const string_list *words,
                             const char *dir, struct mount_state *out);

/* Print what was made, as text or JSON. followed: the directory whose version this is; NULL: none. */
GR_MUST_CHECK int mount_print(const struct mount_values *v, const struct mount_state *s,
                              const struct follow_state *followed);

/* ---- --direct (mount_direct.c) ---- */

/* Whether a mount that does not ask for it may be without a server: nothing asks for one, and the kernel can do it.
 * v->joins is set. */
bool mount_may_be_direct(const struct mount_values *v);

/* Whether a cache directory of the mount has files of whole images. */
bool mount_has_residents(const struct mount_values *v);

/* Mount the image from its file beside the cache, where that is complete. Else mount it by a server, and, without
 * direct_auto, have a process in the background ask that server to write the file, for the next mount. -ENOTSUP,
 * -EINVAL and the like, with --direct: neither is possible here; where only the configuration file asks for it, or
 * nothing does, a line of the log says so, and a server serves the mount. */
GR_MUST_CHECK int mount_make_direct(struct mount_values *v, const struct mount_resolved *image,
                                    const string_list *words, const char *dir, struct mount_state *out);

/* ---- --follow (mount_follow.c) ---- */

/* Check its options against each other and against the image; without it, that none of them was given. CLI_USAGE. */
GR_MUST_CHECK int mount_follow_check(const struct mount_values *v, const char *image);

/* Whether the directory is followed already, so that it need not be empty: another process then goes on with it. */
bool mount_follow_continues(const struct mount_values *v, const char *dir);

/* Mount the image of the tag, and have this process (with --foreground) or one in the background follow the tag. */
GR_MUST_CHECK int mount_follow(const struct mount_values *v, const struct invocation *inv, const string_list *words);

#endif
