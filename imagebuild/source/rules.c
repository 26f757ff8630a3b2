/* A pattern is compiled once: it is cut into components at its slashes, and each component is a shell
 * pattern or "**".
 *
 *   "tmp"     one component, not anchored: matches the last component of a path, at any depth
 *   "a/tmp"   anchored, since it has a slash before its end: matches whole paths from the root
 *   "tmp/"    not anchored; matches directories only
 *
 * Matching an anchored pattern is what glob_match does with bytes, with components in their place and "**" as the
 * star.
 */
#include "imagebuild/source/rules.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "base/vec.h"

/* ------------------------------------------------------------------ patterns of one component */

/* fnmatch(3) is not used: it depends on the locale, where a byte need not be a character, and some patterns make it
 * take exponential time.
 *
 * A pattern is a sequence of elements: stars, and elements that match one byte. When an element fails, only the last
 * star that was passed is extended, by one byte. Earlier stars need not be tried again: what stands between two
 * stars has matched at its earliest place, and a later place never leaves more text for the rest. So the time is
 * bounded by pattern length times text length.
 */

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
                                      : "a '\\' has nothing after it; write '\\\\' for the backslash itself";
    }
    return NULL;
}

bool glob_match(const char *pattern, size_t pattern_len, const char *text, size_t text_len)
{
    size_t p = 0, t = 0, after_star = SIZE_MAX, star_end = 0;
    while (t < text_len) {
        bool match = false;
        size_t n = 0;
        if (p < pattern_len && pattern[p] == '*') { /* at first it matches nothing */
            after_star = ++p;
            star_end = t;
            continue;
        }
        if (p < pattern_len)
            n = match_element(pattern + p, pattern_len - p, (unsigned char)text[t], &match);
        if (match) {
            p += n;
            t++;
        } else if (after_star != SIZE_MAX) {
            p = after_star;
            t = ++star_end;
        } else {
            return false;
        }
    }
    while (p < pattern_len && pattern[p] == '*')
        p++;
    return p == pattern_len;
}

/* ------------------------------------------------------------------ rules */

enum { RULES_FILE_MAX = 16 << 20 }; /* bytes of a file of patterns */

struct component {
    const char *text; /* within the rule's pattern */
    size_t len;
    bool any; /* "**": any number of components, also none; at the end of a pattern at least one */
};

/* A compiled pattern. */
struct rule {
    char *pattern;
    bool include, directories_only;
    bool anchored; /* matches whole paths; otherwise last components */
    VEC(struct component) components;
};

struct rules {
    VEC(struct rule) list;
    bool default_out; /* the first rule is an --include: files without a verdict are left out */
};

int rules_new(struct rules **out)
{
    *out = calloc(1, sizeof **out);
    return *out ? 0 : error_no_memory();
}

static void rule_release(struct rule *rule)
{
    free(rule->pattern);
    vec_release(&rule->components);
}

void rules_free(struct rules *r)
{
    for (size_t i = 0; r && i < r->list.len; i++)
        rule_release(&r->list.items[i]);
    if (r)
        vec_release(&r->list);
    free(r);
}

/* ------------------------------------------------------------------ making */

/* Return the length of the component at the beginning of text. */
static size_t component_len(const char *text, size_t left)
{
    const char *slash = memchr(text, '/', left);
    return slash ? (size_t)(slash - text) : left;
}

/* Cut the text into components. -EINVAL: one of them is no valid shell pattern, or is empty. */
static int cut(struct rule *rule, const char *text, size_t len)
{
    for (size_t at = 0; at <= len;) {
        struct component c = {.text = text + at, .len = component_len(text + at, len - at)};
        const char *fault = c.len ? glob_fault(c.text, c.len) : "it has two slashes in a row; write one";
        if (fault)
            return error_set(-EINVAL, "pattern '%s': %s", rule->pattern, fault);
        /* git: "**" without a slash is two ordinary stars */
        c.any = rule->anchored && c.len == 2 && !memcmp(c.text, "**", 2);
        if (vec_push(&rule->components, c))
            return -ENOMEM;
        at += c.len + 1;
    }
    return 0;
}

/* Compile the rule's pattern. -EINVAL: it is malformed. */
static int compile(struct rule *rule)
{
    const char *text = rule->pattern;
    size_t len = strlen(text);
    rule->directories_only = len && text[len - 1] == '/';
    len -= rule->directories_only;
    /* a slash at the end does not anchor; one at the beginning does, and is then of no further use */
    rule->anchored = memchr(text, '/', len) != NULL;
    if (len && *text == '/') {
        text++;
        len--;
    }
    if (!len)
        return error_set(-EINVAL, "pattern '%s': there is nothing to match; write a name or a path", rule->pattern);
    return cut(rule, text, len);
}

