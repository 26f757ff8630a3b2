/* A client for HDFS over HTTP: WebHDFS of NameNodes and DataNodes, or the HttpFS gateway. Blocking, any thread. Paths
 * are absolute, bytes, and escaped here ("" is the root).
 *
 * A NameNode that is down or standby is left for the next one, which is remembered. A DataNode that cannot be reached
 * is excluded for a while, and the NameNode asked anew. No pauses and no long patience here: store_retry and the
 * source's retries decide. Errors go by the exception's name in the answer: -ENOENT absent, -EACCES refused (the
 * sentence says whether user, token or permission), -EEXIST, -ENOSPC a quota, -ENOTSUP, -EINVAL a path HDFS cannot
 * hold, -EAGAIN and -ETIMEDOUT worth a retry (safe mode, no live DataNode, transport), -EBADMSG an answer that makes no
 * sense, -EIO. Sentences name hosts and path, never a token.
 */
#ifndef GRANARY_NET_HDFS_WEBHDFS_H
#define GRANARY_NET_HDFS_WEBHDFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "net/hdfs/hdfs_address.h"
#include "net/hdfs/webhdfs_reply.h"
#include "net/http.h"

struct webhdfs;

struct webhdfs_config {
    const char *token_file; /* NULL: HADOOP_TOKEN_FILE_LOCATION */
    struct http_config http;
};

/* url: hdfs_address_parse. Nothing is asked of the network. */
GR_MUST_CHECK int webhdfs_new(const char *url, const struct webhdfs_config *config, struct webhdfs **out);
void webhdfs_free(struct webhdfs *w);
const struct hdfs_address *webhdfs_address(const struct webhdfs *w);

GR_MUST_CHECK int webhdfs_stat(struct webhdfs *w, const char *path, size_t len, struct webhdfs_page **out);
/* A page of a directory's entries behind start_after (NULL: from the first). */
GR_MUST_CHECK int webhdfs_list(struct webhdfs *w, const char *path, size_t len, const char *start_after,
                               struct webhdfs_page **out);

/* Bytes [off, off+len) of a file into sink, len > 0; UINT64_MAX: up to its end. *out_done: how many came, also on
 * failure. 0 with fewer than len: the file ends there; a DataNode says so beforehand, and none is handed on. The
 * version of the file is whatever is there: compare webhdfs_stat. */
GR_MUST_CHECK int webhdfs_read(struct webhdfs *w, const char *path, size_t path_len, const struct http_part *part,
                               http_sink *sink, void *arg, uint64_t *out_done);

/* Write a new file, its directories too. -EEXIST; -ENOTSUP through HttpFS, which cannot replace a name in one step. A
 * failure may leave a file cut short behind. */
GR_MUST_CHECK int webhdfs_create(struct webhdfs *w, const char *path, const void *data, size_t n);
GR_MUST_CHECK int webhdfs_mkdirs(struct webhdfs *w, const char *path);
/* In one step. replace: whatever file is at `to` goes; else -EEXIST. -ENOENT: `from` or `to`'s directory is missing; a
 * rename whose answer was lost and that was asked again may say so too. */
GR_MUST_CHECK int webhdfs_rename(struct webhdfs *w, const char *from, const char *to, bool replace);
/* A file, or an empty directory. Absent already: 0. */
GR_MUST_CHECK int webhdfs_delete(struct webhdfs *w, const char *path);

#endif
