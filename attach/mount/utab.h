/* What umount(8) is told of a mount: to call umount.granary, which takes down the device and the server, too. */
#ifndef GRANARY_ATTACH_MOUNT_UTAB_H
#define GRANARY_ATTACH_MOUNT_UTAB_H

/* In libmount's table of mounts (/run/mount/utab). Where that cannot be written nothing is said: umount(8) then takes
 * away the mount alone, and the next call of granary the rest. */
void utab_add(const char *device, const char *dir);
void utab_remove(const char *dir);

#endif
