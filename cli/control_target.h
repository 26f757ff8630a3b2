/* Finds the control socket that a user means. */
#ifndef GRANARY_CLI_CONTROL_TARGET_H
#define GRANARY_CLI_CONTROL_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"
#include "cli/print.h"

/* target is a control socket, a server's socket or the directory of `granary serve --fuse` with the control socket
 * beside it, or a mount point. NULL: the socket of `granary serve` at its usual place, else the only server of mounts.
 * -ENOENT: there is no server; -EINVAL: mounts have several, and the sentence names them. */
GR_MUST_CHECK int control_target_find(const char *target, char *out, size_t size);

/* Return "sha256:<hex>" of the image mounted on target: a mount point means one image, whatever else its server serves.
 * NULL: target is no mount point. */
const char *control_target_digest(const char *target, char out[PRINT_DIGEST_MAX]);

/* Return the name of the mount point's export, at most size bytes with its NUL. false: target is no mount point. */
bool control_target_export(const char *target, char *out, size_t size);

#endif
