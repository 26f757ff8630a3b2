/* What the folders of attach share: strings in state files, locks on the state, and calls with a time limit. */
#ifndef GRANARY_ATTACH_ATTACH_INTERNAL_H
#define GRANARY_ATTACH_ATTACH_INTERNAL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "format/json_name.h"

/* ---- strings in state files (state.c): paths are bytes, while JSON has characters ---- */

/* A member of a struct that is a fixed-size string. */
struct json_text_field {
    const char *name;
    size_t offset, size;
};
#define JSON_TEXT(type, field)                                                                                         \
    {                                                                                                                  \
#field, offsetof(type, field), sizeof(((type *)NULL)->field)                                                   \
    }

/* Store the fields of *from in object. Each byte becomes the character of that number, so that bytes that are not UTF-8
 * survive. A field for which memory is short is left out; json_text_get refuses the object then. */
void json_text_put(json_t *object, const struct json_text_field *fields, size_t count, const void *from);
/* Read the fields back into *to. Returns false when one is missing or does not fit. */
GR_MUST_CHECK bool json_text_get(const json_t *object, const struct json_text_field *fields, size_t count, void *to);

/* ---- locks on parts of /run/granary (state.c); the kernel drops each with the process that holds it ---- */

/* Lock the set of servers and mounts of this machine, to read or change it. Held briefly, or as long as a server takes
 * to end. Waits a minute at most. *out_fd: close it to unlock. -EBUSY: another process held it all the time. */
GR_MUST_CHECK int node_lock(int *out_fd);

/* Lock a mount point by its run directory, to mount or unmount there. The directory is created if it is missing. wait:
 * try for 20 s, since others lock it briefly to check for leftovers. *out_fd: close it to unlock. -EBUSY: another
 * process mounts or unmounts there. */
GR_MUST_CHECK int node_lock_mount(const char *run_dir, bool wait, int *out_fd);

/* Is the open file or directory still the one at the path? False when it was removed or replaced. */
bool state_is_at(const char *path, int fd);

#endif
