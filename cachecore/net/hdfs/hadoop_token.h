/* A delegation token out of the file that HADOOP_TOKEN_FILE_LOCATION names, in the form that goes into a WebHDFS
 * address. Decodes bytes only; no I/O. */
#ifndef GRANARY_NET_HDFS_HADOOP_TOKEN_H
#define GRANARY_NET_HDFS_HADOOP_TOKEN_H

#include <stddef.h>

#include "base/compiler.h"

enum { HADOOP_TOKEN_FILE_MAX = 1 << 20, HADOOP_TOKEN_TEXT_MAX = 64 << 10 };

/* Either Hadoop's own file (Credentials, "HDTS" and version 0) or text: the token's URL form alone on a line.
 * services: "HOST:PORT" of those to be asked, count of them; of several HDFS tokens the one for one of these wins, else
 * one for the host of one, else the first. *out: the URL form (base64url), to be wiped and freed by the caller.
 * -ENOENT: no HDFS token is among them; -EBADMSG: damaged, or a form not known. No sentence shows a token. */
GR_MUST_CHECK int hadoop_token_decode(const void *data, size_t len, const char *const *services, size_t count,
                                      char **out);

#endif
