/* What an S3 server's refusal means, in one sentence with a remedy. Part of s3.c. */
#ifndef GRANARY_NET_S3_ERROR_H
#define GRANARY_NET_S3_ERROR_H

#include <stdbool.h>

#include "net/http.h"

struct s3_refusal {
    const char *what;     /* "s3://bucket/key", for the sentence */
    const char *endpoint; /* "https://host" */
    bool anonymous;       /* the request was not signed */
    bool writing;         /* PUT or DELETE */
};

/* Sets the sentence; returns the -errno of s3.h. resp is an answer outside 2xx. */
int s3_error(const struct s3_refusal *refusal, const struct http_response *resp);

#endif
