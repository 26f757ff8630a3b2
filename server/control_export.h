/* Which of a server's exports a request on the control socket is for. */
#ifndef GRANARY_SERVER_CONTROL_EXPORT_H
#define GRANARY_SERVER_CONTROL_EXPORT_H

#include "stack.h"

/* The export of that name, or of that image ("sha256:<hex>"), or both; both NULL: the only one. *out: stack_put.
 * -EINVAL: there are several; -ENOENT: none like that. */
GR_MUST_CHECK int control_export_find(struct stack *stack, const char *name, const char *digest,
                                      struct stack_export **out);

#endif
