/* Exports that are added to a running server, and removed again. A file lists them, so that a server that is killed and
 * started again still serves them. The file names each image by the digest that was resolved when the export was added:
 * a tag that has moved since changes nothing. Exports given on the command line are not in this list. */
#ifndef GRANARY_SERVER_ADDED_EXPORTS_H
#define GRANARY_SERVER_ADDED_EXPORTS_H

#include "server/start_warm.h"
#include "stack.h"

struct added_exports;

/* Add to the stack the exports that file lists; file need not exist. file NULL: exports are added, but not noted
 * anywhere. An export is left out with a warning when its image is gone from the store, or when an export given at this
 * start has its name for another image. Returns 0, -EBADMSG (the file is damaged or of a later version), -ENOMEM, or
 * the stack's error. The stack and the string file outlive it. */
GR_MUST_CHECK int added_exports_open(struct stack *stack, const char *file, struct added_exports **out);
/* Call it when no other call is in progress. NULL is allowed. */
void added_exports_close(struct added_exports *a);
/* Have warm informed of each export added from now on, and of those just restored; NULL stops that. */
void added_exports_warm(struct added_exports *a, struct start_warm *warm);

/* What an export is added for. A user's export stays until the user removes it; one added for mounts goes with the last
 * mount of it. */
enum added_for { ADDED_FOR_USER, ADDED_FOR_MOUNTS };

/* stack_add, then write the file. An export that a user has asked for stays a user's, even if a mount asks for it too.
 * *out: stack_put it. The errors are stack_add's; -EBUSY: the export was removed meanwhile. Any thread. */
GR_MUST_CHECK int added_exports_put(struct added_exports *a, const struct stack_image *image, enum added_for who,
                                    const volatile int *cancel, struct stack_export **out);
/* stack_remove of an added export, then write the file. With ADDED_FOR_MOUNTS it returns 0 and leaves *out_removed
 * false when the export was not added for mounts, or clients are still connected to it. -ENOENT: no such export;
 * -EPERM: it was given at the start; -EBUSY: clients are connected. Any thread. */
GR_MUST_CHECK int added_exports_remove(struct added_exports *a, const char *name, enum added_for who,
                                       bool *out_removed);

#endif
