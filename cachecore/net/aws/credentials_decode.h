/* Decode the answers of credential services. No I/O, fuzzed. service: its name for sentences, which show nothing of the
 * answer. -EIO: not such an answer; -EINVAL: a key that may not stand in a header. The caller releases *out. Any
 * thread.
 */
#ifndef GRANARY_NET_AWS_CREDENTIALS_DECODE_H
#define GRANARY_NET_AWS_CREDENTIALS_DECODE_H

#include <stddef.h>

#include "net/aws/credentials.h"

/* Decode {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
GR_MUST_CHECK int credentials_decode_json(const char *service, const void *json, size_t len, struct credentials *out);
/* Decode the XML answer to AssumeRoleWithWebIdentity. */
GR_MUST_CHECK int credentials_decode_sts(const char *service, const void *xml, size_t len, struct credentials *out);

#endif
