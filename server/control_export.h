/* Which of a server's exports a request on the control socket means. */
#ifndef GRANARY_SERVER_CONTROL_EXPORT_H
#define GRANARY_SERVER_CONTROL_EXPORT_H

#include "stack.h"

/* Find an export by name, by its image ("sha256:<hex>"), or by both; with neither, the server's only export. *out:
 * stack_put it. -EINVAL: neither was given and there are several; -ENOENT: no export matches. */
GR_MUST_CHECK int control_export_find(struct stack *stack, const char *name, const char *digest,
                                      struct stack_export **out);

#endif
