/* What an S3 server's refusal means, in one sentence with a remedy. Part of s3.c. */
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

/* The bucket is in another region than the request went to. region: which, letters, digits and '-' alone; empty when
 * the server does not say. */
bool s3_error_moved(const struct http_response *resp, char region[S3_REGION_MAX]);
/* The server does not know these keys, or no more: they have expired, or been replaced. Of a HEAD, whose refusal says
 * nothing, it may be so when the status is the one for keys of that kind (temporary ones have a session token). */
bool s3_error_keys_refused(const struct http_response *resp, bool head, bool temporary);

/* Sets the sentence; returns the -errno of s3.h. resp is an answer outside 2xx. */
int s3_error(const struct s3_refusal *refusal, const struct http_response *resp);

#endif
