/* Lets a server write its cache before it is killed on purpose. */
#ifndef GRANARY_ATTACH_SERVER_QUIESCE_H
#define GRANARY_ATTACH_SERVER_QUIESCE_H

#include <stdbool.h>

#include "base/compiler.h"

/* Tell a server to cache nothing more, and ask whether everything it fetched before is in its cache; reads go on.
 * *out_quiet: whether it is. Waits two seconds for the answer. -errno: there is no answer, or not a valid one. */
GR_MUST_CHECK int quiesce_ask(const char *control, bool *out_quiet);

#endif
