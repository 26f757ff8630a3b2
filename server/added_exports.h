/* Exports that are added while a server runs, and removed again. They are noted in a file, so that a server that is
 * killed and started again has them: by the digest that was resolved when they were added, whatever the tag says by
 * then. Exports given at the start are none of them.
 */
#ifndef GRANARY_SERVER_ADDED_EXPORTS_H
#define GRANARY_SERVER_ADDED_EXPORTS_H

#include "server/start_warm.h"
#include "stack.h"

struct added_exports;

/* Adds to the stack what the file says; there may be none. file: NULL, nothing is noted. An export whose image is not
 * there any more, or whose name another image has by now, is left out with a warning; another error is returned. The
 * stack outlives it; so does file. */
GR_MUST_CHECK int added_exports_open(struct stack *stack, const char *file, struct added_exports **out);
/* No call is in progress. NULL is allowed. */
void added_exports_close(struct added_exports *a);
/* Has what is added from now on, and what was just now, warmed; NULL: not any more. */
void added_exports_warm(struct added_exports *a, struct start_warm *warm);

/* Who wants an export: a user, until he says otherwise, or mounts, until the last of them goes. */
enum added_for { ADDED_FOR_USER, ADDED_FOR_MOUNTS };

/* stack_add, and noted. What is wanted by a user too stays his. Any thread. */
GR_MUST_CHECK int added_exports_put(struct added_exports *a, const struct stack_image *image, enum added_for who,
                                    const volatile int *cancel, struct stack_export **out);
/* stack_remove of an export that was added. For mounts: *out_removed is false, and all is well, when it was not added
 * for mounts, or others are connected to it. -EPERM: given at the start. Any thread. */
GR_MUST_CHECK int added_exports_remove(struct added_exports *a, const char *name, enum added_for who,
                                       bool *out_removed);

#endif
