/* Find a key half way between two keys. The bytes after the shared ones are read as a number of up to DIGITS digits
 * in base 96: one digit for each printable ASCII character, and 0 for the end of the key. Other bytes count as the
 * nearest digit. The middle of the two numbers gives the new key. Since some bytes were rounded, the result is
 * compared with the real keys.
 *
 *   after  data/2024/img_0001      shared "data/2024/img_0"   001
 *   end    data/2024/img_0900                                 900
 *   new    data/2024/img_04
 *
 * Fewer digits are tried first, so keys are short.
 *
 * Keys in other scripts may differ only in bytes that are no digits. Then everything behind the directory of `after`
 * is split off.
 */
#include "imagebuild/source/s3_walk.h"

#include <stdbool.h>
#include <string.h>

enum { BASE = 96, DIGITS = 6, FIRST = 0x1f /* the byte before the first printable one: digit 0 */ };

/* Return the digit at a position of a key; 0 behind its end. */
static unsigned digit(const char *key, size_t len, size_t at)
{
    if (at >= len)
        return 0;
    unsigned char c = (unsigned char)key[at];
    return c <= FIRST ? 1 : GR_MIN((unsigned)c - FIRST, (unsigned)BASE - 1);
}

int key_order(const void *a, size_t a_len, const void *b, size_t b_len)
{
    size_t common = GR_MIN(a_len, b_len);
    int order = common ? memcmp(a, b, common) : 0;
    return order ? order : (a_len > b_len) - (a_len < b_len);
}

/* Two keys, exclusive. end NULL: no limit but the prefix. */
struct span {
    const char *after, *end;
    size_t after_len, end_len;
};

/* Return whether the key lies in the span. */
static bool is_between(const struct span *s, const struct bytes *key)
{
    const char *k = (const char *)key->data;
    return key_order(s->after, s->after_len, k, key->len) < 0 &&
           (!s->end || key_order(k, key->len, s->end, s->end_len) < 0);
}

/* Return the number of bytes that both keys share, not ending within a UTF-8 character. */
static size_t shared_bytes(const struct span *s, size_t prefix_len)
{
    size_t n = prefix_len;
    if (s->end)
        while (n < s->after_len && n < s->end_len && s->after[n] == s->end[n])
            n++;
    while (n > prefix_len && ((n < s->after_len && (s->after[n] & 0xC0) == 0x80) ||
                              (s->end && n < s->end_len && (s->end[n] & 0xC0) == 0x80)))
        n--;
    return n;
}

/* Make a key of the shared bytes and the digits of `number`. Zeros at the end are dropped; one before another digit
 * becomes a space, since a key cannot end and continue. */
static int key_split_make_key(const struct span *s, size_t shared, uint64_t number, unsigned digits, struct bytes *out)
{
    char text[DIGITS];
    for (unsigned i = digits; i-- > 0; number /= BASE)
        text[i] = (char)(FIRST + number % BASE);
    while (digits && text[digits - 1] == FIRST)
        digits--;
    for (unsigned i = 0; i < digits; i++)
        text[i] = text[i] == FIRST ? ' ' : text[i];
    bytes_clear(out);
    int rc = bytes_append(out, s->after, shared);
    return rc ? rc : bytes_append(out, text, digits);
}

/* Make a key right behind the directory of `after`. Return 1, 0 if that is not in the span, or -errno. */
static int behind_directory(const struct span *s, size_t prefix_len, struct bytes *out)
{
    const char *slash = memrchr(s->after + prefix_len, '/', s->after_len - prefix_len);
    if (!slash)
        return 0;
    bytes_clear(out);
    int rc = bytes_append(out, s->after, (size_t)(slash - s->after));
    if (!rc)
        rc = bytes_append(out, "0", 1); /* the byte after '/' in ASCII */
    return rc ? rc : is_between(s, out);
}

int key_split(const char *after, size_t after_len, const char *end, size_t end_len, size_t prefix_len,
              struct bytes *out)
{
    struct span s = {.after = after, .end = end, .after_len = after_len, .end_len = end_len};
    if (after_len < prefix_len)
        return 0;
    size_t shared = shared_bytes(&s, prefix_len);
    uint64_t low = 0, high = 0, above = 1;
    for (unsigned digits = 1; digits <= DIGITS; digits++) {
        low = low * BASE + digit(after, after_len, shared + digits - 1);
        /* without an end, the number may go up to the highest one of this length */
        high = end ? high * BASE + digit(end, end_len, shared + digits - 1) : (above *= BASE);
        /* nothing lies between the two yet: take another digit */
        if (high < low + 2)
            continue;
        int rc = key_split_make_key(&s, shared, low + (high - low) / 2, digits, out);
        if (rc || is_between(&s, out))
            return rc ? rc : 1;
    }
    return behind_directory(&s, prefix_len, out);
}
