/* Extract a delegation token from the contents of the file that HADOOP_TOKEN_FILE_LOCATION names, in the form used in
 * WebHDFS URLs. A pure decoder without I/O. Any thread.
 */
#ifndef GRANARY_NET_HDFS_HADOOP_TOKEN_H
#define GRANARY_NET_HDFS_HADOOP_TOKEN_H

#include <stddef.h>

#include "base/compiler.h"

enum { HADOOP_TOKEN_FILE_MAX = 1 << 20, HADOOP_TOKEN_TEXT_MAX = 64 << 10 };

/* Decode a token file: either Hadoop's own format (Credentials, "HDTS" and version 0), or text with the URL form of one
 * token. services: the NameNodes as "HOST:PORT", count of them. Of several HDFS tokens, one for a service is preferred,
 * then one for the host of a service, then the first. *out: the URL form (base64url); the caller wipes and frees it.
 * -ENOENT: there is no HDFS token; -EBADMSG: damaged or an unknown format; -ENOMEM. No sentence shows a token. */
GR_MUST_CHECK int hadoop_token_decode(const void *data, size_t len, const char *const *services, size_t count,
                                      char **out);

#endif
