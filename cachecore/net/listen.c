/* A server that was killed leaves its socket in the filesystem, and bind fails on it. So the path is probed by a
 * connect: if no process accepts, the socket is stale and is removed. Anything else at the path is left alone.
 */
#include "net/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"

enum { BACKLOG = 128 };

static int unix_address(const char *path, struct sockaddr_un *out)
{
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof out->sun_path)
        return error_set(-EINVAL, "socket path %s is longer than the %zu bytes a socket's may be; choose a shorter one",
                         path, sizeof out->sun_path - 1);
    memcpy(out->sun_path, path, strlen(path) + 1);
    return 0;
}

/* Does a process listen at the address? 1: yes, 0: no, or -errno. EAGAIN means a full backlog, so a process listens but
 * is slow or stopped. */
static int answered(const struct sockaddr_un *address)
{
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return error_set(-errno, "cannot make a socket: %s", strerror(errno));
    if (!connect(fd, (const struct sockaddr *)address, sizeof *address) || errno == EAGAIN)
        return 1;
    return errno == EACCES || errno == EPERM
               ? error_set(-errno, "the socket %s may not be used by this user", address->sun_path)
               : 0;
}

int listen_answered(const char *path)
{
    struct sockaddr_un address;
    int rc = unix_address(path, &address);
    return rc ? rc : answered(&address);
}

/* Remove the socket that a dead server left at the path; refuse anything else there. */
static int clear_path(const struct sockaddr_un *address)
{
    struct stat st;
    const char *path = address->sun_path;
    if (lstat(path, &st))
        return errno == ENOENT ? 0 : error_set(-errno, "cannot look at %s: %s", path, strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return error_set(-EEXIST, "%s exists and is no socket; remove it or choose another path", path);
    int rc = answered(address);
    if (rc > 0)
        return error_set(-EADDRINUSE, "another server listens on %s; stop it or choose another path", path);
    if (!rc && unlink(path) && errno != ENOENT)
        return error_set(-errno, "cannot remove the stale socket %s: %s", path, strerror(errno));
    return rc;
}

int listen_unix(const char *path, int *out)
{
    struct sockaddr_un address;
    int rc = unix_address(path, &address);
    if (!rc)
        rc = clear_path(&address);
    if (rc)
        return rc;
    CLEANUP_FD int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return error_set(-errno, "cannot make a socket: %s", strerror(errno));
    /* bind gives the file the mode of the socket, so there is no moment when other users may connect. */
    if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&address, sizeof address))
        return error_set(-errno, "cannot bind %s: %s; its directory must be there and writable", path, strerror(errno));
    if (listen(fd, BACKLOG)) {
        int code = errno;
        unlink(path);
        return error_set(-code, "cannot listen on %s: %s", path, strerror(code));
    }
    *out = steal_fd(&fd);
    return 0;
}

int listen_tcp_check(const char *address)
{
    const char *colon = strrchr(address, ':');
    uint64_t port;
    /* getaddrinfo accepts larger numbers and keeps their low 16 bits */
    if (!colon || colon == address || text_parse_uint("port", colon + 1, 0, UINT16_MAX, &port))
        return error_set(-EINVAL, "'%s' is not HOST:PORT with a port up to 65535; write for example 127.0.0.1:10809",
                         address);
    return 0;
}

/* Find the host of HOST:PORT or [HOST]:PORT. */
static const char *host_of(const char *address, size_t *out_len)
{
    size_t len = (size_t)(strrchr(address, ':') - address);
    bool bracketed = *address == '[' && address[len - 1] == ']';
    *out_len = bracketed ? len - 2 : len;
    return address + bracketed;
}

/* Split HOST:PORT or [HOST]:PORT. */
static int listen_split(const char *address, char **out_host, const char **out_port)
{
    int rc = listen_tcp_check(address);
    if (rc)
        return rc;
    size_t len;
    const char *host = host_of(address, &len);
    *out_host = strndup(host, len);
    *out_port = strrchr(address, ':') + 1;
    return *out_host ? 0 : error_no_memory();
}

void listen_host(const char *address, char *out, size_t size)
{
    size_t len;
    const char *host = host_of(address, &len);
    snprintf(out, size, "%.*s", (int)len, host);
}

bool listen_ip(const struct sockaddr *a, struct in6_addr *out)
{
    if (a && a->sa_family == AF_INET6) {
        *out = ((const struct sockaddr_in6 *)a)->sin6_addr;
        return true;
    }
    if (!a || a->sa_family != AF_INET)
        return false;
    *out = (struct in6_addr){.s6_addr = {[10] = 0xff, [11] = 0xff}};
    memcpy(&out->s6_addr[12], &((const struct sockaddr_in *)a)->sin_addr, 4);
    return true;
}

