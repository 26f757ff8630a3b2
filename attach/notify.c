/* sd_notify's protocol: one datagram to the unix socket in NOTIFY_SOCKET, without libsystemd. A path that begins with
 * "@" is in the abstract namespace, whose names begin with NUL. */
#include "attach/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "base/log.h"

/* A failure is only logged: a service works without its manager's knowledge. */
void notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof address.sun_path)
        return;
    memcpy(address.sun_path, path, strlen(path) + 1);
    if (*path == '@')
        address.sun_path[0] = 0;
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path));
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, len) < 0)
        log_warning("cannot tell the service manager %s: %s", state, strerror(errno));
}
