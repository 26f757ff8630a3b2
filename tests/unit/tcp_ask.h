/* Requests to a server at a port of this machine. */
#ifndef GRANARY_TESTS_UNIT_TCP_ASK_H
#define GRANARY_TESTS_UNIT_TCP_ASK_H

#include "unit/cmocka_all.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static inline int tcp_connect(unsigned port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof address), 0);
    return fd;
}

/* The answer up to the end of the connection, which is the server's to end; "" when it is ended without one. */
static inline const char *tcp_ask(unsigned port, const char *request)
{
    static char answer[1 << 16];
    int fd = tcp_connect(port);
    size_t len = 0;
    ssize_t n = send(fd, request, strlen(request), MSG_NOSIGNAL);
    while (n > 0 && (n = recv(fd, answer + len, sizeof answer - 1 - len, 0)) > 0)
        len += (size_t)n;
    answer[len] = 0;
    close(fd);
    return answer;
}

static inline void assert_starts(const char *answer, const char *start)
{
    if (strncmp(answer, start, strlen(start)) != 0)
        fail_msg("'%.100s' does not begin with '%s'", answer, start);
}

#endif
