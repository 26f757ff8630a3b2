/* The images' metadata in the cache, from the start of a server: in the background, whether or not the store is there.
 */
#ifndef GRANARY_SERVER_START_WARM_H
#define GRANARY_SERVER_START_WARM_H

#include "stack.h"

struct start_warm;

/* Begin, in a thread of its own: image by image, held as warm_run holds it; what a store does not give is asked for
 * again after a pause, a minute at most, and the first time said. -ENOMEM. */
GR_MUST_CHECK int start_warm_begin(struct stack *stack, struct start_warm **out);
/* There is an export more. NULL is allowed. */
void start_warm_added(struct start_warm *w);
/* Ends it when the chunks in flight have come or have failed: tell the stores first. NULL is allowed. */
void start_warm_end(struct start_warm *w);

#endif
