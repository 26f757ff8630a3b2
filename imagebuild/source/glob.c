/* fnmatch(3) is not used: it depends on the locale, where a byte need not be a character, and some patterns make it
 * take exponential time.
 *
 * A pattern is a sequence of elements: stars, and elements that match one byte. When an element fails, only the last
 * star that was passed is extended, by one byte. Earlier stars need not be tried again: what stands between two
 * stars has matched at its earliest place, and a later place never leaves more text for the rest. So the time is
 * bounded by pattern length times text length.
 */
#include "imagebuild/source/glob.h"

#include <ctype.h>
#include <stdint.h>
#include <string.h>

static const struct {
    const char *name;
    int (*has)(int c);
} classes[] = {
    {"alnum", isalnum}, {"alpha", isalpha}, {"blank", isblank}, {"cntrl", iscntrl},
    {"digit", isdigit}, {"graph", isgraph}, {"lower", islower}, {"print", isprint},
    {"punct", ispunct}, {"space", isspace}, {"upper", isupper}, {"xdigit", isxdigit},
};

/* Find a class such as "[:digit:]" at p. Return its length and its index in the table; 0: there is none. */
static size_t named_class(const char *p, size_t left, size_t *out)
{
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        size_t n = strlen(classes[i].name);
        if (left >= n + 4 && !memcmp(p, "[:", 2) && !memcmp(p + 2, classes[i].name, n) && !memcmp(p + 2 + n, ":]", 2)) {
            *out = i;
            return n + 4;
        }
    }
    return 0;
}

/* Read one byte of a set, which may be escaped. Return its length; 0: the pattern ends here. */
static size_t set_byte(const char *p, size_t left, unsigned char *out)
{
    size_t n = left && *p == '\\' ? 2 : 1;
    if (left < n)
        return 0;
    *out = (unsigned char)p[n - 1];
    return n;
}

/* Match c against the set "[...]" at p. Return the set's length; 0: it does not end. Only bytes below 128 belong to
 * classes, so that the locale does not matter. A ']' directly after the beginning is a member, as in POSIX. */
static size_t match_set(const char *p, size_t len, unsigned char c, bool *match)
{
    size_t at = 1, which, n;
    bool negated = len > 1 && (p[1] == '!' || p[1] == '^'), found = false;
    at += negated;
    for (size_t first = at; at < len && (p[at] != ']' || at == first); at += n) {
        unsigned char low = 0, high;
        n = named_class(p + at, len - at, &which);
        if (n) {
            found |= c < 128 && classes[which].has(c);
            continue;
        }
        n = set_byte(p + at, len - at, &low);
        high = low;
        /* "a-z" is a range; a '-' before the closing ']' is a member */
        if (n && len - at > n + 1 && p[at + n] == '-' && p[at + n + 1] != ']') {
            size_t m = set_byte(p + at + n + 1, len - at - n - 1, &high);
            n = m ? n + 1 + m : 0;
        }
        if (!n)
            return 0;
        found |= low <= c && c <= high;
    }
    *match = found != negated;
    return at < len ? at + 1 : 0;
}

/* Match c against the element at p, which is not a star. Return the element's length; 0: it is malformed. */
static size_t match_element(const char *p, size_t len, unsigned char c, bool *match)
{
    *match = true;
    if (*p == '?')
        return 1;
    if (*p == '[')
        return match_set(p, len, c, match);
    unsigned char want;
    size_t n = set_byte(p, len, &want);
    *match = n && want == c;
    return n;
}

const char *glob_fault(const char *pattern, size_t len)
{
    bool match;
    for (size_t at = 0, n; at < len; at += n) {
        /* matching any byte parses the element */
        n = pattern[at] == '*' ? 1 : match_element(pattern + at, len - at, 0, &match);
        if (!n)
            return pattern[at] == '[' ? "a '[' has no ']' within its component; write '\\[' for the bracket itself"
                                      : "a '\\' has nothing behind it; write '\\\\' for the backslash itself";
    }
    return NULL;
}

bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len)
{
    size_t p = 0, t = 0, behind_star = SIZE_MAX, star_end = 0;
    while (t < text_len) {
        bool match = false;
        size_t n = 0;
        if (p < pattern_len && pattern[p] == '*') { /* at first it matches nothing */
            behind_star = ++p;
            star_end = t;
            continue;
        }
        if (p < pattern_len)
            n = match_element(pattern + p, pattern_len - p, (unsigned char)text[t], &match);
        if (match) {
            p += n;
            t++;
        } else if (behind_star != SIZE_MAX) {
            p = behind_star;
            t = ++star_end;
        } else {
            return false;
        }
    }
    while (p < pattern_len && pattern[p] == '*')
        p++;
    return p == pattern_len;
}