/* Append a rule from len bytes of text, which belong to the caller. */
static int rules_add_one(struct rules *r, bool include, const char *pattern, size_t len)
{
    struct rule rule = {.pattern = strndup(pattern, len), .include = include};
    int rc = rule.pattern ? compile(&rule) : error_no_memory();
    if (!rc)
        rc = vec_push(&r->list, rule);
    if (rc)
        rule_release(&rule);
    return rc;
}

int rules_add(struct rules *r, bool include, const char *pattern)
{
    bool first = !r->list.len;
    int rc = rules_add_one(r, include, pattern, strlen(pattern));
    if (!rc && first)
        r->default_out = include;
    return rc;
}

/* Return the length of the line without blanks at its end; a blank after a backslash stays. */
static size_t trimmed(const char *line, size_t len)
{
    while (len && (line[len - 1] == ' ' || line[len - 1] == '\t') && !(len > 1 && line[len - 2] == '\\'))
        len--;
    return len;
}

int rules_add_file(struct rules *r, const char *path)
{
    CLEANUP_BYTES text = BYTES_INIT(RULES_FILE_MAX);
    int rc = io_read_file(path, &text);
    if (rc)
        return error_set(rc, "cannot read the patterns of %s: %s", path, strerror(-rc));
    const char *at = (const char *)text.data;
    for (size_t left = text.len, number = 1, n; !rc && left; number++) {
        const char *end = memchr(at, '\n', left);
        n = end ? (size_t)(end - at) : left;
        size_t len = trimmed(at, n);
        bool include = len && *at == '!';
        if (memchr(at, 0, len))
            rc = error_set(-EINVAL, "%s:%zu: a NUL byte in a pattern", path, number);
        else if (len && *at != '#')
            rc = rules_add_one(r, include, at + include, len - include);
        rc = rc ? error_prefix(rc, "%s:%zu", path, number) : 0;
        at += n + (end != NULL);
        left -= n + (end != NULL);
    }
    return rc;
}

int rules_print(const struct rules *r, struct bytes *out)
{
    /* the length before each pattern keeps the text unambiguous: a pattern may contain a newline */
    int rc = bytes_printf(out, "%d\n", r->default_out);
    for (size_t i = 0; !rc && i < r->list.len; i++)
        rc = bytes_printf(out, "%c%zu %s\n", r->list.items[i].include ? '+' : '-', strlen(r->list.items[i].pattern),
                          r->list.items[i].pattern);
    return rc;
}

/* ------------------------------------------------------------------ judging */

/* Return whether an anchored rule matches the whole path. Only the last "**" that was passed is ever extended, for
 * the reason that glob_match has. `at` is where the current component of the path begins; it is over len at the end. */
static bool match_components(const struct rule *rule, const char *path, size_t len)
{
    const struct component *c = rule->components.items, *end = c + rule->components.len, *after_star = NULL;
    size_t at = 0, star_end = 0;
    while (at <= len) {
        size_t n = component_len(path + at, len - at);
        if (c < end && c->any) {
            after_star = ++c;
            star_end = at;
            if (c == end)
                return true;
        } else if (c < end && glob_match(c->text, c->len, path + at, n)) {
            c++;
            at += n + 1;
        } else if (after_star) {
            c = after_star;
            at = star_end += component_len(path + star_end, len - star_end) + 1;
        } else {
            return false;
        }
    }
    return c == end;
}

/* Return whether the rule matches the path. A rule that is not anchored has one component. */
static bool matches(const struct rule *rule, const char *path, size_t len, bool directory)
{
    if (rule->directories_only && !directory)
        return false;
    if (rule->anchored)
        return match_components(rule, path, len);
    const char *slash = memrchr(path, '/', len);
    const char *name = slash ? slash + 1 : path;
    const struct component *c = rule->components.items;
    return glob_match(c->text, c->len, name, len - (size_t)(name - path));
}

enum rules_verdict rules_judge(const struct rules *r, enum rules_verdict parent, const char *path, size_t len,
                               bool directory)
{
    /* as in git: an --include below a directory that is left out has no effect */
    if (parent == RULES_OUT)
        return RULES_OUT;
    for (size_t i = r->list.len; i-- > 0;)
        if (matches(&r->list.items[i], path, len, directory))
            return r->list.items[i].include ? RULES_IN : RULES_OUT;
    return parent;
}

bool rules_verdict_takes(const struct rules *r, enum rules_verdict verdict, bool directory)
{
    return verdict == RULES_NONE ? directory || !r->default_out : verdict == RULES_IN;
}

bool rules_take(const struct rules *r, const char *path, size_t len, bool directory)
{
    enum rules_verdict verdict = RULES_NONE;
    if (!r || !len)
        return true;
    for (size_t at = 0; at < len; at++)
        if (path[at] == '/')
            verdict = rules_judge(r, verdict, path, at, true);
    return rules_verdict_takes(r, rules_judge(r, verdict, path, len, directory), directory);
}
