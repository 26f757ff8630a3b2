/* Granary writes no secret into its log, but the journal also has lines of others: of systemd about its units, of a
 * program around granary that prints its environment. Hidden are, to err on the safe side:
 *
 *   scheme://user:password@host, scheme://host/?token       the rest of the word, as `granary config show` does
 *   AWS_SECRET_ACCESS_KEY=, "Authorization: Bearer ..."     the rest of the line after a name that has such a word in
 * it
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "cli/doctor/doctor.h"

static const char *const secret_words[] = {"secret", "password", "passwd", "token", "authorization", "signature"};

static bool begins_with(const char *p, const char *end, const char *word)
{
    size_t len = strlen(word);
    return (size_t)(end - p) >= len && !strncasecmp(p, word, len);
}

/* Return where the value begins, if p is inside the name of a secret; else NULL. */
static const char *value_of_secret(const char *p, const char *end)
{
    bool named = false;
    for (size_t i = 0; i < GR_ARRAY_SIZE(secret_words); i++)
        named = named || begins_with(p, end, secret_words[i]);
    while (named && p < end && (isalnum((unsigned char)*p) || strchr("_-.\"'", *p)))
        p++;
    while (named && p < end && *p == ' ')
        p++;
    return named && p < end && (*p == '=' || *p == ':') ? p + 1 : NULL;
}

/* Return the end of the word, if p is after the "://" of an address that may have a password or a token; else NULL. */
static const char *end_of_address(const char *p, const char *end)
{
    bool hidden = false;
    for (; p < end && !isspace((unsigned char)*p); p++)
        hidden = hidden || *p == '@' || *p == '?';
    return hidden ? p : NULL;
}

/* Copy a line to `to`, which is at or before it, with '*' for secrets; return the end of the copy. */
static char *redact_line(char *to, const char *p, const char *end)
{
    while (p < end) {
        bool address = begins_with(p, end, "://");
        const char *from = address ? p + strlen("://") : value_of_secret(p, end);
        const char *until = address ? end_of_address(from, end) : from ? end : NULL;
        if (!until || until == from) {
            *to++ = *p++;
            continue;
        }
        memmove(to, p, (size_t)(from - p));
        to += from - p;
        *to++ = '*';
        p = until;
    }
    return to;
}

void doctor_redact(struct bytes *text)
{
    if (!text->len)
        return;
    char *to = (char *)text->data;
    const char *p = to, *end = p + text->len;
    while (p < end) {
        const char *newline = memchr(p, '\n', (size_t)(end - p)), *line_end = newline ? newline : end;
        to = redact_line(to, p, line_end);
        if (newline)
            *to++ = '\n';
        p = line_end + (newline != NULL);
    }
    text->len = (size_t)(to - (char *)text->data);
}
