/* A name that is not UTF-8 gets two keys, readable text for people and the exact bytes in hex for programs:
 *
 *   "path": "a<U+FFFD>b", "path_hex": "61ff62"
 */
#include "format/json_name.h"

#include <stdio.h>

#include "base/bytes.h"
#include "base/text.h"

json_t *json_name(const char *name, size_t len)
{
    if (text_is_utf8(name, len))
        return json_stringn(name, len);
    CLEANUP_BYTES text = BYTES_INIT(len * 3); /* U+FFFD takes three bytes */
    for (size_t i = 0; i < len;) {
        size_t n = text_utf8_length(name + i, len - i);
        if (n ? bytes_append(&text, name + i, n) : bytes_append(&text, "\xef\xbf\xbd", 3))
            return NULL;
        i += n ? n : 1;
    }
    return json_stringn((const char *)text.data, text.len);
}

static json_t *hex_of(const char *name, size_t len)
{
    CLEANUP_FREE char *hex = malloc(len * 2 + 1);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < len; i++)
        snprintf(hex + i * 2, 3, "%02x", (unsigned char)name[i]);
    return json_stringn(hex, len * 2);
}

void json_name_set(json_t *object, const char *key, const char *name, size_t len)
{
    char hex_key[32];
    json_object_set_new(object, key, json_name(name, len));
    snprintf(hex_key, sizeof hex_key, "%s_hex", key);
    if (!text_is_utf8(name, len))
        json_object_set_new(object, hex_key, hex_of(name, len));
}
