/* The first byte tells JSON from HTML.
 *
 * Of HTML, only the title and the links are read: <a href="...">. That is all that the pages of different servers
 * have in common; sizes and times are rounded and formatted for people. A link counts if it leads to a child of the
 * directory:
 *
 *   attribute text -> entities resolved -> relative or absolute? -> below the directory? -> percent-decoded -> one name
 *   a&amp;b%20c       a&b%20c              relative                 yes                     a&b c
 */
#include "imagebuild/source/http_index.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/bytes.h"
#include "base/error.h"
#include "net/http.h"

/* ------------------------------------------------------------------ nginx's JSON */

/* A scanner for nginx's autoindex_format json, an array of flat objects:
 *
 *   [ { "name":"a.tar", "type":"file", "mtime":"Mon, 01 Jan 2024 00:00:00 GMT", "size":123 }, ... ]
 *
 * JSON libraries are not used: they refuse strings that are not UTF-8, but names are bytes, which nginx writes
 * unchanged. The scanner makes one pass and does not nest: a value that is itself an array or an object is refused.
 * Unknown members are ignored.
 */

/* One object of nginx's autoindex_format json. */
struct http_index_object {
    const char *name;
    size_t name_len;
    bool directory, file, have_size;
    uint64_t size;
    char mtime[64]; /* as text; "" if the object has none */
};

typedef int http_index_object_visit(void *arg, const struct http_index_object *o);

enum { STRING_MAX = 64 << 10 }; /* bytes */

/* The position in the text, and the strings read last: the object's name, and any other. */
struct scanner {
    const char *p, *end;
    struct bytes name, text;
};

/* Skip blanks and return the next byte without taking it; 0: the end. */
static char peek(struct scanner *s)
{
    while (s->p < s->end && *s->p && strchr(" \t\r\n", *s->p))
        s->p++;
    return s->p < s->end ? *s->p : 0;
}

/* Take the byte c if it comes next, after blanks. */
static bool http_index_json_take(struct scanner *s, char c)
{
    if (peek(s) != c)
        return false;
    s->p++;
    return true;
}

/* Read four hex digits. */
static bool hex4(struct scanner *s, unsigned *out)
{
    *out = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        const char *all = "0123456789abcdef", *digit = s->p < s->end && *s->p ? strchr(all, *s->p | 0x20) : NULL;
        if (!digit)
            return false;
        *out = *out << 4 | (unsigned)(digit - all);
    }
    return true;
}

/* Append a code point as UTF-8 (RFC 3629). */
static int put_utf8(struct bytes *out, unsigned c)
{
    uint8_t b[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = n; i-- > 1; c >>= 6)
        b[i] = (uint8_t)(0x80 | (c & 0x3F));
    b[0] = (uint8_t)(lead[n] | c);
    return bytes_append(out, b, n);
}

/* Decode the escape after "\u". Code points over U+FFFF come as two surrogates (RFC 8259, section 7). */
static int take_unicode(struct scanner *s, struct bytes *out)
{
    unsigned c, low;
    if (!hex4(s, &c))
        return -EBADMSG;
    if (c >= 0xD800 && c < 0xDC00) {
        if (s->end - s->p < 6 || s->p[0] != '\\' || s->p[1] != 'u')
            return -EBADMSG;
        s->p += 2;
        if (!hex4(s, &low) || low < 0xDC00 || low > 0xDFFF)
            return -EBADMSG;
        c = 0x10000 + ((c - 0xD800) << 10) + (low - 0xDC00);
    } else if (c >= 0xDC00 && c <= 0xDFFF) {
        return -EBADMSG;
    }
    return put_utf8(out, c);
}

/* Decode the escape after a backslash. */
static int take_escape(struct scanner *s, struct bytes *out)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (s->p == s->end)
        return -EBADMSG;
    char c = *s->p++;
    const char *known = c ? strchr(from, c) : NULL;
    if (c == 'u')
        return take_unicode(s, out);
    return known ? bytes_append(out, &to[known - from], 1) : -EBADMSG;
}

/* Read a string into *out, with its escapes resolved. */
static int http_index_json_take_string(struct scanner *s, struct bytes *out)
{
    bytes_clear(out);
    if (!http_index_json_take(s, '"'))
        return -EBADMSG;
    for (int rc = 0; s->p < s->end && !rc;) {
        char c = *s->p++;
        if (c == '"')
            return 0;
        rc = c == '\\' ? take_escape(s, out) : bytes_append(out, &c, 1);
        if (rc)
            return rc == -ENOMEM ? rc : -EBADMSG;
    }
    return -EBADMSG;
}

/* Read a value that is not a string. *is_size: it is a number of decimal digits only, returned in *out. Other numbers,
 * true, false and null are skipped. */
static int take_word(struct scanner *s, bool *is_size, uint64_t *out)
{
    const char *from = s->p;
    *out = 0;
    *is_size = true;
    while (s->p < s->end && *s->p && strchr("+-.0123456789aEeflnrstu", *s->p)) {
        unsigned digit = (unsigned char)*s->p++ - (unsigned)'0';
        if (digit > 9 || *out > (INT64_MAX - 9) / 10)
            *is_size = false;
        else
            *out = *out * 10 + digit;
    }
    return s->p > from ? 0 : -EBADMSG;
}

static bool equals(const struct bytes *b, const char *text)
{
    return b->len == strlen(text) && !memcmp(b->data, text, b->len);
}

