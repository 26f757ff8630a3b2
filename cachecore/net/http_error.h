/* Which failures of HTTP pass, and which last: the one table of libcurl's codes and the one of statuses. -EAGAIN and
 * -ETIMEDOUT are worth a retry, every other -errno is the result now. Any thread. */
#ifndef GRANARY_NET_HTTP_ERROR_H
#define GRANARY_NET_HTTP_ERROR_H

#include <stdbool.h>

/* How a transfer that brought no whole answer ended. */
struct http_failure {
    int code;         /* a CURLcode, not CURLE_OK */
    long os_errno;    /* CURLINFO_OS_ERRNO */
    const char *text; /* CURLOPT_ERRORBUFFER; may be empty */
};

/* -errno, and in *remedy what helps: "" or "; check ...". Passing is also whatever a proxy that is starting again, or a
 * server of another kind, says in place of HTTP. A code that is not in the table (of a newer libcurl): -EIO. */
int http_failure_errno(const struct http_failure *failure, const char **remedy);
/* It is in the table. */
bool http_failure_known(int code);
/* 0 for 2xx. Passing (-EAGAIN): 408, 421, 425, 429, 499 and every 5xx that is not named here. Lasting: 401, 403, 407,
 * 451, 511 -EACCES; 404, 410 -ENOENT; 412 -ESTALE; 416 -EBADMSG; 413 -EFBIG; 414 -ENAMETOOLONG; 426, 501, 505 -ENOTSUP;
 * 507 -ENOSPC; 506, 508, 510 and all others -EIO. */
int http_status_errno(int status);
/* What a status means where that says more than its number, and what helps; else "". */
const char *http_status_meaning(int status);

#endif
