/* JSON is told from HTML by its first byte. Of HTML only the title and the links (<a href=...>) are looked at. */
#include "imagebuild/source/http_index.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "net/http.h"

enum { LINK_MAX_BYTES = 64 << 10 };

struct decoder {
    const char *p, *end;
    const char *directory;
    http_index_visit *visit;
    void *arg;
    struct bytes link, last; /* last: the link taken last, to pass over its icon's twin */
};

static int no_index(const struct decoder *d)
{
    return error_set(-EBADMSG,
                     "%.300s is no index page of nginx or Apache; switch on autoindex, or name the files by "
                     "--files-from",
                     d->directory);
}

/* ------------------------------------------------------------------ characters of HTML */

static const struct {
    const char *name;
    char c;
} entities[] = {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}};

/* "#38;", "#x26;": below 128 alone; others stand as bytes or percent escapes in links. Its length, 0: none. */
static size_t numeric_entity(const char *p, size_t left, char *out)
{
    size_t at = 1, digits = 0;
    unsigned value = 0, base = 10;
    if (left > 1 && (p[1] == 'x' || p[1] == 'X')) {
        base = 16;
        at = 2;
    }
    for (; at < left && digits < 4; at++, digits++) {
        const char *all = "0123456789abcdef", *digit = p[at] ? strchr(all, p[at] | 0x20) : NULL;
        if (!digit || (unsigned)(digit - all) >= base)
            break;
        value = value * base + (unsigned)(digit - all);
    }
    if (!digits || at >= left || p[at] != ';' || !value || value > 127)
        return 0;
    *out = (char)value;
    return at + 1;
}

/* The entity behind '&' at p: its length, 0: none that is known. */
static size_t entity(const char *p, size_t left, char *out)
{
    if (left && *p == '#')
        return numeric_entity(p, left, out);
    for (size_t i = 0; i < GR_ARRAY_SIZE(entities); i++) {
        size_t n = strlen(entities[i].name);
        if (left >= n && !memcmp(p, entities[i].name, n)) {
            *out = entities[i].c;
            return n;
        }
    }
    return 0;
}

