/* Requests to one bucket. s3_address.c makes addresses, credential_chain.c has the keys, http.c signs and transfers,
 * s3_error.c turns refusals into errors, s3_list.c decodes listings.
 *
 *   call_init -> call_run: call_send (sign, send)
 *                    |
 *                    +-- "wrong region":  call_follow, once   --> call_send again
 *                    +-- keys rejected:   call_renew, once    --> call_send again
 *                    +-- other refusal:   s3_error
 *
 * Requests have the strict form on which all signers agree, since libcurl 7.88 does not normalise them: path and query
 * strictly percent-encoded, the query sorted, '=' after every name, and x-amz-content-sha256 always sent.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/aws/aws_internal.h"

enum { URL_MAX = 32 << 10, LIST_BODY_MAX = 16 << 20, EMPTY_PAGES_MAX = 100, WHAT_MAX = 300 };

#define SHA256_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

/* The address changes at most once, when a server says in which region the bucket is. The first address is kept until
 * the client is freed, since requests in flight use it. */
struct s3 {
    struct http *http;
    char *bucket;
    struct s3_address *first, *followed;
    struct s3_address *_Atomic address;   /* the one of the two to use now */
    pthread_mutex_t following;            /* guards followed */
    char *endpoint;                       /* as configured; NULL: none */
    struct credential_chain *credentials; /* NULL: anonymous */
};

static bool is_unsigned(void)
{
    const char *set = getenv("AWS_NO_SIGN_REQUEST");
    return set && (strcmp(set, "1") == 0 || strcasecmp(set, "true") == 0);
}

int s3_credentials_source(const char *bucket, char out[S3_SOURCE_MAX])
{
    const char *profile;
    if (is_unsigned()) {
        snprintf(out, S3_SOURCE_MAX, "nowhere: requests are not signed (AWS_NO_SIGN_REQUEST)");
        return 0;
    }
    int rc = s3_configured(bucket, "profile", &profile);
    return rc ? rc : credential_chain_name(profile, out);
}

/* Set up the credential chain, unless requests are to be unsigned. Keys that were given are always used. */
static int set_credentials(struct s3 *s, struct s3_keys *given)
{
    if (given)
        return credential_chain_new(&(struct credential_chain_config){.given = given}, &s->credentials);
    const char *profile;
    if (is_unsigned())
        return 0;
    int rc = s3_configured(s->bucket, "profile", &profile);
    if (rc)
        return rc;
    struct credential_chain_config config = {.profile = profile,
                                             .region = s->first->region_known ? s->first->region : NULL};
    return credential_chain_new(&config, &s->credentials);
}

int s3_new(const struct s3_config *config, struct s3 **out)
{
    struct s3 *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    pthread_mutex_init(&s->following, NULL);
    int rc = s3_address_make(config, NULL, &s->first);
    if (!rc) {
        atomic_store(&s->address, s->first);
        s->bucket = strdup(config->bucket);
        s->endpoint = config->endpoint ? strdup(config->endpoint) : NULL;
        rc = s->bucket && (s->endpoint || !config->endpoint) ? set_credentials(s, config->keys) : error_no_memory();
    }
    if (!rc)
        rc = http_new(&config->http, &s->http);
    if (rc) {
        s3_free(s);
        return rc;
    }
    *out = s;
    return 0;
}

void s3_free(struct s3 *s)
{
    if (!s)
        return;
    http_free(s->http);
    credential_chain_free(s->credentials);
    s3_address_free(s->first);
    s3_address_free(s->followed);
    pthread_mutex_destroy(&s->following);
    free(s->bucket);
    free(s->endpoint);
    free(s);
}

/* A request while it is built and sent. It owns every string that the request points at. One thread. */
struct call {
    struct s3 *s;
    const char *key; /* NULL: a request to the bucket itself */
    size_t key_len;
    const struct s3_address *address;
    const struct lent_credentials *credentials;
    struct http_signer signer;
    struct bytes url; /* address->base, then path and query */
    char sha256[96];  /* the header x-amz-content-sha256 */
    struct http_request request;
    struct http_response response;
};

