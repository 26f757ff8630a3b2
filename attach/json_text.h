/* Paths and names in the state files. They are bytes, while JSON has characters. */
#ifndef GRANARY_ATTACH_JSON_TEXT_H
#define GRANARY_ATTACH_JSON_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/cleanup.h"
#include "base/compiler.h"

DEFINE_CLEANUP(json, json_t *, json_decref)

/* A member of a struct that is a fixed-size string. */
struct json_text_field {
    const char *name;
    size_t offset, size;
};
#define JSON_TEXT(type, field)                                                                                         \
    {                                                                                                                  \
#field, offsetof(type, field), sizeof(((type *)NULL)->field)                                                   \
    }

/* Store the fields of *from in object. Each byte becomes the character of that number, so that bytes that are not UTF-8
 * survive. A field for which memory is short is left out; json_text_get refuses the object then. */
void json_text_put(json_t *object, const struct json_text_field *fields, size_t count, const void *from);
/* Read the fields back into *to. Returns false when one is missing or does not fit. */
GR_MUST_CHECK bool json_text_get(const json_t *object, const struct json_text_field *fields, size_t count, void *to);

#endif
