/* Whatever lies where an image's inodes have their extended attributes, what comes out is a sequence as a listing takes
 * it, and what is refused has a sentence. The first byte chooses between erofs and ext4's two places. */
#include "fuzz/fuzz.h"

#include <errno.h>

#include "base/error.h"
#include "imagebuild/join/join_internal.h"
#include "imagebuild/tree/nodes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    CLEANUP_BYTES out = BYTES_INIT(1 << 20);
    struct xattr x;
    if (!len)
        return 0;
    const unsigned kind = *data++ % 3;
    len--;
    int rc = kind == 0   ? inode_erofs_xattrs(data, len, &out)
             : kind == 1 ? inode_ext4_xattrs(data, len, 0, 0, &out)
                         : inode_ext4_xattrs(data, len, 32, 0, &out);
    FUZZ_CHECK(!rc || ((rc == -EBADMSG || rc == -EMSGSIZE) && *error_text()));
    const uint8_t *p = out.data, *end = p + out.len;
    while (!rc && out.len && xattr_next(&p, end, &x))
        FUZZ_CHECK(x.value + x.value_len <= end);
    return 0;
}
