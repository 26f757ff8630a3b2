/* Changes go by words of 8 bytes: a bit for each word that both records have whole, then the words whose bit is set,
 * then the bytes after the last such word.
 *
 *   | bits, one a word | words that differ | the rest |
 */
#include "base/spill/pack.h"

#include <string.h>

#include "base/compiler.h"

enum { WORD = 8 };

uint8_t *pack_number(uint8_t *p, uint32_t number)
{
    for (; number >= 0x80; number >>= 7)
        *p++ = (uint8_t)(number | 0x80);
    *p++ = (uint8_t)number;
    return p;
}

const uint8_t *unpack_number(const uint8_t *p, uint32_t *out)
{
    uint32_t number = *p & 0x7f;
    for (unsigned shift = 7; *p++ & 0x80; shift += 7)
        number |= (uint32_t)(*p & 0x7f) << shift;
    *out = number;
    return p;
}

uint8_t *pack_changes(uint8_t *p, const void *now, size_t len, const void *before, size_t before_len)
{
    const uint8_t *a = now, *b = before;
    size_t words = GR_MIN(len, before_len) / WORD;
    uint8_t *bits = p;
    p += (words + 7) / 8;
    memset(bits, 0, (size_t)(p - bits));
    for (size_t i = 0; i < words; i++) {
        uint64_t x, y;
        memcpy(&x, a + i * WORD, WORD);
        memcpy(&y, b + i * WORD, WORD);
        if (x == y)
            continue;
        bits[i / 8] |= (uint8_t)(1U << i % 8);
        p = mempcpy(p, &x, WORD);
    }
    return len > words * WORD ? mempcpy(p, a + words * WORD, len - words * WORD) : p;
}

const uint8_t *unpack_changes(const uint8_t *p, void *bytes, size_t len, size_t before_len)
{
    uint8_t *to = bytes;
    size_t words = GR_MIN(len, before_len) / WORD;
    const uint8_t *bits = p;
    p += (words + 7) / 8;
    for (size_t i = 0; i < words; i += 8) {
        for (unsigned left = bits[i / 8]; left; left &= left - 1) {
            memcpy(to + (i + (unsigned)__builtin_ctz(left)) * WORD, p, WORD);
            p += WORD;
        }
    }
    if (len > words * WORD) /* `bytes` may be NULL without */
        memcpy(to + words * WORD, p, len - words * WORD);
    return p + (len - words * WORD);
}

size_t pack_shared(const void *a, size_t a_len, const void *b, size_t b_len)
{
    const uint8_t *x = a, *y = b;
    size_t n = 0, common = GR_MIN(a_len, b_len);
    while (n < common && x[n] == y[n])
        n++;
    return n;
}
