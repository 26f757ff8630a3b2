/* What the control socket does with the cache: list, evict and pin chunks, by image and path. */
#ifndef GRANARY_SERVER_CONTROL_CACHE_H
#define GRANARY_SERVER_CONTROL_CACHE_H

#include "server/control_job.h"
#include "stack.h"

enum control_bulk_operation { CONTROL_LS, CONTROL_EVICT, CONTROL_PIN, CONTROL_UNPIN };

enum { CONTROL_EXPORT_MAX = STACK_EXPORT_NAME_MAX };

/* The parameters of a request, as text. NULL members: not given. */
struct control_request {
    enum control_bulk_operation operation;
    const char *export;
    const char *glob;   /* over the image's paths; needs export */
    const char *all;    /* "1": everything in the cache, instead of an export */
    const char *pinned; /* "1": evict pinned chunks too */
    const char *known;  /* "1": use no store: below an uncached index node, chunks are unknown */
};

struct control_task;

/* Check a request. *out: a copy of it, which control_cache_run and control_cache_free take. -EINVAL: a parameter is
 * wrong or does not fit the others; -ENOENT: no such export; -ENOMEM. */
GR_MUST_CHECK int control_cache_prepare(struct stack *stack, const struct control_request *request,
                                        struct control_task **out);
/* A control_work and its control_free. Sends these objects, one a line:
 *   progress  {bytes_done, bytes_total} of the image or cache; {files_done} while the catalog is read
 *   file      ls with a glob: {path, size, chunks, cached_chunks, pinned_chunks, unknown_chunks}
 *   image     after each image: {export, digest, files, chunks, bytes, cached_chunks, cached_bytes,
 *             stored_bytes, pinned_chunks, changed_chunks, changed_bytes, refused_chunks,
 *             unknown_chunks, metadata_chunks, metadata_cached_chunks,
 *             metadata_pinned_chunks (by the user or the session), store_error}
 *   cache     with all=1: {changed_chunks, changed_bytes, refused_chunks}
 *   result    the last line of success: {"ok": true}
 */
int control_cache_run(struct control_job *job, void *task);
void control_cache_free(void *task);

#endif
