/* Decode ListObjectsV2 answers with expat. The elements needed are few and at fixed depths:
 *
 *   ListBucketResult                                    depth 1
 *     IsTruncated, EncodingType, NextContinuationToken  depth 2
 *     Contents                                          depth 2, once per object
 *       Key, Size, LastModified, ETag                   depth 3
 *
 * A start tag at such a place selects a field, its text is collected in `text`, and its end tag stores it. Everything
 * else is skipped.
 *
 * The bytes come from outside. A document type, which could declare entities, is refused; so are a field that occurs
 * twice, an object without key or size, and a truncated page without a token. Fields and their number are bounded. Keys
 * are decoded at the end, since EncodingType may follow them.
 */
#include <errno.h>
#include <expat.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "net/aws/aws_internal.h"

enum { OBJECTS_MAX = 10000, TEXT_MAX = 16 << 10, ARENA_MAX = 64 << 20, DEPTH_MAX = 32 };

enum field { NONE, KEY, SIZE, MODIFIED, ETAG, TRUNCATED, ENCODING, TOKEN };

struct s3_list_page {
    VEC(struct s3_object) objects;
    struct bytes arena; /* keys and etags, each with a final NUL */
    char *token;
};

/* The state of one decoding. */
struct decoder {
    XML_Parser parser;
    struct s3_list_page *page;
    unsigned depth;
    bool in_contents;
    enum field field;
    unsigned seen;           /* fields of the current object that occurred, a bit each */
    unsigned seen_page;      /* the same for the page */
    struct bytes text;       /* of the current field */
    struct s3_object object; /* the current one */
    size_t key_at, etag_at;  /* of the current object, offsets in the arena */
    VEC(size_t) places;      /* key_at and etag_at of each object; offsets, since the arena moves while it grows */
    bool truncated, url_encoded;
    const char *failed; /* the first problem; NULL: none */
    bool no_memory;     /* that problem is not the answer's */
};

/* Refuse the answer and stop the parser. expat may still call a handler once more. */
static void s3_list_refuse(struct decoder *d, const char *why)
{
    if (!d->failed)
        d->failed = why;
    XML_StopParser(d->parser, XML_FALSE);
}

/* The same for -ENOMEM, or for rc of a buffer whose limit the answer exceeds. */
static void s3_list_no_room(struct decoder *d, int rc, const char *why)
{
    d->no_memory |= !d->failed && rc == -ENOMEM;
    s3_list_refuse(d, why);
}

/* Return the field that an element at this place is; NONE: it is skipped. */
static enum field field_at(const struct decoder *d, const char *name)
{
    static const struct {
        const char *name;
        enum field field;
        bool of_object;
    } table[] = {
        {"Key", KEY, true},
        {"Size", SIZE, true},
        {"LastModified", MODIFIED, true},
        {"ETag", ETAG, true},
        {"IsTruncated", TRUNCATED, false},
        {"EncodingType", ENCODING, false},
        {"NextContinuationToken", TOKEN, false},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(table); i++)
        if (table[i].of_object == d->in_contents && d->depth == (d->in_contents ? 3 : 2) &&
            strcmp(table[i].name, name) == 0)
            return table[i].field;
    return NONE;
}

/* Begin to collect a field's text; a second occurrence is refused. */
static void begin_field(struct decoder *d, enum field field)
{
    unsigned *seen = d->in_contents ? &d->seen : &d->seen_page;
    if (*seen & 1u << field)
        s3_list_refuse(d, "a field stands twice");
    *seen |= 1u << field;
    d->field = field;
    bytes_clear(&d->text);
}

static void XMLCALL on_start(void *arg, const XML_Char *name, const XML_Char **attributes)
{
    struct decoder *d = arg;
    if (++d->depth > DEPTH_MAX)
        s3_list_refuse(d, "elements are nested too deeply");
    if (d->depth == 1 && strcmp(name, "ListBucketResult"))
        s3_list_refuse(d, "it is not a ListBucketResult");
    if (d->field != NONE)
        s3_list_refuse(d, "a field holds elements");
    if (d->depth == 2 && strcmp(name, "Contents") == 0) {
        d->in_contents = true;
        d->seen = 0;
        d->object = (struct s3_object){0};
        return;
    }
    enum field field = field_at(d, name);
    if (field != NONE)
        begin_field(d, field);
}

