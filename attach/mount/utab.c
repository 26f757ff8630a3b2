/* An entry with helper=granary in libmount's table makes umount(8) run umount.granary. All failures are ignored
 * (utab.h). */
#include "attach/mount/utab.h"

#include <libmount.h>
#include <stddef.h>

/* Remove one entry or add one; libmount locks and replaces the file. */
static void update(const char *remove, struct libmnt_fs *add)
{
    struct libmnt_update *u = mnt_new_update();
    if (u && mnt_update_set_fs(u, 0, remove, add) >= 0)
        (void)mnt_update_table(u, NULL);
    mnt_free_update(u);
}

void utab_add(const char *device, const char *dir)
{
    struct libmnt_fs *fs = mnt_new_fs();
    if (fs && !mnt_fs_set_source(fs, device) && !mnt_fs_set_target(fs, dir) &&
        !mnt_fs_set_options(fs, "helper=granary"))
        update(NULL, fs);
    mnt_unref_fs(fs);
}

void utab_remove(const char *dir)
{
    update(dir, NULL);
}
