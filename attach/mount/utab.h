/* Tells umount(8) to call umount.granary for a mount, which takes down the device and the server too. */
#ifndef GRANARY_ATTACH_MOUNT_UTAB_H
#define GRANARY_ATTACH_MOUNT_UTAB_H

/* Add the mount to libmount's table (/run/mount/utab), or remove it. Failures are ignored: umount(8) then removes only
 * the mount, and the next call of granary the rest. */
void utab_add(const char *device, const char *dir);
void utab_remove(const char *dir);

#endif
