/* The encoding: a line with the SHA-256 of the rest, then one JSON object.
 *
 *   sha256:<hex>
 *   {"format":"granary-exports","version":1,"generation":N,"exports":[{...},...]}
 *
 * The sum detects a torn or edited file. Manifests are JSON strings, byte for byte, because the SHA-256 of those bytes
 * is the image's digest; each is checked against it. A signature is not checked here: it proves itself to those who
 * trust its key.
 */
#include "format/export_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "format/json_doc.h"
#include "format/json_name.h"
#include "format/manifest.h"

enum { VERSION = 1, SUM_LINE = 7 + DIGEST_HEX_SIZE /* "sha256:", hex, newline */ };

static const char what[] = "exports", format[] = "granary-exports";

static void release_entry(struct export_entry *e)
{
    bytes_release(&e->manifest);
    free(e->signature);
}

void export_table_release(struct export_table *t)
{
    for (size_t i = 0; i < t->entries.len; i++)
        release_entry(&t->entries.items[i]);
    vec_release(&t->entries);
}

/* ------------------------------------------------------------------ entries */

/* Do both references have the same store, name and tag? */
static bool same_name(const struct image_ref *a, const struct image_ref *b)
{
    return !strcmp(a->store, b->store) && !strcmp(a->name, b->name) && !strcmp(a->tag, b->tag);
}

const struct export_entry *export_table_find_tag(const struct export_table *t, const struct image_ref *ref)
{
    const struct export_entry *newest = NULL; /* of equal times the first, which was put last */
    for (size_t i = 0; i < t->entries.len && ref->tag[0]; i++)
        if (same_name(&t->entries.items[i].ref, ref) && (!newest || t->entries.items[i].resolved > newest->resolved))
            newest = &t->entries.items[i];
    return newest;
}

const struct export_entry *export_table_find_image(const struct export_table *t, const char *store,
                                                   const struct digest *image)
{
    for (size_t i = 0; i < t->entries.len; i++) {
        const struct image_ref *ref = &t->entries.items[i].ref;
        if (digest_equal(&ref->digest, image) && !strcmp(ref->store, store))
            return &t->entries.items[i];
    }
    return NULL;
}

/* Does an entry for `ref` replace the entry `old`? A signed image stays when its tag has moved: a server that goes on
 * serving it has no other proof of the signature. */
static bool replaces(const struct image_ref *ref, const struct export_entry *old)
{
    return same_name(ref, &old->ref) &&
           (digest_equal(&ref->digest, &old->ref.digest) || (ref->tag[0] && !old->signature));
}

/* Copy an entry, and reserve room for it in the table. */
static int copy_entry(struct export_table *t, const struct export_entry *e, struct export_entry *out)
{
    struct export_entry fresh = {.ref = e->ref, .resolved = e->resolved, .manifest = BYTES_INIT(MANIFEST_MAX)};
    if (vec_reserve(&t->entries, 1))
        return -ENOMEM;
    int rc = bytes_append(&fresh.manifest, e->manifest.data, e->manifest.len);
    if (!rc && e->signature && !(fresh.signature = strdup(e->signature)))
        rc = error_no_memory();
    if (rc)
        release_entry(&fresh);
    else
        *out = fresh;
    return rc;
}

int export_table_put(struct export_table *t, const struct export_entry *e)
{
    struct export_entry fresh, *items;
    int rc = copy_entry(t, e, &fresh);
    if (rc)
        return rc;
    /* Close the gaps of replaced entries, then move all up by one; copy_entry has reserved the room. */
    items = t->entries.items;
    size_t kept = 0;
    for (size_t i = 0; i < t->entries.len; i++)
        if (replaces(&fresh.ref, &items[i]))
            release_entry(&items[i]);
        else
            items[kept++] = items[i];
    memmove(items + 1, items, kept * sizeof *items);
    items[0] = fresh;
    t->entries.len = kept + 1;
    return 0;
}

/* ------------------------------------------------------------------ encoding */

static int encode_entry(const struct export_entry *e, struct bytes *out)
{
    CLEANUP_JSON json_t *object =
        json_pack("{s:s, s:s, s:o, s:I, s:s%}", "name", e->ref.name, "tag", e->ref.tag, "digest",
                  json_doc_from_digest(&e->ref.digest), "resolved", (json_int_t)e->resolved, "manifest",
                  (const char *)e->manifest.data, e->manifest.len);
    json_name_set(object, "store", e->ref.store, strlen(e->ref.store));
    if (e->signature)
        json_object_set_new(object, "signature", json_string(e->signature));
    bool made = json_object_get(object, "store") && (!e->signature || json_object_get(object, "signature"));
    return json_doc_dump(what, made ? object : NULL, out);
}

