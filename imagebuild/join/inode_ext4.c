/* Inodes of ext4, as fs/ext4 writes them (docs/reference/format-ext4.md): the tables of all groups are one array, in
 * which the root is number 2 and the others, from 11 on, are in path order. A further name and a file that vanished
 * leave a gap of zeros, so the inodes in use are, one by one, the catalog's paths without the further names.
 *
 *   | 1 | root | 3 .. 10 | path | path | 0 | path ...
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "imagebuild/fs/ext4/ext4_internal.h"
#include "imagebuild/join/join_internal.h"
#include "imagebuild/tree/nodes.h"

enum { SUPER_OFFSET = 1024, DESCRIPTOR = 64, OLD_SIZE = 128, BLOCK_HEADER = 32, ENTRY = 16 };

/* ------------------------------------------------------------------ extended attributes */

enum { ACL_HEADER = 4, ACL_ENTRY = 8, ACL_SHORT_ENTRY = 4, ACL_VERSION_SHORT = 1, ACL_VERSION = 2 };
enum { TAG_USER = 2, TAG_GROUP = 8 };

/* Append an access control list in the form in which getxattr gives it. ext4's own form leaves out ids without a
 * meaning. */
static int expand_acl(const struct xattr *x, struct bytes *out)
{
    uint8_t *at;
    if (x->value_len < ACL_HEADER || le32_get(x->value) != ACL_VERSION_SHORT)
        return inode_scan_damaged("an access control list has another form than ext4's");
    int rc = bytes_extend(out, ACL_HEADER, &at);
    if (rc)
        return rc;
    le32_put(at, ACL_VERSION);
    for (size_t from = ACL_HEADER; from < x->value_len;) {
        if (x->value_len - from < ACL_SHORT_ENTRY)
            return inode_scan_damaged("an access control list is cut short");
        const uint16_t tag = le16_get(x->value + from);
        const size_t len = tag == TAG_USER || tag == TAG_GROUP ? ACL_ENTRY : ACL_SHORT_ENTRY;
        if (x->value_len - from < len)
            return inode_scan_damaged("an access control list is cut short");
        rc = bytes_extend(out, ACL_ENTRY, &at);
        if (rc)
            return rc;
        le32_put(at + ACL_SHORT_ENTRY, UINT32_MAX); /* no id */
        memcpy(at, x->value + from, len);
        from += len;
    }
    return 0;
}

/* Append an attribute, an access control list in its longer form. */
static int append(struct bytes *out, const struct xattr *x)
{
    CLEANUP_BYTES acl = BYTES_INIT(2 * (size_t)EXT4_BLOCK + ACL_HEADER);
    struct xattr full = *x;
    if (x->prefix != XATTR_ACL_ACCESS && x->prefix != XATTR_ACL_DEFAULT)
        return xattr_append(out, x);
    int rc = expand_acl(x, &acl);
    full.value = acl.data;
    full.value_len = acl.len;
    return rc ? rc : xattr_append(out, &full);
}

int inode_ext4_xattrs(const uint8_t *data, size_t len, size_t first, size_t origin, struct bytes *out)
{
    /* four zero bytes end the entries */
    for (size_t at = first; at + 4 <= len && le32_get(data + at);) {
        if (len - at < ENTRY || len - at - ENTRY < data[at])
            return inode_scan_damaged("an attribute is cut short");
        const size_t offset = le16_get(data + at + 2), value_len = le32_get(data + at + 8);
        if (le32_get(data + at + 4) || origin > len || value_len > len - origin || offset > len - origin - value_len)
            return inode_scan_damaged("an attribute's value lies elsewhere");
        const struct xattr x = {.prefix = data[at + 1],
                                .name = (const char *)data + at + ENTRY,
                                .name_len = data[at],
                                .value = data + origin + offset,
                                .value_len = value_len};
        int rc = append(out, &x);
        if (rc)
            return rc;
        at += GR_ALIGN_UP(ENTRY + x.name_len, (size_t)4);
    }
    return 0;
}

