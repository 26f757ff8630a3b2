/* One function per service. Answers come from outside: their size is bounded, keys are checked before use, and no
 * sentence shows anything of an answer. Buffers with secrets are wiped.
 *
 *   STS:        POST token file's text                        -> XML with keys
 *   container:  GET with an Authorization header              -> JSON with keys
 *   instance:   PUT api/token -> GET role name -> GET role    -> JSON with keys
 *
 * XML is searched as text: the values are base64 and dates, which need no escapes, and a value with an escape would be
 * refused as a key by the server.
 */

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "net/aws/aws_internal.h"

DEFINE_CLEANUP(curlu, CURLU *, curl_url_cleanup)
DEFINE_CLEANUP(curl_text, char *, curl_free)

enum { TOKEN_MAX = 64 << 10, STS_TIMEOUT_MS = 20000, HEADER_MAX = TOKEN_MAX + 64, URL_MAX = 2048 };

static void wipe_response(struct http_response *r)
{
    bytes_wipe(&r->body);
    http_response_release(r);
}

/* ------------------------------------------------------------------ answers */

static int unexpected(const char *service)
{
    return error_set(-EIO, "S3 credentials from %s: the answer is not what such a service says", service);
}

/* Parse "2026-11-22T01:02:03Z", perhaps with a fraction, or with "+00:00" for the Z. */
static int parse_expiration(const char *text, int64_t *out)
{
    char plain[] = "0000-00-00T00:00:00Z";
    size_t seconds = sizeof plain - 2, len = strlen(text);
    if (len <= seconds || (text[len - 1] != 'Z' && strcmp(text + len - 6, "+00:00")))
        return -EINVAL;
    memcpy(plain, text, seconds);
    return text_parse_time(plain, out);
}

/* Copy the values to *out and check them. No expiration means that the keys do not expire. */
static int credentials_decode_take(const char *service, const char *access, const char *secret, const char *token,
                                   const char *expiration, struct credentials *out)
{
    int64_t expires = 0;
    *out = (struct credentials){0};
    if (!access || !secret || (expiration && parse_expiration(expiration, &expires)))
        return unexpected(service);
    int rc = credentials_copy(service, access, secret, token && *token ? token : NULL, out);
    out->expires = rc ? 0 : expires;
    return rc;
}

int credentials_decode_json(const char *service, const void *json, size_t len, struct credentials *out)
{
    *out = (struct credentials){0};
    json_t *root = len ? json_loadb(json, len, 0, NULL) : NULL;
    const char *access = json_string_value(json_object_get(root, "AccessKeyId"));
    const char *secret = json_string_value(json_object_get(root, "SecretAccessKey"));
    const char *token = json_string_value(json_object_get(root, "Token"));
    const char *expiration = json_string_value(json_object_get(root, "Expiration"));
    int rc = credentials_decode_take(service, access, secret, token, expiration, out);
    json_decref(root);
    return rc;
}

/* Return the text of the first element with this tag; the caller wipes and frees it. NULL: there is none. */
static char *element(const char *xml, size_t len, const char *tag)
{
    char open[64];
    size_t open_len = (size_t)snprintf(open, sizeof open, "<%s>", tag);
    const char *start = len ? memmem(xml, len, open, open_len) : NULL;
    if (!start)
        return NULL;
    start += open_len;
    const char *end = memchr(start, '<', (size_t)(xml + len - start));
    return end && !memchr(start, 0, (size_t)(end - start)) ? strndup(start, (size_t)(end - start)) : NULL;
}

int credentials_decode_sts(const char *service, const void *xml, size_t len, struct credentials *out)
{
    static const char *const tags[] = {"AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"};
    char *values[GR_ARRAY_SIZE(tags)];
    for (size_t i = 0; i < GR_ARRAY_SIZE(tags); i++)
        values[i] = element(xml, len, tags[i]);
    int rc = credentials_decode_take(service, values[0], values[1], values[2], values[3], out);
    for (size_t i = 0; i < GR_ARRAY_SIZE(tags); i++)
        text_wipe(&values[i]);
    return rc;
}

/* ------------------------------------------------------------------ requests */

/* Do a request; an answer that is not 2xx is a failure. */
static int credentials_remote_ask(struct http *h, struct http_request *request, const char *service,
                                  struct http_response *out)
{
    char shown[HTTP_SHOWN_MAX];
    if (http_port_missing(request->url))
        return error_set(-EINVAL, "S3 credentials from %s: its address '%s' has a ':' and no port after it", service,
                         http_shown(request->url, shown));
    int rc = http_do(h, request, out);
    if (rc)
        return error_prefix(rc, "S3 credentials from %s", service);
    if (out->status >= 200 && out->status < 300)
        return 0;
    rc = http_status_errno(out->status);
    /* Any other refusal means that these settings get no credentials. */
    rc = rc == -EAGAIN || rc == -ENOENT ? rc : -EACCES;
    return error_set(rc, "S3 credentials from %s: it answered with status %d; check its settings and the role", service,
                     out->status);
}

