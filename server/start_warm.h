/* Fetches the images' metadata into the cache from the start of a server on: in the background, whether or not the
 * store answers. */
#ifndef GRANARY_SERVER_START_WARM_H
#define GRANARY_SERVER_START_WARM_H

#include "stack.h"

struct start_warm;

/* Start a thread that warms the metadata of one export after the other and holds it in the cache, as warm_run does. An
 * export that fails is tried again after a pause of 1 to 60 s; only its first failure is logged. -ENOMEM. */
GR_MUST_CHECK int start_warm_begin(struct stack *stack, struct start_warm **out);
/* Wake the thread for an export that was added. NULL is allowed. Any thread. */
void start_warm_added(struct start_warm *w);
/* End the thread and free it. Waits for the chunks in flight, so cancel the stores first. NULL is allowed. */
void start_warm_end(struct start_warm *w);

#endif