static void call_release(struct call *c)
{
    if (c->credentials)
        credential_chain_put(c->s->credentials, c->credentials);
    bytes_release(&c->url);
    http_response_release(&c->response);
}

#define CLEANUP_CALL CLEANUP(call_release) struct call

/* Begin a request without a body: its URL up to the key, and its first header. */
static int call_init(struct call *c, const char *method)
{
    c->url.max = URL_MAX;
    c->address = atomic_load(&c->s->address);
    c->request.method = method;
    snprintf(c->sha256, sizeof c->sha256, "x-amz-content-sha256: %s", SHA256_OF_NOTHING);
    c->request.headers[0] = c->sha256;
    if (c->key && !c->key_len)
        return error_set(-EINVAL, "s3://%s: an empty key names no object", c->s->bucket);
    int rc = bytes_printf(&c->url, "%s/", c->address->base);
    return rc || !c->key ? rc : http_percent_encode(&c->url, c->key, c->key_len, true);
}

/* Add a header; HTTP_HEADERS_MAX has room for all that are used here. */
static void add_header(struct call *c, const char *line)
{
    size_t i = 0;
    while (c->request.headers[i])
        i++;
    c->request.headers[i] = line;
}

/* Set the request's signer: the current credentials, for the region of its address. */
static int call_sign(struct call *c)
{
    if (!c->s->credentials)
        return 0;
    if (c->credentials)
        credential_chain_put(c->s->credentials, c->credentials);
    c->credentials = NULL;
    int rc = credential_chain_get(c->s->credentials, &c->credentials);
    if (rc)
        return rc;
    const struct credentials *keys = &c->credentials->keys;
    c->signer = (struct http_signer){.access_key = keys->access_key,
                                     .secret_key = keys->secret_key,
                                     .session_token = keys->session_token,
                                     .region = c->address->region,
                                     .service = "s3"};
    c->request.signer = &c->signer;
    return 0;
}

/* Send the request once. 0: an answer arrived, whatever its status. */
static int call_send(struct call *c, const char *what)
{
    size_t max = c->response.body.max;
    http_response_release(&c->response);
    c->response = (struct http_response){.body.max = max};
    int rc = call_sign(c);
    c->request.url = bytes_string(&c->url);
    if (!rc && !c->request.url)
        return error_set(-EINVAL, "s3://%s: a key or prefix is too long", c->s->bucket);
    if (!rc)
        rc = http_do(c->s->http, &c->request, &c->response);
    return !rc || c->response.sink_stopped ? rc : error_prefix(rc, "%s", what);
}

/* Return the bucket's address in another region; the first thread to learn of it makes the address. A given endpoint
 * stays, and only the region for signing changes. NULL: there is none other than `from`. */
static const struct s3_address *s3_follow(struct s3 *s, const struct s3_address *from, const char *region)
{
    SCOPED_LOCK(&s->following);
    struct s3_config config = {.bucket = s->bucket, .endpoint = s->endpoint};
    if (!s->followed && s3_address_make(&config, region, &s->followed) == 0)
        atomic_store(&s->address, s->followed);
    return s->followed && s->followed != from && strcmp(s->followed->region, from->region) ? s->followed : NULL;
}

/* Move the request to the region that the answer names. A redirect from a given endpoint is not followed. 1: send the
 * request again; 0: nothing to follow; or -errno. */
static int call_follow(struct call *c)
{
    char region[S3_REGION_MAX];
    if (!s3_error_moved(&c->response, region) || !*region || (c->address->given && c->response.status < 400))
        return 0;
    const struct s3_address *to = s3_follow(c->s, c->address, region);
    if (!to)
        return 0;
    struct bytes url = {.max = URL_MAX};
    size_t skip = strlen(c->address->base);
    int rc = bytes_append(&url, to->base, strlen(to->base));
    if (!rc)
        rc = bytes_append(&url, c->url.data + skip, c->url.len - skip);
    bytes_release(&c->url);
    c->url = url;
    c->address = to;
    return rc ? rc : 1;
}

