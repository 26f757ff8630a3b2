/* Credentials for web servers: a bearer token from a file, or the path of a netrc file, which libcurl reads. Tokens
 * are erased from memory after use, and no message contains one. */
#include "imagebuild/source/source_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"

static const char bearer[] = "Authorization: Bearer ";

/* Return whether the text is one token: printable ASCII without blanks. A newline within it would add a header line. */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return len > 0;
}

/* Make the header line from the file's contents. */
static int take_token(const struct bytes *text, const char *file, char **out)
{
    static const char around[] = " \t\r\n";
    const char *token = (const char *)text->data;
    size_t len = text->len;
    for (; len && memchr(around, *token, sizeof around - 1); len--)
        token++;
    while (len && memchr(around, token[len - 1], sizeof around - 1))
        len--;
    /* the sentence must not quote the token, not even a malformed one */
    if (!is_token(token, len))
        return error_set(
            -EBADMSG, "--http-token-file: %s holds no token: one line of printable characters, without blanks", file);
    char *line = malloc(sizeof bearer + len);
    if (!line)
        return error_no_memory();
    memcpy(line, bearer, sizeof bearer - 1);
    memcpy(line + sizeof bearer - 1, token, len);
    line[sizeof bearer - 1 + len] = 0;
    *out = line;
    return 0;
}

int http_login_read(const char *token_file, char **out)
{
    CLEANUP_BYTES text = BYTES_INIT(HTTP_LOGIN_TOKEN_MAX);
    int rc = io_read_file(token_file, &text);
    if (rc)
        return error_set(rc == -ENOMEM ? rc : -EIO, "--http-token-file: the token cannot be read from %s: %s",
                         token_file, rc == -EMSGSIZE ? "the file is too long for one" : strerror(-rc));
    rc = take_token(&text, token_file, out);
    explicit_bzero(text.data, text.len);
    return rc;
}

void http_login_free(char *line)
{
    if (line)
        explicit_bzero(line, strlen(line));
    free(line);
}

/* No netrc file is the normal case, not an error: requests then carry no credentials. */
char *http_login_netrc(void)
{
    const char *set = getenv("NETRC"), *home = getenv("HOME");
    char *path = NULL;
    if (set ? asprintf(&path, "%s", set) < 0 : !home || asprintf(&path, "%s/.netrc", home) < 0)
        return NULL;
    if (!access(path, R_OK))
        return path;
    free(path);
    return NULL;
}
