/* Receive an answer: take its headers, check that it is the requested range, and pass on its body.
 *
 *   status line -> headers -> first body byte: judge_range -> body to the sink, to resp->body, or cut as an error text
 *
 * Each status line begins a new answer; nothing is kept of an earlier one (100 Continue). The range is checked before
 * the sink sees a byte, so a server that ignores Range cannot feed it wrong bytes.
 */
#include "net/http_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/error.h"

enum { ERROR_BODY_READ_MAX = 1 << 20, HEADER_LINE_MAX = 32 << 10 };

/* Copy a header's value; empty if it is too long. */
static void copy_value(char *out, size_t size, const char *value, size_t len)
{
    out[0] = 0;
    if (len >= size)
        return;
    memcpy(out, value, len);
    out[len] = 0;
}

/* Scan a number and, unless `next` is 0, the byte that must follow it. Returns the position after them; NULL: they
 * are not there. */
static const char *scan_number(const char *p, char next, uint64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoull(p, &end, 10);
    if (*p < '0' || *p > '9' || errno || *out > INT64_MAX || (next && *end != next))
        return NULL;
    return end + (next != 0);
}

/* Take "bytes FIRST-LAST/TOTAL" (RFC 9110, 14.4); the range or the total may be "*". */
static void take_content_range(struct http_transfer *t, const char *value)
{
    uint64_t first, last, total;
    if (strncmp(value, "bytes ", 6))
        return;
    const char *p = value + 6;
    if (*p == '*') {
        p += p[1] == '/' ? 2 : 1;
    } else {
        p = scan_number(p, '-', &first);
        p = p ? scan_number(p, '/', &last) : NULL;
        t->has_range = p && first <= last;
        t->range_first = p ? first : 0;
        t->range_last = p ? last : 0;
    }
    if (p && scan_number(p, 0, &total))
        t->resp->range_total = (int64_t)total;
}

static int64_t number(const char *value)
{
    uint64_t n;
    return scan_number(value, 0, &n) ? (int64_t)n : -1;
}

void http_answer_begin(struct http_transfer *t, const char *line)
{
    struct http_response *r = t->resp;
    const char *space = strchr(line, ' ');
    r->status = space ? (int)number(space + 1) : 0;
    r->etag[0] = r->bucket_region[0] = 0;
    free(r->location);
    r->location = NULL;
    r->content_length = r->range_total = r->last_modified = r->date = r->node = -1;
    r->retry_after_s = -1;
    r->sink_stopped = false;
    t->has_range = t->judged = false;
}

static char *take_location(struct http_transfer *t, const char *value)
{
    free(t->resp->location);
    char *copy = strdup(value);
    if (!copy)
        t->failed = error_no_memory();
    return copy;
}

/* Return a Retry-After, which is a number of seconds or a date, in seconds. */
static int retry_after(const char *value)
{
    int64_t seconds = *value >= '0' && *value <= '9' ? number(value) : curl_getdate(value, NULL) - time(NULL);
    return (int)GR_MAX(GR_MIN(seconds, (int64_t)INT_MAX), (int64_t)-1);
}

static void take_header(struct http_transfer *t, const char *name, const char *value)
{
    struct http_response *r = t->resp;
    if (!strcasecmp(name, "etag"))
        copy_value(r->etag, sizeof r->etag, value, strlen(value));
    else if (!strcasecmp(name, "content-length"))
        r->content_length = number(value);
    else if (!strcasecmp(name, "content-range"))
        take_content_range(t, value);
    else if (!strcasecmp(name, "last-modified"))
        r->last_modified = curl_getdate(value, NULL);
    else if (!strcasecmp(name, "date"))
        r->date = curl_getdate(value, NULL);
    else if (!strcasecmp(name, "retry-after"))
        r->retry_after_s = retry_after(value);
    else if (!strcasecmp(name, "location"))
        r->location = take_location(t, value);
    else if (!strcasecmp(name, "x-amz-bucket-region"))
        copy_value(r->bucket_region, sizeof r->bucket_region, value, strlen(value));
    else if (!strcasecmp(name, HTTP_NODE_HEADER))
        r->node = number(value);
}

