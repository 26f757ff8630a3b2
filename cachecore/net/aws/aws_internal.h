/* What the S3 client consists of: credentials, the bucket's address, refusals and listings. */
#ifndef GRANARY_NET_AWS_AWS_INTERNAL_H
#define GRANARY_NET_AWS_AWS_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "net/aws/s3.h"
#include "net/http.h"

/* ---- the shared files: one profile (credentials.c) ----
 *
 * The files are AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials) and AWS_CONFIG_FILE (~/.aws/config). Values in the
 * first file win. Which profile: AWS_PROFILE, else the one that Granary's configuration file names for the bucket, else
 * "default". */

/* A profile. It owns its strings; NULL: not set, or empty. */
struct aws_profile {
    char *name;
    char *file; /* path of the credentials file; NULL: HOME is not set */
    char *access_key, *secret_key, *session_token;
    char *region, *addressing_style;
    char *role_arn, *role_session_name, *web_identity_token_file;
    bool named; /* it was chosen by name */
};

/* Load the profile; the caller releases *out. configured: from the configuration file, or NULL. A missing file is no
 * error. -EMSGSIZE, -EACCES, ...: a file cannot be read; -ENOMEM; with a sentence. */
GR_MUST_CHECK int aws_profile_load(const char *configured, struct aws_profile *out);
void aws_profile_release(struct aws_profile *p); /* wipes */

/* ---- credentials that need no network (credentials.c) ----
 *
 * The environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN), then the shared files. No sentence
 * shows a key. Any thread. */

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

/* ---- credentials from services (credentials_remote.c) ----
 *
 * STS with a web identity token, the container's endpoint (ECS, EKS Pod Identity) and the instance metadata service
 * give temporary credentials. Each call is a single try, limited by h's timeouts; the caller releases *out.
 * -EAGAIN, -ETIMEDOUT: not reached, or busy; -ENOENT: the service has no credentials; -EACCES: refused; -EINVAL: wrong
 * settings; -EIO: an unexpected answer; -ENOMEM. No sentence shows a token or key. Any thread. */

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

/* ---- the answers of these services (credentials_remote.c) ----
 *
 * No I/O, fuzzed. service: its name for sentences, which show nothing of the
 * answer. -EIO: not such an answer; -EINVAL: a key that may not stand in a header. The caller releases *out. Any
 * thread. */

/* Decode {"AccessKeyId": ..., "SecretAccessKey": ..., "Token": ..., "Expiration": ...} */
GR_MUST_CHECK int credentials_decode_json(const char *service, const void *json, size_t len, struct credentials *out);
/* Decode the XML answer to AssumeRoleWithWebIdentity. */
GR_MUST_CHECK int credentials_decode_sts(const char *service, const void *xml, size_t len, struct credentials *out);

/* ---- the chain of all sources (credential_chain.c) ----
 *
 * AWS credentials from the first source that is configured, renewed before they expire:
 *
 *   1. the environment
 *   2. AWS_WEB_IDENTITY_TOKEN_FILE with AWS_ROLE_ARN (STS)
 *   3. the profile in the shared files: its keys, or its web_identity_token_file with role_arn
 *   4. the container's endpoint
 *   5. the instance metadata service
 *
 * The source is chosen once, by credential_chain_new. Any thread. */

struct credential_chain;

struct credential_chain_config {
    const char *region;    /* for STS; NULL: not known */
    const char *profile;   /* as for aws_profile_load; outlives the chain */
    struct s3_keys *given; /* these and no others; the chain takes a reference. NULL: look for some */
    unsigned ahead_s;      /* seconds before expiry at which to renew; 0: 300 */
    unsigned between_ms;   /* least pause between two attempts to renew credentials that are still valid; 0: 10,000 */
    unsigned silence_s;    /* a service on this machine that does not answer for this long is absent; 0: 5, and 1 to
                              connect */
};

/* Choose the source and fetch the first credentials, over the network if need be. -ENOENT: there are none; the sentence
 * says where they were looked for. -ENOKEY: refused; -EINVAL, -EIO, -ENOMEM, and errors of reading the files. A source
 * that the settings name but that cannot be reached is no failure: credential_chain_get tries it again. */
GR_MUST_CHECK int credential_chain_new(const struct credential_chain_config *config, struct credential_chain **out);
void credential_chain_free(struct credential_chain *c); /* no credentials may be lent */
/* Name the source that a chain would choose, without asking it. profile: as for aws_profile_load. Errors of reading the
 * files; -ENOMEM. */
