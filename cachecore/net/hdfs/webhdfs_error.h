/* Refusals of WebHDFS as -errno and a sentence. Internal to net/. */
#ifndef GRANARY_NET_HDFS_WEBHDFS_ERROR_H
#define GRANARY_NET_HDFS_WEBHDFS_ERROR_H

#include <stdbool.h>

#include "net/http.h"

struct webhdfs_refusal {
    const char *what;     /* address and path, for the sentence */
    const char *host;     /* "http://HOST:PORT" that answered */
    const char *identity; /* as hdfs_address_identity gives it; a token is never shown */
    bool secret;
};

/* The -errno of an answer outside 2xx. *out_standby: this NameNode does not serve, another may. */
GR_MUST_CHECK int webhdfs_error(const struct webhdfs_refusal *q, const struct http_response *resp, bool *out_standby);

#endif
