/* hdfs://HOST[:PORT][,HOST[:PORT]...]/PATH taken apart, and who asks there. swebhdfs:// is the same over TLS. */
#ifndef GRANARY_NET_HDFS_HDFS_ADDRESS_H
#define GRANARY_NET_HDFS_HDFS_ADDRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

enum { HDFS_NAMENODES_MAX = 8 };

struct hdfs_address {
    bool tls;
    char *namenodes[HDFS_NAMENODES_MAX]; /* "HOST:PORT" of the HTTP service: 9870 or, with TLS, 9871 unless given */
    size_t count;
    char *name; /* scheme and hosts as given, for sentences */
    char *path; /* bytes as given, without a final slash; "" is the root */
};

/* True for the schemes that hdfs_address_parse knows. */
bool hdfs_address_known(const char *url);

/* -EINVAL with a sentence. On failure out holds nothing. */
GR_MUST_CHECK int hdfs_address_parse(const char *url, struct hdfs_address *out);
void hdfs_address_release(struct hdfs_address *a);

/* What a request says about who asks: "user.name=NAME" (HADOOP_USER_NAME, else this process's user) or
 * "delegation=TOKEN", escaped, out of token_file, or, when that is NULL, of the file HADOOP_TOKEN_FILE_LOCATION names.
 * *out is the caller's to wipe and free; *out_secret: it is a token. */
GR_MUST_CHECK int hdfs_address_identity(const struct hdfs_address *a, const char *token_file, char **out,
                                        bool *out_secret);

#endif
