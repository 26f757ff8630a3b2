/* One profile of the AWS shared files: AWS_PROFILE, or "default", of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials)
 * and AWS_CONFIG_FILE (~/.aws/config). What stands in the first wins. */
#ifndef GRANARY_NET_AWS_AWS_PROFILE_H
#define GRANARY_NET_AWS_AWS_PROFILE_H

#include <stdbool.h>

#include "base/compiler.h"

/* Owned; NULL: not there, or empty. */
struct aws_profile {
    char *name;
    char *file; /* the credentials file looked at; NULL: there is no HOME */
    char *access_key, *secret_key, *session_token;
    char *region, *addressing_style;
    char *role_arn, *role_session_name, *web_identity_token_file;
    bool named; /* AWS_PROFILE asked for it */
};

/* A file that is not there is no error; -EMSGSIZE, -EACCES, ...: one that cannot be read, with a sentence. */
GR_MUST_CHECK int aws_profile_load(struct aws_profile *out);
void aws_profile_release(struct aws_profile *p); /* wipes */

#endif
