/* Decoders of what services for credentials answer: pure, bounded by the answer's length, fuzzed. service: for
 * sentences, which hold nothing of the answer. -EIO: it is not such an answer; -EINVAL: its keys cannot stand in a
 * header. */
#ifndef GRANARY_NET_AWS_CREDENTIALS_DECODE_H
#define GRANARY_NET_AWS_CREDENTIALS_DECODE_H

#include <stddef.h>

#include "net/aws/credentials.h"

/* {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
GR_MUST_CHECK int credentials_decode_json(const char *service, const void *json, size_t len, struct credentials *out);
/* An XML answer of AssumeRoleWithWebIdentity. */
GR_MUST_CHECK int credentials_decode_sts(const char *service, const void *xml, size_t len, struct credentials *out);

#endif
