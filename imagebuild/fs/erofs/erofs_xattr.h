/* Encode extended attributes as they lie behind an erofs inode. */
#ifndef GRANARY_IMAGEBUILD_FS_EROFS_EROFS_XATTR_H
#define GRANARY_IMAGEBUILD_FS_EROFS_EROFS_XATTR_H

#include "base/bytes.h"

/* Return the encoded size of a node's attributes in bytes, a multiple of 4; 0: there are none. xattrs: as in struct
 * node. */
uint32_t erofs_xattr_size(const void *xattrs, size_t len);

/* Append exactly erofs_xattr_size bytes to *out. -ENOMEM. */
GR_MUST_CHECK int erofs_xattr_encode(const void *xattrs, size_t len, struct bytes *out);

/* Return the value of the inode's field that states this size. */
uint16_t erofs_xattr_count_field(uint32_t size);

#endif