static void XMLCALL on_text(void *arg, const XML_Char *text, int len)
{
    struct decoder *d = arg;
    int rc = d->field != NONE ? bytes_append(&d->text, text, (size_t)len) : 0;
    if (rc)
        s3_list_no_room(d, rc, "a field is too long");
}

static void take_size(struct decoder *d, const char *text)
{
    char *end;
    errno = 0;
    unsigned long long n = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || n > INT64_MAX)
        s3_list_refuse(d, "a size is not a number");
    d->object.size = n;
}

/* Take a time: 2026-11-20T23:01:02[.123]Z */
static void take_time(struct decoder *d, char *text)
{
    uint32_t nsec = 0;
    char *dot = strchr(text, '.');
    if (dot) {
        uint32_t unit = 100000000;
        char *p = dot + 1;
        for (; *p >= '0' && *p <= '9'; p++, unit /= 10)
            nsec += (uint32_t)(*p - '0') * unit;
        if (strcmp(p, "Z")) {
            s3_list_refuse(d, "a time is not one");
            return;
        }
        memcpy(dot, "Z", 2);
    }
    if (text_parse_time(text, &d->object.mtime))
        s3_list_refuse(d, "a time is not one");
    d->object.mtime_nsec = nsec;
}

/* Append the field's text and a NUL to the arena; returns its offset. */
static size_t s3_list_keep(struct decoder *d)
{
    size_t at = d->page->arena.len;
    int rc = bytes_append(&d->page->arena, d->text.data, d->text.len);
    if (!rc)
        rc = bytes_append(&d->page->arena, "", 1);
    if (rc)
        s3_list_no_room(d, rc, "it is too long");
    return at;
}

/* Store the field whose end tag was read. */
static void take_field(struct decoder *d)
{
    int rc = bytes_append(&d->text, "", 1);
    if (rc) {
        s3_list_no_room(d, rc, "a field is too long");
        return;
    }
    d->text.len--; /* the NUL stays after the text */
    char *text = (char *)d->text.data;
    switch (d->field) {
    case KEY:
        d->key_at = s3_list_keep(d);
        d->object.key_len = d->text.len;
        break;
    case SIZE:
        take_size(d, text);
        break;
    case MODIFIED:
        take_time(d, text);
        break;
    case ETAG: /* it is sent back in an If-Match header, so it must not contain a line end */
        if (strpbrk(text, "\r\n"))
            s3_list_refuse(d, "an ETag is not one");
        d->etag_at = s3_list_keep(d);
        break;
    case TRUNCATED:
        d->truncated = strcmp(text, "true") == 0;
        break;
    case ENCODING:
        d->url_encoded = strcmp(text, "url") == 0;
        break;
    case TOKEN:
        free(d->page->token); /* of a field that stands twice: the second one is refused, but ends here all the same */
        d->page->token = strdup(text);
        if (!d->page->token)
            s3_list_no_room(d, -ENOMEM, "");
        break;
    case NONE:
        break;
    }
}

/* Store the object whose end tag was read. */
static void s3_list_take_object(struct decoder *d)
{
    unsigned needed = 1u << KEY | 1u << SIZE;
    if ((d->seen & needed) != needed || !d->object.key_len) {
        s3_list_refuse(d, "an object has no key or no size");
        return;
    }
    if (!(d->seen & 1u << ETAG)) {
        bytes_clear(&d->text);
        d->etag_at = s3_list_keep(d);
    }
    if (d->page->objects.len >= OBJECTS_MAX)
        s3_list_refuse(d, "it holds too many objects");
    else if (vec_push(&d->page->objects, d->object) || vec_push(&d->places, d->key_at) ||
             vec_push(&d->places, d->etag_at))
        s3_list_no_room(d, -ENOMEM, "");
}

static void XMLCALL on_end(void *arg, const XML_Char *name)
{
    struct decoder *d = arg;
    if (d->field != NONE)
        take_field(d);
    else if (d->in_contents && d->depth == 2)
        s3_list_take_object(d);
    d->field = NONE;
    if (d->depth-- == 2)
        d->in_contents = false;
}

static void XMLCALL on_doctype(void *arg, const XML_Char *name, const XML_Char *system, const XML_Char *public,
                               int internal)
{
    s3_list_refuse(arg, "it declares a document type");
}

