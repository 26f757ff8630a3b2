/* The control socket: HTTP over a unix socket, answered by its own thread.
 *
 *    GET /metrics   every counter, in Prometheus' text form (metrics.h)
 *    GET /status    one JSON object: version, pid, exports, cache directories, health, counters, hit ratio
 *    GET /cache?export=NAME&glob=G            what is cached of an image, or of some of its files; known=1 in
 *                                             place of glob: use only cached index nodes, no store
 *    POST /cache/evict?export=NAME&glob=G     drop it (pinned=1: pinned chunks too);
 *                                             all=1: everything in the cache
 *    POST /cache/pin, /cache/unpin            pin it, or undo that, with the same parameters
 *                   glob may be left out, for GET export too; the answers are lines of JSON (control_cache.h)
 *    POST /warm?export=NAME&what=WHAT         fetch into the cache an image's metadata, all of it, or the files, globs
 *                                             or trace in the request's body; dry=1: only report what is missing
 *                                             (control_warm.h)
 *    GET /trace?export=NAME                   stream the chunks read from now on, in the order of first touch
 *    POST /trace/end?export=NAME              end that recording (control_trace.h)
 *    PUT /exports/NAME?image=REF              add an export; DELETE removes one that was added
 *                                             (control_exports.h)
 *    POST /quiesce                            cache nothing more, and report {unwritten_bytes}: 202 while chunks
 *                                             wait to be written to the cache, 200 when none does
 */
#ifndef GRANARY_SERVER_CONTROL_H
#define GRANARY_SERVER_CONTROL_H

#include "base/compiler.h"
#include "server/added_exports.h"
#include "server/history.h"
#include "stack.h"

struct control;

/* Bind and listen at path (mode 0600). A socket that no process listens on is replaced. Makes no thread. added NULL:
 * exports cannot be changed. The stack and added are not owned and outlive the control. -EADDRINUSE: another process
 * listens there; -EEXIST: path is something other than a socket; -ENOMEM, or the errno of the socket calls. */
GR_MUST_CHECK int control_open(const char *path, struct stack *stack, struct added_exports *added,
                               struct control **out);
/* Start the thread that answers requests. Call it in the process that serves, after any fork. */
GR_MUST_CHECK int control_start(struct control *c);
/* Stop answering, cancel the jobs, and remove the socket unless another server has replaced it. NULL is allowed. */
void control_close(struct control *c);

/* Append the document of /status to *out. history must be of the same stack; NULL leaves the rates out. -ENOMEM. */
GR_MUST_CHECK int control_status(struct stack *stack, struct history *history, struct bytes *out);

/* Return hits / (hits + misses) since the start; 0 before the first hit. */
double control_hit_ratio(struct stack *stack);

#endif
