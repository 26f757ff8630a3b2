/* Streams which chunks of an export are read while a job runs: the server's side of `granary trace record`. */
#ifndef GRANARY_SERVER_CONTROL_TRACE_H
#define GRANARY_SERVER_CONTROL_TRACE_H

#include "server/control_job.h"
#include "stack.h"

struct control_trace;

/* Find the export as control_export_find does, with its errors. *out: what control_trace_run and control_trace_free
 * take. -E2BIG: the image has more chunks than a trace can number; -ENOMEM. */
GR_MUST_CHECK int control_trace_prepare(struct stack *stack, const char *export, const char *digest,
                                        struct control_trace **out);
/* A control_work and its control_free. Records until control_trace_end, until TRACE_CHUNKS_MAX chunks are listed, or
 * until the client is gone. Sends these objects, one a line:
 *   image     first, once reads are recorded: {export, digest, content_root, size, chunk_size}
 *   entries   entries as trace_entry_put writes them, concatenated, in hexadecimal
 *   trace     twice a second, and at the end: {chunks, dropped}: chunks listed so far, and chunks not listed because
 *             the client was behind
 *   result    the last line: {"ok": true}
 * -EBUSY, sent as an error line: the export is being recorded already. */
int control_trace_run(struct control_job *job, void *trace);
void control_trace_free(void *trace);

/* Have a recording send what was read until now, and end. -ENOENT: the export is not being recorded; or as
 * control_export_find. */
GR_MUST_CHECK int control_trace_end(struct stack *stack, const char *export, const char *digest);

#endif