int export_table_encode(const struct export_table *t, struct bytes *out, size_t *out_kept)
{
    static const char end[] = "]}\n";
    /* The line with the sum is written last, into room left at the start. */
    size_t start = out->len, body = start + SUM_LINE;
    uint8_t *sum;
    int rc = bytes_extend(out, SUM_LINE, &sum);
    if (!rc)
        rc = bytes_printf(out, "{\"format\":\"%s\",\"version\":%d,\"generation\":%llu,\"exports\":[", format, VERSION,
                          (unsigned long long)t->generation);
    size_t kept = 0;
    for (; !rc && kept < t->entries.len; kept++) {
        CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
        rc = encode_entry(&t->entries.items[kept], &text);
        if (rc || out->len + 1 + text.len + sizeof end > out->max)
            break;
        rc = bytes_printf(out, "%s%.*s", kept ? "," : "", (int)text.len, (const char *)text.data);
    }
    if (!rc)
        rc = bytes_append(out, end, sizeof end - 1);
    if (rc) {
        out->len = start;
        return rc;
    }
    char hex[DIGEST_HEX_SIZE], line[SUM_LINE + 1];
    struct digest d = digest_of(out->data + body, out->len - body);
    snprintf(line, sizeof line, "sha256:%s\n", digest_hex(&d, hex));
    memcpy(out->data + start, line, SUM_LINE);
    *out_kept = kept;
    return 0;
}

/* Does the first line have the SHA-256 of the rest? */
static bool sum_holds(const uint8_t *data, size_t len)
{
    struct digest said, found;
    if (len < SUM_LINE || memcmp(data, "sha256:", 7) || data[SUM_LINE - 1] != '\n' ||
        digest_parse((const char *)data + 7, DIGEST_HEX_SIZE - 1, &said))
        return false;
    found = digest_of(data + SUM_LINE, len - SUM_LINE);
    return digest_equal(&said, &found);
}

/* Decode a reference. It must survive being written and parsed again: so it has the form that every other part of the
 * program relies on. */
static void decode_ref(struct json_doc *doc, const json_t *object, struct image_ref *out)
{
    char text[IMAGE_REF_MAX];
    struct image_ref again;
    if (!json_name_get(object, "store", out->store, sizeof out->store))
        json_doc_fail(doc, "\"store\" is missing or longer than %zu bytes", sizeof out->store - 1);
    json_doc_string(doc, object, "name", out->name, sizeof out->name);
    json_doc_string(doc, object, "tag", out->tag, sizeof out->tag);
    out->digest = json_doc_digest(doc, object, "digest");
    out->by_digest = true;
    if (!doc->rc && (image_ref_parse(image_ref_text(out, text), &again) || strcmp(again.store, out->store) ||
                     !same_name(&again, out)))
        json_doc_fail(doc, "an entry holds no valid reference");
}

/* Decode one entry and append it to the table. A manifest that does not match its digest fails the whole table: such a
 * table was not written by this program. */
static void decode_entry(struct json_doc *doc, const json_t *object, struct export_table *t)
{
    struct export_entry e = {.ref.by_digest = true}; /* its pointers are the document's */
    char signature[SIGNATURE_TEXT_MAX];
    decode_ref(doc, object, &e.ref);
    e.resolved = json_doc_int(doc, object, "resolved", 0, INT64_MAX);
    if (json_object_get(object, "signature")) {
        json_doc_string(doc, object, "signature", signature, sizeof signature);
        e.signature = signature;
    }
    const json_t *manifest = json_object_get(object, "manifest");
    if (!json_is_string(manifest) || json_string_length(manifest) > MANIFEST_MAX)
        json_doc_fail(doc, "an entry has no manifest");
    if (doc->rc)
        return;
    e.manifest.data = (uint8_t *)json_string_value(manifest);
    e.manifest.len = json_string_length(manifest);
    struct digest found = digest_of(e.manifest.data, e.manifest.len);
    struct export_entry copy;
    if (!digest_equal(&found, &e.ref.digest))
        json_doc_fail(doc, "a manifest differs from its digest");
    else if (!(doc->rc = copy_entry(t, &e, &copy)))
        t->entries.items[t->entries.len++] = copy;
}

int export_table_decode(const void *data, size_t len, struct export_table *out)
{
    struct json_doc doc = {.what = what};
    CLEANUP_JSON json_t *root = NULL;
    CLEANUP_EXPORT_TABLE t = {0};
    if (!sum_holds(data, len))
        return error_set(-EBADMSG, "%s: it differs from its own checksum", what);
    if (json_doc_parse(&doc, (const char *)data + SUM_LINE, len - SUM_LINE, EXPORT_TABLE_MAX, &root))
        return doc.rc;
    json_doc_check_format(&doc, root, format, VERSION);
    t.generation = (uint64_t)json_doc_int(&doc, root, "generation", 0, INT64_MAX);
    const json_t *exports = json_object_get(root, "exports");
    if (!json_is_array(exports))
        json_doc_fail(&doc, "\"exports\" is missing or not an array");
    for (size_t i = 0; !doc.rc && i < json_array_size(exports); i++)
        decode_entry(&doc, json_array_get(exports, i), &t);
    if (doc.rc)
        return doc.rc;
    *out = t;
    t = (struct export_table){0};
    return 0;
}
