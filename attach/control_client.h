/* Asking a server over its control socket (docs: nbdkit-granary-plugin(1), control=). */
#ifndef GRANARY_ATTACH_CONTROL_CLIENT_H
#define GRANARY_ATTACH_CONTROL_CLIENT_H

#include "base/bytes.h"
#include "base/compiler.h"

/* GET path ("/status") over the unix socket; the answer is appended to *out. -ENOENT or
 * -ECONNREFUSED: no server there; -EIO: not the answer of a server. */
GR_MUST_CHECK int control_get(const char *socket, const char *path, struct bytes *out);

#endif
