/* The sources that source_open chooses from. */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_KINDS_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_KINDS_H

#include "imagebuild/source/source.h"

/* What follows "s3://". */
GR_MUST_CHECK int source_s3_open(const char *url, const char *bucket_and_prefix, const struct source_options *options,
                                 struct source **out);

/* An hdfs:// or swebhdfs:// address. */
GR_MUST_CHECK int source_hdfs_open(const char *url, const struct source_options *options, struct source **out);

/* As source_open. */
typedef int source_opener(const char *url, const struct source_options *options, struct source **out);

/* What follows "tar:"; open: how the source is opened that the shards lie in. */
GR_MUST_CHECK int source_tar_open(const char *url, const char *address, const struct source_options *options,
                                  source_opener *open, struct source **out);

/* http://host/path or https://. */
GR_MUST_CHECK int source_http_open(const char *url, const struct source_options *options, struct source **out);

/* Hand on a file of which a version is all that is known, as look does: owner, mode and links are not. */
GR_MUST_CHECK int source_tell(const struct source_ask *ask, const struct source_version *now, source_visit *visit,
                              void *arg);

/* One more path has vanished. True: warn of it by name; so for the first SOURCE_VANISHED_NAMED. */
bool source_counts_vanished(struct source_counts *c, const char *path, size_t len);
void source_warn_vanished(const char *path, size_t len); /* logs: not under a lock */
void source_counts_add(struct source_counts *to, const struct source_counts *from);

/* Where the bytes of an answer go. */
struct source_target {
    uint8_t *dst;
    size_t len, done;
};

/* An http_sink: arg is a struct source_target. -EBADMSG: more bytes than it has room for. */
GR_MUST_CHECK int source_take(void *arg, const void *data, size_t len);

/* Who asks a web server: the header line of a token, or a file of names and passwords. */
enum { HTTP_LOGIN_TOKEN_MAX = 16 << 10 };

/* "Authorization: Bearer TOKEN" with what the file holds, without the blanks and line ends around it. *out is a secret,
 * for http_login_free. The sentence of -EIO (it cannot be
 * read) and -EBADMSG (it holds no token) names the file and nothing of what is in it. */
GR_MUST_CHECK int http_login_read(const char *token_file, char **out);
void http_login_free(char *line); /* NULL is allowed */

/* The path of the file that NETRC names, else of ~/.netrc; NULL: there is none to be read, or no memory. */
char *http_login_netrc(void);

#endif
