/* A client for one bucket of an S3-compatible server. Blocking, any thread. Keys are bytes (not
 * NUL) and are escaped here. No retries here: store_retry and the source reader decide. -ENOENT
 * absent (404; a missing bucket is -EIO), -EACCES (403; the sentence says whether key, signature or permission),
 * -EEXIST (412 on put), -ESTALE (412 on get), -EAGAIN (5xx, 429, transport), -ETIMEDOUT, -EIO for the rest; the
 * sentence names bucket and key and the server's code.
 */
#ifndef GRANARY_NET_AWS_S3_H
#define GRANARY_NET_AWS_S3_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/digest.h"
#include "net/http.h"

struct s3;

struct s3_config {
    const char *bucket;
    const char *endpoint; /* NULL: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, then
                             https://s3.REGION.amazonaws.com */
    const char *region;   /* NULL: AWS_REGION, AWS_DEFAULT_REGION, the profile's, then us-east-1 */
    struct http_config http;
};

/* Path-style addresses when an endpoint is given (and for bucket names with dots, which no TLS wildcard covers),
 * virtual-host style for AWS itself; AWS_S3_ADDRESSING_STYLE, or addressing_style of the profile, says otherwise
 * ("path", "virtual", "auto"). When a server says that the bucket is in another region, requests go there from then on
 * (to a given endpoint: are signed for it). Credentials: credential_chain.h; AWS_NO_SIGN_REQUEST=1 reads anonymously.
 * -ENOENT: no credentials. -EINVAL: a bucket, region or endpoint that cannot be one. */
GR_MUST_CHECK int s3_new(const struct s3_config *config, struct s3 **out);
void s3_free(struct s3 *s);

struct s3_object {
    const char *key; /* valid during the callback */
    size_t key_len;
    uint64_t size;
    int64_t mtime; /* seconds */
    uint32_t mtime_nsec;
    const char *etag; /* with its quotes */
};

/* List keys under prefix in the server's order, page by page (1,000). start_after (NULL: none):
 * resume behind this key. visit's non-zero result ends the listing and is returned. A page that
 * failed fails the listing: the caller goes on with start_after, the last key it saw. Servers list
 * in byte order of the keys. */
typedef int s3_visit(void *arg, const struct s3_object *object);
GR_MUST_CHECK int s3_list(struct s3 *s, const char *prefix, const char *start_after, s3_visit *visit, void *arg);

/* One page of the keys behind `after` (len 0: from the first on), at most 1,000; the server's empty pages are passed
 * over. More follow when s3_list_page_token() is not NULL. */
struct s3_list_page;
GR_MUST_CHECK int s3_list_after(struct s3 *s, const char *prefix, const void *after, size_t after_len,
                                struct s3_list_page **out);
void s3_list_page_free(struct s3_list_page *p);
DEFINE_CLEANUP(s3_list_page, struct s3_list_page *, s3_list_page_free)
size_t s3_list_page_count(const struct s3_list_page *p);
const struct s3_object *s3_list_page_object(const struct s3_list_page *p, size_t i);
/* NULL: this was the last page. */
const char *s3_list_page_token(const struct s3_list_page *p);

struct s3_meta {
    uint64_t size; /* of the whole object */
    char etag[HTTP_ETAG_MAX];
    int64_t mtime;
};

/* Bytes [off, off+len) of an object into sink; len 0: the whole object without a Range. meta may be NULL. A shorter
 * answer than asked is -EAGAIN. A range behind the end: -EBADMSG. Not conditional: a caching proxy drops If-Match,
 * which is signed; compare meta->etag. */
GR_MUST_CHECK int s3_get(struct s3 *s, const char *key, size_t key_len, const struct http_part *part, http_sink *sink,
                         void *arg, struct s3_meta *meta);
GR_MUST_CHECK int s3_head(struct s3 *s, const char *key, size_t key_len, struct s3_meta *out);

/* sha256: of data, when known (else computed here). condition: NULL, "If-None-Match: *" or
 * "If-Match: \"etag\"". */
GR_MUST_CHECK int s3_put(struct s3 *s, const char *key, const void *data, size_t len, const struct digest *sha256,
                         const char *condition, char out_etag[HTTP_ETAG_MAX]);
GR_MUST_CHECK int s3_delete(struct s3 *s, const char *key);

#endif
