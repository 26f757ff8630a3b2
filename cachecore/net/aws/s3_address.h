/* The address of a bucket, from region, endpoint and addressing style. Internal to s3.c. */
#ifndef GRANARY_NET_AWS_S3_ADDRESS_H
#define GRANARY_NET_AWS_S3_ADDRESS_H

#include <stdbool.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "net/aws/s3.h"

struct s3_address {
    char *region;
    char *endpoint;    /* "https://host[:port]", without a final slash */
    char *base;        /* address of the bucket, without a final slash */
    bool given;        /* the user gave the endpoint: it is never replaced */
    bool region_known; /* the region was configured, not assumed */
};

/* Make the address from config and environment, as s3_new describes. region: what a server said, or NULL. -EINVAL,
 * -ENOMEM, and errors of reading the profile, with a sentence. */
GR_MUST_CHECK int s3_address_make(const struct s3_config *config, const char *region, struct s3_address **out);
/* Find what the configuration file says of a bucket: "endpoint" or "profile". *out lives as long as the process; NULL:
 * nothing. Errors of config_get. */
GR_MUST_CHECK int s3_configured(const char *bucket, const char *key, const char **out);
void s3_address_free(struct s3_address *a); /* NULL is allowed */
DEFINE_CLEANUP(s3_address, struct s3_address *, s3_address_free)

#endif
