/* Paths and names in the state files: bytes, where JSON has characters. */
#ifndef GRANARY_ATTACH_JSON_TEXT_H
#define GRANARY_ATTACH_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/compiler.h"

DEFINE_CLEANUP(json, json_t *, json_decref)

/* A fixed-size field of a struct that is text. */
struct json_text_field {
    const char *name;
    size_t offset, size;
};
#define JSON_TEXT(type, field)                                                                                         \
    {                                                                                                                  \
#field, offsetof(type, field), sizeof(((type *)NULL)->field)                                                   \
    }

/* A path is bytes, JSON is UTF-8: each byte travels as the character of its number. What there is no memory for is left
 * out, and refused by json_text_get. */
void json_text_put(json_t *object, const struct json_text_field *fields, size_t count, const void *from);
/* The opposite; false: one is missing or does not fit. */
GR_MUST_CHECK bool json_text_get(const json_t *object, const struct json_text_field *fields, size_t count, void *to);

#endif
