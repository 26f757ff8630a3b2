/* Which of a server's exports a request on the control socket is for. */
#ifndef GRANARY_PLUGIN_CONTROL_EXPORT_H
#define GRANARY_PLUGIN_CONTROL_EXPORT_H

#include "stack.h"

/* The export of that name, or of that image ("sha256:<hex>"), or both; both NULL: the only one. -EINVAL: there are
 * several; -ENOENT: none like that. */
GR_MUST_CHECK int control_export_find(const struct stack *stack, const char *name, const char *digest, size_t *out);

#endif
