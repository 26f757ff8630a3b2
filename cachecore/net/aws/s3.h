/* A client for one bucket of an S3-compatible server. Calls block and may come from any thread. Keys are any bytes
 * except NUL, and are escaped here. There are no retries here: those are up to store_retry and the source's reader.
 *
 * -ENOENT: absent (404; a missing bucket is -EIO); -EACCES: 403; -ENOKEY: the server does not accept the
 * credentials, or there are none; -EEXIST: 412 on put; -ESTALE: 412 on get; -EAGAIN: 5xx, 429, transport; -ETIMEDOUT;
 * -ENOSPC: a quota; -ENOTSUP; -EINVAL: a key or prefix that is empty or too long, or a wrong region; -EIO: the rest.
 * The sentence names bucket, key and the server's code.
 */
#ifndef GRANARY_NET_AWS_S3_H
#define GRANARY_NET_AWS_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "net/http.h"

struct s3;
struct s3_keys;

/* Room for a key in a buffer: far more than the 1,024 bytes that S3 allows, since servers like it may allow more. */
enum { S3_KEY_ROOM = 64 << 10 };

struct s3_config {
    const char *bucket;
    const char *endpoint; /* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, the configuration file's, then AWS */
    const char *region;   /* NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's, then us-east-1 */
    struct s3_keys *keys; /* sign with these and no others; the client takes a reference. NULL: see s3_new */
    struct http_config http;
};

/* Make a client; config is copied. Addresses are path-style when an endpoint is given, and for bucket names with dots,
 * which no TLS wildcard covers; otherwise, for AWS itself, virtual-host style. AWS_S3_ADDRESSING_STYLE or the profile's
 * addressing_style ("path", "virtual", "auto") overrides that.
 *
 * When a server says that the bucket is in another region, later requests go there; with a given endpoint they are only
 * signed for that region. Unless keys are given, credentials come from the first source that is configured
 * (credential_chain.c); AWS_NO_SIGN_REQUEST=1 sends unsigned requests. -ENOENT: no credentials; -EINVAL: an invalid
 * bucket, region or endpoint; -ENOMEM, and errors of credential_chain_new.
 */
GR_MUST_CHECK int s3_new(const struct s3_config *config, struct s3 **out);
void s3_free(struct s3 *s); /* no call may be running; NULL is allowed */

/* Name the source from which a client of the bucket takes its credentials ("the environment", ...), as it would be
 * chosen now; never a key. No network: whether the source has any is not known. -EINVAL and others, with a sentence:
 * the profile or the configuration file cannot be read. */
enum { S3_SOURCE_MAX = 1024 };
GR_MUST_CHECK int s3_credentials_source(const char *bucket, char out[S3_SOURCE_MAX]);

/* Write AWS's own endpoint in the region that is configured, which a bucket has for which no other endpoint is.
 * -EINVAL, -ENOMEM, and errors of reading the profile, with a sentence. */
enum { S3_ENDPOINT_MAX = 128 };
GR_MUST_CHECK int s3_standard_endpoint(char out[S3_ENDPOINT_MAX]);

struct s3_object {
    const char *key; /* as etag: valid during the callback, or as long as the page */
    size_t key_len;
    uint64_t size; /* bytes */
    int64_t mtime; /* seconds since the epoch */
    uint32_t mtime_nsec;
    const char *etag; /* with its quotes; empty: none */
};

/* List the keys that begin with prefix (NULL: all), in pages of 1,000, in the server's order, which is byte order.
 * start_after: begin after this key; NULL: at the first. A result of visit other than 0 ends the listing and is
 * returned. If a page fails, the listing fails; the caller may resume with the last key it saw as start_after.
 * -EBADMSG: an answer that is not a listing. */
typedef int s3_visit(void *arg, const struct s3_object *object);
GR_MUST_CHECK int s3_list(struct s3 *s, const char *prefix, const char *start_after, s3_visit *visit, void *arg);

/* Get one page of the keys after `after` (after_len 0: from the first), at most 1,000; empty pages are skipped. The
 * caller frees *out. More follow if s3_list_page_token() is not NULL. */
struct s3_list_page;
GR_MUST_CHECK int s3_list_after(struct s3 *s, const char *prefix, const void *after, size_t after_len,
                                struct s3_list_page **out);
void s3_list_page_free(struct s3_list_page *p);
DEFINE_CLEANUP(s3_list_page, struct s3_list_page *, s3_list_page_free)
size_t s3_list_page_count(const struct s3_list_page *p);
const struct s3_object *s3_list_page_object(const struct s3_list_page *p, size_t i);
/* Return the token of the next page; NULL: this is the last one. */
const char *s3_list_page_token(const struct s3_list_page *p);

struct s3_meta {
    uint64_t size;            /* bytes of the whole object */
    char etag[HTTP_ETAG_MAX]; /* with its quotes */
    int64_t mtime;            /* seconds since the epoch; 0: unknown */
    int64_t now;              /* the server's clock when it answered, likewise */
};

/* Read the bytes [off, off + len) of an object into sink; len 0: the whole object, without Range. meta may be NULL.
 * -EAGAIN: the answer is shorter than the range; -EBADMSG: the object ends inside or before the range. The request is
 * not conditional, since a caching proxy drops If-Match, which is signed: compare meta->etag. */
GR_MUST_CHECK int s3_get(struct s3 *s, const char *key, size_t key_len, const struct http_part *part, http_sink *sink,
                         void *arg, struct s3_meta *meta);
/* Get an object's size, ETag and time. */
GR_MUST_CHECK int s3_head(struct s3 *s, const char *key, size_t key_len, struct s3_meta *out);

/* Write an object. sha256: that of data; NULL: computed here. condition: NULL, "If-None-Match: *" or
 * "If-Match: \"etag\"". out_etag (may be NULL): the new object's ETag. */
GR_MUST_CHECK int s3_put(struct s3 *s, const char *key, const void *data, size_t len, const struct digest *sha256,
                         const char *condition, char out_etag[HTTP_ETAG_MAX]);
/* Delete an object. 0 if it is absent already. */
GR_MUST_CHECK int s3_delete(struct s3 *s, const char *key);

#endif
