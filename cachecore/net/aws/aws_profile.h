/* Read one profile of the AWS shared files, AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE
 * (~/.aws/config). Values in the first file win. Which profile: AWS_PROFILE, else the one that Granary's configuration
 * file names for the bucket, else "default".
 */
#ifndef GRANARY_NET_AWS_AWS_PROFILE_H
#define GRANARY_NET_AWS_AWS_PROFILE_H

#include <stdbool.h>

#include "base/compiler.h"

/* A profile. It owns its strings; NULL: not set, or empty. */
struct aws_profile {
    char *name;
    char *file; /* path of the credentials file; NULL: HOME is not set */
    char *access_key, *secret_key, *session_token;
    char *region, *addressing_style;
    char *role_arn, *role_session_name, *web_identity_token_file;
    bool named; /* it was chosen by name */
};

/* Load the profile; the caller releases *out. configured: from the configuration file, or NULL. A missing file is no
 * error. -EMSGSIZE, -EACCES, ...: a file cannot be read; -ENOMEM; with a sentence. */
GR_MUST_CHECK int aws_profile_load(const char *configured, struct aws_profile *out);
void aws_profile_release(struct aws_profile *p); /* wipes */

#endif
