/* Inodes of 256 bytes, written through libext2fs, which adds their checksum. A file's data is contiguous, so its
 * extents follow from its first block and length. An extent has at most 128 MiB, and four fit into the inode. More
 * make a tree of blocks with 340 entries each, of at most two levels for the 16 TiB that a file can have.
 *
 *   inode:   [ index ][ index ] ..                 depth 1: up to 4 entries
 *               |        +-> block of 340 extents
 *               +-> block: [ extent ][ extent ] ..  -> the file's blocks
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "base/le.h"
#include "imagebuild/fs/ext4/ext4_internal.h"
#include "imagebuild/tree/nodes.h"

/* ------------------------------------------------------------------ extended attributes */

/* Extended attributes lie after the inode's fields, and what does not fit there in a block. Each is placed in the
 * inode if it fits there, else in the block, in the order of the sequence.
 *
 *   inode:  | magic  | entry | entry | 0 0 0 0 | ... free ... | value | value |
 *   block:  | header | entry | entry | 0 0 0 0 | ... free ... | value | value |      header of 32 bytes
 *                                   entries ^      values ^
 *
 * Entries are sorted by (prefix, length of the name, name), because the kernel's search relies on it. A value's
 * offset counts from the first entry in the inode, but from the start of the block in a block.
 */

enum { EXT4_XATTR_ROOM = EXT4_INODE - 128 - 32 }; /* bytes after the fields of an inode */
enum { ENTRY = 16, HEADER = 32, MAGIC_SIZE = 4, ACL_ENTRY = 8, ACL_HEADER = 4, ACL_SHORT_ENTRY = 4 }; /* bytes */
enum { ACL_VERSION = 1, ACL_USER = 2, ACL_GROUP = 8 };

/* A place for attributes. Entries grow up to `entries`, followed by four zero bytes; values grow down to `values`. */
struct place {
    uint8_t *base;          /* what value offsets count from */
    size_t first;           /* the first entry */
    size_t entries, values; /* offsets from base */
};

/* Compare an encoded entry with an attribute, in the kernel's order. */
static int compare_attribute(const uint8_t *a, const struct xattr *x)
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
    while (at < p->entries && compare_attribute(p->base + at, x) < 0)
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

/* Place extended attributes: what fits goes after the inode's fields, what fits of the rest into a block. Returns
 * how many fit nowhere. xattrs: as in struct node. room and block are zeros before; *out_block_used: the block holds
 * any. */
static uint64_t ext4_xattrs_place(const void *xattrs, size_t len, uint8_t room[EXT4_XATTR_ROOM],
                                  uint8_t block[EXT4_BLOCK], bool *out_block_used)
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

/* ------------------------------------------------------------------ extent trees and inodes */

enum {
    EXTENT = 12, /* bytes of the header and of each entry */
    INLINE_EXTENTS = 4,
    BLOCK_EXTENTS = (EXT4_BLOCK - EXTENT - 4) / EXTENT,
    SYMLINK_INLINE = 60, /* bytes; a shorter text lies in the inode */
};

/* A level of an extent tree. Entry i covers the file's blocks from i * span on, and points to block + i; in the
 * bottom level (depth 0) to block + i * span. */
struct level {
    unsigned depth;
    uint64_t count, span, block, file_blocks;
};

/* Encode entry i of a level (struct ext3_extent or ext3_extent_idx). */
static void ext4_inode_put_entry(uint8_t *at, const struct level *l, uint64_t i)
{
    uint64_t from = i * l->span, block = l->block + (l->depth ? i : from);
    le32_put(at, (uint32_t)from);
    if (l->depth) {
        le32_put(at + 4, (uint32_t)block);
        le16_put(at + 8, (uint16_t)(block >> 32));
        return;
    }
    le16_put(at + 4, (uint16_t)GR_MIN(l->file_blocks - from, l->span));
    le16_put(at + 6, (uint16_t)(block >> 32));
    le32_put(at + 8, (uint32_t)block);
}

/* Encode a header and `count` entries of a level. max: entries that would fit. */
static void put_entries(uint8_t *at, unsigned max, const struct level *l, uint64_t first, uint64_t count)
{
    le16_put(at, EXT3_EXT_MAGIC);
    le16_put(at + 2, (uint16_t)count);
    le16_put(at + 4, (uint16_t)max);
    le16_put(at + 6, (uint16_t)l->depth);
    for (uint64_t i = 0; i < count; i++)
        ext4_inode_put_entry(at + EXTENT * (i + 1), l, first + i);
}

