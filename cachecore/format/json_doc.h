/* Read and write the JSON documents of a store. Reading is strict: a value that is missing, has another type or is out
 * of range is an error that names document and key. Internal to format/.
 */
#ifndef GRANARY_FORMAT_JSON_DOC_H
#define GRANARY_FORMAT_JSON_DOC_H

#include <jansson.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "format/json_name.h"

/* A document while it is read. The first failure sticks, so that a decoder reads all keys and checks rc once; until
 * then, readers of a failed document return harmless values. */
struct json_doc {
    const char *what; /* "manifest", "tag", ... for sentences */
    int rc;           /* 0 or -EBADMSG with the thread's sentence set */
};

/* Parse data, at most max bytes, into an object; the caller drops *out. Duplicate keys are refused. Returns 0 or
 * -EBADMSG, also in doc->rc. */
GR_MUST_CHECK int json_doc_parse(struct json_doc *doc, const void *data, size_t len, size_t max, json_t **out);
/* Check that the object's "format" is `format` and its "version" is from 1 to `version`. The sentence for a newer
 * version names the remedy. */
void json_doc_check_format(struct json_doc *doc, const json_t *object, const char *format, int64_t version);
/* Return the object under key; NULL, with doc->rc set, if there is none. The other readers allow object to be NULL. */
const json_t *json_doc_object(struct json_doc *doc, const json_t *object, const char *key);
/* Return the integer under key, within [min, max]; min on failure. */
int64_t json_doc_int(struct json_doc *doc, const json_t *object, const char *key, int64_t min, int64_t max);
/* Return the digest under key, 64 lower-case hex digits; on failure its bytes mean nothing. */
struct digest json_doc_digest(struct json_doc *doc, const json_t *object, const char *key);
/* Copy the string under key, at most size - 1 bytes, to out; empty on failure. */
void json_doc_string(struct json_doc *doc, const json_t *object, const char *key, char *out, size_t size);
/* Record a failure that the decoder itself found, unless there was one before. */
void json_doc_fail(struct json_doc *doc, const char *fmt, ...) GR_PRINTF(2, 3);

/* Writing. Make a string of a digest in lower-case hex; NULL when out of memory. */
json_t *json_doc_from_digest(const struct digest *d);
/* Make a string of text for people; NULL when out of memory. If the text is not valid UTF-8, all bytes outside
 * printable ASCII become '?'. */
json_t *json_doc_from_text(const char *text);
/* Append the canonical form: keys sorted by bytes, no white space. root NULL means that it could not be made: -ENOMEM.
 * -EMSGSIZE: out's maximum is too small. what: names the document in sentences. On failure *out is unchanged. */
GR_MUST_CHECK int json_doc_dump(const char *what, const json_t *root, struct bytes *out);

#endif
