/* Which failures of HTTP are temporary and which are permanent: one table of libcurl's codes, one of HTTP statuses.
 * -EAGAIN and -ETIMEDOUT are worth a retry; every other -errno is final. Any thread.
 */
#ifndef GRANARY_NET_HTTP_ERROR_H
#define GRANARY_NET_HTTP_ERROR_H

#include <stdbool.h>

/* How a transfer ended that brought no whole answer. */
struct http_failure {
    int code;         /* a CURLcode, not CURLE_OK */
    long os_errno;    /* CURLINFO_OS_ERRNO */
    const char *text; /* CURLOPT_ERRORBUFFER; may be empty */
};

/* Return the failure's -errno; *remedy is a constant, "" or "; check ...". Bytes that are not HTTP, as from a proxy
 * that is restarting, count as temporary. A code that is not in the table, from a newer libcurl, is -EIO. */
int http_failure_errno(const struct http_failure *failure, const char **remedy);
/* Is the code in the table? */
bool http_failure_known(int code);
/* Return a status as 0 or -errno. 0: 2xx. Temporary (-EAGAIN): 408, 421, 425, 429, 499 and every 5xx not listed here.
 * Permanent: 401, 403, 407, 451, 511 -EACCES; 404, 410 -ENOENT; 412 -ESTALE; 413 -EFBIG; 414 -ENAMETOOLONG; 416
 * -EBADMSG; 426, 501, 505 -ENOTSUP; 507 -ENOSPC; 506, 508, 510 and all others -EIO. */
int http_status_errno(int status);
/* Return what a status means and what helps, if that says more than the number; else "". */
const char *http_status_meaning(int status);

#endif
