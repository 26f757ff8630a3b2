/* A name that is not UTF-8 gets two keys, readable text for people and the exact bytes in hex for programs:
 *
 *   "path": "a<U+FFFD>b", "path_hex": "61ff62"
 */
#include "format/json_name.h"

#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/text.h"

static json_t *readable(const char *name, size_t len)
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

json_t *json_lossy(const char *text)
{
    return readable(text, strlen(text));
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

static const char *hex_key_of(const char *key, char out[32])
{
    snprintf(out, 32, "%s_hex", key);
    return out;
}

void json_name_set(json_t *object, const char *key, const char *name, size_t len)
{
    char hex_key[32];
    json_object_set_new(object, key, readable(name, len));
    if (!text_is_utf8(name, len))
        json_object_set_new(object, hex_key_of(key, hex_key), hex_of(name, len));
}

bool json_name_get(const json_t *object, const char *key, char *out, size_t size)
{
    char hex_key[32];
    const char *hex = json_string_value(json_object_get(object, hex_key_of(key, hex_key)));
    const char *name = json_string_value(json_object_get(object, key));
    if (!hex) {
        snprintf(out, size, "%s", name ? name : "");
        return name && strlen(name) < size;
    }
    size_t len = strlen(hex) / 2;
    if (len >= size || strspn(hex, "0123456789abcdef") != len * 2 || hex[len * 2])
        return false;
    for (size_t i = 0; i < len; i++)
        out[i] = (char)strtoul((char[]){hex[2 * i], hex[2 * i + 1], 0}, NULL, 16);
    out[len] = 0;
    return strlen(out) == len;
}
