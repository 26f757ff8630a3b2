/* Inodes of erofs, as fs/erofs writes them (docs/reference/format-erofs.md): one after the other from the start of the
 * metadata region, each with its attributes and its tail, padded to 32 bytes. Where one would cross a block's end, it
 * begins in the next block, after zeros.
 *
 *   | inode | attributes | tail | 0 | inode | 0 0 0 ... | inode ...
 *     format 0 marks the zeros
 *
 * In an image that was built upon another, new inodes lie elsewhere, and the numbers say nothing (inode_tree.c).
 */
#include <errno.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "imagebuild/fs/erofs/erofs_internal.h"
#include "imagebuild/join/join_internal.h"
#include "imagebuild/tree/nodes.h"

enum { EXTENDED = 1 };

int inode_erofs_xattrs(const uint8_t *data, size_t len, struct bytes *out)
{
    if (len < EROFS_XATTR_HEADER || data[4])
        return inode_scan_damaged("attributes are shared, which Granary does not write");
    for (size_t at = EROFS_XATTR_HEADER; at < len;) {
        if (len - at < EROFS_XATTR_ENTRY)
            return inode_scan_damaged("an attribute is cut short");
        const struct xattr x = {.prefix = data[at + 1],
                                .name = (const char *)data + at + EROFS_XATTR_ENTRY,
                                .name_len = data[at],
                                .value = data + at + EROFS_XATTR_ENTRY + data[at],
                                .value_len = le16_get(data + at + 2)};
        const size_t size = EROFS_XATTR_ENTRY + x.name_len + x.value_len;
        if (size > len - at)
            return inode_scan_damaged("an attribute is cut short");
        int rc = xattr_append(out, &x);
        if (rc)
            return rc;
        at += GR_ALIGN_UP(size, (size_t)4);
    }
    return 0;
}

int inode_erofs_extra(const uint8_t *inode, struct inode_extra *out)
{
    const unsigned format = le16_get(inode), layout = format >> 1;
    if (!(format & EXTENDED) || (layout != EROFS_FLAT_PLAIN && layout != EROFS_FLAT_INLINE))
        return inode_scan_damaged("one has a form that Granary does not write");
    const uint32_t mode = le16_get(inode + 4);
    *out = (struct inode_extra){.mode = mode,
                                .links = le32_get(inode + 44),
                                .rdev = S_ISCHR(mode) || S_ISBLK(mode) ? inode_scan_rdev(le32_get(inode + 16)) : 0};
    return 0;
}

/* Take the inode at an address; *address becomes that of what follows it. */
static int take_inode(struct inode_scan *s, uint64_t *address)
{
    const uint8_t *p;
    struct inode_extra extra;
    int rc = inode_scan_need(s, *address, EROFS_INODE_SIZE, &p);
    if (rc)
        return rc;
    if (!le16_get(p)) {
        *address += EROFS_NID_UNIT;
        return 0;
    }
    rc = inode_erofs_extra(p, &extra);
    if (rc)
        return rc;
    const size_t xattrs = erofs_xattr_bytes(p);
    const size_t tail = le16_get(p) >> 1 == EROFS_FLAT_INLINE ? le64_get(p + 8) % EROFS_BLOCK : 0;
    const uint32_t running = le32_get(p + EROFS_INODE_RUNNING);
    bytes_clear(&s->xattrs);
    rc = xattrs ? inode_scan_need(s, *address + EROFS_INODE_SIZE, xattrs, &p) : 0;
    if (!rc && xattrs)
        rc = inode_erofs_xattrs(p, xattrs, &s->xattrs);
    *address = GR_ALIGN_UP(*address + EROFS_INODE_SIZE + xattrs + tail, (uint64_t)EROFS_NID_UNIT);
    /* the running number counts from 1 */
    return rc ? rc : inode_scan_note(s, running - UINT32_C(1), &extra);
}

/* The numbers of blocks have two forms, by the image's size. */
bool inode_erofs_super_fits(const uint8_t super[EROFS_SUPER_SIZE], const struct manifest *m)
{
    const bool wide = manifest_erofs_48bit(m);
    const uint64_t blocks = le32_get(super + 36) | (wide ? (uint64_t)le16_get(super + 14) << 32 : 0);
    return le32_get(super) == EROFS_MAGIC && le64_get(super + 16) == inodes_expected(m) &&
           blocks == m->size / EROFS_BLOCK &&
           (uint64_t)le32_get(super + 40) * EROFS_BLOCK == (wide ? 0 : m->metadata_offset) &&
           le32_get(super + 80) == (wide ? EROFS_INCOMPAT_48BIT : 0);
}

/* The superblock must describe the image of the manifest. The root's number tells. */
int inode_erofs_is_numbered(const struct inode_scan *s, bool *out)
{
    const struct manifest *m = s->config->manifest;
    uint8_t super[EROFS_SUPER_SIZE], running[4];
    int rc = image_bytes_read(s->bytes, EROFS_SUPER_OFFSET, sizeof super, super);
    if (rc)
        return rc;
    const uint64_t root = erofs_super_root(super, m->metadata_offset);
    if (!inode_erofs_super_fits(super, m) || root >= m->metadata_len / EROFS_NID_UNIT)
        return inode_scan_damaged("the superblock says something else");
    rc = image_bytes_read(s->bytes, m->metadata_offset + root * EROFS_NID_UNIT + EROFS_INODE_RUNNING, sizeof running,
                          running);
    *out = !rc && le32_get(running) == inodes_expected(m);
    return rc;
}

int inode_erofs_scan(struct inode_scan *s)
{
    const struct manifest *m = s->config->manifest;
    uint64_t address = m->metadata_offset;
    int rc = inode_scan_range(s, address, address + m->metadata_len);
    while (!rc && s->inodes < inodes_expected(m))
        rc = take_inode(s, &address);
    return rc;
}
