/* The text of URLs: percent-encoding in the strict form of AWS Signature Version 4, what a sentence may show of an
 * address, and which addresses a user may give.
 *
 * A signature covers the encoded path and query, so both sides must encode in exactly the same way: unreserved
 * characters of RFC 3986 stay, everything else is escaped with upper-case digits.
 */
#include "net/http.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

static bool unreserved(unsigned char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_' || c == '~';
}

int http_percent_encode(struct bytes *out, const char *text, size_t len, bool keep_slash)
{
    static const char digits[] = "0123456789ABCDEF";
    size_t before = out->len;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        char escaped[3] = {'%', digits[c >> 4], digits[c & 15]};
        bool plain = unreserved(c) || (c == '/' && keep_slash);
        int rc = plain ? bytes_append(out, &c, 1) : bytes_append(out, escaped, 3);
        if (rc) {
            out->len = before;
            return rc;
        }
    }
    return 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

long http_percent_decode(char *text, size_t len)
{
    size_t w = 0;
    for (size_t r = 0; r < len; r++) {
        if (text[r] != '%') {
            text[w++] = text[r];
            continue;
        }
        int high = r + 2 < len ? hex_value(text[r + 1]) : -1, low = high >= 0 ? hex_value(text[r + 2]) : -1;
        if (low < 0)
            return -EBADMSG;
        text[w++] = (char)(high << 4 | low);
        r += 2;
    }
    return (long)w;
}

/* Queries may contain signatures, and a name and password stand before an '@'. Where an '@' occurs at all, nothing is
 * shown, since telling a password from a path is not worth a mistake. */
const char *http_shown(const char *url, char out[HTTP_SHOWN_MAX])
{
    if (strchr(url, '@'))
        return "(not shown)";
    snprintf(out, HTTP_SHOWN_MAX, "%.*s", (int)GR_MIN(strcspn(url, "?#"), (size_t)HTTP_SHOWN_MAX - 1), url);
    return out;
}

/* RFC 3986 allows an empty port. In an address that a user wrote, it is a port that was left out: "http://host:$PORT".
 */
bool http_port_missing(const char *url)
{
    const char *scheme = strstr(url, "://"), *host = scheme ? scheme + 3 : url;
    size_t len = strcspn(host, "/?#");
    return len && host[len - 1] == ':';
}

int http_check_url(const char *what, const char *url, const char *instead)
{
    const char *host = strstr(url, "://") + 3;
    size_t len = strcspn(host, "/");
    if (memchr(host, '@', len))
        return error_set(-EINVAL, "%s: credentials do not belong in the address; %s", what, instead);
    if (!len || host[strcspn(host, "?# ")] || http_port_missing(url))
        return error_set(-EINVAL, "%s %s: it must look like http://host[:port]/path, without '?', '#' or spaces", what,
                         url);
    return 0;
}
