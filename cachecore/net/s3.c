/* Requests of one bucket: addresses, headers and what an answer means. http.c signs and transfers,
 * s3_error.c words refusals, s3_list.c decodes listings.
 *
 * Requests keep to the strict form every signer agrees about (libcurl 7.88 does not normalise by
 * itself): path and query strictly percent-encoded, the query sorted with a '=' after every name,
 * and x-amz-content-sha256 always sent.
 */
#include "net/s3.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "net/credentials.h"
#include "net/s3_error.h"
#include "net/s3_list.h"

enum { URL_MAX = 32 << 10, LIST_BODY_MAX = 16 << 20, EMPTY_PAGES_MAX = 100, WHAT_MAX = 300 };

#define SHA256_OF_NOTHING "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define LOWER_AND_DIGITS "abcdefghijklmnopqrstuvwxyz0123456789"
#define UPPER "ABCDEFGHIJKLMNOPQRSTUVWXYZ"

struct s3 {
    struct http *http;
    char *bucket, *region;
    char *endpoint; /* "https://host[:port]", without a final slash */
    char *base;     /* address of the bucket, without a final slash */
    struct credentials credentials;
    struct http_signer signer;
    bool anonymous;
};

static const char *first_env(const char *a, const char *b)
{
    const char *value = getenv(a);
    if (!value || !*value)
        value = getenv(b);
    return value && *value ? value : NULL;
}

static int out_of_memory(void)
{
    return error_set(-ENOMEM, "out of memory for S3");
}

static int check_bucket(const char *bucket)
{
    size_t len = bucket ? strlen(bucket) : 0;
    if (len && len < 256 && strspn(bucket, LOWER_AND_DIGITS UPPER "._-") == len && strcmp(bucket, ".") &&
        strcmp(bucket, ".."))
        return 0;
    return error_set(-EINVAL, "S3: '%.100s' is no valid bucket name", bucket ? bucket : "");
}

static int set_region(struct s3 *s, const char *region)
{
    if (!region)
        region = first_env("AWS_REGION", "AWS_DEFAULT_REGION");
    if (!region)
        region = "us-east-1";
    if (strspn(region, LOWER_AND_DIGITS "-_") != strlen(region) || strlen(region) > 60)
        return error_set(-EINVAL, "S3: '%.60s' is no region; check AWS_REGION", region);
    s->region = strdup(region);
    return s->region ? 0 : out_of_memory();
}

/* An endpoint given by the user: scheme, host and perhaps a port and a path; nothing else. */
static int set_given_endpoint(struct s3 *s, const char *endpoint)
{
    size_t scheme = strncmp(endpoint, "http://", 7) == 0 ? 7 : strncmp(endpoint, "https://", 8) == 0 ? 8 : 0;
    if (!scheme || !endpoint[scheme] || endpoint[scheme] == '/')
        return error_set(-EINVAL, "S3 endpoint '%.200s': it must look like https://host or http://host:port",
                         strchr(endpoint, '@') ? "(not shown)" : endpoint);
    if (endpoint[scheme + strcspn(endpoint + scheme, "@?# ")])
        return error_set(-EINVAL, "S3 endpoint: it must hold neither credentials nor '?', '#' or spaces; give keys by "
                                  "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY");
    size_t len = strlen(endpoint);
    while (endpoint[len - 1] == '/')
        len--;
    s->endpoint = strndup(endpoint, len);
    if (!s->endpoint || asprintf(&s->base, "%s/%s", s->endpoint, s->bucket) < 0)
        return out_of_memory();
    return 0;
}

static int set_aws_endpoint(struct s3 *s)
{
    const char *domain = strncmp(s->region, "cn-", 3) ? "amazonaws.com" : "amazonaws.com.cn";
    if (asprintf(&s->endpoint, "https://s3.%s.%s", s->region, domain) < 0) {
        s->endpoint = NULL;
        return out_of_memory();
    }
    int n = strchr(s->bucket, '.') ? asprintf(&s->base, "%s/%s", s->endpoint, s->bucket)
                                   : asprintf(&s->base, "https://%s.s3.%s.%s", s->bucket, s->region, domain);
    if (n >= 0)
        return 0;
    s->base = NULL;
    return out_of_memory();
}