/* Append the attributes in the inode, after its fields. */
static int take_inline(const uint8_t inode[EXT4_INODE], struct bytes *out)
{
    const size_t room = OLD_SIZE + (size_t)le16_get(inode + OLD_SIZE);
    if (room + 4 > EXT4_INODE || le32_get(inode + room) != EXT2_EXT_ATTR_MAGIC)
        return 0;
    return inode_ext4_xattrs(inode, EXT4_INODE, room + 4, room + 4, out);
}

/* Append the attributes in the inode's block of them. It lies in the region, so it is read by itself. */
static int take_block(const struct inode_scan *s, const uint8_t inode[EXT4_INODE], struct bytes *out)
{
    const uint64_t block = le32_get(inode + 104) | (uint64_t)le16_get(inode + 118) << 32;
    uint8_t data[EXT4_BLOCK];
    if (!block)
        return 0;
    int rc = image_bytes_read(s->bytes, block * EXT4_BLOCK, sizeof data, data);
    if (rc)
        return rc == -EINVAL ? inode_scan_damaged("attributes lie beyond the image") : rc;
    if (le32_get(data) != EXT2_EXT_ATTR_MAGIC)
        return inode_scan_damaged("a block of attributes is none");
    return inode_ext4_xattrs(data, sizeof data, BLOCK_HEADER, 0, out);
}

/* ------------------------------------------------------------------ inodes */

/* Return a device number. Small ones are in the first word, in the old form of 16 bits. */
static uint64_t decode_device(const uint8_t inode[EXT4_INODE])
{
    const uint32_t old = le32_get(inode + 40);
    return old ? makedev(old >> 8 & 0xff, old & 0xff) : inode_scan_rdev(le32_get(inode + 44));
}

/* Take an inode, if it is in use. */
static int take_inode(struct inode_scan *s, const uint8_t inode[EXT4_INODE])
{
    const uint32_t mode = le16_get(inode), links = le16_get(inode + 26);
    if (!mode || !links)
        return 0;
    const struct inode_extra extra = {
        .mode = mode, .links = links, .rdev = S_ISCHR(mode) || S_ISBLK(mode) ? decode_device(inode) : 0};
    bytes_clear(&s->xattrs);
    int rc = take_inline(inode, &s->xattrs);
    if (!rc)
        rc = take_block(s, inode, &s->xattrs);
    return rc ? rc : inode_scan_note(s, s->inodes, &extra);
}

/* Find the array of inodes: the address of number 1, and the array's end. */
static int find_tables(const struct inode_scan *s, uint64_t *out_begin, uint64_t *out_end)
{
    const struct manifest *m = s->config->manifest;
    uint8_t super[SUPER_OFFSET], first[DESCRIPTOR];
    int rc = image_bytes_read(s->bytes, SUPER_OFFSET, sizeof super, super);
    if (!rc)
        rc = image_bytes_read(s->bytes, EXT4_BLOCK, sizeof first, first);
    if (rc)
        return rc;
    /* magic, block size, size of an inode and of a descriptor */
    if (le16_get(super + 56) != EXT2_SUPER_MAGIC || le32_get(super + 24) != 2 || le16_get(super + 88) != EXT4_INODE ||
        le16_get(super + 254) != DESCRIPTOR)
        return inode_scan_damaged("the superblock says something else");
    const uint64_t block = le32_get(first + 8) | (uint64_t)le32_get(first + 40) << 32;
    const uint64_t len = (uint64_t)le32_get(super) * EXT4_INODE;
    if (block > m->size / EXT4_BLOCK || len > m->size - block * EXT4_BLOCK)
        return inode_scan_damaged("the tables lie beyond the image");
    *out_begin = block * EXT4_BLOCK;
    *out_end = *out_begin + len;
    return 0;
}

int inode_ext4_scan(struct inode_scan *s)
{
    uint64_t begin = 0, end = 0;
    const uint8_t *p;
    int rc = find_tables(s, &begin, &end);
    if (!rc)
        rc = inode_scan_range(s, begin, end);
    for (uint64_t ino = 1; !rc && s->inodes < inodes_expected(s->config->manifest); ino++) {
        if (ino != EXT2_ROOT_INO && ino < EXT4_FIRST_INODE)
            continue;
        rc = inode_scan_need(s, begin + (ino - 1) * EXT4_INODE, EXT4_INODE, &p);
        if (!rc)
            rc = take_inode(s, p);
    }
    return rc;
}
