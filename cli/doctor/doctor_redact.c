/* Granary writes no secret into its log, but the journal also has lines of others: of systemd about its units, of a
 * program around granary that prints its environment or its requests. Hidden are, to err on the safe side:
 *
 *   scheme://user:password@host, scheme://host/?token       the rest of the word, as `granary config show` does
 *   user:password@host                                      the rest of the word
 *   AWS_SECRET_ACCESS_KEY=, "Cookie: ", "Authorization: "   the rest of the line after a name that has a secret's word
 *   ?delegation=, &sig=                                     the rest of the word, as the name is of an address
 *   --password hidden, Bearer hidden                        the next word
 *
 * A bug report needs Granary's own sentences, which have the form "NAME: what is wrong" too: about a file or an option
 * whose name has such a word, and about what is missing. is_in_sentence() and is_of_file() know them.
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "cli/doctor/doctor.h"

static const char *const secret_words[] = {"secret",    "password", "passwd", "passphrase", "token",
                                           "signature", "sig=",     "cookie", "credential", "authorization",
                                           "api-key",   "api_key",  "apikey", "delegation", "bearer"};

/* A line while it is copied in place: what is before p stands in [copy, to), with '*' for secrets. */
struct redaction {
    const char *copy;
    char *to; /* at or before p */
    const char *p, *end;
};

static bool begins_with(const char *p, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - p) >= len && !strncasecmp(p, word, len);
}

/* Whether the text [begin, end) ends with a word. */
static bool ends_with(const char *begin, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - begin) >= len && !strncasecmp(end - len, word, len);
}

static bool is_of_name(char c)
{
    return isalnum((unsigned char)c) || c == '_' || c == '-' || c == '.';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

static const char *skip_blanks(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    return p;
}

static const char *end_of_word(const char *p, const char *end)
{
    while (p < end && !isspace((unsigned char)*p))
        p++;
    return p;
}

/* Return the end of a word that may be quoted, and then may have blanks. */
static const char *end_of_quoted(const char *p, const char *end)
{
    if (p == end || !is_quote(*p))
        return end_of_word(p, end);
    const char quote = *p++;
    while (p < end && *p != quote)
        p += *p == '\\' && p + 1 < end ? 2 : 1;
    return end_of_word(p, end);
}

/* Whether a word begins here by which a secret is known. "pass" is the end of a name, as in DB_PASS: not "passed". */
static bool is_secret_word(const char *p, const char *end)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(secret_words); i++)
        if (begins_with(p, end, secret_words[i]))
            return true;
    return begins_with(p, end, "pass") && (end - p == 4 || !isalpha((unsigned char)p[4]));
}

/* Whether a name that begins there in the copy is the last part of a path or of an address, not "user/password". */
static bool is_in_path(const char *copy, const char *name)
{
    const char *word = name;
    size_t slashes = 0;
    for (; word > copy && !isspace((unsigned char)word[-1]); word--)
        slashes += word[-1] == '/';
    while (word < name && (is_quote(*word) || *word == '('))
        word++;
    return name > copy && name[-1] == '/' && (*word == '/' || slashes > 1);
}

/* Whether the name, which begins at `name` in the copy and ends at name_end, is what a sentence is about that goes on
 * after a ':': a path, a unit (granary-serve@NAME), an option, an export, what is missing, or credentials. */
static bool is_in_sentence(const struct redaction *r, const char *name, const char *name_end)
{
    static const char *const before[] = {"@", " no ", "has a ", "export '"};
    if (name_end < r->end && *name_end == '"') /* JSON */
        return false;
    for (size_t i = 0; i < GR_ARRAY_SIZE(before); i++)
        if (ends_with(r->copy, name, before[i]))
            return true;
    if (begins_with(name, r->to, "--") || is_in_path(r->copy, name))
        return true;
    return name == r->to && name_end - r->p == (ptrdiff_t)strlen("credentials") &&
           (ends_with(r->copy, name, "S3 ") || ends_with(r->copy, name, "set up "));
}

/* Return the end of the word that stands after a name and blanks, as the value of an option or of "Bearer"; NULL: the
 * name is neither, or that is no value. */
static const char *end_of_next(const struct redaction *r, const char *name, const char *name_end, const char *value)
{
    bool option = begins_with(name, r->to, "-") && !begins_with(value, r->end, "--");
    bool bearer =
        name == r->to && name_end - r->p == (ptrdiff_t)strlen("bearer") && begins_with(r->p, name_end, "bearer");
    size_t token = strlen("token");
    if (bearer && begins_with(value, r->end, "token")) /* "the bearer token of" */
        bearer = (size_t)(r->end - value) > token && is_of_name(value[token]);
    return option || bearer ? end_of_quoted(value, r->end) : NULL;
}

/* Return where the value begins, if p is at a secret's word in a name; else NULL. *until: where it ends. */
static const char *value_of_secret(const struct redaction *r, const char **until)
{
    const char *name = r->to, *name_end = r->p;
    if (!is_secret_word(r->p, r->end))
        return NULL;
    while (name > r->copy && is_of_name(name[-1]))
        name--;
    while (name_end < r->end && is_of_name(*name_end))
        name_end++;
    if (ends_with(r->p, name_end, "file")) /* of a file that has the secret */
        return NULL;
    const char *quoted_end = name_end;
    while (quoted_end < r->end && is_quote(*quoted_end))
        quoted_end++;
    const char *value = skip_blanks(quoted_end, r->end);
    char separator = value < r->end ? *value : 0;
    bool parameter = name > r->copy && (name[-1] == '?' || name[-1] == '&');
    if (separator == '=' || separator == ':') {
        *until = separator == '=' && parameter ? end_of_word(value, r->end) : r->end;
        return separator == ':' && is_in_sentence(r, name, name_end) ? NULL : value + 1;
    }
    *until = value > quoted_end ? end_of_next(r, name, name_end, value) : NULL;
    return *until ? value : NULL;
}

/* Return where the secret part of an address begins, if p is at a ':' in one; else NULL. *until: where it ends. The '@'
 * of NAME:TAG@sha256:DIGEST is an image's. */
static const char *value_in_address(const struct redaction *r, const char **until)
{
    if (*r->p != ':')
        return NULL;
    bool scheme = begins_with(r->p, r->end, "://"), hidden = false;
    const char *from = r->p + (scheme ? strlen("://") : 1);
    *until = end_of_word(from, r->end);
    for (const char *p = from; p < *until; p++)
        hidden = hidden || (scheme && *p == '?') || (*p == '@' && !begins_with(p, *until, "@sha256:"));
    return hidden ? from : NULL;
}

/* Copy the line to `to`, with '*' for secrets. */
static void redact_line(struct redaction *r)
{
    while (r->p < r->end) {
        const char *until, *from = value_in_address(r, &until);
        if (!from)
            from = value_of_secret(r, &until);
        if (!from || from == until) {
            *r->to++ = *r->p++;
            continue;
        }
        memmove(r->to, r->p, (size_t)(from - r->p));
        r->to += from - r->p;
        *r->to++ = '*';
        r->p = until;
    }
}

void doctor_redact(struct bytes *text)
{
    if (!text->len)
        return;
    char *to = (char *)text->data;
    const char *p = to, *end = p + text->len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p)), *line_end = newline ? newline : end;
        struct redaction line = {.copy = to, .to = to, .p = p, .end = line_end};
        redact_line(&line);
        to = line.to;
        if (newline)
            *to++ = '\n';
        p = line_end + (newline != NULL);
    }
    text->len = (size_t)(to - (char *)text->data);
}
