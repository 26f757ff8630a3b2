/* Tags, leases and granary.json as JSON, each with its "format" and "version":
 *
 *   granary-tag     digest, content_root, created, nonce; optional: parent, source, name with tag, store, signature,
 *                   provenance
 *   granary-lease   started, renewed, host, pid, image
 *   granary-store   optional: id
 *
 * Optional keys are left out when they are not set, so that old and new programs read each other's documents.
 */
#include "format/tag.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "format/json_doc.h"

int tag_encode(const struct tag *t, struct bytes *out)
{
    CLEANUP_JSON json_t *root =
        json_pack("{s:s, s:i, s:o, s:o, s:I, s:s}", "format", "granary-tag", "version", 1, "digest",
                  json_doc_from_digest(&t->digest), "content_root", json_doc_from_digest(&t->content_root), "created",
                  (json_int_t)t->created, "nonce", t->nonce);
    bool failed =
        root && !digest_is_zero(&t->parent) && json_object_set_new(root, "parent", json_doc_from_digest(&t->parent));
    if (root && !digest_is_zero(&t->source))
        failed |= json_object_set_new(root, "source", json_doc_from_digest(&t->source));
    if (root && t->name[0])
        failed |= json_object_set_new(root, "name", json_string(t->name)) ||
                  json_object_set_new(root, "tag", json_string(t->tag));
    if (root && t->store[0])
        failed |= json_object_set_new(root, "store", json_string(t->store));
    if (root && t->signature[0])
        failed |= json_object_set_new(root, "signature", json_string(t->signature));
    if (root && t->provenance[0])
        failed |= json_object_set_new(root, "provenance", json_loads(t->provenance, 0, NULL));
    if (failed) /* out of memory: a document without one of its keys must not be written */
        return json_doc_dump("tag", NULL, out);
    return json_doc_dump("tag", root, out);
}

/* Keep the provenance as text. It proves nothing, so one that cannot be kept is no reason to refuse the tag. */
static void take_provenance(struct json_doc *doc, const json_t *object, char out[PROVENANCE_TEXT_MAX])
{
    CLEANUP_BYTES text = BYTES_INIT(PROVENANCE_TEXT_MAX - 1);
    int rc = json_is_object(object) ? json_doc_dump("provenance", object, &text) : -EMSGSIZE;
    if (!rc)
        memcpy(out, text.data, text.len);
    else if (rc != -EMSGSIZE)
        doc->rc = doc->rc ? doc->rc : rc;
}

int tag_decode(const void *data, size_t len, struct tag *out)
{
    struct json_doc doc = {.what = "tag"};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, data, len, TAG_DOC_MAX, &root))
        return doc.rc;
    struct tag t = {.created = 0};
    json_doc_check_format(&doc, root, "granary-tag", 1);
    t.digest = json_doc_digest(&doc, root, "digest");
    t.content_root = json_doc_digest(&doc, root, "content_root");
    t.created = json_doc_int(&doc, root, "created", INT64_MIN, INT64_MAX);
    if (json_object_get(root, "parent"))
        t.parent = json_doc_digest(&doc, root, "parent");
    if (json_object_get(root, "source"))
        t.source = json_doc_digest(&doc, root, "source");
    json_doc_string(&doc, root, "nonce", t.nonce, sizeof t.nonce);
    /* Either key requires the other. Documents of older programs have neither. */
    if (json_object_get(root, "name") || json_object_get(root, "tag")) {
        json_doc_string(&doc, root, "name", t.name, sizeof t.name);
        json_doc_string(&doc, root, "tag", t.tag, sizeof t.tag);
        if (!doc.rc && (!t.name[0] || !t.tag[0]))
            json_doc_fail(&doc, "\"name\" or \"tag\" is empty");
    }
    if (json_object_get(root, "store"))
        json_doc_string(&doc, root, "store", t.store, sizeof t.store);
    if (json_object_get(root, "signature"))
        json_doc_string(&doc, root, "signature", t.signature, sizeof t.signature);
    take_provenance(&doc, json_object_get(root, "provenance"), t.provenance);
    if (digest_is_zero(&t.digest))
        json_doc_fail(&doc, "\"digest\" is all zero");
    if (doc.rc)
        return doc.rc;
    *out = t;
    return 0;
}