/* Renew the credentials if the server rejects them. 1: send the request again with others; 0: there are none; or
 * -errno.
 */
static int call_renew(struct call *c)
{
    bool head = strcmp(c->request.method, "HEAD") == 0; /* its answer has no body, so no error code either */
    if (!c->credentials || !s3_error_keys_refused(&c->response, head, c->credentials->keys.session_token))
        return 0;
    return credential_chain_renew(c->s->credentials, c->credentials);
}

/* Run the request. 0: a 2xx answer; else the error. Follows the bucket to another region once, and renews rejected
 * credentials once. */
static int call_run(struct call *c)
{
    char what[WHAT_MAX];
    snprintf(what, sizeof what, "s3://%s/%.*s", c->s->bucket, (int)c->key_len, c->key ? c->key : "");
    for (bool followed = false, renewed = false;;) {
        int rc = call_send(c, what);
        if (rc || (c->response.status >= 200 && c->response.status < 300))
            return rc;
        int again = followed ? 0 : call_follow(c);
        followed |= again;
        if (!again && !renewed) {
            again = call_renew(c);
            renewed = true;
        }
        if (again < 0)
            return error_prefix(again, "%s", what);
        if (!again)
            break;
    }
    const char *method = c->request.method;
    struct s3_refusal refusal = {
        .what = what,
        .endpoint = c->address->endpoint,
        .anonymous = !c->s->credentials,
        .writing = strcmp(method, "PUT") == 0 || strcmp(method, "DELETE") == 0,
    };
    return s3_error(&refusal, &c->response);
}

/* Take size, time and ETag; the answer to a range request has the object's size in Content-Range. */
static void take_meta(const struct http_response *resp, struct s3_meta *meta)
{
    int64_t size = resp->range_total >= 0 ? resp->range_total : resp->content_length;
    meta->size = size >= 0 ? (uint64_t)size : 0;
    meta->mtime = resp->last_modified >= 0 ? resp->last_modified : 0;
    meta->now = GR_MAX(resp->date, (int64_t)0);
    memcpy(meta->etag, resp->etag, sizeof meta->etag);
}

int s3_get(struct s3 *s, const char *key, size_t key_len, const struct http_part *part, http_sink *sink, void *arg,
           struct s3_meta *meta)
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = key_len};
    int rc = call_init(&c, "GET");
    if (rc)
        return rc;
    c.request.range_off = part->off;
    c.request.range_len = part->len;
    c.request.fresh = part->fresh;
    c.request.lookup = !part->len;
    c.request.sink = sink;
    c.request.sink_arg = arg;
    rc = call_run(&c);
    if (!rc && meta)
        take_meta(&c.response, meta);
    return rc;
}

int s3_head(struct s3 *s, const char *key, size_t key_len, struct s3_meta *out)
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = key_len};
    int rc = call_init(&c, "HEAD");
    c.request.lookup = true;
    if (!rc)
        rc = call_run(&c);
    if (!rc && c.response.content_length < 0)
        return error_set(-EIO, "s3://%s/%.*s: the server does not say how long it is", s->bucket, (int)key_len, key);
    if (!rc)
        take_meta(&c.response, out);
    return rc;
}

int s3_put(struct s3 *s, const char *key, const void *data, size_t len, const struct digest *sha256,
           const char *condition, char out_etag[HTTP_ETAG_MAX])
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = strlen(key)};
    int rc = call_init(&c, "PUT");
    if (rc)
        return rc;
    struct digest computed = sha256 ? *sha256 : digest_of(data, len);
    char hex[DIGEST_HEX_SIZE];
    snprintf(c.sha256, sizeof c.sha256, "x-amz-content-sha256: %s", digest_hex(&computed, hex));
    add_header(&c, "Content-Type: application/octet-stream");
    if (condition)
        add_header(&c, condition);
    c.request.body = data;
    c.request.body_len = len;
    rc = call_run(&c);
    if (!rc && out_etag)
        memcpy(out_etag, c.response.etag, HTTP_ETAG_MAX);
    return rc;
}

