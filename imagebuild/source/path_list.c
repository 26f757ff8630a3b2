/* Each line is read into one buffer and turned into a path in place: columns are cut off, an address is decoded, and
 * the path is cleaned. Each step only shortens the text, so no second buffer is needed. */
#include "imagebuild/source/path_list.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "format/catalog.h"
#include "net/http.h"

enum { LINE_MAX_BYTES = 3 * CATALOG_PATH_MAX + 4096 }; /* a percent-encoded path, and the source's address before it */

struct path_list {
    FILE *file;
    struct path_list_config config;
    char *line;
    size_t cap, len;         /* bytes: of the buffer, of the current line */
    uint64_t number;         /* of the current line, from 1 */
    bool pending;            /* the current line was read by path_list_absolute and not returned yet */
    bool one_kind, absolute; /* one_kind: all paths must begin with a slash, or none (absolute) */
};

const char *path_list_name(const struct path_list *l)
{
    return strcmp(l->config.file, "-") != 0 ? l->config.file : "standard input";
}

int path_list_open(const struct path_list_config *config, struct path_list **out)
{
    struct path_list *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->config = *config;
    l->file = strcmp(config->file, "-") != 0 ? fopen(config->file, "re") : stdin;
    if (!l->file) {
        free(l);
        return error_set(-errno, "cannot read the list of files %s: %s", config->file, strerror(errno));
    }
    *out = l;
    return 0;
}

void path_list_close(struct path_list *l)
{
    if (l && l->file != stdin)
        fclose(l->file);
    if (l)
        free(l->line);
    free(l);
}

/* Return -EINVAL for the current line. */
static int path_list_refuse(const struct path_list *l, const char *why)
{
    return error_set(-EINVAL, "%s:%llu: %s", path_list_name(l), (unsigned long long)l->number, why);
}

/* Read the next line that is neither empty nor a comment, without its delimiter. Return 1, or 0 at the end. */
static int read_line(struct path_list *l)
{
    int delimiter = l->config.nul ? 0 : '\n';
    if (l->pending) {
        l->pending = false;
        return 1;
    }
    for (;;) {
        errno = 0;
        ssize_t n = getdelim(&l->line, &l->cap, delimiter, l->file);
        if (n < 0 && ferror(l->file))
            return error_set(-EIO, "cannot read %s: %s", path_list_name(l), strerror(errno));
        if (n < 0)
            return errno == ENOMEM ? error_no_memory() : 0;
        l->number++;
        l->len = (size_t)n - (l->line[n - 1] == delimiter);
        l->line[l->len] = 0;
        /* a list with the other delimiter looks like one huge line */
        if (l->len > LINE_MAX_BYTES)
            return path_list_refuse(l, l->config.nul ? "over 200 KB without a NUL; are the paths ended by newlines?"
                                                     : "over 200 KB without a newline; with -0 paths are ended by NUL");
        if (memchr(l->line, 0, l->len))
            return path_list_refuse(l, "a NUL byte within a line; with -0 paths are ended by NUL");
        if (l->len && !(l->config.web_base && *l->line == '#'))
            return 1;
    }
}

/* Read the first line ahead; path_list_next returns it later. */
int path_list_absolute(struct path_list *l, bool *out)
{
    int rc = read_line(l);
    if (rc < 0)
        return rc;
    if (!rc)
        return error_set(-EINVAL, "%s is empty: no file is named", path_list_name(l));
    l->pending = l->one_kind = true;
    *out = l->absolute = *l->line == '/';
    return 0;
}

/* ".." is refused rather than resolved: with a symbolic link before it, it would not mean what its text says. */
ssize_t path_clean(char *path, size_t len)
{
    size_t to = 0;
    for (size_t at = 0; at < len;) {
        const char *slash = memchr(path + at, '/', len - at);
        size_t n = slash ? (size_t)(slash - path) - at : len - at;
        if (n == 2 && !memcmp(path + at, "..", 2))
            return -EINVAL;
        if (n && !(n == 1 && path[at] == '.')) {
            if (to)
                path[to++] = '/';
            memmove(path + to, path + at, n);
            to += n;
        }
        at += n + 1;
    }
    return (ssize_t)to;
}

/* Return the path that an address below the source's means, decoded in place; NULL, with a sentence, if it is not
 * below it or malformed. */
static char *path_of_address(const struct path_list *l, char *text)
{
    const char *base = l->config.web_base;
    size_t n = strlen(base);
    while (n && base[n - 1] == '/')
        n--;
    /* http://host/ab is not below http://host/a */
    if (strncmp(text, base, n) != 0 || (text[n] && text[n] != '/')) {
        (void)error_set(-EINVAL, "%s:%llu: '%.300s' does not lie below %s", path_list_name(l),
                        (unsigned long long)l->number, text, base);
        return NULL;
    }
    /* unescaped, these begin a query or a fragment */
    if (strpbrk(text, "?#")) {
        (void)path_list_refuse(l, "an address with '?' or '#' names no file here; write its path, with %3F or %23");
        return NULL;
    }
    long len = http_percent_decode(text + n, strlen(text + n));
    if (len < 0 || memchr(text + n, 0, (size_t)len)) {
        (void)path_list_refuse(l, "the address has a wrong percent escape");
        return NULL;
    }
    text[n + (size_t)len] = 0;
    return text + n;
}

/* Read the columns behind the path: size, which may be empty, and digest. */
static int take_columns(const struct path_list *l, char *size, struct source_ask *out)
{
    char *digest = strchr(size, '\t');
    if (digest)
        *digest++ = 0;
    if (*size && text_parse_uint("size", size, 0, INT64_MAX, &out->size))
        return path_list_refuse(l, "the second column is no size in bytes");
    out->have_size = *size != 0;
    if (!digest || !*digest)
        return 0;
    if (digest_parse(digest, strlen(digest), &out->sha256))
        return path_list_refuse(l, "the third column is no SHA-256 of 64 lower-case hex digits");
    out->have_sha256 = true;
    return 0;
}

int path_list_next(struct path_list *l, struct source_ask *out)
{
    int rc = read_line(l);
    *out = (struct source_ask){0};
    if (rc <= 0)
        return rc;
    char *path = l->line;
    /* only a web server's list has columns; elsewhere a tab is part of the name */
    char *tab = l->config.web_base ? strchr(path, '\t') : NULL;
    if (tab) {
        *tab = 0;
        rc = take_columns(l, tab + 1, out);
        if (rc)
            return rc;
    }
    if (l->one_kind && (*path == '/') != l->absolute)
        return path_list_refuse(l, "absolute and relative paths are mixed; write all of them one way");
    if (l->config.web_base && (!strncmp(path, "http://", 7) || !strncmp(path, "https://", 8)))
        path = path_of_address(l, path);
    if (!path)
        return -EINVAL;
    ssize_t len = path_clean(path, strlen(path));
    if (len < 0)
        return path_list_refuse(l, "a path with '..' is not followed; write it without");
    /* the path may be within the line, behind the base's address */
    path[len] = 0;
    out->path = path;
    out->path_len = (size_t)len;
    return 1;
}