/* Take one header line, which does not end in a NUL. Overlong lines are skipped: no header used here is that long. */
size_t http_answer_header(char *data, size_t one, size_t len, void *arg)
{
    struct http_transfer *t = arg;
    char line[HEADER_LINE_MAX];
    size_t n = len;
    while (n && (data[n - 1] == '\n' || data[n - 1] == '\r' || data[n - 1] == ' '))
        n--;
    if (n >= sizeof line)
        return len;
    memcpy(line, data, n);
    line[n] = 0;
    if (strncmp(line, "HTTP/", 5) == 0) {
        http_answer_begin(t, line);
        return len;
    }
    char *colon = strchr(line, ':');
    if (colon) {
        *colon = 0;
        take_header(t, line, colon + 1 + strspn(colon + 1, " \t"));
    }
    return t->failed ? 0 : len;
}

static bool successful(const struct http_transfer *t)
{
    return t->resp->status >= 200 && t->resp->status < 300;
}

/* Before the first body byte of a successful answer to a range request: check that these are the requested bytes. Sets
 * t->failed if not. An answer that ends early because the object does counts as a 416. A whole object (200) is accepted
 * if it is exactly the range. */
static void judge_range(struct http_transfer *t)
{
    const struct http_request *q = t->req;
    if (t->judged || !q->range_len || !successful(t))
        return;
    t->judged = true;
    uint64_t last = q->range_off + q->range_len - 1;
    if (t->resp->status != 206) {
        if (q->range_off || t->resp->content_length != (int64_t)q->range_len)
            t->failed = error_set(-ENOTSUP,
                                  "%s: the server ignores Range requests (it answered %d); use one that "
                                  "supports them",
                                  t->host, t->resp->status);
    } else if (t->has_range && t->range_first == q->range_off && t->range_last < last &&
               t->resp->range_total == (int64_t)t->range_last + 1) {
        t->resp->status = 416;
        t->enough = true;
    } else if (!t->has_range || t->range_first != q->range_off || t->range_last != last) {
        t->failed = error_set(-EIO, "%s: the server sent another range than the one asked for", t->host);
    }
}

/* Keep the beginning of an error's body, for the sentence, and drop the rest. */
static int keep_error_body(struct http_transfer *t, const void *data, size_t len)
{
    struct bytes *body = &t->resp->body;
    size_t room = body->len < HTTP_ERROR_BODY_MAX ? HTTP_ERROR_BODY_MAX - body->len : 0;
    body->max = HTTP_ERROR_BODY_MAX;
    /* Reading a short rest keeps the connection usable; a long one is not worth it. */
    t->enough |= t->received > ERROR_BODY_READ_MAX;
    return bytes_append(body, data, GR_MIN(len, room));
}

/* Pass a piece of the body on. */
static int take_body(struct http_transfer *t, const void *data, size_t len)
{
    judge_range(t);
    if (t->failed || t->enough)
        return t->failed;
    t->received += len;
    if (!successful(t))
        return keep_error_body(t, data, len);
    if (t->req->range_len && t->received > t->req->range_len)
        return error_set(-EIO, "%s: the server sent more bytes than were asked for", t->host);
    if (t->req->sink) {
        int stop = t->req->sink(t->req->sink_arg, data, len);
        t->resp->sink_stopped = stop != 0;
        return stop;
    }
    t->resp->body.max = t->body_max;
    int rc = bytes_append(&t->resp->body, data, len);
    return rc == -EMSGSIZE ? error_set(rc, "%s: the answer is larger than the %zu bytes allowed", t->host, t->body_max)
                           : rc;
}

int http_transfer_pay(struct http_transfer *t, uint64_t n)
{
    return rate_take(t->rate, n, t->cancel) ? 0 : http_transfer_cancelled(t);
}

int http_transfer_cancelled(struct http_transfer *t)
{
    return error_set(-EAGAIN, "%s: interrupted", t->host);
}

size_t http_answer_body(char *data, size_t one, size_t len, void *arg)
{
    struct http_transfer *t = arg;
    t->failed = http_transfer_pay(t, len);
    if (!t->failed)
        t->failed = take_body(t, data, len);
    return t->failed || t->enough ? 0 : len;
}

int http_answer_end(struct http_transfer *t)
{
    judge_range(t); /* not done yet for an answer without a body */
    if (!t->failed && t->req->range_len && successful(t) && t->received < t->req->range_len)
        t->failed = error_set(-EAGAIN, "%s: the answer ended after %llu of %llu bytes", t->host,
                              (unsigned long long)t->received, (unsigned long long)t->req->range_len);
    return t->failed;
}
