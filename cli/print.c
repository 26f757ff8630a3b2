/* Names come from a dataset, which may be hostile: an escape sequence in a file name could reprogram the terminal on
 * which it is listed. On a terminal, control characters in names are therefore escaped. Into a pipe or file, names are
 * written byte for byte, for the next program to read.
 */
#include "cli/print.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* May a character be printed to a terminal? C0, DEL and C1 control characters may not, nor a backslash, which begins
 * our own escapes. */
static bool shown_as_is(const unsigned char *p, size_t len)
{
    if (len == 1)
        return *p >= 0x20 && *p != 0x7f && *p != '\\';
    return len > 2 || (len == 2 && (*p > 0xc2 || p[1] >= 0xa0));
}

/* Bytes that are not UTF-8 are escaped one by one. */
void print_name(FILE *to, const char *name, size_t len, bool escape)
{
    if (!escape) {
        fwrite(name, 1, len, to);
        return;
    }
    for (size_t i = 0; i < len;) {
        const unsigned char *p = (const unsigned char *)name + i;
        size_t n = text_utf8_length(p, len - i);
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

/* A zero digest means "none": null. */
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

int print_json(json_t *object)
{
    if (!object)
        return error_no_memory();
    int rc = json_dumpf(object, stdout, JSON_COMPACT);
    json_decref(object);
    putchar('\n');
    /* a failed write is reported by main when it flushes */
    return rc && !ferror(stdout) ? error_set(-ENOMEM, "cannot print the result as JSON") : 0;
}
