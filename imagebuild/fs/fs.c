/* Choose the implementation by the manifest's number of the filesystem. */
#include "imagebuild/fs/fs.h"

#include <errno.h>

#include "base/error.h"

int fs_new(enum manifest_fs fs, const struct fs_config *config, struct fs **out)
{
    /* no default case, so that the compiler warns if a filesystem is missing here */
    switch (fs) {
    case MANIFEST_EROFS:
        return fs_erofs_new(config, out);
    case MANIFEST_EXT4:
        return fs_ext4_new(config, out);
    case MANIFEST_FILESYSTEMS:
        break;
    }
    return error_set(-EINVAL, "filesystem number %d is not known to this build", (int)fs);
}
