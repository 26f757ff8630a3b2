/* One HTTP request by hand, without libcurl: a supervisor sends it, and must not wait for a server that hangs.
 * HTTP/1.0, so that the server closes the connection; only the status line is read. */
#include "attach/server/quiesce.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "net/listen.h"

enum { ANSWER_S = 2, QUIET = 200, BUSY = 202 }; /* QUIET, BUSY: HTTP status */

int quiesce_ask(const char *control, bool *out_quiet)
{
    static const char request[] = "POST /quiesce HTTP/1.0\r\nContent-Length: 0\r\n\r\n";
    char answer[sizeof "HTTP/1.1 200"] = "";
    CLEANUP_FD int fd = -1;
    unsigned status = 0;
    int rc = listen_connect_unix(control, ANSWER_S, &fd);
    if (rc)
        return rc;
    if (send(fd, request, sizeof request - 1, MSG_NOSIGNAL) < 0)
        return error_set(-errno, "cannot ask on %s: %s", control, strerror(errno));
    ssize_t n = io_read_full(fd, answer, sizeof answer - 1);
    if (n < 0 || sscanf(answer, "HTTP/%*u.%*u %u", &status) != 1 || (status != QUIET && status != BUSY))
        return error_set(n == -EAGAIN ? -ETIMEDOUT : -EIO, "the server on %s does not understand", control);
    *out_quiet = status == QUIET;
    return 0;
}
