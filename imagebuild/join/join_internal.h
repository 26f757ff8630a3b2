/* Reading from the filesystem of an image what its catalog lacks: extended attributes, device numbers, and which files
 * have several names. Shared by the files of join/ and private to them.
 *
 *   inodes.c          ->  inode_erofs.c, inode_ext4.c  ->  inode_scan.c  ->  store
 *   numbers or paths      what inodes look like            bytes, ahead
 *                     ->  inode_tree.c (erofs by path)  ->
 *
 * Only metadata is read: the inodes once and in ascending order, ahead; ext4's blocks of attributes one by one. One
 * thread calls all of it.
 */
#ifndef GRANARY_IMAGEBUILD_JOIN_JOIN_INTERNAL_H
#define GRANARY_IMAGEBUILD_JOIN_JOIN_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/sysmacros.h>

#include "base/bytes.h"
#include "base/in_order.h"
#include "base/spill/sorter.h"
#include "base/step.h"
#include "format/manifest.h"
#include "imagebuild/join/join.h"
#include "repository/read/chunk_read.h"
#include "store/store.h"

/* ---- all inodes of an image (inodes.c) ---- */

/* What a catalog does not say of an inode. */
struct inode_extra {
    uint32_t mode;      /* as in stat, to be compared with the catalog's */
    uint32_t links;     /* names; of a directory: anything */
    uint64_t rdev;      /* of a device: as makedev makes it; else 0 */
    const void *xattrs; /* as in struct source_entry; valid until the next call */
    size_t xattrs_len;
};

struct inodes;

/* Read all inodes of an image. Those with attributes, a device number or several names are kept, in a sorter (64 MiB,
 * then files). -EBADMSG: they are not what the manifest says; -ENOMEM; others come from the store, the sorter and
 * step. */
GR_MUST_CHECK int inodes_read(const struct inodes_config *config, struct inodes **out);
void inodes_free(struct inodes *i); /* NULL is allowed */
DEFINE_CLEANUP(inodes, struct inodes *, inodes_free)

/* How inodes are numbered, from 0: in path order, each directory before what is in it; or (true) after it, where it
 * leaves the stack of directories whose path is a prefix of the current one. Further names have no number. */
bool inodes_close_directories(const struct inodes *i);

/* Find the inode of a path, by its number; both ascend. 1: *out is set; 0: the catalog says all of it; -EBADMSG: the
 * path has no inode; or -errno of the sorter or scratch. */
GR_MUST_CHECK int inodes_find(struct inodes *i, const char *path, size_t len, uint64_t number, struct inode_extra *out);

/* Return the number of inodes that the image must have by its manifest. */
static inline uint64_t inodes_expected(const struct manifest *m)
{
    return m->catalog_entries - m->counts.hard_links;
}

/* ---- a scan (inode_scan.c) ---- */

/* One pass over a range of the image, read ahead by a few threads. */
struct inode_scan {
    const struct inodes_config *config;
    struct image_bytes *bytes;
    struct sorter *found;
    struct in_order *ring;
    uint64_t next, end;  /* what the ring has not been given yet: addresses in the image */
    struct bytes window; /* bytes of the image, */
    uint64_t begin;      /* from this address on */
    struct bytes xattrs; /* of the current inode */
    uint64_t inodes;     /* met so far */
};

GR_MUST_CHECK int inode_scan_open(struct inode_scan *s, const struct inodes_config *config, struct sorter *found);
void inode_scan_release(struct inode_scan *s); /* *s is zero afterwards */

/* Say which range is read. Once, before inode_scan_need. */
GR_MUST_CHECK int inode_scan_range(struct inode_scan *s, uint64_t from, uint64_t to);
/* Point *out at len bytes at an address of the range; addresses ascend, and len is at most INODE_SCAN_NEED. Valid until
 * the next call. -EBADMSG: they are not within the range; others come from the store. */
enum { INODE_SCAN_NEED = 128 << 10 };
GR_MUST_CHECK int inode_scan_need(struct inode_scan *s, uint64_t address, size_t len, const uint8_t **out);

/* Note an inode with s->xattrs as its attributes, unless the catalog says all of it. Calls step now and then. */
GR_MUST_CHECK int inode_scan_note(struct inode_scan *s, uint64_t number, const struct inode_extra *extra);
/* The image's inodes are not as they must be: returns -EBADMSG with a sentence. */
GR_MUST_CHECK int inode_scan_damaged(const char *what);
/* Return a device number from the kernel's new_encode_dev form. */
static inline uint64_t inode_scan_rdev(uint32_t rdev)
{
    return makedev((rdev & 0xfff00) >> 8, (rdev & 0xff) | (rdev >> 12 & 0xfff00));
}

/* ---- inodes by path (inode_tree.c), of erofs. Memory: that of a scratch and of struct erofs_tree ---- */

struct inode_tree;
GR_MUST_CHECK int inode_tree_new(const struct inodes_config *config, struct inode_tree **out);
void inode_tree_free(struct inode_tree *t); /* NULL is allowed */
DEFINE_CLEANUP(inode_tree, struct inode_tree *, inode_tree_free)
/* As inodes_find, but never 0. */
GR_MUST_CHECK int inode_tree_find(struct inode_tree *t, const char *path, size_t len, struct inode_extra *out);

/* ---- the filesystems: scan everything ---- */

/* erofs: whether the inodes state their numbers; if not, only inode_tree_find finds them. -EBADMSG; errors of the
 * store.
 */
GR_MUST_CHECK int inode_erofs_is_numbered(const struct inode_scan *s, bool *out);
GR_MUST_CHECK int inode_erofs_scan(struct inode_scan *s);
GR_MUST_CHECK int inode_ext4_scan(struct inode_scan *s);

/* Return whether the 128 bytes of an erofs superblock describe the image of the manifest. */
bool inode_erofs_super_fits(const uint8_t super[128], const struct manifest *m);
/* Read what an inode of erofs says, but for its attributes. -EBADMSG. */
GR_MUST_CHECK int inode_erofs_extra(const uint8_t *inode, struct inode_extra *out);
/* Append attributes as they lie in an image to *out, as struct source_entry has them; no I/O, any bytes are safe.
 * erofs: what follows an inode. ext4: entries from data + first on, whose values count from data + origin. -EBADMSG;
 * -ENOMEM; -EMSGSIZE. */
GR_MUST_CHECK int inode_erofs_xattrs(const uint8_t *data, size_t len, struct bytes *out);
GR_MUST_CHECK int inode_ext4_xattrs(const uint8_t *data, size_t len, size_t first, size_t origin, struct bytes *out);

#endif
