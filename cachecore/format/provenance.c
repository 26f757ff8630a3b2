/* {"built":N,"bytes":N,"files":N,"parent":"<digest>","source_count":N,"sources":["..."],"tool":"..."}. parent is left
 * out when there is none, or several: then "parents":N is there. "part":N,"part_count":N only in an image of a part. */
#include "format/provenance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "format/json_doc.h"

static const char what[] = "provenance";

/* Only web addresses have a query: elsewhere '?' and '#' are letters of a name. */
void provenance_add_source(struct provenance *p, const char *address)
{
    const char *scheme = text_begins_with(address, "tar:") ? address + 4 : address, *rest = address;
    const char *colon = *scheme == '/' || text_begins_with(scheme, "file:") ? NULL : strstr(scheme, "://");
    size_t before = colon ? (size_t)(colon + 3 - address) : 0;
    if (colon) {
        const char *host = colon + 3, *at = memrchr(host, '@', strcspn(host, "/?#"));
        rest = at ? at + 1 : host;
    }
    size_t len = colon && text_begins_with(scheme, "http") ? strcspn(rest, "?#") : strlen(rest);
    p->source_count++;
    if (p->listed < PROVENANCE_SOURCES_MAX && before + len < PROVENANCE_TEXT_MAX)
        snprintf(p->sources[p->listed++], PROVENANCE_TEXT_MAX, "%.*s%.*s", (int)before, address, (int)len, rest);
}

/* Dump the object with the first `listed` sources. */
static int dump(const struct provenance *p, size_t listed, struct bytes *out)
{
    CLEANUP_JSON json_t *root = json_pack("{s:I,s:I,s:I,s:I,s:[],s:o}", "built", (json_int_t)p->built, "bytes",
                                          (json_int_t)p->bytes, "files", (json_int_t)p->files, "source_count",
                                          (json_int_t)p->source_count, "sources", "tool", json_lossy(p->tool));
    bool failed =
        root && !digest_is_zero(&p->parent) && json_object_set_new(root, "parent", json_doc_from_digest(&p->parent));
    if (root && p->parents > 1)
        failed |= json_object_set_new(root, "parents", json_integer((json_int_t)p->parents)) != 0;
    if (root && p->part_count)
        failed |= json_object_set_new(root, "part", json_integer((json_int_t)p->part)) ||
                  json_object_set_new(root, "part_count", json_integer((json_int_t)p->part_count));
    for (size_t i = 0; root && i < listed; i++)
        failed |= json_array_append_new(json_object_get(root, "sources"), json_lossy(p->sources[i])) != 0;
    return json_doc_dump(what, failed ? NULL : root, out);
}

int provenance_encode(const struct provenance *p, char out[PROVENANCE_TEXT_MAX])
{
    CLEANUP_BYTES text = BYTES_INIT(PROVENANCE_TEXT_MAX - 1);
    size_t listed = p->listed;
    int rc;
    while ((rc = dump(p, listed, &text)) == -EMSGSIZE && listed)
        listed--;
    if (rc)
        return rc;
    memcpy(out, text.data, text.len);
    out[text.len] = '\0';
    return 0;
}

static void take_sources(struct json_doc *doc, const json_t *array, struct provenance *out)
{
    size_t n = json_array_size(array);
    if (!json_is_array(array) || n > PROVENANCE_SOURCES_MAX) {
        json_doc_fail(doc, "\"sources\" is missing or no list of at most %d", PROVENANCE_SOURCES_MAX);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        const json_t *source = json_array_get(array, i);
        if (!json_is_string(source) || json_string_length(source) >= PROVENANCE_TEXT_MAX) {
            json_doc_fail(doc, "a source is no text of at most %d bytes", PROVENANCE_TEXT_MAX - 1);
            return;
        }
        memcpy(out->sources[i], json_string_value(source), json_string_length(source) + 1);
    }
    out->listed = n;
}

int provenance_decode(const char *text, struct provenance *out)
{
    struct json_doc doc = {.what = what};
    struct provenance p = {.listed = 0};
    CLEANUP_JSON json_t *root = NULL;
    if (json_doc_parse(&doc, text, strlen(text), PROVENANCE_TEXT_MAX - 1, &root))
        return doc.rc;
    take_sources(&doc, json_object_get(root, "sources"), &p);
    p.source_count = (uint64_t)json_doc_int(&doc, root, "source_count", (int64_t)p.listed, INT64_MAX);
    p.files = (uint64_t)json_doc_int(&doc, root, "files", 0, INT64_MAX);
    p.bytes = (uint64_t)json_doc_int(&doc, root, "bytes", 0, INT64_MAX);
    p.built = json_doc_int(&doc, root, "built", INT64_MIN, INT64_MAX);
    if (json_object_get(root, "parent"))
        p.parent = json_doc_digest(&doc, root, "parent");
    p.parents = digest_is_zero(&p.parent) ? 0 : 1;
    if (json_object_get(root, "parents"))
        p.parents = (uint64_t)json_doc_int(&doc, root, "parents", 0, INT64_MAX);
    if (json_object_get(root, "part_count")) {
        p.part = (uint64_t)json_doc_int(&doc, root, "part", 0, INT64_MAX);
        p.part_count = (uint64_t)json_doc_int(&doc, root, "part_count", 1, INT64_MAX);
    }
    json_doc_string(&doc, root, "tool", p.tool, sizeof p.tool);
    if (doc.rc)
        return doc.rc;
    *out = p;
    return 0;
}
