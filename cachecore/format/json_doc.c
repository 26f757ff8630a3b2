/* Strict reading and canonical writing of small JSON documents, with jansson. Writing is canonical (sorted keys, no
 * white space), since the SHA-256 of a manifest's bytes is the image's digest: equal manifests must have equal bytes.
 *
 * A decoder reads all keys and checks doc.rc once:
 *
 *   if (json_doc_parse(&doc, data, len, MAX, &root))
 *       return doc.rc;
 *   json_doc_check_format(&doc, root, "granary-tag", 1);
 *   t.created = json_doc_int(&doc, root, "created", INT64_MIN, INT64_MAX);
 *   ...
 *   return doc.rc;
 *
 * jansson's getters allow NULL and values of other types, so reading on after a failure is safe.
 */
#include "format/json_doc.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void json_doc_fail(struct json_doc *doc, const char *fmt, ...)
{
    if (doc->rc) /* the first failure is the cause; later ones may follow from it */
        return;
    char text[ERROR_TEXT_MAX / 2];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    doc->rc = error_set(-EBADMSG, "%s: %s", doc->what, text);
}

int json_doc_parse(struct json_doc *doc, const void *data, size_t len, size_t max, json_t **out)
{
    if (len > max)
        return doc->rc = error_set(-EBADMSG, "%s: %zu bytes are more than the limit of %zu", doc->what, len, max);
    json_error_t error;
    CLEANUP_JSON json_t *root = json_loadb(data, len, JSON_REJECT_DUPLICATES, &error);
    if (!root && json_error_code(&error) == json_error_out_of_memory)
        return doc->rc = error_no_memory();
    if (!root)
        return doc->rc = error_set(-EBADMSG, "%s: not valid JSON: %s", doc->what, error.text);
    if (!json_is_object(root))
        return doc->rc = error_set(-EBADMSG, "%s: not a JSON object", doc->what);
    *out = steal_ptr(&root);
    return 0;
}

void json_doc_check_format(struct json_doc *doc, const json_t *object, const char *format, int64_t version)
{
    const char *found = json_string_value(json_object_get(object, "format"));
    if (!found || strcmp(found, format)) {
        json_doc_fail(doc, "not of the format \"%s\"", format);
        return;
    }
    int64_t v = json_doc_int(doc, object, "version", 1, INT64_MAX);
    if (v > version)
        json_doc_fail(doc, "version %" PRId64 " is newer than this program reads (%" PRId64 "): use a newer granary", v,
                      version);
}

const json_t *json_doc_object(struct json_doc *doc, const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    if (json_is_object(value))
        return value;
    json_doc_fail(doc, "\"%s\" is missing or not an object", key);
    return NULL;
}

int64_t json_doc_int(struct json_doc *doc, const json_t *object, const char *key, int64_t min, int64_t max)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value)) {
        json_doc_fail(doc, "\"%s\" is missing or not an integer", key);
        return min;
    }
    int64_t n = json_integer_value(value);
    if (n < min || n > max) {
        json_doc_fail(doc, "\"%s\" is %" PRId64 ", outside %" PRId64 "..%" PRId64, key, n, min, max);
        return min;
    }
    return n;
}

struct digest json_doc_digest(struct json_doc *doc, const json_t *object, const char *key)
{
    struct digest d = {{0}};
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value) || digest_parse(json_string_value(value), json_string_length(value), &d))
        json_doc_fail(doc, "\"%s\" is missing or not 64 lower-case hex digits", key);
    return d;
}

void json_doc_string(struct json_doc *doc, const json_t *object, const char *key, char *out, size_t size)
{
    out[0] = '\0';
    const json_t *value = json_object_get(object, key);
    if (!json_is_string(value))
        json_doc_fail(doc, "\"%s\" is missing or not a string", key);
    /* jansson refuses NUL bytes in strings unless JSON_ALLOW_NUL is set, so the length is that of strlen. */
    else if (json_string_length(value) >= size)
        json_doc_fail(doc, "\"%s\" is longer than %zu bytes", key, size - 1);
    else
        memcpy(out, json_string_value(value), json_string_length(value) + 1);
}

json_t *json_doc_from_digest(const struct digest *d)
{
    char hex[DIGEST_HEX_SIZE];
    return json_string(digest_hex(d, hex));
}

json_t *json_doc_from_text(const char *text)
{
    json_t *value = json_string(text); /* NULL for invalid UTF-8 too */
    if (value)
        return value;
    CLEANUP_FREE char *plain = strdup(text);
    if (!plain)
        return NULL;
    for (char *p = plain; *p; p++)
        if (*p < 0x20 || *p > 0x7e)
            *p = '?';
    return json_string(plain);
}

/* A text on its way to a buffer. */
struct dump {
    struct bytes *out;
    int rc; /* of the buffer; 0: jansson's own failure is one of memory */
};

/* For json_dump_callback. */
static int append_piece(const char *data, size_t len, void *arg)
{
    struct dump *d = arg;
    d->rc = bytes_append(d->out, data, len);
    return d->rc ? -1 : 0;
}

int json_doc_dump(const char *what, const json_t *root, struct bytes *out)
{
    size_t before = out->len;
    struct dump d = {.out = out};
    if (!root)
        return error_no_memory();
    if (!json_dump_callback(root, append_piece, &d, JSON_SORT_KEYS | JSON_COMPACT))
        return 0;
    out->len = before;
    if (d.rc != -EMSGSIZE)
        return error_no_memory();
    return error_set(-EMSGSIZE, "%s: does not fit in %zu bytes", what, out->max);
}
