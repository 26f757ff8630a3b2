/* Parse and print sizes, times and numbers; below, suggestions for mistyped words. Parsers are stricter than the C
 * library: strtod and strtoull also take signs, hex digits, "inf" and "nan", and stop silently at the first other
 * character. All of that is refused here, so that a mistyped option is an error and never another number.
 */
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/error.h"

int text_parse_size(const char *what, const char *text, uint64_t *out)
{
    static const char units[] = "BKMGTP";
    char *end;
    /* digits, perhaps with a point: strtod takes blanks, signs, exponents, hex, "inf" and "nan" too */
    size_t digits = strspn(text, "0123456789.");
    double number = strtod(text, &end);
    int bad = !digits || end != text + digits;
    double factor = 1;
    if (!bad && *end) {
        const char *unit = strchr(units, *end >= 'a' ? *end - 32 : *end);
        bad = !unit;
        if (unit)
            factor = ldexp(1, 10 * (int)(unit - units));
        end++;
        /* after K to P: nothing, "iB" or "B" */
        bad |= *end && strcasecmp(end, "iB") && (factor == 1 || strcasecmp(end, "B"));
    }
    /* Offsets are off_t, so a size must fit in 63 bits. */
    if (bad || number * factor >= ldexp(1, 63))
        return error_set(-EINVAL, "%s: '%s' is not a size; write for example 4096, 128K or 10G", what, text);
    *out = (uint64_t)(number * factor);
    return 0;
}

int text_parse_uint(const char *what, const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || end == text || *end || *text < '0' || *text > '9' || v < min || v > max)
        return error_set(-EINVAL, "%s: '%s' is not a number from %llu to %llu", what, text, (unsigned long long)min,
                         (unsigned long long)max);
    *out = v;
    return 0;
}

int text_parse_percent(const char *what, const char *text, uint64_t min, uint64_t max, unsigned *out)
{
    char *end;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    if (errno || strcmp(end, "%") != 0 || *text < '0' || *text > '9' || v < min || v > max)
        return error_set(-EINVAL, "%s: '%s' is not a share from %llu%% to %llu%%", what, text, (unsigned long long)min,
                         (unsigned long long)max);
    *out = (unsigned)v;
    return 0;
}

/* Five digits at most, so that strtoul cannot overflow 32 bits. */
int text_parse_mode(const char *what, const char *text, uint32_t max, uint32_t *out)
{
    size_t digits = strspn(text, "01234567");
    if (!digits || digits > 5 || text[digits] || (*out = (uint32_t)strtoul(text, NULL, 8)) > max)
        return error_set(-EINVAL, "%s: '%s' is no mode; write octal digits, at most %04o", what, text, (unsigned)max);
    return 0;
}

int text_parse_duration(const char *what, const char *text, uint64_t *out_s)
{
    static const struct {
        char unit;
        uint64_t seconds;
    } units[] = {{0, 1}, {'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end;
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    for (size_t i = 0; i < GR_ARRAY_SIZE(units); i++)
        /* the number, one unit or none, then the end; and seconds that fit in 63 bits */
        if (!errno && *text >= '0' && *text <= '9' && *end == units[i].unit && (!*end || !end[1]) &&
            number <= INT64_MAX / units[i].seconds) {
            *out_s = number * units[i].seconds;
            return 0;
        }
    return error_set(-EINVAL, "%s: '%s' is not a length of time; write for example 90s, 30m, 12h or 14d", what, text);
}

char *text_format_size(uint64_t bytes, char out[TEXT_SIZE_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;
    while (v >= 1024 && u + 1 < GR_ARRAY_SIZE(units)) {
        v /= 1024;
        u++;
    }
    snprintf(out, TEXT_SIZE_MAX, u ? "%.1f %s" : "%.0f %s", v, units[u]);
    return out;
}

char *text_format_time(int64_t seconds, char out[TEXT_TIME_MAX])
{
    struct tm tm;
    time_t t = (time_t)seconds;
    if (!gmtime_r(&t, &tm) || !strftime(out, TEXT_TIME_MAX, "%Y-%m-%dT%H:%M:%SZ", &tm))
        snprintf(out, TEXT_TIME_MAX, "@%lld", (long long)seconds);
    return out;
}

int text_parse_time(const char *text, int64_t *out)
{
    struct tm tm = {0};
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    if (!end || *end)
        return -EINVAL;
    *out = timegm(&tm);
    return 0;
}

/* Regular plurals only: "y" after a consonant becomes "ies", any other noun gets an "s". */
char *text_format_count(uint64_t n, const char *noun, char out[TEXT_COUNT_MAX])
{
    size_t len = strlen(noun);
    bool ies = n != 1 && len > 1 && noun[len - 1] == 'y' && !strchr("aeiou", noun[len - 2]);
    snprintf(out, TEXT_COUNT_MAX, "%llu %.*s%s", (unsigned long long)n, (int)(ies ? len - 1 : len), noun,
             n == 1 ? ""
             : ies  ? "ies"
                    : "s");
    return out;
}

size_t text_utf8_length(const void *bytes, size_t left)
{
    const unsigned char *p = bytes;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000}; /* by length: smaller numbers are overlong forms */
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

bool text_is_utf8(const char *text, size_t len)
{
    for (size_t i = 0, n; i < len; i += n) {
        n = text_utf8_length(text + i, len - i);
        if (!n)
            return false;
    }
    return true;
}

bool text_begins_with(const char *text, const char *with)
{
    return !strncmp(text, with, strlen(with));
}

const char *text_of_environment(const char *name)
{
    const char *value = getenv(name);
    return value && *value ? value : NULL;
}

void text_wipe(char **secret)
{
    if (*secret)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

/* ------------------------------------------------------------------ suggestions for mistyped words */

/* The optimal string alignment distance: Levenshtein's with swaps of neighbours, by dynamic programming. rows[i % 3][j]
 * is the distance of a's first i bytes from b's first j; a swap looks two rows back, so three rows are enough. */
unsigned text_distance(const char *a, size_t a_len, const char *b, size_t b_len)
{
    unsigned rows[3][TEXT_DISTANCE_MAX + 1];
    if (a_len > TEXT_DISTANCE_MAX || b_len > TEXT_DISTANCE_MAX)
        return TEXT_DISTANCE_MAX;
    for (size_t j = 0; j <= b_len; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_len; i++) {
        unsigned *now = rows[i % 3], *before = rows[(i - 1) % 3], *older = rows[(i + 1) % 3];
        now[0] = (unsigned)i;
        for (size_t j = 1; j <= b_len; j++) {
            unsigned change = before[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = GR_MIN(change, GR_MIN(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = GR_MIN(now[j], older[j - 2] + 1);
        }
    }
    return rows[a_len % 3][b_len];
}

bool text_resembles(const char *a, size_t a_len, const char *b)
{
    unsigned most = a_len < 6 ? 1 : (unsigned)(a_len / 3);
    return a_len > 1 && text_distance(a, a_len, b, strlen(b)) <= most;
}

char *text_trim(char *line)
{
    line += strspn(line, " \t\r");
    size_t len = strlen(line);
    while (len && strchr(" \t\r", line[len - 1]))
        len--;
    line[len] = 0;
    return line;
}
