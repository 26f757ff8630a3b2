/* Parse hdfs://HOST[:PORT][,HOST[:PORT]...]/PATH, and find the identity to use there. swebhdfs:// is the same over TLS.
 * Any thread.
 */
#ifndef GRANARY_NET_HDFS_HDFS_ADDRESS_H
#define GRANARY_NET_HDFS_HDFS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

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

/* Parse an address; the caller releases *out. -EINVAL or -ENOMEM, with a sentence; *out is empty then. */
GR_MUST_CHECK int hdfs_address_parse(const char *url, struct hdfs_address *out);
void hdfs_address_release(struct hdfs_address *a);

/* Make the parameter that identifies us in each request, escaped: "delegation=TOKEN" with a token from token_file
 * (NULL: from the file that HADOOP_TOKEN_FILE_LOCATION names), or, if neither names a file, "user.name=NAME" with
 * HADOOP_USER_NAME or this process's user. The caller wipes and frees *out. *out_secret: it is a token. -errno of
 * reading the file, or of hadoop_token_decode; -ENOENT: the user has no name; all with a sentence. */
GR_MUST_CHECK int hdfs_address_identity(const struct hdfs_address *a, const char *token_file, char **out,
                                        bool *out_secret);

#endif