/* Read one member, `"key": value`, and keep the value if the key is known. */
static int take_member(struct scanner *s, struct http_index_object *o)
{
    int rc = http_index_json_take_string(s, &s->text);
    if (rc || !http_index_json_take(s, ':'))
        return rc ? rc : -EBADMSG;
    bool name = equals(&s->text, "name"), type = equals(&s->text, "type"), mtime = equals(&s->text, "mtime"),
         size = equals(&s->text, "size"), number;
    if (peek(s) != '"') {
        uint64_t value;
        rc = take_word(s, &number, &value);
        if (!rc && size && number) {
            o->have_size = true;
            o->size = value;
        }
        return rc;
    }
    rc = http_index_json_take_string(s, name ? &s->name : &s->text);
    if (!rc && type) {
        o->directory = equals(&s->text, "directory");
        o->file = equals(&s->text, "file");
    }
    if (!rc && mtime && s->text.len < sizeof o->mtime) {
        memcpy(o->mtime, s->text.data, s->text.len);
        o->mtime[s->text.len] = 0;
    }
    return rc;
}

/* Read one object. The name is valid until the next one. */
static int http_index_json_take_object(struct scanner *s, struct http_index_object *o)
{
    *o = (struct http_index_object){0};
    bytes_clear(&s->name);
    if (!http_index_json_take(s, '{'))
        return -EBADMSG;
    for (int rc; peek(s) != '}';) {
        rc = take_member(s, o);
        if (rc)
            return rc;
        if (!http_index_json_take(s, ',') && peek(s) != '}')
            return -EBADMSG;
    }
    s->p++;
    o->name = s->name.len ? (const char *)s->name.data : "";
    o->name_len = s->name.len;
    return 0;
}

/* Read the array, which must be all of the text. */
static int take_array(struct scanner *s, http_index_object_visit *visit, void *arg)
{
    struct http_index_object o;
    if (!http_index_json_take(s, '['))
        return -EBADMSG;
    for (int rc; peek(s) != ']';) {
        rc = http_index_json_take_object(s, &o);
        if (!rc)
            rc = visit(arg, &o);
        if (rc)
            return rc;
        if (!http_index_json_take(s, ',') && peek(s) != ']')
            return -EBADMSG;
    }
    s->p++;
    return peek(s) || s->p < s->end ? -EBADMSG : 0;
}

/* Visit the objects of a page in nginx's JSON. Objects before a fault are visited. -EBADMSG without
 * a sentence: the text is not such a page; -ENOMEM; or what visit returned. */
static int http_index_json_decode(const char *text, size_t len, http_index_object_visit *visit, void *arg)
{
    struct scanner s = {.p = text, .end = text + len, .name = BYTES_INIT(STRING_MAX), .text = BYTES_INIT(STRING_MAX)};
    int rc = take_array(&s, visit, arg);
    bytes_release(&s.name);
    bytes_release(&s.text);
    return rc;
}

/* ------------------------------------------------------------------ a page */

enum { LINK_MAX_BYTES = 64 << 10 }; /* links of this length and longer ones are ignored */

/* A page that is being decoded; p is the position in it. */
struct decoder {
    const char *p, *end;
    const char *directory;
    http_index_visit *visit;
    void *arg;
    struct bytes link, last; /* last: the last name visited; many pages link an icon and the name after it */
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

/* Decode a numeric entity such as "#38;" or "#x26;" at p and return its length, or 0. Only ASCII: servers write other
 * characters as bytes or percent escapes. */
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

/* Decode the entity after an '&', at p, and return its length; 0: no known one, so the '&' stands for itself. */
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

/* Copy an attribute's text to d->link with its entities resolved. */
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

/* Return the part of a link after the directory's address, or NULL if it leads elsewhere. The link may be a whole
 * address, an absolute path, or relative. */
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

/* Return whether the decoded name is one component, so that no page can lead out of the directory. */
static bool is_child(const char *name, size_t len)
{
    return len && !memchr(name, '/', len) && !memchr(name, 0, len) && !(len <= 2 && !memcmp(name, "..", len));
}

/* Visit the child that d->link names, if it names one. */
static int take_link(struct decoder *d)
{
    if (d->link.len == LINK_MAX_BYTES) /* no room for the NUL */
        return 0;
    char *link = bytes_string(&d->link);
    if (!link)
        return error_no_memory();
    if (strlen(link) != d->link.len || strpbrk(link, "?#"))
        return 0;
    const char *child = below(d->directory, link);
    size_t len = child ? strlen(child) : 0;
    bool directory = len && child[len - 1] == '/';
    /* "mailto:..." is not a child; servers write a name with a colon as "./a:b" */
    if (!len || (!directory && *child != '.' && strchr(child, ':')))
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

/* Return the value of the attribute href in a tag's text, and its length; NULL: it has none in quotes. */
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

/* Return the '>' that ends the tag at p. One within quotes does not. NULL: the page ends before. */
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

/* Return whether the page has a title of an index, such as "Index of /x/". A page that the site made itself must not
 * pass for a list of files, although it has links. */
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

/* Visit the children that the links of an HTML page name. A page that is cut off is decoded up to there. */
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
        if (rc && rc != -EMSGSIZE) /* over LINK_MAX_BYTES: no filesystem could hold the name */
            return rc;
    }
    return 0;
}

/* ------------------------------------------------------------------ JSON */

/* Visit the child that a JSON object describes. Types other than file and directory are ignored. */
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
