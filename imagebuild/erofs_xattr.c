/* A header of 12 bytes (no shared attributes, no filter), then for each attribute {name length, prefix number, value
 * length, name without prefix, value} padded to 4 bytes. The order is the tree's, which sorts by name. Names that begin
 * with none of the prefixes do not occur: the tree leaves out and counts what no filesystem can hold.
 */
#include "imagebuild/erofs_xattr.h"

#include <stdbool.h>
#include <string.h>

#include "base/le.h"
#include "imagebuild/erofs_format.h"

struct xattr {
    const char *name;
    size_t name_len;
    const uint8_t *value;
    size_t value_len;
};

static const struct prefix {
    const char *text;
    uint8_t number;
} prefixes[] = {
    {"user.", 1}, {"system.posix_acl_access", 2}, {"system.posix_acl_default", 3}, {"trusted.", 4}, {"security.", 6},
};

/* Take the next attribute off the sequence; false at its end. */
static bool next_xattr(const uint8_t **p, const uint8_t *end, struct xattr *out)
{
    if (end - *p < 6)
        return false;
    out->name_len = le16_get(*p);
    out->value_len = le32_get(*p + 2);
    out->name = (const char *)*p + 6;
    out->value = *p + 6 + out->name_len;
    *p = out->value + out->value_len;
    return true;
}

static const struct prefix *find_prefix(const struct xattr *x)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes); i++) {
        size_t n = strlen(prefixes[i].text);
        if (x->name_len >= n && !memcmp(x->name, prefixes[i].text, n))
            return &prefixes[i];
    }
    return NULL;
}

static uint32_t entry_size(const struct xattr *x, const struct prefix *prefix)
{
    return GR_ALIGN_UP((uint32_t)(EROFS_XATTR_ENTRY + x->name_len - strlen(prefix->text) + x->value_len), 4u);
}

uint32_t erofs_xattr_size(const void *xattrs, size_t len)
{
    if (!len)
        return 0;
    const uint8_t *p = xattrs, *end = p + len;
    uint32_t size = 0;
    struct xattr x;
    while (next_xattr(&p, end, &x)) {
        const struct prefix *prefix = find_prefix(&x);
        if (prefix)
            size += entry_size(&x, prefix);
    }
    return size ? EROFS_XATTR_HEADER + size : 0;
}

int erofs_xattr_encode(const void *xattrs, size_t len, struct bytes *out)
{
    uint32_t size = erofs_xattr_size(xattrs, len);
    struct xattr x;
    uint8_t *at;
    if (!size)
        return 0;
    int rc = bytes_extend(out, size, &at);
    if (rc)
        return rc;
    const uint8_t *p = xattrs, *end = p + len;
    at += EROFS_XATTR_HEADER;
    while (next_xattr(&p, end, &x)) {
        const struct prefix *prefix = find_prefix(&x);
        if (!prefix)
            continue;
        size_t skip = strlen(prefix->text), n = x.name_len - skip;
        at[0] = (uint8_t)n;
        at[1] = prefix->number;
        le16_put(at + 2, (uint16_t)x.value_len);
        memcpy(at + EROFS_XATTR_ENTRY, x.name + skip, n);
        memcpy(at + EROFS_XATTR_ENTRY + n, x.value, x.value_len);
        at += entry_size(&x, prefix);
    }
    return 0;
}

uint16_t erofs_xattr_count_field(uint32_t size)
{
    return (uint16_t)(size ? (size - EROFS_XATTR_HEADER) / 4 + 1 : 0);
}
