/* The control socket: HTTP over a unix socket, answered by a thread of its own.
 *
 *   GET /metrics   every counter, as Prometheus reads them (metrics.h)
 *   GET /status    one JSON object: version, pid, exports, cache directories, health, counters, hit ratio
 *   GET /cache?export=NAME&glob=G            what is cached of an image, or of some of its files; known=1 in
 *                                            place of glob: as far as the index is cached, no store is asked
 *   POST /cache/evict?export=NAME&glob=G     drop it (pinned=1: also what is pinned);
 *                                            all=1: whatever the cache holds
 *   POST /cache/pin, /cache/unpin            have it stay, or not, with the same parameters
 *                  glob may be left out, by GET also export; the answers are lines of JSON (control_cache.h)
 *   POST /warm?export=NAME&what=WHAT         have an image in the cache: its metadata, all of it, or the files, globs
 *                                            or trace in the request's body; dry=1: say what is missing
 *                                            (control_warm.h)
 *   GET /trace?export=NAME                   which chunks are read from now on, in the order of first touch
 *   POST /trace/end?export=NAME              that is enough (control_trace.h)
 *   PUT /exports/NAME?image=REF              serve one image more; DELETE: one less, that was added so
 *                                            (control_exports.h)
 */
#ifndef GRANARY_SERVER_CONTROL_H
#define GRANARY_SERVER_CONTROL_H

#include "base/compiler.h"
#include "server/added_exports.h"
#include "server/history.h"
#include "stack.h"

struct control;

/* Bind and listen at path (mode 0600). A socket that nobody listens on any more is replaced;
 * -EADDRINUSE: somebody does; -EEXIST: something else is there. Makes no thread. The stack is not
 * owned and outlives the control, and so is what exports are added to; NULL: they do not change. */
GR_MUST_CHECK int control_open(const char *path, struct stack *stack, struct added_exports *added,
                               struct control **out);
/* Answer requests, after a fork. */
GR_MUST_CHECK int control_start(struct control *c);
/* Stops answering and removes the socket, unless another server has put its own there. */
void control_close(struct control *c);

/* The answer to /status, by itself. Appended to *out. history: of the same stack; NULL: there are no rates. */
GR_MUST_CHECK int control_status(struct stack *stack, struct history *history, struct bytes *out);

/* Hits as a share of hits and misses; 0 before the first read. */
double control_hit_ratio(struct stack *stack);

#endif