/* The attribute's text with entities resolved, into d->link. */
static int take_text(struct decoder *d, const char *p, size_t len)
{
    bytes_clear(&d->link);
    for (size_t at = 0; at < len;) {
        char c = p[at++];
        if (c == '&')
            at += entity(p + at, len - at, &c);
        int rc = bytes_append(&d->link, &c, 1);
        if (rc)
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ links */

/* What of a link lies below the directory; NULL: it does not. */
static const char *below(const char *directory, const char *link)
{
    const char *path = strstr(directory, "://");
    path = path ? strchr(path + 3, '/') : directory;
    const char *prefix = strstr(link, "://") ? directory : *link == '/' ? path : "";
    size_t n = prefix ? strlen(prefix) : 0;
    if (!prefix || strncmp(link, prefix, n) != 0)
        return NULL;
    link += n;
    return !strncmp(link, "./", 2) ? link + 2 : link;
}

static bool is_child(const char *name, size_t len)
{
    return len && !memchr(name, '/', len) && !memchr(name, 0, len) && !(len <= 2 && !memcmp(name, "..", len));
}

/* A link as it stands in d->link. */
static int take_link(struct decoder *d)
{
    char *link = bytes_string(&d->link);
    if (!link)
        return error_no_memory();
    if (strlen(link) != d->link.len || strpbrk(link, "?#"))
        return 0;
    const char *child = below(d->directory, link);
    size_t len = child ? strlen(child) : 0;
    bool directory = len && child[len - 1] == '/';
    if (!len || (!directory && *child != '.' && strchr(child, ':'))) /* mailto: */
        return 0;
    char *name = link + (child - link);
    long n = http_percent_decode(name, len - directory);
    if (n < 0 || !is_child(name, (size_t)n))
        return 0;
    if (d->last.len == (size_t)n && !memcmp(d->last.data, name, (size_t)n))
        return 0;
    bytes_clear(&d->last);
    int rc = bytes_append(&d->last, name, (size_t)n);
    const struct http_index_entry e = {.name = name, .name_len = (size_t)n, .directory = directory};
    return rc ? rc : d->visit(d->arg, &e);
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The value of the attribute href within a tag's text; NULL: it has none. */
static const char *find_href(const char *p, const char *end, size_t *out_len)
{
    for (; p + 5 < end; p++) {
        if (!is_blank(p[-1]) || strncasecmp(p, "href", 4) != 0)
            continue;
        const char *value = p + 4;
        while (value < end && is_blank(*value))
            value++;
        if (value == end || *value != '=')
            continue;
        do
            value++;
        while (value < end && is_blank(*value));
        if (value == end || (*value != '"' && *value != '\''))
            return NULL;
        const char *close = memchr(value + 1, *value, (size_t)(end - value - 1));
        *out_len = close ? (size_t)(close - value - 1) : 0;
        return close ? value + 1 : NULL;
    }
    return NULL;
}

/* The '>' of the tag at p, past quoted text; NULL: none. */
static const char *tag_end(const char *p, const char *end)
{
    for (char quote = 0; p < end; p++) {
        if (quote ? *p == quote : *p == '"' || *p == '\'')
            quote = quote ? 0 : *p;
        else if (!quote && *p == '>')
            return p;
    }
    return NULL;
}

static bool holds(const char *text, size_t len, const char *part)
{
    return memmem(text, len, part, strlen(part)) != NULL;
}

/* "<title>Index of /x/</title>": what all servers' own index pages say. */
static bool has_title(const char *page, size_t len)
{
    for (const char *p = page, *end = page + len; (p = memchr(p, '<', (size_t)(end - p))); p++)
        if (end - p > 7 && !strncasecmp(p, "<title>", 7)) {
            const char *close = memchr(p + 7, '<', (size_t)(end - p - 7));
            size_t n = close ? (size_t)(close - p - 7) : 0;
            return holds(p + 7, n, "Index of") || holds(p + 7, n, "Directory listing");
        }
    return false;
}

static int decode_html(struct decoder *d)
{
    if (!has_title(d->p, (size_t)(d->end - d->p)))
        return no_index(d);
    while ((d->p = memchr(d->p, '<', (size_t)(d->end - d->p)))) {
        const char *tag = ++d->p, *close = tag_end(tag, d->end);
        if (!close)
            return 0;
        d->p = close;
        size_t len;
        const char *href =
            close - tag > 2 && (*tag | 0x20) == 'a' && is_blank(tag[1]) ? find_href(tag + 2, close, &len) : NULL;
        int rc = href ? take_text(d, href, len) : 0;
        if (!rc && href)
            rc = take_link(d);
        if (rc && rc != -EMSGSIZE) /* a link that long names nothing that could be kept */
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ JSON */

static int http_index_take_object(void *arg, const struct http_index_object *o)
{
    const struct decoder *d = arg;
    struct http_index_entry e = {.name = o->name, .name_len = o->name_len, .directory = o->directory};
    struct tm when = {0};
    if (!o->directory && !o->file)
        return 0;
    if (!is_child(o->name, o->name_len))
        return 0;
    const char *end = strptime(o->mtime, "%a, %d %b %Y %H:%M:%S GMT", &when);
    e.exact = end && !*end && (o->directory || o->have_size);
    e.size = o->directory ? 0 : o->size;
    e.mtime = e.exact ? timegm(&when) : 0;
    return d->visit(d->arg, &e);
}

int http_index_decode(const void *page, size_t len, const char *directory, http_index_visit *visit, void *arg)
{
    struct decoder d = {.p = page,
                        .end = (const char *)page + len,
                        .directory = directory,
                        .visit = visit,
                        .arg = arg,
                        .link = BYTES_INIT(LINK_MAX_BYTES),
                        .last = BYTES_INIT(LINK_MAX_BYTES)};
    while (d.p < d.end && is_blank(*d.p))
        d.p++;
    int rc;
    if (d.p < d.end && *d.p == '[') {
        rc = http_index_json_decode(d.p, (size_t)(d.end - d.p), http_index_take_object, &d);
        rc = rc == -EBADMSG ? no_index(&d) : rc;
    } else {
        rc = d.p < d.end ? decode_html(&d) : no_index(&d);
    }
    bytes_release(&d.link);
    bytes_release(&d.last);
    return rc;
}