static int set_address(struct s3 *s, const struct s3_config *config)
{
    int rc = check_bucket(config->bucket);
    if (rc)
        return rc;
    s->bucket = strdup(config->bucket);
    rc = s->bucket ? set_region(s, config->region) : out_of_memory();
    if (rc)
        return rc;
    const char *endpoint =
        config->endpoint && *config->endpoint ? config->endpoint : first_env("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL");
    return endpoint ? set_given_endpoint(s, endpoint) : set_aws_endpoint(s);
}

static int set_credentials(struct s3 *s)
{
    const char *unsigned_reads = getenv("AWS_NO_SIGN_REQUEST");
    s->anonymous = unsigned_reads && (strcmp(unsigned_reads, "1") == 0 || strcasecmp(unsigned_reads, "true") == 0);
    if (s->anonymous)
        return 0;
    int rc = credentials_load(&s->credentials);
    s->signer = (struct http_signer){
        .access_key = s->credentials.access_key,
        .secret_key = s->credentials.secret_key,
        .session_token = s->credentials.session_token,
        .region = s->region,
        .service = "s3",
    };
    return rc;
}

int s3_new(const struct s3_config *config, struct s3 **out)
{
    struct s3 *s = calloc(1, sizeof *s);
    if (!s)
        return out_of_memory();
    int rc = set_address(s, config);
    if (!rc)
        rc = set_credentials(s);
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
    credentials_release(&s->credentials);
    free(s->bucket);
    free(s->region);
    free(s->endpoint);
    free(s->base);
    free(s);
}

const char *s3_bucket(const struct s3 *s)
{
    return s->bucket;
}

/* A request being put together: every string it points at lives here. */
struct call {
    struct s3 *s;
    const char *key; /* NULL: the bucket itself */
    size_t key_len;
    struct bytes url;
    char sha256[96], condition[HTTP_ETAG_MAX + 32];
    struct http_request request;
    struct http_response response;
};

static void call_release(struct call *c)
{
    bytes_release(&c->url);
    http_response_release(&c->response);
}

#define CLEANUP_CALL CLEANUP(call_release) struct call

static int call_init(struct call *c, const char *method)
{
    c->url.max = URL_MAX;
    c->request.method = method;
    c->request.signer = c->s->anonymous ? NULL : &c->s->signer;
    snprintf(c->sha256, sizeof c->sha256, "x-amz-content-sha256: %s", SHA256_OF_NOTHING);
    c->request.headers[0] = c->sha256;
    if (c->key && !c->key_len)
        return error_set(-EINVAL, "s3://%s: an empty key names no object", c->s->bucket);
    int rc = bytes_printf(&c->url, "%s/", c->s->base);
    return rc || !c->key ? rc : http_percent_encode(&c->url, c->key, c->key_len, true);
}

static void add_header(struct call *c, const char *line)
{
    size_t i = 0;
    while (c->request.headers[i])
        i++;
    c->request.headers[i] = line;
}

/* Perform; 0 for an answer within 2xx, else the refusal. */
static int call_run(struct call *c)
{
    c->request.url = bytes_string(&c->url);
    if (!c->request.url)
        return error_set(-EINVAL, "s3://%s: a key or prefix is too long", c->s->bucket);
    char what[WHAT_MAX];
    snprintf(what, sizeof what, "s3://%s/%.*s", c->s->bucket, (int)c->key_len, c->key ? c->key : "");
    int rc = http_do(c->s->http, &c->request, &c->response);
    if (rc)
        return c->response.sink_stopped ? rc : error_prefix(rc, "%s", what);
    if (c->response.status >= 200 && c->response.status < 300)
        return 0;
    const char *method = c->request.method;
    struct s3_refusal refusal = {
        .what = what,
        .endpoint = c->s->endpoint,
        .anonymous = c->s->anonymous,
        .writing = strcmp(method, "PUT") == 0 || strcmp(method, "DELETE") == 0,
    };
    return s3_error(&refusal, &c->response);
}

