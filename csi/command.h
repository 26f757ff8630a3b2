/* Running `granary` to its end, in a session of its own: it goes on if the driver is killed. Private to csi. */
#ifndef GRANARY_CSI_COMMAND_H
#define GRANARY_CSI_COMMAND_H

#include "base/bytes.h"

/* Run a command line of granary, NULL at its end, however long that takes. keys: for its standard input; NULL or empty:
 * none. out: gets all that it prints, whatever comes of it; NULL: that is not wanted. Any thread; no other must wait
 * for any child. -EINVAL: granary refuses the command line; -EIO: it failed. Its last sentence is then the error's. */
GR_MUST_CHECK int command_run(const char *const *argv, const struct bytes *keys, struct bytes *out);

#endif
