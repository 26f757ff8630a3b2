/* Temporary credentials from services: STS with a web identity token, the container's endpoint (ECS, EKS Pod Identity)
 * and the instance metadata service. Each call is a single try, limited by h's timeouts; the caller releases *out.
 * -EAGAIN, -ETIMEDOUT: not reached, or busy; -ENOENT: the service has no credentials; -EACCES: refused; -EINVAL: wrong
 * settings; -EIO: an unexpected answer; -ENOMEM. No sentence shows a token or key. Any thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIALS_REMOTE_H
#define GRANARY_NET_AWS_CREDENTIALS_REMOTE_H

#include "net/aws/credentials.h"
#include "net/http.h"

struct web_identity {
    const char *token_file, *role_arn;
    const char *session_name; /* NULL: "granary" */
    const char *region; /* selects the STS unless AWS_ENDPOINT_URL_STS or AWS_ENDPOINT_URL do; NULL: the global one */
};
/* Exchange the token for credentials at STS. -ENOENT does not occur. */
GR_MUST_CHECK int credentials_from_web_identity(struct http *h, const struct web_identity *w, struct credentials *out);

/* Is AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or AWS_CONTAINER_CREDENTIALS_FULL_URI set? */
bool credentials_in_container(void);
/* Get credentials from the endpoint that these variables name; one of them must be set. */
GR_MUST_CHECK int credentials_from_container(struct http *h, struct credentials *out);

/* Get credentials from the instance metadata service (version 2 only) at AWS_EC2_METADATA_SERVICE_ENDPOINT or
 * 169.254.169.254. -ENOENT also when AWS_EC2_METADATA_DISABLED is "true". */
GR_MUST_CHECK int credentials_from_instance(struct http *h, struct credentials *out);

#endif
