/* AWS credentials: environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), then
 * the shared files (AWS_SHARED_CREDENTIALS_FILE or ~/.aws/credentials, profile AWS_PROFILE or
 * "default").
 */
#ifndef GRANARY_NET_CREDENTIALS_H
#define GRANARY_NET_CREDENTIALS_H

#include "base/compiler.h"

struct credentials {
    char *access_key, *secret_key, *session_token; /* session_token may be NULL */
};

/* -ENOENT with a sentence that says where was looked. */
GR_MUST_CHECK int credentials_load(struct credentials *out);
void credentials_release(struct credentials *c); /* wipes */

#endif
