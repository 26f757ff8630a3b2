/* JSON strings are UTF-8, paths are any bytes. A byte is stored as the character with its number (Latin-1 read as
 * Unicode): below 0x80 as itself, above in two bytes. ASCII paths stay readable, and every other path survives. */
#include "attach/json_text.h"

#include <limits.h>

#include "base/bytes.h"

/* Return the string as JSON, or NULL when memory is short. */
static json_t *text_to_json(const char *text)
{
    CLEANUP_BYTES out = BYTES_INIT(2 * PATH_MAX);
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char pair[2] = {(char)(0xc0 | c >> 6), (char)(0x80 | (c & 0x3f))};
        if (c < 0x80 ? bytes_append(&out, &c, 1) : bytes_append(&out, pair, 2))
            return NULL;
    }
    return json_stringn(out.len ? (const char *)out.data : "", out.len);
}

/* Read such a string back. Returns false when value is no string, has a character above 0xff, or does not fit. */
static bool text_from_json(const json_t *value, char *out, size_t size)
{
    const unsigned char *p = (const unsigned char *)json_string_value(value);
    size_t len = 0;
    if (!p)
        return false;
    for (; *p && len + 1 < size; p++)
        if (*p < 0x80)
            out[len++] = (char)*p;
        else if ((*p & 0xfc) == 0xc0 && p[1])
            out[len++] = (char)((*p & 3) << 6 | (p[1] & 0x3f)), p++;
        else
            return false;
    out[len] = 0;
    return !*p;
}

/* When memory is short, a member is missing; readers refuse such an object. */
void json_text_put(json_t *object, const struct json_text_field *fields, size_t count, const void *from)
{
    for (size_t i = 0; i < count; i++)
        json_object_set_new(object, fields[i].name, text_to_json((const char *)from + fields[i].offset));
}

bool json_text_get(const json_t *object, const struct json_text_field *fields, size_t count, void *to)
{
    for (size_t i = 0; i < count; i++)
        if (!text_from_json(json_object_get(object, fields[i].name), (char *)to + fields[i].offset, fields[i].size))
            return false;
    return true;
}