/* Write the blocks of a level; *l becomes the level above. */
static int write_level(struct ext4 *e, ext2_ino_t ino, struct level *l)
{
    _Alignas(8) uint8_t data[EXT4_BLOCK];
    uint64_t blocks = (l->count + BLOCK_EXTENTS - 1) / BLOCK_EXTENTS, begin = e->next;
    int rc = 0;
    for (uint64_t k = 0; !rc && k < blocks; k++) {
        uint64_t first = k * BLOCK_EXTENTS, block;
        memset(data, 0, sizeof data);
        put_entries(data, BLOCK_EXTENTS, l, first, GR_MIN(l->count - first, (uint64_t)BLOCK_EXTENTS));
        rc = ext4_check(e, ext2fs_extent_block_csum_set(e->e2, ino, (void *)data));
        if (!rc)
            rc = ext4_take_block(e, &block);
        if (!rc)
            rc = ext4_check(e, io_channel_write_blk64(e->e2->io, block, 1, data));
    }
    *l = (struct level){l->depth + 1, blocks, l->span * BLOCK_EXTENTS, begin, l->file_blocks};
    return rc;
}

/* Put the extents of contiguous blocks, from `block` on, into the inode. *out_blocks: all blocks used, those of the
 * tree included. */
static int put_extents(struct ext4 *e, ext2_ino_t ino, struct ext2_inode_large *inode, uint64_t block, uint64_t blocks,
                       uint64_t *out_blocks)
{
    uint64_t begin = e->next, count = (blocks + EXT4_EXTENT_BLOCKS - 1) / EXT4_EXTENT_BLOCKS;
    struct level l = {0, count, EXT4_EXTENT_BLOCKS, block, blocks};
    int rc = 0;
    while (!rc && l.count > INLINE_EXTENTS)
        rc = write_level(e, ino, &l);
    inode->i_flags |= EXT4_EXTENTS_FL;
    put_entries((uint8_t *)inode->i_block, INLINE_EXTENTS, &l, 0, l.count);
    *out_blocks = blocks + (e->next - begin);
    return rc;
}

/* ------------------------------------------------------------------ by kind */

/* Return how many bytes of the path a sentence shows. */
static int shown(const struct node *n)
{
    return (int)GR_MIN(n->path_len, (size_t)200);
}

static int put_directory(struct ext4 *e, const struct ext4_dir *dir, ext2_ino_t ino, struct ext2_inode_large *inode,
                         uint64_t *out_blocks)
{
    inode->i_flags |= dir->blocks > 1 ? EXT2_INDEX_FL : 0;
    int rc = ext4_check(e, ext2fs_inode_size_set(e->e2, (void *)inode, dir->blocks * EXT4_BLOCK));
    return rc ? rc : put_extents(e, ino, inode, dir->block, dir->blocks, out_blocks);
}

/* Put the text into the inode or, if it is longer, into a block. */
static int put_symlink(struct ext4 *e, const struct node *n, ext2_ino_t ino, struct ext2_inode_large *inode,
                       uint64_t *out_blocks)
{
    uint8_t data[EXT4_BLOCK] = {0};
    uint64_t block;
    if (n->target_len >= EXT4_BLOCK)
        return error_set(-EIO, "ext4: a symbolic link of %zu bytes: a bug, nothing was published", n->target_len);
    inode->i_size = (uint32_t)n->target_len;
    if (n->target_len < SYMLINK_INLINE) {
        memcpy(inode->i_block, n->target, n->target_len);
        return 0;
    }
    memcpy(data, n->target, n->target_len);
    int rc = ext4_take_block(e, &block);
    if (!rc)
        rc = ext4_check(e, io_channel_write_blk64(e->e2->io, block, 1, data));
    return rc ? rc : put_extents(e, ino, inode, block, 1, out_blocks);
}

static int put_file(struct ext4 *e, const struct node *n, ext2_ino_t ino, struct ext2_inode_large *inode,
                    uint64_t *out_blocks)
{
    uint64_t blocks = n->size / EXT4_BLOCK + (n->size % EXT4_BLOCK > 0);
    if (blocks > UINT32_MAX)
        return error_set(-EFBIG,
                         "%.*s: a file of %llu bytes is over ext4's limit of 16 TiB; use --fs erofs, or divide it",
                         shown(n), n->path, (unsigned long long)n->size);
    int rc = ext4_check(e, ext2fs_inode_size_set(e->e2, (void *)inode, n->size));
    return rc ? rc : put_extents(e, ino, inode, n->address / EXT4_BLOCK, blocks, out_blocks);
}

