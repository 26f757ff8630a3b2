/* Who may connect to a unix socket: its owner, group and mode. */
#ifndef GRANARY_ATTACH_SERVER_SOCKET_ACCESS_H
#define GRANARY_ATTACH_SERVER_SOCKET_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

/* All zero: as it was made, 0600, the process's own. */
struct socket_access {
    mode_t mode;
    bool has_owner, has_group;
    uint32_t owner, group;
};

/* mode: octal; owner: USER, USER:GROUP or :GROUP, by name or number; either may be NULL. With a group the mode is 0660
 * unless it is given. option: how the sentence of -EINVAL calls them, "socket" for --socket-mode and --socket-owner. */
GR_MUST_CHECK int socket_access_parse(const char *option, const char *mode, const char *owner,
                                      struct socket_access *out);

/* -EPERM: only root gives a socket to another user or to a group it is not in. */
GR_MUST_CHECK int socket_access_apply(const struct socket_access *access, const char *path);

#endif
