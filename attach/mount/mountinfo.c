/* Two lists of mounts: the kernel's, and libmount's (/run/mount/utab).
 *
 * A mount is identified by its id in this namespace together with its device, since the kernel reuses ids. statx with
 * AT_STATX_DONT_SYNC tells whether a directory is a mount point without asking a server that may be dead.
 *
 * An entry with helper=granary in libmount's list makes umount(8) run umount.granary. All failures there are ignored
 * (mountinfo.h). */
#include "attach/mount/mountinfo.h"

#include <errno.h>
#include <fcntl.h>
#include <libmount.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/cleanup.h"
#include "base/error.h"

/* Return the id of the mount a descriptor is in, from fdinfo: statx tells it only since Linux 5.8. */
static int mount_id(int fd)
{
    char path[64], line[128];
    int id = -1;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *f = fopen(path, "re");
    while (f && id < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, "mnt_id: %d", &id) != 1)
            id = -1;
    if (f)
        fclose(f);
    return id;
}

/* O_PATH does not reach the filesystem, so a dead mount does not block it. */
int mountinfo_of(const char *dir, struct mountinfo *out)
{
    struct stat st;
    CLEANUP_FD int fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st))
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    *out = (struct mountinfo){.id = mount_id(fd), .device = st.st_dev};
    return out->id >= 0 ? 0 : error_set(-ENOTSUP, "%s: the kernel does not tell which mount it is in", dir);
}

/* 1: a mount point; 0: a plain directory. STATX_ATTR_MOUNT_ROOT exists since Linux 5.8. */
int mountinfo_at(const char *dir, dev_t *out)
{
    struct statx st;
    if (statx(AT_FDCWD, dir, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, STATX_TYPE, &st))
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    *out = makedev(st.stx_dev_major, st.stx_dev_minor);
    return !!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT);
}

/* The first three fields of a line are the mount's id, its parent's, and the device as MAJOR:MINOR (proc(5)). */
int mountinfo_lists(const struct mountinfo *m)
{
    char *line = NULL;
    size_t size = 0;
    bool found = false;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    if (!f)
        return error_set(-errno, "cannot read the mounts: %s", strerror(errno));
    while (!found && getline(&line, &size, f) > 0) {
        int id;
        unsigned high, low;
        found = sscanf(line, "%d %*s %u:%u", &id, &high, &low) == 3 && (m->id < 0 || id == m->id) &&
                makedev(high, low) == m->device;
    }
    free(line);
    fclose(f);
    return found;
}

int mountinfo_stacked(const char *path, size_t *out)
{
    struct libmnt_table *table = mnt_new_table_from_file("/proc/self/mountinfo");
    struct libmnt_iter *all = mnt_new_iter(MNT_ITER_FORWARD);
    struct libmnt_fs *fs = NULL;
    int rc = !all ? error_no_memory() : !table ? error_set(-EIO, "cannot read the mounts of this namespace") : 0;
    *out = 0;
    while (!rc && !mnt_table_next_fs(table, all, &fs))
        *out += mnt_fs_get_target(fs) && !strcmp(mnt_fs_get_target(fs), path);
    mnt_free_iter(all);
    mnt_unref_table(table);
    return rc;
}

bool mountinfo_is_of(const char *path, const char *source)
{
    struct libmnt_table *table = mnt_new_table_from_file("/proc/self/mountinfo");
    struct libmnt_fs *fs = table ? mnt_table_find_target(table, path, MNT_ITER_BACKWARD) : NULL;
    const char *found = fs ? mnt_fs_get_source(fs) : NULL;
    bool same = found && !strcmp(found, source);
    mnt_unref_table(table);
    return same;
}

int mountinfo_type(const char *dir, char out[MOUNTINFO_TYPE_MAX])
{
    struct mountinfo m;
    int rc = mountinfo_of(dir, &m);
    if (rc)
        return rc;
    struct libmnt_table *table = mnt_new_table_from_file("/proc/self/mountinfo");
    struct libmnt_iter *all = mnt_new_iter(MNT_ITER_FORWARD);
    struct libmnt_fs *fs = NULL;
    const char *type = NULL;
    if (!table || !all)
        rc = error_set(-ENOMEM, "the list of mounts, /proc/self/mountinfo, cannot be read: %s", strerror(errno));
    while (!rc && !type && !mnt_table_next_fs(table, all, &fs))
        type = mnt_fs_get_id(fs) == m.id ? mnt_fs_get_fstype(fs) : NULL;
    if (type)
        snprintf(out, MOUNTINFO_TYPE_MAX, "%s", type);
    else if (!rc)
        rc = error_set(-ENOENT, "%s: the kernel does not list the mount that it is in", dir);
    mnt_free_iter(all);
    mnt_unref_table(table);
    return rc;
}

/* ---- libmount's list ---- */

/* Remove one entry or add one; libmount locks and replaces the file. */
static void utab_update(const char *remove, struct libmnt_fs *add)
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
        utab_update(NULL, fs);
    mnt_unref_fs(fs);
}

void utab_remove(const char *dir)
{
    utab_update(dir, NULL);
}
