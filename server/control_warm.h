/* Fetches an image, or some of its files, into the cache before they are read: the server's side of `granary warm`. */
#ifndef GRANARY_SERVER_CONTROL_WARM_H
#define GRANARY_SERVER_CONTROL_WARM_H

#include "base/bytes.h"
#include "server/control_job.h"
#include "stack.h"

enum {
    CONTROL_WARM_BODY_MAX = 64 << 20, /* bytes of a request's names, or of its trace */
    CONTROL_WARM_FAILED_MAX = 100,    /* failed files that are named; further ones are only counted */
};

/* The parameters of a request, as text. NULL members: not given. */
struct control_warm_request {
    const char *export;
    const char *digest;  /* "sha256:<hex>" instead of export; with neither: the only export */
    const char *what;    /* "metadata", "all", "trace", "files", "globs" */
    const char *bwlimit; /* a rate (base/rate.h) for the chunks fetched for this request */
    const char *dry;     /* "1": only report what is missing */
};

struct control_warm;

/* Check a request. body holds the names of files or globs, each ended by NUL, or the file of a trace; on success its
 * bytes are taken and *body is left empty. *out: what control_warm_run and control_warm_free take. -EINVAL: a parameter
 * is wrong, or a body is missing or not expected; -ENOENT: no such export; -ENOMEM. */
GR_MUST_CHECK int control_warm_prepare(struct stack *stack, const struct control_warm_request *request,
                                       struct bytes *body, struct control_warm **out);
/* A control_work and its control_free, around warm_run. Sends these objects, one a line:
 *   progress  {phase, bytes_done, bytes_total, files_done, files_total, failed_chunks, failed_bytes}:
 *             struct warm_report, twice a second, and when every chunk has come or failed
 *   failed    {path, why}: a file that is not all cached at the end, or not in the image
 *   warm      at the end: {export, digest, files, absent_files, traced_chunks,
 *             absent_chunks (listed by the trace, but not in the image), chunks, bytes, needed_chunks, needed_bytes,
 *             fetch_bytes (needed_bytes as stored, and the index), cached_chunks, cached_bytes, failed_files,
 *             warmed_bytes, seconds, bytes_per_s (what the warming fetched, in that time),
 *             unpinned_chunks (metadata for which the cache has no room for more pins), error}; without dry,
 *             needed_... is what was missing at the beginning and cached_... what is there at the end
 *   result    the last line: {"ok": true}
 */
int control_warm_run(struct control_job *job, void *warm);
void control_warm_free(void *warm);

#endif
