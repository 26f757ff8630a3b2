/* A header of 12 bytes (no shared attributes, no name filter), then the attributes, each padded to 4 bytes:
 *
 *   | name length, prefix number, le16 value length | name without prefix | value |
 *
 * They stay in the listing's order, by name.
 */
#include "imagebuild/fs/erofs/erofs_xattr.h"

#include <string.h>

#include "base/le.h"
#include "imagebuild/fs/erofs/erofs_format.h"
#include "imagebuild/tree/nodes.h"

/* Return the encoded size of an attribute, padding included. */
static uint32_t entry_size(const struct xattr *x)
{
    return GR_ALIGN_UP((uint32_t)(EROFS_XATTR_ENTRY + x->name_len + x->value_len), 4u);
}

uint32_t erofs_xattr_size(const void *xattrs, size_t len)
{
    if (!len)
        return 0;
    const uint8_t *p = xattrs, *end = p + len;
    uint32_t size = 0;
    struct xattr x;
    while (xattr_next(&p, end, &x))
        size += entry_size(&x);
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
    while (xattr_next(&p, end, &x)) {
        at[0] = (uint8_t)x.name_len;
        at[1] = x.prefix;
        le16_put(at + 2, (uint16_t)x.value_len);
        memcpy(at + EROFS_XATTR_ENTRY, x.name, x.name_len);
        memcpy(at + EROFS_XATTR_ENTRY + x.name_len, x.value, x.value_len);
        at += entry_size(&x);
    }
    return 0;
}

uint16_t erofs_xattr_count_field(uint32_t size)
{
    return (uint16_t)(size ? (size - EROFS_XATTR_HEADER) / 4 + 1 : 0);
}
