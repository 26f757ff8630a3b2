/* A scanner for nginx's autoindex_format json, an array of flat objects:
 *
 *   [ { "name":"a.tar", "type":"file", "mtime":"Mon, 01 Jan 2024 00:00:00 GMT", "size":123 }, ... ]
 *
 * JSON libraries are not used: they refuse strings that are not UTF-8, but names are bytes, which nginx writes
 * unchanged. The scanner makes one pass and does not nest: a value that is itself an array or an object is refused.
 * Unknown members are ignored.
 */
#include "imagebuild/source/http_index.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"

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

/* Decode the escape behind "\u". Code points over U+FFFF come as two surrogates (RFC 8259, section 7). */
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

/* Decode the escape behind a backslash. */
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

int http_index_json_decode(const char *text, size_t len, http_index_object_visit *visit, void *arg)
{
    struct scanner s = {.p = text, .end = text + len, .name = BYTES_INIT(STRING_MAX), .text = BYTES_INIT(STRING_MAX)};
    int rc = take_array(&s, visit, arg);
    bytes_release(&s.name);
    bytes_release(&s.text);
    return rc;
}
