/* A refusal is judged by the server's error code if it sent one, else by the HTTP status. The body comes from outside,
 * so only short codes of letters, digits and '-' are taken from it; no other text of it reaches a sentence.
 */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "net/aws/aws_internal.h"

enum { S3_CODE_MAX = 64 };

/* Find a tag in the body, which is not a string; NULL: it is not there. */
static const void *s3_error_find(const struct bytes *body, const char *tag)
{
    return body->len ? memmem(body->data, body->len, tag, strlen(tag)) : NULL;
}

/* Copy the text after an opening tag; empty unless it fits and consists of letters, digits and '-'. */
static void element(const struct bytes *body, const char *tag, char out[S3_CODE_MAX])
{
    out[0] = 0;
    const char *p = s3_error_find(body, tag);
    if (!p)
        return;
    p += strlen(tag);
    const char *end = (const char *)body->data + body->len;
    size_t n = 0;
    while (p + n < end && n < S3_CODE_MAX - 1 && (isalnum((unsigned char)p[n]) || p[n] == '-'))
        n++;
    if (p + n == end || p[n] != '<')
        return;
    memcpy(out, p, n);
    out[n] = 0;
}

/* The codes whose meaning differs from that of their HTTP status, or that deserve a better sentence. */
static const struct known {
    const char *code;
    int rc;
    const char *meaning;
} known[] = {
    {"SignatureDoesNotMatch", -ENOKEY, "the secret key does not belong to the access key; check AWS_SECRET_ACCESS_KEY"},
    {"InvalidAccessKeyId", -ENOKEY,
     "the server does not know the access key; check AWS_ACCESS_KEY_ID and that it belongs to this endpoint"},
    {"RequestTimeTooSkewed", -ENOKEY, "this machine's clock differs too much from the server's; set the clock"},
    {"ExpiredToken", -ENOKEY, "the session token has expired; get new credentials"},
    {"InvalidToken", -ENOKEY, "the session token is not valid; get new credentials"},
    {"InvalidObjectState", -EACCES, "the object is archived; restore it first"},
    /* not -ENOENT: a build would conclude that every file was removed */
    {"NoSuchBucket", -EIO, "the bucket does not exist; check its name and the endpoint, or create it"},
    {"NoSuchKey", -ENOENT, "it is not there"},
    {"SlowDown", -EAGAIN, "the server asks to slow down"},
    {"RequestTimeout", -EAGAIN, "the server waited too long for the request"},
    {"OperationAborted", -EAGAIN, "another request on it is under way"},
    {"ConditionalRequestConflict", -EAGAIN, "another conditional request on it is under way"},
    {"BadDigest", -EAGAIN, "the bytes were damaged on the way"},
    {"XAmzContentSHA256Mismatch", -EAGAIN, "the bytes were damaged on the way"},
    {"QuotaExceeded", -ENOSPC, "the quota is used up; raise it or free some space"},
    {"NotImplemented", -ENOTSUP, "the server does not support this request"},
    {"InvalidBucketName", -EINVAL, "this is no valid bucket name"},
};

static const struct known *find_known(const char *code)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(known); i++)
        if (strcmp(known[i].code, code) == 0)
            return &known[i];
    return NULL;
}

static bool is_region(const char *text)
{
    return *text && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == strlen(text);
}

bool s3_error_moved(const struct http_response *resp, char region[S3_REGION_MAX])
{
    _Static_assert((int)S3_REGION_MAX == (int)S3_CODE_MAX && sizeof resp->bucket_region == S3_REGION_MAX, "one size");
    char code[S3_CODE_MAX];
    element(&resp->body, "<Code>", code);
    element(&resp->body, "<Region>", region);
    if (!is_region(region))
        snprintf(region, S3_REGION_MAX, "%s", is_region(resp->bucket_region) ? resp->bucket_region : "");
    /* AWS redirects with a body or a header, or complains that the signature is for another region. */
    bool redirected = resp->status >= 300 && resp->status < 400 && resp->status != 304;
    return redirected || strcmp(code, "AuthorizationHeaderMalformed") == 0 ||
           strcmp(code, "IllegalLocationConstraintException") == 0;
}

