/* The texts of a request, which anybody may have written. */
#include "server/peer_ask.h"

#include <string.h>

enum { GAP_MAX = 128 << 10 /* bytes between two chunks; nodes read through 64 KiB */ };

bool peer_ask_key(const char *url, struct peer_ask *out)
{
    for (const char *slash = url; slash; slash = strchr(slash + 1, '/'))
        if (!object_key_parse(slash + 1, &out->kind, &out->object))
            return out->kind == OBJECT_PACK || out->kind == OBJECT_INDEX;
    return false;
}

/* Digits alone: strtoull() would take a sign. Returns what follows them, or NULL. */
static const char *number(const char *text, uint64_t *out)
{
    enum { DIGITS_MAX = 18 };
    size_t n = strspn(text, "0123456789");
    *out = 0;
    for (size_t i = 0; i < n && n <= DIGITS_MAX; i++)
        *out = *out * 10 + (uint64_t)(text[i] - '0');
    return n && n <= DIGITS_MAX ? text + n : NULL;
}

bool peer_ask_range(const char *text, struct peer_ask *out)
{
    static const char unit[] = "bytes=";
    uint64_t first, last;
    if (!text || strncmp(text, unit, sizeof unit - 1) != 0)
        return false;
    const char *rest = number(text + sizeof unit - 1, &first);
    if (!rest || *rest != '-')
        return false;
    rest = number(rest + 1, &last);
    if (!rest || *rest || last < first || last - first >= PEER_RANGE_MAX)
        return false;
    out->off = first;
    out->len = last - first + 1;
    return true;
}

/* Do the chunks fill the range, but for gaps? Otherwise a list of one small chunk would be worth megabytes of zeros. */
static bool fills(const struct chunk_ref *refs, size_t n, const struct peer_ask *ask)
{
    uint64_t end = ask->off;
    for (size_t i = 0; i < n; i++) {
        if (refs[i].offset - end > (i ? GAP_MAX : 0))
            return false;
        end = (uint64_t)refs[i].offset + refs[i].stored_len;
    }
    return end == ask->off + ask->len;
}

bool peer_ask_chunks(const char *list, const struct peer_ask *ask, struct chunk_ref out[CHUNK_LIST_MAX], size_t *out_n)
{
    return list && !chunk_list_decode(list, ask->kind, &ask->object, ask->off, ask->len, out, out_n) &&
           fills(out, *out_n, ask);
}
