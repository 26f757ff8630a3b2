/* AWS credentials that need no network: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN),
 * then the shared files (aws_profile.h). credential_chain.h has all there are, and renews them.
 */
#ifndef GRANARY_NET_AWS_CREDENTIALS_H
#define GRANARY_NET_AWS_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/aws/aws_profile.h"

struct credentials {
    char *access_key, *secret_key, *session_token; /* session_token may be NULL */
    int64_t expires;                               /* seconds since the epoch; 0: never, as far as is known */
};

/* -ENOENT with a sentence that says where was looked. */
GR_MUST_CHECK int credentials_load(struct credentials *out);
/* Takes the keys out of the profile. -ENOENT: it has none. */
GR_MUST_CHECK int credentials_from_profile(struct aws_profile *p, struct credentials *out);
/* AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY is set. */
bool credentials_in_environment(void);
/* Both keys are there and fit into a header, else -EINVAL naming `where` and *c is released. */
GR_MUST_CHECK int credentials_check(const char *where, struct credentials *c);
void credentials_release(struct credentials *c); /* wipes */

#endif
