/* Turn refusals of WebHDFS into -errno and a sentence. Internal to net/. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_ERROR_H
#define GRANARY_NET_HDFS_WEBHDFS_ERROR_H

#include <stdbool.h>

#include "net/http.h"

struct webhdfs_refusal {
    const char *what;     /* address and path, for the sentence */
    const char *host;     /* "http://HOST:PORT" that answered */
    const char *identity; /* from hdfs_address_identity; a token is never shown */
    bool secret;          /* identity is a token */
};

/* Return the -errno of an answer that is not 2xx, with a sentence. *out_standby: this NameNode is standby; another may
 * be active. */
GR_MUST_CHECK int webhdfs_error(const struct webhdfs_refusal *q, const struct http_response *resp, bool *out_standby);

#endif
