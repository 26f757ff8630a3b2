/* AWS credentials from the first source that is configured, renewed before they expire:
 *
 *   1. the environment
 *   2. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (STS)
 *   3. the profile in the shared files: its keys, or its web_identity_token_file with role_arn
 *   4. the container's endpoint
 *   5. the instance metadata service
 *
 * The source is chosen once, by credential_chain_new. Any thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIAL_CHAIN_H
#define GRANARY_NET_AWS_CREDENTIAL_CHAIN_H

#include "net/aws/credentials.h"

struct credential_chain;

struct credential_chain_config {
    const char *region;  /* for STS; NULL: not known */
    const char *profile; /* as for aws_profile_load; outlives the chain */
    unsigned ahead_s;    /* seconds before expiry at which to renew; 0: 300 */
    unsigned between_ms; /* least pause between two attempts to renew credentials that are still valid; 0: 10,000 */
    unsigned silence_s;  /* a service on this machine that does not answer for this long is absent; 0: 5, and 1 to
                            connect */
};

/* Choose the source and fetch the first credentials, over the network if need be. -ENOENT: there are none; the sentence
 * says where they were looked for. -EACCES: refused; -EINVAL, -EIO, -ENOMEM, and errors of reading the files. A source
 * that the settings name but that cannot be reached is no failure: credential_chain_get tries it again. */
GR_MUST_CHECK int credential_chain_new(const struct credential_chain_config *config, struct credential_chain **out);
void credential_chain_free(struct credential_chain *c); /* no credentials may be lent */

/* A reference to credentials, held while a request is signed with them. */
struct lent_credentials {
    struct credentials keys;
    unsigned holders; /* references; guarded by the chain's lock */
};

/* Get the current credentials; release them with credential_chain_put. If they are due, one thread renews them. The
 * others use the old ones while those are valid, and so do all when the renewal fails. -EAGAIN, -ETIMEDOUT, -EACCES,
 * -EINVAL, -EIO: none are valid and no new ones were obtained; never -ENOENT. */
GR_MUST_CHECK int credential_chain_get(struct credential_chain *c, const struct lent_credentials **out);
/* Release credentials. */
void credential_chain_put(struct credential_chain *c, const struct lent_credentials *lent);
/* A server rejects these credentials: renew them, whatever their expiry says. 1: credential_chain_get returns others
 * now; 0: the source still has the same; or -errno as for credential_chain_get. */
GR_MUST_CHECK int credential_chain_renew(struct credential_chain *c, const struct lent_credentials *expired);

#endif