static void take_meta(const struct http_response *resp, struct s3_meta *meta)
{
    int64_t size = resp->range_total >= 0 ? resp->range_total : resp->content_length;
    meta->size = size >= 0 ? (uint64_t)size : 0;
    meta->mtime = resp->last_modified >= 0 ? resp->last_modified : 0;
    memcpy(meta->etag, resp->etag, sizeof meta->etag);
}

int s3_get(struct s3 *s, const char *key, size_t key_len, uint64_t off, uint64_t len, const char *if_match,
           http_sink *sink, void *arg, struct s3_meta *meta)
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = key_len};
    int rc = call_init(&c, "GET");
    if (rc)
        return rc;
    if (if_match) {
        snprintf(c.condition, sizeof c.condition, "If-Match: %s", if_match);
        add_header(&c, c.condition);
    }
    c.request.range_off = off;
    c.request.range_len = len;
    c.request.sink = sink;
    c.request.sink_arg = arg;
    rc = call_run(&c);
    if (c.response.status == 416 && if_match)
        return -ESTALE; /* the sentence says that it is shorter */
    if (!rc && meta)
        take_meta(&c.response, meta);
    return rc;
}

int s3_head(struct s3 *s, const char *key, size_t key_len, struct s3_meta *out)
{
    CLEANUP_CALL c = {.s = s, .key = key, .key_len = key_len};
    int rc = call_init(&c, "HEAD");
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

static int add_parameter(struct bytes *url, const char *name, const char *value)
{
    int rc = bytes_printf(url, "&%s=", name);
    return rc ? rc : http_percent_encode(url, value, strlen(value), false);
}

/* Fetch one page. token wins over start_after. */
static int list_page(struct s3 *s, const char *prefix, const char *start_after, const char *token,
                     struct s3_list_page **out)
{
    CLEANUP_CALL c = {.s = s};
    int rc = call_init(&c, "GET");
    c.response.body.max = LIST_BODY_MAX;
    if (!rc)
        rc = bytes_printf(&c.url, "?");
    size_t query = c.url.len;
    if (!rc && token)
        rc = add_parameter(&c.url, "continuation-token", token);
    if (!rc)
        rc = bytes_printf(&c.url, "&encoding-type=url&list-type=2&max-keys=1000");
    if (!rc)
        rc = add_parameter(&c.url, "prefix", prefix);
    if (!rc && start_after && !token)
        rc = add_parameter(&c.url, "start-after", start_after);
    if (rc)
        return rc;
    memmove(c.url.data + query, c.url.data + query + 1, --c.url.len - query); /* the first '&' */
    rc = call_run(&c);
    if (!rc)
        rc = s3_list_decode(c.response.body.data, c.response.body.len, out);
    return rc == -EBADMSG ? error_prefix(rc, "s3://%s at %s", s->bucket, s->endpoint) : rc;
}

static int visit_page(const struct s3_list_page *page, s3_visit *visit, void *arg)
{
    int rc = 0;
    for (size_t i = 0; !rc && i < s3_list_page_count(page); i++)
        rc = visit(arg, s3_list_page_object(page, i));
    return rc;
}

int s3_list(struct s3 *s, const char *prefix, const char *start_after, s3_visit *visit, void *arg)
{
    CLEANUP_FREE char *token = NULL;
    for (unsigned empty = 0;;) {
        CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
        int rc = list_page(s, prefix ? prefix : "", start_after, token, &page);
        if (!rc)
            rc = visit_page(page, visit, arg);
        const char *next = rc ? NULL : s3_list_page_token(page);
        if (!next)
            return rc;
        empty = s3_list_page_count(page) ? 0 : empty + 1;
        if (empty > EMPTY_PAGES_MAX || (token && strcmp(token, next) == 0))
            return error_set(-EIO, "s3://%s: the server's listing does not end", s->bucket);
        free(token);
        token = strdup(next);
        if (!token)
            return out_of_memory();
    }
}
