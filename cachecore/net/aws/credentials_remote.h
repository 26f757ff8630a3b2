/* Temporary credentials from services: STS for a web identity token, the container's endpoint (ECS, EKS Pod Identity),
 * the instance's metadata. Each call is one try, which ends where the service is silent for as long as h's limits say.
 * -EAGAIN, -ETIMEDOUT: not reached, or busy; -ENOENT: the service has none; -EACCES: refused; -EINVAL: wrong settings;
 * -EIO: not what was expected. No sentence holds a token or key. Any thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIALS_REMOTE_H
#define GRANARY_NET_AWS_CREDENTIALS_REMOTE_H

#include "net/aws/credentials.h"
#include "net/http.h"

struct web_identity {
    const char *token_file, *role_arn;
    const char *session_name; /* NULL: "granary" */
    const char *region;       /* whose STS, unless AWS_ENDPOINT_URL_STS or AWS_ENDPOINT_URL say; NULL: the global one */
};
GR_MUST_CHECK int credentials_from_web_identity(struct http *h, const struct web_identity *w, struct credentials *out);

/* AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or ..._FULL_URI is set. */
bool credentials_in_container(void);
GR_MUST_CHECK int credentials_from_container(struct http *h, struct credentials *out);

/* Version 2 alone, at AWS_EC2_METADATA_SERVICE_ENDPOINT or 169.254.169.254. -ENOENT too when AWS_EC2_METADATA_DISABLED
 * is "true". */
GR_MUST_CHECK int credentials_from_instance(struct http *h, struct credentials *out);

#endif
