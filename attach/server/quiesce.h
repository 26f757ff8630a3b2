/* Before a server is killed on purpose. */
#ifndef GRANARY_ATTACH_SERVER_QUIESCE_H
#define GRANARY_ATTACH_SERVER_QUIESCE_H

#include <stdbool.h>

#include "base/compiler.h"

/* Ask the server on a control socket to keep nothing more of what it fetches, and whether all that it fetched before is
 * in its cache; its reads go on. *out_quiet false: not yet. Waits a few seconds for the answer at most. -errno: there
 * is none, or none that is understood. */
GR_MUST_CHECK int quiesce_ask(const char *control, bool *out_quiet);

#endif
