/* A request that goes on to where redirects lead, for servers that only know where bytes lie (dataset hosts in front of
 * a CDN). Each call begins at the request's own address: what a redirect names may hold a signature that expires.
 */
#ifndef GRANARY_NET_HTTP_FOLLOW_H
#define GRANARY_NET_HTTP_FOLLOW_H

#include "net/http.h"

enum { HTTP_FOLLOW_MAX = 10 };

/* http_do() for GET and HEAD, following at most HTTP_FOLLOW_MAX redirects (301, 302, 303, 307, 308 with a Location).
 * Method, range and headers go on, but who asks (an Authorization header, netrc) is told to no other scheme, host or
 * port than the request's own, nor to that one once the way has left it; nothing that signs the request may be set.
 *
 * *out_url: the address of the answer, without query, when it is another than the request's; the caller's to free, also
 * after an error; else NULL. As http_do(), and -EACCES: from https to http; -EIO: too many; -EBADMSG: to what is no
 * address of a web server. Sentences show neither what stands behind '?' nor a name and password. */
GR_MUST_CHECK int http_follow(struct http *h, const struct http_request *req, struct http_response *resp,
                              char **out_url);

#endif
