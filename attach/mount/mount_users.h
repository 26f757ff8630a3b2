/* Who uses a mount: for the sentence that says why it cannot be unmounted. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_USERS_H
#define GRANARY_ATTACH_MOUNT_MOUNT_USERS_H

#include <stddef.h>
#include <sys/types.h>

/* "process 12 (python3), process 13 (bash) and others": those with an open file or directory, or their program, in the
 * filesystem, as far as this user may see. Empty: none was found; what is only mapped into memory is not looked for. */
void mount_users(dev_t device, char *out, size_t size);

#endif
