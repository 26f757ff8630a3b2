/* The numbers of the prefixes are the same in erofs and ext4 (EROFS_XATTR_INDEX_*, EXT4_XATTR_INDEX_*). Lengths are
 * not checked here: listing_filter_xattrs has checked them.
 *
 *   | le16 name length | le32 value length | name | value | next attribute ...
 */
#include "imagebuild/tree/xattrs.h"

#include <string.h>

#include "base/compiler.h"
#include "base/le.h"

static const struct prefix {
    const char *text;
    uint8_t number;
} prefixes[] = {
    {"user.", 1},
    {"system.posix_acl_access", XATTR_ACL_ACCESS},
    {"system.posix_acl_default", XATTR_ACL_DEFAULT},
    {"trusted.", 4},
    {"security.", 6},
};

/* Replace a known prefix of the name by its number; false: none is known. An ACL's name is all prefix. */
static bool take_prefix(struct xattr *x)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(prefixes); i++) {
        size_t n = strlen(prefixes[i].text);
        if (x->name_len < n || memcmp(x->name, prefixes[i].text, n))
            continue;
        x->prefix = prefixes[i].number;
        x->name += n;
        x->name_len -= n;
        return true;
    }
    return false;
}

bool xattr_next(const uint8_t **p, const uint8_t *end, struct xattr *out)
{
    while (end - *p >= 6) {
        out->name_len = le16_get(*p);
        out->value_len = le32_get(*p + 2);
        out->name = (const char *)*p + 6;
        out->value = *p + 6 + out->name_len;
        *p = out->value + out->value_len;
        if (take_prefix(out))
            return true;
    }
    return false;
}
