/* AWS credentials that need no network: the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN),
 * then the shared files (aws_profile.h). credential_chain.h covers all sources and renewal. No sentence shows a key.
 * Any thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIALS_H
#define GRANARY_NET_AWS_CREDENTIALS_H

#include <stdbool.h>
#include <stdint.h>

#include "net/aws/aws_profile.h"

struct credentials {
    char *access_key, *secret_key, *session_token; /* session_token may be NULL */
    int64_t expires;                               /* seconds since the epoch; 0: no expiry is known */
};

/* Load credentials from the environment, else from the shared files; the caller releases *out. profile: as for
 * aws_profile_load. -ENOENT: there are none,
 * the sentence says where they were looked for; -EINVAL: unusable keys; -ENOMEM, and errors of reading the files. */
GR_MUST_CHECK int credentials_load(const char *profile, struct credentials *out);
/* Move the keys from the profile to *out. -ENOENT: the profile has none; -EINVAL: they are unusable. */
GR_MUST_CHECK int credentials_from_profile(struct aws_profile *p, struct credentials *out);
/* Is AWS_ACCESS_KEY_ID or AWS_SECRET_ACCESS_KEY set? */
bool credentials_in_environment(void);
/* Copy the keys to *out, with no expiry, and check that both are there and may stand in an HTTP header. Each may be
 * NULL. where: their source, for the sentence. -EINVAL: not so; -ENOMEM. */
GR_MUST_CHECK int credentials_copy(const char *where, const char *access, const char *secret, const char *token,
                                   struct credentials *out);
/* Wipe and free the keys. */
void credentials_release(struct credentials *c);

#endif