bool tag_is_other_document(const void *data, size_t len)
{
    struct json_doc doc = {.what = "tag"};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, data, len, TAG_DOC_MAX, &root))
        return false;
    const char *format = json_string_value(json_object_get(root, "format"));
    return format && !strncmp(format, "granary-", 8) && strcmp(format, "granary-tag") != 0;
}

char *tag_build_name(int64_t created, const struct digest *image, char out[TAG_BUILD_NAME_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    time_t t = (time_t)created;
    struct tm utc = {0};
    gmtime_r(&t, &utc);
    size_t n = strftime(out, TAG_BUILD_NAME_MAX, "%Y%m%dT%H%M%SZ", &utc);
    snprintf(out + n, TAG_BUILD_NAME_MAX - n, "-%.12s", digest_hex(image, hex));
    return out;
}

bool tag_is_build_name(const char *tag, const struct digest *image)
{
    char hex[DIGEST_HEX_SIZE], ending[16];
    snprintf(ending, sizeof ending, "-%.12s", digest_hex(image, hex));
    size_t len = strlen(tag), ending_len = strlen(ending);
    return len > ending_len && !strcmp(tag + len - ending_len, ending);
}

/* json_doc_from_text, because a host's name and a reference are for people and may not be valid UTF-8. */
int lease_encode(const struct lease *l, struct bytes *out)
{
    CLEANUP_JSON json_t *root =
        json_pack("{s:s, s:i, s:I, s:I, s:o, s:I, s:o}", "format", "granary-lease", "version", 1, "started",
                  (json_int_t)l->started, "renewed", (json_int_t)l->renewed, "host", json_doc_from_text(l->host), "pid",
                  (json_int_t)l->pid, "image", json_doc_from_text(l->image));
    return json_doc_dump("lease", root, out);
}

int lease_decode(const void *data, size_t len, struct lease *out)
{
    struct json_doc doc = {.what = "lease"};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, data, len, TAG_DOC_MAX, &root))
        return doc.rc;
    struct lease l = {.started = 0};
    json_doc_check_format(&doc, root, "granary-lease", 1);
    l.started = json_doc_int(&doc, root, "started", INT64_MIN, INT64_MAX);
    l.renewed = json_doc_int(&doc, root, "renewed", INT64_MIN, INT64_MAX);
    l.pid = (uint64_t)json_doc_int(&doc, root, "pid", 0, INT64_MAX);
    json_doc_string(&doc, root, "host", l.host, sizeof l.host);
    json_doc_string(&doc, root, "image", l.image, sizeof l.image);
    if (doc.rc)
        return doc.rc;
    *out = l;
    return 0;
}

int store_doc_encode(const char *id, struct bytes *out)
{
    CLEANUP_JSON json_t *root =
        json_pack("{s:s, s:s, s:i}", "format", "granary-store", "id", id, "version", STORE_FORMAT_VERSION);
    return json_doc_dump("granary.json", root, out);
}

int store_doc_decode(const void *data, size_t len, char id[STORE_ID_MAX])
{
    struct json_doc doc = {.what = "granary.json"};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, data, len, TAG_DOC_MAX, &root))
        return doc.rc;
    /* A newer version refuses the whole store: this program could misread, or write, anything in it. */
    json_doc_check_format(&doc, root, "granary-store", STORE_FORMAT_VERSION);
    char found[STORE_ID_MAX] = "";
    if (json_object_get(root, "id"))
        json_doc_string(&doc, root, "id", found, sizeof found);
    if (!doc.rc)
        memcpy(id, found, sizeof found);
    return doc.rc;
}
