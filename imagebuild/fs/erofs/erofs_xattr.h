/* Extended attributes in the form they have behind an erofs inode. */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_XATTR_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_XATTR_H

#include "base/bytes.h"

/* Bytes of a node's extended attributes behind its inode, a multiple of 4; 0: none. xattrs: the sequence of
 * struct node. */
uint32_t erofs_xattr_size(const void *xattrs, size_t len);

/* Append exactly erofs_xattr_size bytes to *out. */
GR_MUST_CHECK int erofs_xattr_encode(const void *xattrs, size_t len, struct bytes *out);

/* The inode field that states a size. */
uint16_t erofs_xattr_count_field(uint32_t size);

#endif
