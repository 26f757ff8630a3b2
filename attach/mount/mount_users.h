/* Which processes use a mount: for the sentence that says why it cannot be unmounted. */
#ifndef GRANARY_ATTACH_MOUNT_MOUNT_USERS_H
#define GRANARY_ATTACH_MOUNT_MOUNT_USERS_H

#include <stddef.h>
#include <sys/types.h>

/* Write "process 12 (python3), process 13 (bash) and others": the processes with an open file, a directory or their
 * program in the filesystem, as far as this user may see them. Empty: none found. Files that are only mapped into
 * memory are not found. */
void mount_users(dev_t device, char *out, size_t size);

#endif
