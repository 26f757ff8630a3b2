/* Text from outside in JSON: file names, addresses, the sentences of errors that quote them. Such text is any bytes, a
 * JSON string is UTF-8, and jansson makes no string of anything else: it returns NULL, as when out of memory. So text
 * that this program did not write itself goes into JSON by these functions only. Also the cleanup of a json_t, for
 * every user of jansson.
 */
#ifndef GRANARY_FORMAT_JSON_NAME_H
#define GRANARY_FORMAT_JSON_NAME_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/compiler.h"

DEFINE_CLEANUP(json, json_t *, json_decref)
#define CLEANUP_JSON CLEANUP(cleanup_json)

/* Return a string with the text, in which each byte that is not part of valid UTF-8 is replaced by U+FFFD; NULL when
 * out of memory. For text that people read; a name that a program may need goes through json_name_set. */
json_t *json_lossy(const char *text);

/* Set `key` to the name, as json_lossy has it; if the name is not UTF-8, also set `key`_hex to all its bytes in hex. */
void json_name_set(json_t *object, const char *key, const char *name, size_t len);
/* Copy the name that json_name_set stored under `key` to out, with a final NUL. Returns false when there is none, when
 * it needs more than size bytes, or when its hex is damaged; out means nothing then. */
GR_MUST_CHECK bool json_name_get(const json_t *object, const char *key, char *out, size_t size);

#endif
