/* The JSON documents of a store, read strictly: what is missing, of another type or out of range
 * is an error that names document and key. Internal to format/.
 */
#ifndef GRANARY_FORMAT_JSON_DOC_H
#define GRANARY_FORMAT_JSON_DOC_H

#include <jansson.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"

DEFINE_CLEANUP(json, json_t *, json_decref)
#define CLEANUP_JSON CLEANUP(cleanup_json)

/* One document being read: the first failure sticks, so that a decoder may read all its keys and
 * look once. */
struct json_doc {
    const char *what; /* "manifest", "tag", ... for sentences */
    int rc;           /* 0 or -EBADMSG with the thread's sentence set */
};

/* Parse data (at most max bytes) into an object. Duplicate keys are refused. -EBADMSG. */
GR_MUST_CHECK int json_doc_parse(struct json_doc *doc, const void *data, size_t len, size_t max, json_t **out);
/* format must be `format` and version 1..version; newer ones are refused with the remedy. */
void json_doc_check_format(struct json_doc *doc, const json_t *object, const char *format, int64_t version);
/* An object under key; NULL (and doc->rc set) when there is none. */
const json_t *json_doc_object(struct json_doc *doc, const json_t *object, const char *key);
int64_t json_doc_int(struct json_doc *doc, const json_t *object, const char *key, int64_t min, int64_t max);
struct digest json_doc_digest(struct json_doc *doc, const json_t *object, const char *key);
/* Copies a string of at most size - 1 bytes. */
void json_doc_string(struct json_doc *doc, const json_t *object, const char *key, char *out, size_t size);
/* Record a failure of the decoder's own. */
void json_doc_fail(struct json_doc *doc, const char *fmt, ...) GR_PRINTF(2, 3);

/* Writing: a digest as lower-case hex; NULL when out of memory. */
json_t *json_doc_from_digest(const struct digest *d);
/* Text for people: bytes outside printable ASCII become '?' unless the text is valid UTF-8. */
json_t *json_doc_from_text(const char *text);
/* Append the canonical form: keys sorted by bytes, no white space. root may be NULL (it could not
 * be made: -ENOMEM). */
GR_MUST_CHECK int json_doc_dump(const char *what, const json_t *root, struct bytes *out);

#endif
