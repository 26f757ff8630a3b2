/* Find the chunks of an image that a trace lists. */
#ifndef GRANARY_IMAGE_WARM_WARM_TRACE_H
#define GRANARY_IMAGE_WARM_WARM_TRACE_H

#include "format/trace.h"
#include "image/warm/warm_plan.h"

/* Add them to the plan, in the trace's order. *out_absent: how many the image does not have. A trace of the same
 * content is followed by chunk numbers, any other by digests: that walks over the whole index, fetches index nodes
 * that are not cached from `store`, and takes 8 bytes of memory an entry. step: called at every chunk of that walk;
 * its non-zero result ends the walk and is returned. -EINVAL: the trace is of chunks of another size; -ENOMEM; else
 * the error of a node.
 */
typedef int warm_trace_step(void *arg, uint64_t chunk);
GR_MUST_CHECK int warm_trace(struct image *img, struct store *store, const struct trace *t, warm_trace_step *step,
                             void *arg, struct warm_plan *plan, uint64_t *out_absent);

#endif
