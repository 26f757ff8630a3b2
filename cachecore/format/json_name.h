/* File names in JSON. A name is any bytes, a JSON string is UTF-8; names that are not UTF-8 are shown with replacement
 * characters and given in hex beside.
 */
#ifndef GRANARY_FORMAT_JSON_NAME_H
#define GRANARY_FORMAT_JSON_NAME_H

#include <jansson.h>
#include <stddef.h>

/* Return a string with the name, in which each byte that is not part of valid UTF-8 is replaced by U+FFFD; NULL when
 * out of memory. */
json_t *json_name(const char *name, size_t len);

/* Set `key` to the name; if the name is not UTF-8, also set `key`_hex to all its bytes in hex. */
void json_name_set(json_t *object, const char *key, const char *name, size_t len);

#endif
