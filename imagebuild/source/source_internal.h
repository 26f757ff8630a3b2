/* For implementations of sources: how each kind is opened, and what the kinds share. From outside, include source.h. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_INTERNAL_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_INTERNAL_H

#include "imagebuild/source/source.h"

/* ---- one function for each kind; errors as from source_open ---- */

/* bucket_and_prefix: the part of url after "s3://". */
GR_MUST_CHECK int source_s3_open(const char *url, const char *bucket_and_prefix, const struct source_options *options,
                                 struct source **out);

/* url: hdfs://... or swebhdfs://... */
GR_MUST_CHECK int source_hdfs_open(const char *url, const struct source_options *options, struct source **out);

/* The signature of source_open. */
typedef int source_opener(const char *url, const struct source_options *options, struct source **out);

/* address: the part of url after "tar:". `open` opens the source that holds the shards; it is a parameter so that tar/
 * does not depend on source_open, which depends on tar/. */
GR_MUST_CHECK int source_tar_open(const char *url, const char *address, const struct source_options *options,
                                  source_opener *open, struct source **out);

/* url: http://host/path or https://host/path. */
GR_MUST_CHECK int source_http_open(const char *url, const struct source_options *options, struct source **out);

/* ---- shared by the kinds ---- */

/* Visit a regular file of which only path and version are known, for source_ops.look. Mode is 0644, owner and group
 * are 0. Returns what visit returns. */
GR_MUST_CHECK int source_tell(const struct source_ask *ask, const struct source_version *now, source_visit *visit,
                              void *arg);

/* Count a path that vanished. Return whether to warn of it: true for the first SOURCE_VANISHED_NAMED. */
bool source_counts_vanished(struct source_counts *c, const char *path, size_t len);
/* Log the warning. Not to be called under a lock. */
void source_warn_vanished(const char *path, size_t len);
/* Add one source's counts to another's. */
void source_counts_add(struct source_counts *to, const struct source_counts *from);

/* A buffer that receives an answer of known length. */
struct source_target {
    uint8_t *dst;
    size_t len, done; /* bytes: of dst, received so far */
};

/* An http_sink for a struct source_target. -EBADMSG: the server sent more bytes than were requested. */
GR_MUST_CHECK int source_take(void *arg, const void *data, size_t len);

/* ---- credentials for web servers (http_login.c) ---- */

enum { HTTP_LOGIN_TOKEN_MAX = 16 << 10 }; /* bytes in a token file */

/* Make the header line "Authorization: Bearer TOKEN" from the contents of a file, without the blanks and newlines
 * around the token. *out is a secret: free it with http_login_free. -EIO: the file cannot be read; -EBADMSG: it holds
 * no token; -ENOMEM. The sentence names the file and nothing of its contents. */
GR_MUST_CHECK int http_login_read(const char *token_file, char **out);
/* Erase and free the line. NULL is allowed. */
void http_login_free(char *line);

/* Return the path of the file that NETRC names, or of ~/.netrc; the caller frees it. NULL: it cannot be read, or no
 * memory. */
char *http_login_netrc(void);

#endif
