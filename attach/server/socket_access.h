/* Who may connect to a unix socket: its owner, group and mode. */
#ifndef GRANARY_ATTACH_SERVER_SOCKET_ACCESS_H
#define GRANARY_ATTACH_SERVER_SOCKET_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/compiler.h"

/* All zero: the socket stays as it was made, with mode 0600. */
struct socket_access {
    mode_t mode;
    bool has_owner, has_group;
    uint32_t owner, group;
};

/* Parse mode (octal) and owner (USER, USER:GROUP or :GROUP, by name or number); either may be NULL. With a group the
 * mode defaults to 0660. option: the options' prefix in the sentence of -EINVAL; "socket" for --socket-mode and
 * --socket-owner. -EINVAL; -ENOMEM. */
GR_MUST_CHECK int socket_access_parse(const char *option, const char *mode, const char *owner,
                                      struct socket_access *out);

/* Set owner, group and mode. -EPERM: only root may give a socket to another user, or to a group it is not in. */
GR_MUST_CHECK int socket_access_apply(const struct socket_access *access, const char *path);

#endif
