/* Lists of members, and the file that has one. The file is a text that people and templates write: one URL a line, with
 * a weight after it or not, comments from '#' on. A file with one wrong line is wrong as a whole: half a list would
 * move keys. */
#include "store/l2/l2_internal.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

int members_add(struct members *m, const char *url, size_t len, unsigned weight)
{
    while (len && url[len - 1] == '/')
        len--;
    CLEANUP_FREE char *copy = strndup(url, len);
    struct member member = {.url = copy, .weight = weight};
    if (!copy || vec_push(m, member))
        return error_no_memory();
    steal_ptr(&copy);
    return 0;
}

struct member *members_find(const struct members *m, const char *url)
{
    for (size_t i = 0; i < m->len; i++)
        if (!strcmp(m->items[i].url, url))
            return &m->items[i];
    return NULL;
}

bool members_equal(const struct members *a, const struct members *b)
{
    bool equal = a->len == b->len;
    for (size_t i = 0; equal && i < a->len; i++)
        equal = a->items[i].weight == b->items[i].weight && !strcmp(a->items[i].url, b->items[i].url);
    return equal;
}

void members_release(struct members *m)
{
    for (size_t i = 0; i < m->len; i++)
        free(m->items[i].url);
    vec_release(m);
}

/* ---- a file ---- */

/* Check a member's URL. The sentence does not show it. */
static int check_url(const char *name, size_t line, const char *url)
{
    bool known = text_begins_with(url, "http://") || text_begins_with(url, "https://");
    if (!known || http_check_url("", url, ""))
        return error_set(-EINVAL,
                         "%s, line %zu: write the address of a proxy, http://HOST:PORT/PATH without a password, and "
                         "after it a weight from 1 to %d or nothing",
                         name, line, STORE_WEIGHT_MAX);
    return 0;
}

/* Add the member of one line, if it has one. */
static int add_line(const char *name, size_t number, char *line, struct members *out)
{
    uint64_t weight = 0;
    line[strcspn(line, "#")] = 0;
    char *url = text_trim(line), *rest = url + strcspn(url, " \t");
    if (!*url)
        return 0;
    if (*rest)
        *rest++ = 0;
    rest = text_trim(rest);
    int rc = check_url(name, number, url);
    if (!rc && *rest && text_parse_uint("", rest, 1, STORE_WEIGHT_MAX, &weight))
        rc = error_set(-EINVAL, "%s, line %zu: the weight must be a whole number from 1 to %d", name, number,
                       STORE_WEIGHT_MAX);
    if (rc)
        return rc;
    if (out->len == STORE_L2_MAX)
        return error_set(-EINVAL, "%s, line %zu: more than %d shared cache proxies", name, number, STORE_L2_MAX);
    rc = members_add(out, url, strlen(url), (unsigned)weight);
    if (rc)
        return rc;
    if (members_find(out, out->items[out->len - 1].url) != &out->items[out->len - 1])
        return error_set(-EINVAL, "%s, line %zu: this address is there already", name, number);
    return 0;
}

int member_file_parse(const char *name, char *text, size_t len, struct members *out)
{
    size_t number = 0;
    int rc = strlen(text) < len ? error_set(-EINVAL, "%s is not a text: it has a byte 0", name) : 0;
    *out = (struct members){0};
    for (char *line = text, *next; !rc && line; line = next) {
        next = strchr(line, '\n');
        if (next)
            *next++ = 0;
        rc = add_line(name, ++number, line, out);
    }
    if (!rc && !out->len)
        rc = error_set(-EINVAL, "%s names no shared cache proxy", name);
    if (rc)
        members_release(out);
    return rc;
}
