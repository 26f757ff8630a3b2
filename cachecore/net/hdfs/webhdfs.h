/* A client for HDFS over HTTP: WebHDFS of NameNodes and DataNodes, or the HttpFS gateway. Calls block and may come from
 * any thread. Paths are absolute ("" is the root), any bytes, and escaped here.
 *
 * When a NameNode is down or standby, the next one is tried and remembered. A DataNode that cannot be reached is
 * excluded for a while, and the NameNode is asked again. There are no pauses or further retries here: those are up to
 * store_retry and the retries of the source.
 *
 * The name of the exception in the answer decides the error, and every failure has a sentence that names hosts and
 * path, never a token: -ENOENT: absent; -EACCES: refused (the sentence says whether user, token or permission);
 * -EEXIST; -ENOSPC: a quota; -ENOTSUP; -EINVAL: a path that HDFS does not allow; -EAGAIN, -ETIMEDOUT: worth a retry
 * (safe mode, no live DataNode, transport); -EBADMSG: an answer that makes no sense; -EIO.
 */
#ifndef GRANARY_NET_HDFS_WEBHDFS_H
#define GRANARY_NET_HDFS_WEBHDFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "net/http.h"

/* ---- addresses: hdfs://HOST[:PORT][,HOST[:PORT]...]/PATH; swebhdfs:// is the same over TLS ---- */

enum { HDFS_NAMENODES_MAX = 8 };

struct hdfs_address {
    bool tls;
    char *namenodes[HDFS_NAMENODES_MAX]; /* "HOST:PORT" of the HTTP service; default ports 9870, with TLS 9871 */
    size_t count;
    char *name; /* scheme and hosts as given, for sentences */
    char *path; /* bytes as given, without a final slash; "" is the root */
};

/* Does url begin with hdfs:// or swebhdfs://? */
bool hdfs_address_known(const char *url);

/* ---- files and directories, as the server describes them ---- */

enum webhdfs_type { WEBHDFS_FILE, WEBHDFS_DIRECTORY, WEBHDFS_SYMLINK };

struct webhdfs_status {
    const char *name; /* the last component, never "." or "..", without a slash; empty in the answer to GETFILESTATUS */
    size_t name_len;
    enum webhdfs_type type;
    uint32_t permission;       /* 07777 */
    uint64_t size;             /* bytes */
    int64_t mtime_ms;          /* milliseconds since the epoch */
    uint64_t file_id;          /* 0: the server does not say */
    const char *owner, *group; /* names */
    const char *target;        /* of a symlink, else "" */
};

/* Entries with their strings. Entries are valid as long as the page. */
struct webhdfs_page;
void webhdfs_page_free(struct webhdfs_page *page);
DEFINE_CLEANUP(webhdfs_page, struct webhdfs_page *, webhdfs_page_free)
size_t webhdfs_page_count(const struct webhdfs_page *page);
const struct webhdfs_status *webhdfs_page_status(const struct webhdfs_page *page, size_t i);
/* Do more entries follow this page? */
bool webhdfs_page_more(const struct webhdfs_page *page);

/* ---- the client ---- */

struct webhdfs;

struct webhdfs_config {
    const char *token_file; /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    struct http_config http;
};

/* Make a client for an address. Sends nothing yet. -EINVAL: the address; errors of reading the token file and of
 * http_new. */
GR_MUST_CHECK int webhdfs_new(const char *url, const struct webhdfs_config *config, struct webhdfs **out);
void webhdfs_free(struct webhdfs *w); /* no call may be running; NULL is allowed */
/* Return the parsed address, valid as long as the client. */
const struct hdfs_address *webhdfs_address(const struct webhdfs *w);

/* Get the status of one path, as a page of one; the caller frees *out. */
GR_MUST_CHECK int webhdfs_stat(struct webhdfs *w, const char *path, size_t len, struct webhdfs_page **out);
/* Get a page of a directory's entries, those after the name start_after (NULL: from the first); the caller frees *out.
 */
GR_MUST_CHECK int webhdfs_list(struct webhdfs *w, const char *path, size_t len, const char *start_after,
                               struct webhdfs_page **out);

/* Read the bytes [off, off + len) of a file into sink; len > 0, UINT64_MAX: to the end. *out_done: the bytes passed to
 * the sink, also on failure. 0 with fewer than len: the file ends inside the range; when the server announces that, the
 * sink gets nothing at all. Reads whatever version of the file is there; compare webhdfs_stat. */
GR_MUST_CHECK int webhdfs_read(struct webhdfs *w, const char *path, size_t path_len, const struct http_part *part,
                               http_sink *sink, void *arg, uint64_t *out_done);

/* Write a new file of n bytes, and make missing directories above it. -EEXIST; -ENOTSUP: through HttpFS, which cannot
 * replace a name atomically. A failure may leave a truncated file behind. */
GR_MUST_CHECK int webhdfs_create(struct webhdfs *w, const char *path, const void *data, size_t n);
/* Make a directory and all missing ones above it. */
GR_MUST_CHECK int webhdfs_mkdirs(struct webhdfs *w, const char *path);
/* Rename atomically. replace: a file at `to` is replaced; otherwise it makes -EEXIST. -ENOENT: `from`, or the directory
 * of `to`, is missing; also possible after a rename that succeeded, if its answer was lost and it was sent again. */
GR_MUST_CHECK int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, bool replace);
/* Delete a file or an empty directory. 0 if it is absent already. */
GR_MUST_CHECK int webhdfs_delete(struct webhdfs *w, const char *path);

#endif
