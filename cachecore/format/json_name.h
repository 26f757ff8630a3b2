/* Names are bytes, JSON is text: how the one stands in the other. */
#ifndef GRANARY_FORMAT_JSON_NAME_H
#define GRANARY_FORMAT_JSON_NAME_H

#include <jansson.h>
#include <stddef.h>

/* A name's bytes: text where they are UTF-8, otherwise every byte that is not as U+FFFD. NULL when
 * out of memory. */
json_t *json_name(const char *name, size_t len);

/* Set key to the name and, where it is not UTF-8, key_hex to all its bytes in hex. */
void json_name_set(json_t *object, const char *key, const char *name, size_t len);

#endif
