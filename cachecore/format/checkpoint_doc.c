/* The document contains a manifest as text together with its SHA-256. A published manifest is checked by the digest
 * that names it; this one has no such name, so the digest is stored beside it.
 */
#include "format/checkpoint_doc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "format/json_doc.h"

char *checkpoint_doc_key(const struct digest *key, char out[CHECKPOINT_KEY_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, CHECKPOINT_KEY_MAX, "builds/%s.checkpoint", digest_hex(key, hex));
    return out;
}

int checkpoint_doc_encode(const struct checkpoint_doc *c, struct bytes *out)
{
    CLEANUP_BYTES text = BYTES_INIT(CHECKPOINT_DOC_MAX / 2);
    int rc = manifest_encode(&c->image, &text);
    if (rc)
        return rc;
    struct digest digest = digest_of(text.data, text.len);
    CLEANUP_JSON json_t *root =
        json_pack("{s:s, s:i, s:o, s:o, s:s}", "format", "granary-checkpoint", "version", 1, "key",
                  json_doc_from_digest(&c->key), "digest", json_doc_from_digest(&digest), "image", bytes_string(&text));
    return json_doc_dump("checkpoint", root, out);
}

int checkpoint_doc_decode(const void *data, size_t len, struct checkpoint_doc *out)
{
    struct json_doc doc = {.what = "checkpoint"};
    struct checkpoint_doc c = {.key = {{0}}};
    CLEANUP_JSON json_t *root = NULL;
    CLEANUP_FREE char *text = malloc(CHECKPOINT_DOC_MAX);
    if (!text)
        return error_no_memory();
    if (json_doc_parse(&doc, data, len, CHECKPOINT_DOC_MAX, &root))
        return doc.rc;
    json_doc_check_format(&doc, root, "granary-checkpoint", 1);
    c.key = json_doc_digest(&doc, root, "key");
    struct digest expected = json_doc_digest(&doc, root, "digest");
    text[0] = 0;
    json_doc_string(&doc, root, "image", text, CHECKPOINT_DOC_MAX);
    struct digest found = digest_of(text, strlen(text));
    if (!doc.rc && !digest_equal(&found, &expected))
        json_doc_fail(&doc, "\"image\" is not what \"digest\" says");
    if (!doc.rc)
        doc.rc = manifest_decode(text, strlen(text), &c.image);
    /* Only the form that struct checkpoint_doc describes: no metadata yet, and file data up to a chunk's end. */
    if (!doc.rc && (c.image.metadata_len || c.image.metadata_offset != c.image.size || !c.image.front_len ||
                    c.image.size % c.image.chunk_size))
        json_doc_fail(&doc, "\"image\" is a whole image, or ends within a chunk");
    if (doc.rc)
        return doc.rc;
    *out = c;
    return 0;
}
