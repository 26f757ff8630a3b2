/* What is read of an export, as it is read: what `granary trace record` asks for. */
#ifndef GRANARY_SERVER_CONTROL_TRACE_H
#define GRANARY_SERVER_CONTROL_TRACE_H

#include "server/control_job.h"
#include "stack.h"

struct control_trace;

/* As of control_export_find. *out: for control_trace_run, which takes it. -E2BIG: the image has too many chunks. */
GR_MUST_CHECK int control_trace_prepare(struct stack *stack, const char *export, const char *digest,
                                        struct control_trace **out);
/* A control_work and its control_free: records until control_trace_end, until TRACE_CHUNKS_MAX chunks are listed, or
 * until the client is gone. Sends, each as an object in a line of its own:
 *   image     first, when reads are being recorded: {export, digest, content_root, size, chunk_size}
 *   entries   as trace_entry_put writes them, one after another, in hexadecimal
 *   trace     now and then, and at the end: {chunks, dropped}: listed so far, and not listed because the client was
 *             behind
 *   result    the last line: {"ok": true}
 * -EBUSY, as an error's line: the export is being recorded already. */
int control_trace_run(struct control_job *job, void *trace);
void control_trace_free(void *trace);

/* Have a recording end when all that was read until now is sent. -ENOENT: nobody records the export. */
GR_MUST_CHECK int control_trace_end(struct stack *stack, const char *export, const char *digest);

#endif
