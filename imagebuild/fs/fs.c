/* Which filesystem a name means. */
#include "imagebuild/fs/fs.h"

#include <errno.h>

#include "base/error.h"

int fs_new(enum manifest_fs fs, const struct fs_config *config, struct fs **out)
{
    /* no default: the compiler warns of a filesystem that is missing here */
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