bool s3_error_keys_refused(const struct http_response *resp, bool head, bool temporary)
{
    static const char *const codes[] = {"ExpiredToken",         "ExpiredTokenException", "RequestExpired",
                                        "TokenRefreshRequired", "InvalidToken",          "InvalidAccessKeyId",
                                        "SignatureDoesNotMatch"};
    char code[S3_CODE_MAX];
    element(&resp->body, "<Code>", code);
    for (size_t i = 0; i < GR_ARRAY_SIZE(codes); i++)
        if (strcmp(code, codes[i]) == 0)
            return true;
    return head && resp->status == (temporary ? 400 : 403);
}

/* Set the sentence for a bucket in another region, or a redirect. */
static int elsewhere(const struct s3_refusal *q, const struct http_response *resp, const char *region)
{
    if (region[0])
        return error_set(-EINVAL, "%s: the bucket is in region %s, not where the request went (%s); set AWS_REGION=%s",
                         q->what, region, q->endpoint, region);
    return error_set(-EINVAL,
                     "%s: %s redirects elsewhere (status %d), which is not followed; set AWS_REGION to the "
                     "bucket's region or give the right endpoint",
                     q->what, q->endpoint, resp->status);
}

/* Set the sentence for 401 and 403. */
static int forbidden(const struct s3_refusal *q, const struct http_response *resp, const char *code)
{
    if (q->anonymous)
        return error_set(-EACCES,
                         "%s: refused without credentials (status %d%s%s); unset AWS_NO_SIGN_REQUEST and set "
                         "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                         q->what, resp->status, *code ? ", " : "", code);
    return error_set(-EACCES,
                     "%s: %s refuses these credentials %s it (status %d%s%s); check the keys and their "
                     "permissions",
                     q->what, q->endpoint, q->writing ? "to write" : "to read", resp->status, *code ? ", " : "", code);
}

/* Judge a refusal without a known code by its status. */
static int by_status(const struct s3_refusal *q, const struct http_response *resp, const char *code)
{
    const char *comma = *code ? ", " : "";
    switch (resp->status) {
    case 404:
        /* a page of some other web server: not the word of an S3 server that the object is absent */
        if (resp->body.len && !*code)
            return error_set(-EIO, "%s: %s answered 404 without an S3 error; check that the endpoint is an S3 server",
                             q->what, q->endpoint);
        return error_set(-ENOENT, "%s: it is not there", q->what);
    case 401:
    case 403:
        return forbidden(q, resp, code);
    case 412:
        return q->writing ? error_set(-EEXIST, "%s: it exists already or is another version than expected", q->what)
                          : error_set(-ESTALE, "%s: it is another version than expected", q->what);
    case 416:
        return error_set(-EBADMSG, "%s: it is shorter than it should be", q->what);
    }
    int rc = http_status_errno(resp->status);
    const char *meaning = http_status_meaning(resp->status);
    if (rc == -EAGAIN)
        return error_set(rc, "%s: %s %s (status %d%s%s)", q->what, q->endpoint,
                         resp->status < 500 ? "is busy" : "failed", resp->status, comma, code);
    if (*meaning)
        return error_set(rc, "%s: %s (status %d%s%s from %s)", q->what, meaning, resp->status, comma, code,
                         q->endpoint);
    return error_set(rc, "%s: %s answered with status %d%s%s; check that the endpoint is an S3 server", q->what,
                     q->endpoint, resp->status, comma, code);
}

/* Was the error document cut short, as by a proxy with a wrong Content-Length? Then its code is unknown, and only a
 * retry will tell. */
static bool cut_short(const struct http_response *resp)
{
    return s3_error_find(&resp->body, "<Error") && !s3_error_find(&resp->body, "</Error>") &&
           resp->body.len < HTTP_ERROR_BODY_MAX;
}

static int s3_error_judge(const struct s3_refusal *q, const struct http_response *resp)
{
    char code[S3_CODE_MAX];
    element(&resp->body, "<Code>", code);
    char region[S3_REGION_MAX];
    if (s3_error_moved(resp, region))
        return elsewhere(q, resp, region);
    const struct known *k = find_known(code);
    if (!k && cut_short(resp))
        return error_set(-EAGAIN, "%s: the answer of %s was cut short (status %d)", q->what, q->endpoint, resp->status);
    if (!k)
        return by_status(q, resp, code);
    return error_set(k->rc, "%s: %s (%s from %s)", q->what, k->meaning, code, q->endpoint);
}

int s3_error(const struct s3_refusal *q, const struct http_response *resp)
{
    int rc = s3_error_judge(q, resp);
    return rc == -EAGAIN ? error_retry_after(rc, (unsigned)GR_MAX(resp->retry_after_s, 0)) : rc;
}
