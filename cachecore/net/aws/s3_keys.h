/* S3 keys that were given to be used for one purpose, in place of those of the environment, the shared files and the
 * services (credential_chain.c). They can be replaced while clients use them: a request keeps the keys that it was
 * signed with until it ends. All copies are wiped before their memory is freed. Any thread. */
#ifndef GRANARY_NET_AWS_S3_KEYS_H
#define GRANARY_NET_AWS_S3_KEYS_H

#include <stddef.h>

#include "base/bytes.h"
#include "base/compiler.h"

struct s3_keys;

enum { S3_KEYS_TEXT_MAX = 16 << 10 /* bytes */ };

/* Parse lines NAME=VALUE: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and, for temporary keys, AWS_SESSION_TOKEN. Blank
 * lines and comments (#) are skipped. The caller drops *out with s3_keys_unref. -EINVAL: another line, a name given
 * twice, a key missing or not fit for a header; -ENOMEM. No sentence has a value in it. */
GR_MUST_CHECK int s3_keys_parse(const void *text, size_t len, struct s3_keys **out);
/* Append them in this form; bytes_wipe *out. Nothing is appended after s3_keys_wipe. */
GR_MUST_CHECK int s3_keys_format(struct s3_keys *k, struct bytes *out);

struct s3_keys *s3_keys_ref(struct s3_keys *k); /* add a reference; return k */
void s3_keys_unref(struct s3_keys *k);          /* drop a reference; NULL is allowed */
DEFINE_CLEANUP(s3_keys, struct s3_keys *, s3_keys_unref)

/* Make a copy, which is replaced and wiped separately. -ENOMEM. */
GR_MUST_CHECK int s3_keys_copy(struct s3_keys *from, struct s3_keys **out);
/* Put the keys of `by` in the place of k's. -ENOMEM: k is unchanged. */
GR_MUST_CHECK int s3_keys_replace(struct s3_keys *k, struct s3_keys *by);
/* Forget the keys: from now on requests with them fail with -EACCES. */
void s3_keys_wipe(struct s3_keys *k);

#endif
