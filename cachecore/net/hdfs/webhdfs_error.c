/* The name of the exception in the answer decides. The status alone says little: 403 stands for a missing permission as
 * well as for a DataNode that is down. An unknown exception with status 403 or 5xx counts as temporary, since most
 * failures inside a cluster are; retries are bounded.
 */
#include "net/hdfs/webhdfs_error.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "net/hdfs/webhdfs_reply.h"
#include "net/http_error.h"

static const struct known {
    const char *name;
    int rc;
    const char *meaning;
} known[] = {
    {"FileNotFoundException", -ENOENT, "it is not there"},
    {"FileAlreadyExistsException", -EEXIST, "it exists already"},
    {"PathIsNotEmptyDirectoryException", -EEXIST, "a directory with entries is there"},
    {"ParentNotDirectoryException", -ENOENT, "what is above it is no directory"},
    {"AccessControlException", -EACCES, "permission denied"},
    {"AuthorizationException", -EACCES, "permission denied"},
    {"SecurityException", -EACCES, "the server does not accept the user's identity"},
    {"AuthenticationException", -EACCES, "the server does not accept the user's identity"},
    {"InvalidToken", -EACCES, "the delegation token is not valid or has expired; fetch a new one (hdfs fetchdt)"},
    {"NSQuotaExceededException", -ENOSPC, "the quota of names is used up"},
    {"DSQuotaExceededException", -ENOSPC, "the quota of space is used up"},
    {"QuotaByStorageTypeExceededException", -ENOSPC, "the quota of space is used up"},
    {"IllegalArgumentException", -EINVAL, "the server does not take this request"},
    {"InvalidPathException", -EINVAL, "HDFS has no such names"},
    {"PathComponentTooLongException", -EINVAL, "a name is longer than HDFS allows"},
    {"MaxDirectoryItemsExceededException", -ENOSPC, "a directory is full"},
    {"UnsupportedOperationException", -ENOTSUP, "the server does not support this request"},
};

/* Return the name without its outer class, as in FSLimitException$PathComponentTooLongException. */
static const char *simple_name(const char *name)
{
    const char *dollar = strrchr(name, '$');
    return dollar ? dollar + 1 : name;
}

/* Return the server's message for the sentence; empty if it repeats the token. */
static const char *message_of(const struct webhdfs_refusal *q, const struct webhdfs_exception *e)
{
    const char *token = q->secret ? strchr(q->identity, '=') + 1 : NULL;
    return (token && strstr(e->message, token)) || strstr(e->message, "delegation=") ? "" : e->message;
}

/* Judge by the exception: the table, then StandbyException, then the status. */
static int by_exception(const struct webhdfs_refusal *q, const struct http_response *resp,
                        const struct webhdfs_exception *e, bool *out_standby)
{
    const char *name = simple_name(e->name), *message = message_of(q, e);
    for (size_t i = 0; i < GR_ARRAY_SIZE(known); i++)
        if (!strcmp(known[i].name, name)) {
            bool refused = known[i].rc == -EACCES;
            return error_set(known[i].rc, "%s: %s%s%s (%s from %s: %s)", q->what, known[i].meaning,
                             refused ? " for " : "", refused ? q->secret ? "this token" : q->identity : "", e->name,
                             q->host, message);
        }
    *out_standby = !strcmp(name, "StandbyException");
    bool passing = resp->status == 403 || http_status_errno(resp->status) == -EAGAIN;
    return error_set(passing ? -EAGAIN : -EIO, "%s: %s fails (%s: %s)", q->what, q->host, e->name, message);
}

/* Judge an answer without an exception by its status. */
static int by_status(const struct webhdfs_refusal *q, int status)
{
    if (status == 401)
        return error_set(-EACCES,
                         "%s: %s requires authentication (status 401); Kerberos is not supported: fetch a delegation "
                         "token (hdfs fetchdt) and set HADOOP_TOKEN_FILE_LOCATION",
                         q->what, q->host);
    int rc = http_status_errno(status);
    if (rc == -EAGAIN)
        return error_set(rc, "%s: %s fails (status %d)", q->what, q->host, status);
    if (*http_status_meaning(status))
        return error_set(rc, "%s: %s: %s (status %d)", q->what, q->host, http_status_meaning(status), status);
    return error_set(-EIO,
                     "%s: %s answered with status %d and no word of WebHDFS; check that the port is that of the "
                     "NameNode's web server (9870, or 9871 with TLS) or of HttpFS",
                     q->what, q->host, status);
}

/* Is the body the beginning of a JSON object? Then the exception is lost, and only a retry will tell. */
static bool cut_short(const struct http_response *resp)
{
    size_t len = resp->body.len;
    while (len && isspace(resp->body.data[len - 1]))
        len--;
    return len && resp->body.data[0] == '{' && resp->body.data[len - 1] != '}';
}

int webhdfs_error(const struct webhdfs_refusal *q, const struct http_response *resp, bool *out_standby)
{
    struct webhdfs_exception e;
    *out_standby = false;
    webhdfs_exception_decode(resp->body.data, resp->body.len, &e);
    int rc = *e.name ? by_exception(q, resp, &e, out_standby)
             : cut_short(resp)
                 ? error_set(-EAGAIN, "%s: the answer of %s was cut short (status %d)", q->what, q->host, resp->status)
                 : by_status(q, resp->status);
    return rc == -EAGAIN ? error_retry_after(rc, (unsigned)GR_MAX(resp->retry_after_s, 0)) : rc;
}
