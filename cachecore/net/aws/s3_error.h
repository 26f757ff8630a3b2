/* Turn an S3 server's refusals into -errno and a sentence with a remedy. Internal to s3.c. */
#ifndef GRANARY_NET_AWS_S3_ERROR_H
#define GRANARY_NET_AWS_S3_ERROR_H

#include <stdbool.h>

#include "net/http.h"

struct s3_refusal {
    const char *what;     /* "s3://bucket/key", for the sentence */
    const char *endpoint; /* "https://host" */
    bool anonymous;       /* the request was not signed */
    bool writing;         /* PUT or DELETE */
};

enum { S3_REGION_MAX = 64 };

/* Does the answer say that the bucket is in another region? region: which one, in letters, digits and '-'; empty when
 * the server does not say. */
bool s3_error_moved(const struct http_response *resp, char region[S3_REGION_MAX]);
/* Does the server reject the keys, because they are unknown, expired or replaced? The refusal of a HEAD has no body;
 * there the status that such keys get counts as a rejection. temporary: the keys have a session token. */
bool s3_error_keys_refused(const struct http_response *resp, bool head, bool temporary);

/* Return the -errno of an answer that is not 2xx, as listed in s3.h, with a sentence. */
int s3_error(const struct s3_refusal *refusal, const struct http_response *resp);

#endif
