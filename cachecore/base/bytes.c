/* Capacity doubles, so appending n bytes one at a time costs O(n). The maximum is checked before anything is allocated;
 * the capacity itself may exceed it by the last doubling. Functions that append build nothing in place before they have
 * reserved the room, so a failure leaves the contents as they were.
 */
#include "base/bytes.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"

void bytes_release(struct bytes *b)
{
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

void bytes_wipe(struct bytes *b)
{
    if (b->data)
        explicit_bzero(b->data, b->cap);
    bytes_release(b);
}

/* Make room for `more` bytes after the contents. */
static int reserve(struct bytes *b, size_t more)
{
    /* Written so that no addition can overflow. */
    if (more > b->max || b->len > b->max - more)
        return error_set(-EMSGSIZE, "a buffer limited to %zu bytes would need %zu more", b->max, more);
    size_t need = b->len + more;
    if (need <= b->cap)
        return 0;
    size_t cap = b->cap ? b->cap : 64;
    while (cap < need)
        cap *= 2;
    uint8_t *fresh = realloc(b->data, cap);
    if (!fresh)
        return error_no_memory();
    b->data = fresh;
    b->cap = cap;
    return 0;
}

int bytes_append(struct bytes *b, const void *p, size_t n)
{
    int rc = reserve(b, n);
    if (rc)
        return rc;
    if (n)
        memcpy(b->data + b->len, p, n);
    b->len += n;
    return 0;
}

int bytes_extend(struct bytes *b, size_t n, uint8_t **out)
{
    int rc = reserve(b, n);
    if (rc)
        return rc;
    *out = b->data + b->len;
    if (n)
        memset(*out, 0, n);
    b->len += n;
    return 0;
}

int bytes_reserve(struct bytes *b, size_t n, uint8_t **out)
{
    int rc = reserve(b, n);
    if (!rc)
        *out = b->data + b->len;
    return rc;
}

int bytes_printf(struct bytes *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    CLEANUP_FREE char *text = NULL;
    int n = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (n < 0) {
        text = NULL; /* vasprintf leaves it undefined on failure */
        return error_no_memory();
    }
    return bytes_append(b, text, (size_t)n);
}

char *bytes_string(struct bytes *b)
{
    if (reserve(b, 1))
        return NULL;
    b->data[b->len] = 0;
    return (char *)b->data;
}