static int s3_list_refused(const char *why)
{
    return error_set(-EBADMSG, "S3 listing: %s", why);
}

/* Decode the keys, and point the objects into the arena, which no longer moves. */
static int complete_objects(struct decoder *d)
{
    for (size_t i = 0; i < d->page->objects.len; i++) {
        struct s3_object *o = &d->page->objects.items[i];
        char *key = (char *)d->page->arena.data + d->places.items[2 * i];
        if (d->url_encoded) {
            for (char *p = key; *p; p++) /* AWS writes a space as '+', and '+' as %2B */
                if (*p == '+')
                    *p = ' ';
            long len = http_percent_decode(key, o->key_len);
            if (len < 0)
                return s3_list_refused("a key is wrongly escaped");
            o->key_len = (size_t)len;
            key[len] = 0;
        }
        o->key = key;
        o->etag = (char *)d->page->arena.data + d->places.items[2 * i + 1];
    }
    return 0;
}

/* Check the page as a whole. The token of a page that is not truncated is dropped. */
static int finish(struct decoder *d)
{
    if (d->failed)
        return d->no_memory ? error_no_memory() : s3_list_refused(d->failed);
    if (d->truncated && (!d->page->token || !*d->page->token))
        return s3_list_refused("it says that more follows but not where");
    if (!d->truncated) {
        free(d->page->token);
        d->page->token = NULL;
    }
    return complete_objects(d);
}

/* Does the error mean that well-formed XML stops too early? A wrong Content-Length makes such an answer; a retry helps.
 */
static bool ends_early(enum XML_Error error)
{
    return error == XML_ERROR_NO_ELEMENTS || error == XML_ERROR_UNCLOSED_TOKEN || error == XML_ERROR_PARTIAL_CHAR ||
           error == XML_ERROR_UNCLOSED_CDATA_SECTION;
}

/* Parse the whole answer in one piece. */
static int s3_list_run(struct decoder *d, const void *xml, size_t len)
{
    XML_SetUserData(d->parser, d);
    XML_SetElementHandler(d->parser, on_start, on_end);
    XML_SetCharacterDataHandler(d->parser, on_text);
    XML_SetStartDoctypeDeclHandler(d->parser, on_doctype);
    if (XML_Parse(d->parser, xml, (int)len, 1) != XML_STATUS_OK && !d->failed) {
        if (XML_GetErrorCode(d->parser) == XML_ERROR_NO_MEMORY)
            return error_no_memory();
        if (len && ends_early(XML_GetErrorCode(d->parser)))
            return error_set(-EAGAIN, "S3 listing: the server's answer ends in the middle");
        XML_Size line = XML_GetCurrentLineNumber(d->parser);
        return error_set(-EBADMSG, "S3 listing: %s in line %lu; check that the endpoint is an S3 server",
                         XML_ErrorString(XML_GetErrorCode(d->parser)), (unsigned long)line);
    }
    return finish(d);
}

int s3_list_decode(const void *xml, size_t len, struct s3_list_page **out)
{
    if (len > INT_MAX)
        return s3_list_refused("it is too long");
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = calloc(1, sizeof *page);
    struct decoder d = {.page = page, .parser = XML_ParserCreate("UTF-8"), .text = BYTES_INIT(TEXT_MAX)};
    if (!page || !d.parser) {
        XML_ParserFree(d.parser);
        return error_no_memory();
    }
    page->arena.max = ARENA_MAX;
    int rc = s3_list_run(&d, xml, len);
    XML_ParserFree(d.parser);
    bytes_release(&d.text);
    vec_release(&d.places);
    if (!rc)
        *out = steal_ptr(&page);
    return rc;
}

void s3_list_page_free(struct s3_list_page *p)
{
    if (!p)
        return;
    vec_release(&p->objects);
    bytes_release(&p->arena);
    free(p->token);
    free(p);
}

size_t s3_list_page_count(const struct s3_list_page *p)
{
    return p->objects.len;
}

const struct s3_object *s3_list_page_object(const struct s3_list_page *p, size_t i)
{
    return &p->objects.items[i];
}

const char *s3_list_page_token(const struct s3_list_page *p)
{
    return p->token;
}
