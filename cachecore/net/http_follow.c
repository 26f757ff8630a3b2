/* Redirects are followed here and not by libcurl, because each request is checked by http.c, credentials must not reach
 * another host, and the final address is needed for sentences and for the links of an index page. Locations are
 * resolved with libcurl's URL parser.
 */
#include "net/http.h"

#include <assert.h>
#include <curl/curl.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"

/* The redirects followed so far. */
struct route {
    CURLU *at;          /* the address of the next request */
    char *url;          /* the same as text */
    unsigned redirects; /* followed */
    bool known;         /* every address so far had the scheme, host and port of the first */
};

/* Is this answer a redirect to follow? */
static bool leads_on(const struct http_response *resp)
{
    int s = resp->status;
    return resp->location && (s == 301 || s == 302 || s == 303 || s == 307 || s == 308);
}

/* Get a part of a parsed address. That fails only when out of memory. */
static int part_of(CURLU *u, CURLUPart part, char **out)
{
    return curl_url_get(u, part, out, part == CURLUPART_PORT ? CURLU_DEFAULT_PORT : 0) ? error_no_memory() : 0;
}

/* Set *same: do both addresses have the same scheme, host and port? */
static int compare_origin(CURLU *from, CURLU *to, bool *same)
{
    static const CURLUPart parts[] = {CURLUPART_SCHEME, CURLUPART_HOST, CURLUPART_PORT};
    *same = true;
    for (size_t i = 0; i < GR_ARRAY_SIZE(parts); i++) {
        char *a = NULL, *b = NULL;
        int rc = part_of(from, parts[i], &a);
        if (!rc)
            rc = part_of(to, parts[i], &b);
        *same &= !rc && !strcasecmp(a, b);
        curl_free(a);
        curl_free(b);
        if (rc)
            return rc;
    }
    return 0;
}

/* Resolve location against `to`, which holds the current address, and leave the target there. from: the current address
 * as text. */
static int resolve(CURLU *to, const char *from, const char *location)
{
    CURLUcode code = curl_url_set(to, CURLUPART_URL, location, CURLU_URLENCODE | CURLU_PATH_AS_IS);
    char *scheme = NULL, text[HTTP_SHOWN_MAX];
    if (code == CURLUE_OUT_OF_MEMORY)
        return error_no_memory();
    bool web = !code && !curl_url_get(to, CURLUPART_SCHEME, &scheme, 0) &&
               (!strcmp(scheme, "http") || !strcmp(scheme, "https"));
    bool plain = web && !strcmp(scheme, "http") && !strncasecmp(from, "https:", 6);
    curl_free(scheme);
    if (!web)
        return error_set(-EBADMSG, "it is redirected to '%s', which is no address of a web server",
                         http_shown(location, text));
    if (plain)
        return error_set(-EACCES,
                         "it is redirected from https to '%s', which anybody on the way could change; it is not "
                         "followed",
                         http_shown(location, text));
    return 0;
}

/* Go on to a redirect's target. */
static int go_on(struct route *w, const char *location)
{
    CURLU *to = curl_url_dup(w->at);
    char *url = NULL;
    bool same = false;
    int rc = to ? resolve(to, w->url, location) : error_no_memory();
    if (!rc)
        rc = compare_origin(w->at, to, &same);
    /* A user and password in the target would be sent as ours; a fragment is never sent. */
    if (!rc && (curl_url_set(to, CURLUPART_USER, NULL, 0) || curl_url_set(to, CURLUPART_PASSWORD, NULL, 0) ||
                curl_url_set(to, CURLUPART_FRAGMENT, NULL, 0) || curl_url_get(to, CURLUPART_URL, &url, 0)))
        rc = error_no_memory();
    if (rc) {
        curl_url_cleanup(to);
        return rc;
    }
    curl_url_cleanup(w->at);
    curl_free(w->url);
    w->at = to;
    w->url = url;
    w->known &= same;
    w->redirects++;
    return 0;
}

/* Remove the credentials from a request to another host. */
static void tell_nobody(struct http_request *req)
{
    size_t kept = 0;
    req->netrc = NULL;
    for (size_t i = 0; i < HTTP_HEADERS_MAX && req->headers[i]; i++)
        if (strncasecmp(req->headers[i], "authorization:", 14) != 0)
            req->headers[kept++] = req->headers[i];
    if (kept < HTTP_HEADERS_MAX)
        req->headers[kept] = NULL;
}

/* Parse the request's own address, from which the first redirect is resolved. */
static int http_follow_begin(struct route *w, const char *url)
{
    char text[HTTP_SHOWN_MAX];
    *w = (struct route){.at = curl_url(), .known = true};
    CURLUcode code = w->at ? curl_url_set(w->at, CURLUPART_URL, url, CURLU_PATH_AS_IS) : CURLUE_OUT_OF_MEMORY;
    if (code && code != CURLUE_OUT_OF_MEMORY)
        return error_set(-EINVAL, "'%s' is no address of a web server", http_shown(url, text));
    return code || curl_url_get(w->at, CURLUPART_URL, &w->url, 0) ? error_no_memory() : 0;
}

/* Follow redirects until an answer is none; *resp is the last answer. */
static int http_follow_follow(struct http *h, const struct http_request *req, struct http_response *resp,
                              struct route *w)
{
    struct http_request next = *req;
    char text[HTTP_SHOWN_MAX];
    int rc = http_follow_begin(w, req->url);
    while (!rc && leads_on(resp)) {
        if (w->redirects == HTTP_FOLLOW_MAX)
            return error_set(-EIO, "it is redirected more than %d times, the last time to '%s'; a loop, most likely",
                             HTTP_FOLLOW_MAX, http_shown(resp->location, text));
        rc = go_on(w, resp->location);
        next.url = w->url;
        if (!w->known)
            tell_nobody(&next);
        if (!rc)
            rc = http_do(h, &next, resp);
    }
    return rc;
}

int http_follow(struct http *h, const struct http_request *req, struct http_response *resp, char **out_url)
{
    struct route route = {0};
    *out_url = NULL;
    assert(!req->signer && (!strcmp(req->method, "GET") || !strcmp(req->method, "HEAD")));
    int rc = http_do(h, req, resp);
    if (rc || !leads_on(resp))
        return rc;
    rc = http_follow_follow(h, req, resp, &route);
    if (route.redirects && !(*out_url = strndup(route.url, strcspn(route.url, "?"))) && !rc)
        rc = error_no_memory();
    curl_free(route.url);
    curl_url_cleanup(route.at);
    return rc;
}
