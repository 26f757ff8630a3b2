#include "cli/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"

const char *print_digest(const struct digest *d, char out[PRINT_DIGEST_MAX])
{
    char hex[DIGEST_HEX_SIZE];
    snprintf(out, PRINT_DIGEST_MAX, "sha256:%s", digest_hex(d, hex));
    return out;
}

bool print_escapes(FILE *to)
{
    return isatty(fileno(to));
}

/* Length of the UTF-8 character at p, 0 when these bytes are none: overlong forms, surrogates and
 * what lies above U+10FFFF included. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t len = *p < 0x80 ? 1 : *p >> 5 == 6 ? 2 : *p >> 4 == 14 ? 3 : *p >> 3 == 30 ? 4 : 0;
    if (!len || len > left)
        return 0;
    uint32_t c = len == 1 ? *p : *p & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    return c < least[len] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000) ? 0 : len;
}

/* C0, DEL and C1 control characters are what terminals obey. */
static bool shown_as_is(const unsigned char *p, size_t len)
{
    if (len == 1)
        return *p >= 0x20 && *p != 0x7f && *p != '\\';
    return len > 2 || (len == 2 && (*p > 0xc2 || p[1] >= 0xa0));
}

void print_name(FILE *to, const char *name, size_t len, bool escape)
{
    if (!escape) {
        fwrite(name, 1, len, to);
        return;
    }
    for (size_t i = 0; i < len;) {
        const unsigned char *p = (const unsigned char *)name + i;
        size_t n = utf8_length(p, len - i);
        if (n && shown_as_is(p, n))
            fwrite(p, 1, n, to);
        else if (*p == '\n' || *p == '\t' || *p == '\\')
            fprintf(to, "\\%c", *p == '\n' ? 'n' : *p == '\t' ? 't' : '\\');
        else
            for (size_t k = 0; k < (n ? n : 1); k++)
                fprintf(to, "\\x%02x", p[k]);
        i += n ? n : 1;
    }
}

json_t *print_json_digest(const struct digest *d)
{
    char text[PRINT_DIGEST_MAX];
    return digest_is_zero(d) ? json_null() : json_string(print_digest(d, text));
}

json_t *print_json_time(int64_t seconds)
{
    char text[TEXT_TIME_MAX];
    return json_string(text_format_time(seconds, text));
}

bool print_is_utf8(const char *name, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = utf8_length((const unsigned char *)name + i, len - i);
        if (!n)
            return false;
    }
    return true;
}

json_t *print_json_name(const char *name, size_t len)
{
    if (print_is_utf8(name, len))
        return json_stringn(name, len);
    CLEANUP_BYTES text = BYTES_INIT(len * 3);
    for (size_t i = 0; i < len;) {
        size_t n = utf8_length((const unsigned char *)name + i, len - i);
        if (n ? bytes_append(&text, name + i, n) : bytes_append(&text, "\xef\xbf\xbd", 3))
            return NULL;
        i += n ? n : 1;
    }
    return json_stringn((const char *)text.data, text.len);
}

json_t *print_json_hex(const char *name, size_t len)
{
    CLEANUP_FREE char *hex = malloc(len * 2 + 1);
    if (!hex)
        return NULL;
    for (size_t i = 0; i < len; i++)
        snprintf(hex + i * 2, 3, "%02x", (unsigned char)name[i]);
    return json_stringn(hex, len * 2);
}

int print_json(json_t *object)
{
    if (!object)
        return error_set(-ENOMEM, "out of memory while printing JSON");
    int rc = json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    putchar('\n');
    /* a failed write is reported by main when it flushes */
    return rc && !ferror(stdout) ? error_set(-ENOMEM, "cannot print the result as JSON") : 0;
}