/* ------------------------------------------------------------------ STS */

/* Read a token file without the line end. A token of several lines is refused, since it goes into a header or form. */
static int read_token(const char *path, struct bytes *out)
{
    int rc = io_read_file(path, out);
    while (!rc && out->len && strchr("\r\n \t", out->data[out->len - 1]))
        out->len--;
    if (!rc && (!out->len || memchr(out->data, '\n', out->len) || memchr(out->data, 0, out->len)))
        rc = error_set(-EINVAL, "%s holds no token", path);
    return rc ? error_prefix(rc == -ENOENT ? -EACCES : rc, "S3 credentials") : 0;
}

/* Append "&NAME=VALUE" to a form, with the value escaped. */
static int add_field(struct bytes *body, const char *name, const char *value, size_t len)
{
    int rc = bytes_printf(body, "&%s=", name);
    return rc ? rc : http_percent_encode(body, value, len, false);
}

/* Make the form of an AssumeRoleWithWebIdentity request. */
static int web_identity_form(const struct web_identity *w, struct bytes *body)
{
    struct bytes token CLEANUP(bytes_wipe) = BYTES_INIT(TOKEN_MAX);
    const char *name = w->session_name ? w->session_name : "granary";
    int rc = read_token(w->token_file, &token);
    if (!rc)
        rc = bytes_printf(body, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
    if (!rc)
        rc = add_field(body, "RoleArn", w->role_arn, strlen(w->role_arn));
    if (!rc)
        rc = add_field(body, "RoleSessionName", name, strlen(name));
    return rc ? rc : add_field(body, "WebIdentityToken", (const char *)token.data, token.len);
}

/* Write the URL of STS: the user's endpoint, that of the region, or the global one. */
static void sts_url(const struct web_identity *w, char url[URL_MAX])
{
    const char *given = text_of_environment("AWS_ENDPOINT_URL_STS");
    if (!given)
        given = text_of_environment("AWS_ENDPOINT_URL");
    if (given)
        snprintf(url, URL_MAX, "%s%s", given, given[strlen(given) - 1] == '/' ? "" : "/");
    else if (w->region)
        snprintf(url, URL_MAX, "https://sts.%s.amazonaws.com%s/", w->region, strncmp(w->region, "cn-", 3) ? "" : ".cn");
    else
        snprintf(url, URL_MAX, "https://sts.amazonaws.com/");
}

int credentials_from_web_identity(struct http *h, const struct web_identity *w, struct credentials *out)
{
    struct bytes form CLEANUP(bytes_wipe) = BYTES_INIT(4 * TOKEN_MAX);
    int rc = web_identity_form(w, &form);
    if (rc)
        return rc;
    char url[URL_MAX];
    sts_url(w, url);
    struct http_response answer CLEANUP(wipe_response) = {0};
    struct http_request request = {.method = "POST",
                                   .url = url,
                                   .headers = {"Content-Type: application/x-www-form-urlencoded"},
                                   .body = form.data,
                                   .body_len = form.len,
                                   .deadline_ms = clock_now_ms() + STS_TIMEOUT_MS};
    rc = credentials_remote_ask(h, &request, "STS", &answer);
    if (rc)
        return rc == -ENOENT ? -EACCES : rc;
    return credentials_decode_sts("STS", answer.body.data, answer.body.len, out);
}

/* ------------------------------------------------------------------ container */

bool credentials_in_container(void)
{
    return text_of_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") ||
           text_of_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

/* May this URL be asked for credentials? The answer is a secret, so plain HTTP is allowed only to this machine and to
 * the addresses that AWS reserves for these services. libcurl's own parser finds the host, because libcurl sends the
 * request: of http://localhost:x@elsewhere/ the host is elsewhere. *out is set unless out of memory. */
static int may_ask(const char *url, bool *out)
{
    static const char *const hosts[] = {"127.0.0.1",     "localhost",      "[::1]",
                                        "169.254.170.2", "169.254.170.23", "[fd00:ec2::23]"};
    CLEANUP(cleanup_curlu) CURLU *u = curl_url();
    CURLUcode code = u ? curl_url_set(u, CURLUPART_URL, url, CURLU_PATH_AS_IS) : CURLUE_OUT_OF_MEMORY;
    CLEANUP(cleanup_curl_text) char *scheme = NULL, *host = NULL;
    if (!code)
        code = curl_url_get(u, CURLUPART_SCHEME, &scheme, 0);
    if (!code)
        code = curl_url_get(u, CURLUPART_HOST, &host, 0);
    if (code == CURLUE_OUT_OF_MEMORY)
        return error_no_memory();
    *out = !code && !strcmp(scheme, "https");
    for (size_t i = 0; !code && !strcmp(scheme, "http") && i < GR_ARRAY_SIZE(hosts); i++)
        *out |= !strcasecmp(host, hosts[i]);
    return 0;
}

/* Make the Authorization header if a token is configured; else leave *out empty. */
static int authorization(struct bytes *out)
{
    const char *file = text_of_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    const char *value = text_of_environment("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    struct bytes token CLEANUP(bytes_wipe) = BYTES_INIT(TOKEN_MAX);
    if (!file && !value)
        return 0;
    int rc = file ? read_token(file, &token) : bytes_append(&token, value, strlen(value));
    if (!rc && memchr(token.data, '\r', token.len))
        rc = error_set(-EINVAL, "S3 credentials: the container's authorization token holds a line's end");
    if (!rc)
        rc = bytes_printf(out, "Authorization: ");
    return rc ? rc : bytes_append(out, token.data, token.len);
}

int credentials_from_container(struct http *h, struct credentials *out)
{
    const char *relative = text_of_environment("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    const char *full = text_of_environment("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    char url[URL_MAX];
    bool allowed = false;
    snprintf(url, sizeof url, "%s%s", relative ? "http://169.254.170.2" : "", relative ? relative : full);
    int rc = may_ask(url, &allowed);
    if (rc)
        return rc;
    if (!allowed)
        return error_set(-EINVAL, "S3 credentials: %s must be https, or of this machine",
                         relative ? "what AWS_CONTAINER_CREDENTIALS_RELATIVE_URI adds to http://169.254.170.2"
                                  : "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    struct bytes header CLEANUP(bytes_wipe) = BYTES_INIT(HEADER_MAX);
    struct http_response answer CLEANUP(wipe_response) = {0};
    struct http_request request = {.method = "GET", .url = url};
    rc = authorization(&header);
    if (!rc && header.len && !(request.headers[0] = bytes_string(&header)))
        rc = error_no_memory();
    if (!rc)
        rc = credentials_remote_ask(h, &request, "the container's endpoint", &answer);
    return rc ? rc : credentials_decode_json("the container's endpoint", answer.body.data, answer.body.len, out);
}

/* ------------------------------------------------------------------ instance metadata */

#define INSTANCE "the instance metadata service"

/* Request one path of the instance metadata service; the answer's body becomes a string. */
static int metadata(struct http *h, const char *method, const char *path, const char *header, struct http_response *out)
{
    const char *base = text_of_environment("AWS_EC2_METADATA_SERVICE_ENDPOINT");
    if (!base)
        base = "http://169.254.169.254";
    char url[URL_MAX];
    size_t len = strlen(base);
    snprintf(url, sizeof url, "%.*s/latest/%s", (int)(base[len - 1] == '/' ? len - 1 : len), base, path);
    struct http_request request = {.method = method, .url = url, .headers = {header}};
    int rc = credentials_remote_ask(h, &request, INSTANCE, out);
    if (rc)
        return rc;
    /* callers put a one-line answer into a header or a URL */
    char *text = bytes_string(&out->body);
    return text ? 0 : error_no_memory();
}

/* Get a session token (version 2 of the service) and make its header. */
static int session_header(struct http *h, char out[HEADER_MAX])
{
    struct http_response answer CLEANUP(wipe_response) = {.body.max = TOKEN_MAX};
    int rc = metadata(h, "PUT", "api/token", "X-aws-ec2-metadata-token-ttl-seconds: 21600", &answer);
    if (rc)
        return rc;
    const char *token = (const char *)answer.body.data;
    if (!*token || strpbrk(token, "\r\n"))
        return unexpected(INSTANCE);
    snprintf(out, HEADER_MAX, "X-aws-ec2-metadata-token: %s", token);
    return 0;
}

/* Get the role's name and write the path of its credentials. */
static int role_path(struct http *h, const char *header, char out[URL_MAX])
{
    struct http_response answer CLEANUP(wipe_response) = {0};
    int rc = metadata(h, "GET", "meta-data/iam/security-credentials/", header, &answer);
    if (rc)
        return rc;
    char *role = (char *)answer.body.data;
    role[strcspn(role, "\r\n")] = 0;
    struct bytes encoded CLEANUP(bytes_release) = BYTES_INIT(URL_MAX / 2);
    if (!*role || http_percent_encode(&encoded, role, strlen(role), false))
        return unexpected(INSTANCE);
    snprintf(out, URL_MAX, "meta-data/iam/security-credentials/%.*s", (int)encoded.len, (const char *)encoded.data);
    return 0;
}

int credentials_from_instance(struct http *h, struct credentials *out)
{
    const char *disabled = text_of_environment("AWS_EC2_METADATA_DISABLED");
    if (disabled && strcasecmp(disabled, "true") == 0)
        return error_set(-ENOENT, "S3 credentials: " INSTANCE " is disabled by AWS_EC2_METADATA_DISABLED");
    CLEANUP_FREE char *header = malloc(HEADER_MAX);
    char path[URL_MAX];
    struct http_response answer CLEANUP(wipe_response) = {0};
    int rc = header ? session_header(h, header) : error_no_memory();
    if (!rc)
        rc = role_path(h, header, path);
    if (!rc)
        rc = metadata(h, "GET", path, header, &answer);
    return rc ? rc : credentials_decode_json(INSTANCE, answer.body.data, answer.body.len, out);
}
