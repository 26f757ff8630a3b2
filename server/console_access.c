/* Two tokens: one to look, one to act. A browser sends them in a header that the page's script sets, and never by
 * itself as it does cookies: so no other page can use them. */
#include "server/console_internal.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"

#define SCHEME "Bearer "

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~')
            return false;
    return true;
}

int console_token_read(const char *what, const char *path, struct digest *out)
{
    struct bytes text CLEANUP(bytes_wipe) = BYTES_INIT(CONSOLE_TOKEN_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return error_prefix(rc, "%s", what);
    while (text.len && text.data[text.len - 1] == '\n')
        text.len--;
    char *line = bytes_string(&text);
    if (!line)
        return error_set(-EINVAL, "%s: %s is too long for a token; make one by: openssl rand -hex 32 >%s", what, path,
                         path);
    bool whole = strlen(line) == text.len; /* else it has a NUL */
    const char *token = text_trim(line);
    if (!whole || strlen(token) < CONSOLE_TOKEN_LEAST || !is_printable(token))
        return error_set(-EINVAL,
                         "%s: %s is no line of %d printable characters or more; make one by: openssl rand -hex 32 >%s",
                         what, path, CONSOLE_TOKEN_LEAST, path);
    *out = digest_of(token, strlen(token));
    return 0;
}

bool console_token_is(const struct digest *token, const char *authorization)
{
    if (!authorization || strncasecmp(authorization, SCHEME, sizeof SCHEME - 1) != 0)
        return false;
    const char *given = authorization + sizeof SCHEME - 1;
    struct digest digest = digest_of(given, strlen(given));
    return digest_equal(&digest, token);
}

/* Copy the name of HOST, HOST:PORT or [V6]:PORT. false: it does not fit. */
static bool name_of_host(const char *host, char *out, size_t size)
{
    const char *from = *host == '[' ? host + 1 : host;
    size_t len = *host == '[' ? strcspn(from, "]") : strcspn(from, ":");
    if (len >= size)
        return false;
    memcpy(out, from, len);
    out[len] = 0;
    return true;
}

bool console_host_is_own(const struct console_access *a, const char *host)
{
    struct in6_addr address;
    char name[256];
    if (!host || !name_of_host(host, name, sizeof name))
        return false;
    return !strcasecmp(name, "localhost") || !strcasecmp(name, a->host) || inet_pton(AF_INET, name, &address) == 1 ||
           inet_pton(AF_INET6, name, &address) == 1;
}
