/* Credentials from the first place that has some, renewed before they expire:
 *
 *   environment -> AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN -> profile of the shared files (its keys, or its
 *   web_identity_token_file and role_arn) -> container's endpoint -> instance metadata
 *
 * The place is chosen once. Any thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIAL_CHAIN_H
#define GRANARY_NET_AWS_CREDENTIAL_CHAIN_H

#include "net/aws/credentials.h"

struct credential_chain;

struct credential_chain_config {
    const char *region;  /* of STS; NULL: none is known */
    unsigned ahead_s;    /* renew so long before they expire; 0: 300 */
    unsigned between_ms; /* pause between two renewals of credentials that are valid still; 0: 10,000 */
    unsigned silence_s;  /* a service of this machine that is silent for so long is not there; 0: 5, and 1 to connect */
};

/* Asks services over the network where only they can have some. -ENOENT: there are none, with a sentence that says
 * where was looked. A service that is named by the settings but cannot be reached is asked again by
 * credential_chain_get. */
GR_MUST_CHECK int credential_chain_new(const struct credential_chain_config *config, struct credential_chain **out);
void credential_chain_free(struct credential_chain *c); /* no credentials may be lent */

/* Lent: held while a request is signed with them. */
struct lent_credentials {
    struct credentials keys;
    unsigned holders; /* guarded by the chain */
};

/* Those of now, to be given back. One thread renews at a time; others go on with those there are while they are valid,
 * and so do all when renewing fails. -EAGAIN, -ETIMEDOUT, -EACCES, -EIO: none are valid and no new ones can be had. */
GR_MUST_CHECK int credential_chain_get(struct credential_chain *c, const struct lent_credentials **out);
void credential_chain_put(struct credential_chain *c, const struct lent_credentials *lent);
/* A server does not accept these any more: get others, whatever they say of themselves. 1: credential_chain_get gives
 * others now; 0: there are none but these; or -errno. */
GR_MUST_CHECK int credential_chain_renew(struct credential_chain *c, const struct lent_credentials *expired);

#endif