/* Put a device number in the form that inodes have: small numbers in the old 16-bit form, others as new_encode_dev. */
static void put_device(const struct node *n, struct ext2_inode_large *inode)
{
    uint32_t major = (n->rdev & 0xfff00) >> 8, minor = (n->rdev & 0xff) | (n->rdev >> 12 & 0xfff00);
    if (major < 256 && minor < 256)
        inode->i_block[0] = major << 8 | minor;
    else
        inode->i_block[1] = n->rdev;
}

/* Put what depends on the file's type. */
static int put_kind(struct ext4 *e, const struct node *n, ext2_ino_t ino, const struct ext4_dir *dir,
                    struct ext2_inode_large *inode, uint64_t *out_blocks)
{
    switch (n->mode & S_IFMT) {
    case S_IFDIR:
        return put_directory(e, dir, ino, inode, out_blocks);
    case S_IFLNK:
        return put_symlink(e, n, ino, inode, out_blocks);
    case S_IFREG:
        return put_file(e, n, ino, inode, out_blocks);
    case S_IFCHR:
    case S_IFBLK:
        put_device(n, inode);
        return 0;
    default:
        return 0;
    }
}

/* ------------------------------------------------------------------ common fields */

/* Put the times: 34 bits of seconds, from 1901 to 2446, the upper two beside the nanoseconds. Times outside become
 * the nearest. */
static void put_times(const struct node *n, struct ext2_inode_large *inode)
{
    const int64_t first = INT32_MIN, last = first + (INT64_C(1) << 34) - 1;
    int64_t t = GR_MAX(first, GR_MIN(n->mtime, last));
    uint32_t extra = n->mtime_nsec << 2 | (uint32_t)((t - (int32_t)t) >> 32 & 3);
    inode->i_mtime = inode->i_atime = inode->i_ctime = inode->i_crtime = (uint32_t)t;
    inode->i_mtime_extra = inode->i_atime_extra = inode->i_ctime_extra = inode->i_crtime_extra = extra;
    inode->i_extra_isize = sizeof *inode - EXT2_GOOD_OLD_INODE_SIZE;
}

static void put_fields(const struct node *n, uint32_t links, struct ext2_inode_large *inode)
{
    inode->i_mode = n->mode;
    inode->i_uid = (uint16_t)n->uid;
    inode->i_uid_high = (uint16_t)(n->uid >> 16);
    inode->i_gid = (uint16_t)n->gid;
    inode->i_gid_high = (uint16_t)(n->gid >> 16);
    inode->i_links_count = (uint16_t)links;
    put_times(n, inode);
}

/* Place the attributes, and write the block of those that do not fit into the inode. */
static int put_xattrs(struct ext4 *e, const struct node *n, ext2_ino_t ino, uint8_t *raw, uint64_t *blocks)
{
    _Alignas(8) uint8_t data[EXT4_BLOCK] = {0};
    struct ext2_inode *inode = (void *)raw;
    uint64_t block;
    bool used;
    e->xattrs_skipped += ext4_xattrs_place(n->xattrs, n->xattrs_len, raw + EXT4_INODE - EXT4_XATTR_ROOM, data, &used);
    int rc = used ? ext4_take_block(e, &block) : 0;
    if (rc || !used)
        return rc;
    ext2fs_file_acl_block_set(e->e2, inode, block);
    ++*blocks;
    return ext4_check(e, ext2fs_write_ext_attr3(e->e2, block, data, ino));
}

int ext4_inode_write(struct ext4 *e, const struct node *n, uint32_t links, const struct ext4_dir *dir)
{
    _Alignas(8) uint8_t raw[EXT4_INODE] = {0};
    struct ext2_inode_large *inode = (void *)raw;
    ext2_ino_t ino = ext4_ino(n->rank);
    uint64_t blocks = 0;
    if (links > EXT4_LINKS_MAX)
        return error_set(-EFBIG, "%.*s: a file of %u names is over ext4's limit of %d; use --fs erofs", shown(n),
                         n->path, links, EXT4_LINKS_MAX);
    put_fields(n, links, inode);
    int rc = put_kind(e, n, ino, dir, inode, &blocks);
    if (!rc && n->xattrs_len)
        rc = put_xattrs(e, n, ino, raw, &blocks);
    if (!rc)
        rc = ext4_check(e, ext2fs_iblk_set(e->e2, (void *)inode, blocks));
    if (!rc)
        rc = ext4_check(e, ext2fs_write_inode_full(e->e2, ino, (void *)inode, EXT4_INODE));
    if (!rc)
        ext2fs_inode_alloc_stats2(e->e2, ino, +1, S_ISDIR(n->mode));
    return rc;
}