int s3_delete(struct s3 *s, const char *key)
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = strlen(key)};
    int rc = call_init(&c, "DELETE");
    if (!rc)
        rc = call_run(&c);
    return rc == -ENOENT ? 0 : rc;
}

static int add_parameter(struct bytes *url, const char *name, const char *value, size_t len)
{
    int rc = bytes_printf(url, "&%s=", name);
    return rc ? rc : http_percent_encode(url, value, len, false);
}

/* Fetch one page of a listing; with a token, start_after is not used. */
static int list_page_s3(struct s3 *s, const char *prefix, const char *start_after, size_t start_after_len,
                        const char *token, struct s3_list_page **out)
{
    CLEANUP_CALL c = {.s = s};
    int rc = call_init(&c, "GET");
    c.request.lookup = true;
    c.response.body.max = LIST_BODY_MAX;
    if (!rc)
        rc = bytes_printf(&c.url, "?");
    size_t query = c.url.len;
    if (!rc && token)
        rc = add_parameter(&c.url, "continuation-token", token, strlen(token));
    if (!rc)
        rc = bytes_printf(&c.url, "&encoding-type=url&list-type=2&max-keys=1000");
    if (!rc)
        rc = add_parameter(&c.url, "prefix", prefix, strlen(prefix));
    if (!rc && start_after_len && !token)
        rc = add_parameter(&c.url, "start-after", start_after, start_after_len);
    if (rc)
        return rc;
    memmove(c.url.data + query, c.url.data + query + 1, --c.url.len - query); /* drop the first '&' */
    rc = call_run(&c);
    if (!rc)
        rc = s3_list_decode(c.response.body.data, c.response.body.len, out);
    return rc == -EBADMSG ? error_prefix(rc, "s3://%s at %s", s->bucket, c.address->endpoint) : rc;
}

/* Fetch the next page that is not empty, or the last page. *token: where to begin, or NULL; afterwards, where the next
 * page begins. The caller frees it. */
static int next_page(struct s3 *s, const char *prefix, const char *after, size_t after_len, char **token,
                     struct s3_list_page **out)
{
    for (unsigned empty = 0;; empty++) {
        CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
        int rc = list_page_s3(s, prefix ? prefix : "", after, after_len, *token, &page);
        if (rc)
            return rc;
        const char *next = s3_list_page_token(page);
        /* A token that repeats, or empty pages without end, would keep us here for ever. */
        if (empty >= EMPTY_PAGES_MAX || (next && *token && strcmp(*token, next) == 0))
            return error_set(-EIO, "s3://%s: the server's listing does not end", s->bucket);
        free(steal_ptr(token));
        if (next && !(*token = strdup(next)))
            return error_no_memory();
        if (!next || s3_list_page_count(page)) {
            *out = steal_ptr(&page);
            return 0;
        }
    }
}

int s3_list_after(struct s3 *s, const char *prefix, const void *after, size_t after_len, struct s3_list_page **out)
{
    CLEANUP_FREE char *token = NULL;
    return next_page(s, prefix, after, after_len, &token, out);
}

int s3_list(struct s3 *s, const char *prefix, const char *start_after, s3_visit *visit, void *arg)
{
    CLEANUP_FREE char *token = NULL;
    do {
        CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
        int rc = next_page(s, prefix, start_after, start_after ? strlen(start_after) : 0, &token, &page);
        for (size_t i = 0; !rc && i < s3_list_page_count(page); i++)
            rc = visit(arg, s3_list_page_object(page, i));
        if (rc)
            return rc;
    } while (token);
    return 0;
}