/* Listen at one resolved address. -errno without a sentence. */
static int listen_info(const struct addrinfo *info, int *out)
{
    CLEANUP_FD int fd = socket(info->ai_family, info->ai_socktype | SOCK_CLOEXEC, info->ai_protocol);
    int on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, info->ai_addr, info->ai_addrlen) || listen(fd, BACKLOG))
        return -errno;
    *out = steal_fd(&fd);
    return 0;
}

union bound_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Get the address that a socket is bound to; its family is AF_UNSPEC when that is unknown. */
static union bound_address bound_address(int fd)
{
    union bound_address a = {.v6 = {.sin6_family = AF_UNSPEC}};
    socklen_t len = sizeof a;
    if (getsockname(fd, &a.any, &len))
        a.any.sa_family = AF_UNSPEC;
    return a;
}

/* Return the port that a socket is bound to; 0: unknown. */
static unsigned bound_port(int fd)
{
    union bound_address a = bound_address(fd);
    return ntohs(a.any.sa_family == AF_INET6 ? a.v6.sin6_port : a.v4.sin_port);
}

bool listen_is_loopback(int fd)
{
    union bound_address a = bound_address(fd);
    return a.any.sa_family == AF_INET6 ? IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr)
                                       : a.any.sa_family == AF_INET && ntohl(a.v4.sin_addr.s_addr) >> 24 == 127;
}

int listen_tcp(const char *address, int *out, unsigned *out_port)
{
    CLEANUP_FREE char *host = NULL;
    const char *port = NULL;
    int rc = listen_split(address, &host, &port);
    if (rc)
        return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, *list = NULL;
    int gai = getaddrinfo(host, port, &hints, &list);
    if (gai)
        return error_set(-EINVAL, "cannot resolve %s: %s", address, gai_strerror(gai));
    rc = -EADDRNOTAVAIL;
    for (struct addrinfo *info = list; info && rc; info = info->ai_next)
        rc = listen_info(info, out);
    freeaddrinfo(list);
    if (rc == -EADDRINUSE)
        return error_set(rc, "another program listens on %s; end it or choose another port", address);
    if (rc)
        return error_set(rc, "cannot listen on %s: %s", address, strerror(-rc));
    *out_port = bound_port(*out);
    return 0;
}

/* ------------------------------------------------------------------ clients */

/* Connect to one address. -errno without a sentence. SO_SNDTIMEO also limits connect, which then fails with EINPROGRESS
 * (TCP) or EAGAIN (unix). TCP_NODELAY, because requests are written in one piece and must not wait for an ACK. */
static int listen_connect_to(int family, int protocol, const void *address, socklen_t len, unsigned timeout_s, int *out)
{
    const struct timeval limit = {.tv_sec = timeout_s};
    int on = 1;
    CLEANUP_FD int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, protocol);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) ||
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) ||
        (family != AF_UNIX && setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on)))
        return -errno;
    if (connect(fd, address, len))
        return errno == EINPROGRESS || errno == EAGAIN ? -ETIMEDOUT : -errno;
    *out = steal_fd(&fd);
    return 0;
}

static int connect_tcp(const char *address, unsigned timeout_s, int *out)
{
    CLEANUP_FREE char *host = NULL;
    const char *port = NULL;
    int rc = listen_split(address, &host, &port);
    if (rc)
        return rc;
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
    int gai = getaddrinfo(host, port, &hints, &list);
    if (gai)
        return error_set(-EHOSTUNREACH, "cannot resolve %s: %s", address, gai_strerror(gai));
    rc = -EADDRNOTAVAIL;
    for (struct addrinfo *info = list; info && rc; info = info->ai_next)
        rc = listen_connect_to(info->ai_family, info->ai_protocol, info->ai_addr, info->ai_addrlen, timeout_s, out);
    freeaddrinfo(list);
    return rc ? error_set(rc, "cannot connect to %s: %s", address, strerror(-rc)) : 0;
}

int listen_connect_unix(const char *path, unsigned timeout_s, int *out)
{
    struct sockaddr_un address;
    int rc = unix_address(path, &address);
    if (rc)
        return rc;
    rc = listen_connect_to(AF_UNIX, 0, &address, sizeof address, timeout_s, out);
    return rc ? error_set(rc, "cannot connect to %s: %s", path, strerror(-rc)) : 0;
}

int listen_connect(const char *address, unsigned timeout_s, int *out)
{
    return *address == '/' ? listen_connect_unix(address, timeout_s, out) : connect_tcp(address, timeout_s, out);
}