GR_MUST_CHECK int credential_chain_name(const char *profile, char out[S3_SOURCE_MAX]);

/* A reference to credentials, held while a request is signed with them. */
struct lent_credentials {
    struct credentials keys;
    unsigned holders; /* references; guarded by the lock of the chain, or of the keys that were given */
};
/* Drop a reference, under that lock; wipes and frees on the last. NULL is allowed. */
void lent_credentials_drop(struct lent_credentials *l);

/* Get the current credentials; release them with credential_chain_put. If they are due, one thread renews them. The
 * others use the old ones while those are valid, and so do all when the renewal fails. -EAGAIN, -ETIMEDOUT, -ENOKEY,
 * -EINVAL, -EIO: none are valid and no new ones were obtained; never -ENOENT. */
GR_MUST_CHECK int credential_chain_get(struct credential_chain *c, const struct lent_credentials **out);
/* Release credentials. */
void credential_chain_put(struct credential_chain *c, const struct lent_credentials *lent);
/* A server rejects these credentials: renew them, whatever their expiry says. 1: credential_chain_get returns others
 * now; 0: the source still has the same; or -errno as for credential_chain_get. */
GR_MUST_CHECK int credential_chain_renew(struct credential_chain *c, const struct lent_credentials *expired);

/* ---- keys that were given (s3_keys.c): what a chain asks of them ---- */

GR_MUST_CHECK int s3_keys_lend(struct s3_keys *k, const struct lent_credentials **out); /* -EACCES: they were wiped */
void s3_keys_take_back(struct s3_keys *k, const struct lent_credentials *lent);
/* Have they been replaced or wiped since these were lent? */
bool s3_keys_changed(struct s3_keys *k, const struct lent_credentials *since);

/* ---- a bucket's address (s3_address.c) ----
 *
 * From region, endpoint and addressing style. */

struct s3_address {
    char *region;
    char *endpoint;    /* "https://host[:port]", without a final slash */
    char *base;        /* address of the bucket, without a final slash */
    bool given;        /* the user gave the endpoint: it is never replaced */
    bool region_known; /* the region was configured, not assumed */
};

/* Make the address from config and environment, as s3_new describes. region: what a server said, or NULL. -EINVAL,
 * -ENOMEM, and errors of reading the profile, with a sentence. */
GR_MUST_CHECK int s3_address_make(const struct s3_config *config, const char *region, struct s3_address **out);
/* Find what the configuration file says of a bucket: "endpoint" or "profile". *out lives as long as the process; NULL:
 * nothing. Errors of config_get. */
GR_MUST_CHECK int s3_configured(const char *bucket, const char *key, const char **out);
void s3_address_free(struct s3_address *a); /* NULL is allowed */
DEFINE_CLEANUP(s3_address, struct s3_address *, s3_address_free)

/* ---- refusals (s3_error.c) ----
 *
 * Turn an S3 server's refusals into -errno and a sentence with a remedy. */

struct s3_refusal {
    const char *what;     /* "s3://bucket/key", for the sentence */
    const char *endpoint; /* "https://host" */
    bool anonymous;       /* the request was not signed */
    bool writing;         /* PUT or DELETE */
};

enum { S3_REGION_MAX = 64 };

/* Does the answer say that the bucket is in another region? region: which one, in letters, digits and '-'; empty when
 * the server does not say. */
bool s3_error_moved(const struct http_response *resp, char region[S3_REGION_MAX]);
/* Does the server reject the keys, because they are unknown, expired or replaced? The refusal of a HEAD has no body;
 * there the status that such keys get counts as a rejection. temporary: the keys have a session token. */
bool s3_error_keys_refused(const struct http_response *resp, bool head, bool temporary);

/* Return the -errno of an answer that is not 2xx, as listed in s3.h, with a sentence. */
int s3_error(const struct s3_refusal *refusal, const struct http_response *resp);

/* ---- listings (s3_list.c) ----
 *
 * Decode ListObjectsV2 answers (XML, encoding-type=url). No I/O; bounded and fuzzed. */

/* Decode a page; the caller frees *out. -EBADMSG: not a page; -EAGAIN: a page that is cut short; -ENOMEM. */
GR_MUST_CHECK int s3_list_decode(const void *xml, size_t len, struct s3_list_page **out);

#endif
