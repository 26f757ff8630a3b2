/* Extended attributes lie behind the inode's fields, and what does not fit there in a block. Each is placed in the
 * inode if it fits there, else in the block, in the order of the sequence.
 *
 *   inode:  | magic  | entry | entry | 0 0 0 0 | ... free ... | value | value |
 *   block:  | header | entry | entry | 0 0 0 0 | ... free ... | value | value |      header of 32 bytes
 *                                   entries ^      values ^
 *
 * Entries are sorted by (prefix, length of the name, name), because the kernel's search relies on it. A value's
 * offset counts from the first entry in the inode, but from the start of the block in a block.
 */
#include <string.h>

#include "base/le.h"
#include "imagebuild/fs/ext4/ext4_internal.h"
#include "imagebuild/tree/nodes.h"

enum { ENTRY = 16, HEADER = 32, MAGIC_SIZE = 4, ACL_ENTRY = 8, ACL_HEADER = 4, ACL_SHORT_ENTRY = 4 }; /* bytes */
enum { ACL_VERSION = 1, ACL_USER = 2, ACL_GROUP = 8 };

/* A place for attributes. Entries grow up to `entries`, followed by four zero bytes; values grow down to `values`. */
struct place {
    uint8_t *base;          /* what value offsets count from */
    size_t first;           /* the first entry */
    size_t entries, values; /* offsets from base */
};

/* Compare an encoded entry with an attribute, in the kernel's order. */
static int compare(const uint8_t *a, const struct xattr *x)
{
    if (a[1] != x->prefix)
        return a[1] < x->prefix ? -1 : 1;
    if (a[0] != x->name_len)
        return a[0] < x->name_len ? -1 : 1;
    return memcmp(a + ENTRY, x->name, x->name_len);
}

static size_t entry_len(size_t name_len)
{
    return GR_ALIGN_UP(ENTRY + name_len, (size_t)4);
}

/* Return where the attribute's entry goes. */
static size_t find_place(const struct place *p, const struct xattr *x)
{
    size_t at = p->first;
    while (at < p->entries && compare(p->base + at, x) < 0)
        at += entry_len(p->base[at]);
    return at;
}

/* Add the attribute; false: it does not fit. */
static bool ext4_xattr_put(struct place *p, const struct xattr *x, const uint8_t *value, size_t value_len)
{
    size_t entry = entry_len(x->name_len), space = GR_ALIGN_UP(value_len, (size_t)4);
    if (entry + space + 4 > p->values - p->entries)
        return false;
    size_t at = find_place(p, x);
    uint8_t *e = p->base + at;
    memmove(e + entry, e, p->entries - at);
    memset(e, 0, entry);
    p->entries += entry;
    p->values -= space;
    e[0] = (uint8_t)x->name_len;
    e[1] = x->prefix;
    le16_put(e + 2, (uint16_t)(value_len ? p->values : 0));
    le32_put(e + 8, (uint32_t)value_len);
    memcpy(e + ENTRY, x->name, x->name_len);
    memcpy(p->base + p->values, value, value_len);
    return true;
}

/* Encode an access control list in ext4's shorter form: version 1, ids only where they have a meaning. Returns the
 * length; 0: the attribute is malformed. */
static size_t encode_acl(const struct xattr *x, uint8_t out[EXT4_BLOCK])
{
    size_t len = ACL_HEADER;
    if (x->value_len < ACL_HEADER || (x->value_len - ACL_HEADER) % ACL_ENTRY || x->value_len > EXT4_BLOCK)
        return 0;
    le32_put(out, ACL_VERSION);
    for (size_t at = ACL_HEADER; at < x->value_len; at += ACL_ENTRY) {
        uint16_t tag = le16_get(x->value + at);
        size_t n = tag == ACL_USER || tag == ACL_GROUP ? ACL_ENTRY : ACL_SHORT_ENTRY;
        memcpy(out + len, x->value + at, n);
        len += n;
    }
    return len;
}

/* Complete an attribute block: header and hashes. */
static void finish_block(struct place *p)
{
    struct ext2_ext_attr_header *header = (void *)p->base;
    header->h_magic = EXT2_EXT_ATTR_MAGIC;
    header->h_refcount = header->h_blocks = 1;
    for (size_t at = p->first; at < p->entries; at += entry_len(p->base[at])) {
        struct ext2_ext_attr_entry *e = (void *)(p->base + at);
        e->e_hash = ext2fs_ext_attr_hash_entry(e, p->base + e->e_value_offs);
    }
    ext2fs_ext_attr_block_rehash(header, (void *)(p->base + p->entries));
}

uint64_t ext4_xattrs_place(const void *xattrs, size_t len, uint8_t room[EXT4_XATTR_ROOM], uint8_t block[EXT4_BLOCK],
                           bool *out_block_used)
{
    struct place inode = {.base = room + MAGIC_SIZE, .values = EXT4_XATTR_ROOM - MAGIC_SIZE};
    struct place extra = {.base = block, .first = HEADER, .entries = HEADER, .values = EXT4_BLOCK};
    const uint8_t *p = xattrs, *end = p + len;
    uint8_t acl[EXT4_BLOCK];
    uint64_t skipped = 0;
    struct xattr x;
    *out_block_used = false;
    while (len && xattr_next(&p, end, &x)) {
        bool is_acl = x.prefix == XATTR_ACL_ACCESS || x.prefix == XATTR_ACL_DEFAULT;
        size_t value_len = is_acl ? encode_acl(&x, acl) : x.value_len;
        const uint8_t *value = is_acl ? acl : x.value;
        if (is_acl && !value_len)
            skipped++;
        else if (ext4_xattr_put(&inode, &x, value, value_len))
            le32_put(room, EXT2_EXT_ATTR_MAGIC);
        else if (ext4_xattr_put(&extra, &x, value, value_len))
            *out_block_used = true;
        else
            skipped++;
    }
    if (*out_block_used)
        finish_block(&extra);
    return skipped;
}
