/* Having an image, or some of its files, in the cache ahead of its readers: what `granary warm` asks for. */
#ifndef GRANARY_SERVER_CONTROL_WARM_H
#define GRANARY_SERVER_CONTROL_WARM_H

#include "base/bytes.h"
#include "server/control_job.h"
#include "stack.h"

enum {
    CONTROL_WARM_BODY_MAX = 64 << 20, /* bytes of a request's names, or of its trace */
    CONTROL_WARM_FAILED_MAX = 100,    /* files that are named, the others are counted */
};

/* NULL members: not given. */
struct control_warm_request {
    const char *export;
    const char *digest;  /* "sha256:<hex>" instead of export; without both: the only image */
    const char *what;    /* "metadata", "all", "trace", "files", "globs" */
    const char *bwlimit; /* a rate (base/rate.h) of the chunks fetched for this request */
    const char *dry;     /* "1": only say what is missing */
};

struct control_warm;

/* Check a request. body: names, each ended by NUL, of files and globs; the file of a trace; emptied when the request is
 * taken. *out: for control_warm_run, which takes it. -EINVAL; -ENOENT: no such export. */
GR_MUST_CHECK int control_warm_prepare(struct stack *stack, const struct control_warm_request *request,
                                       struct bytes *body, struct control_warm **out);
/* A control_work and its control_free: warm_run. Sends, each as an object in a line of its own:
 *   progress  {phase, bytes_done, bytes_total, files_done, files_total, failed_chunks, failed_bytes}:
 *             struct warm_report, twice a second, and when all has come or failed
 *   failed    {path, why}: a file that is not all cached at the end, or not in the image
 *   warm      at the end: {export, digest, files, absent_files, traced_chunks,
 *             absent_chunks (listed by the trace, and not in the image), chunks, bytes, needed_chunks, needed_bytes,
 *             fetch_bytes (needed_bytes as stored, and the index), cached_chunks, cached_bytes, failed_files,
 *             warmed_bytes, seconds, bytes_per_s (of the warming: what came, in which time),
 *             unpinned_chunks (of metadata: there is no room for more pins), error}; without dry
 *             needed_... is what was missing at the beginning and cached_... what is there at the end
 *   result    the last line: {"ok": true} */
int control_warm_run(struct control_job *job, void *warm);
void control_warm_free(void *warm);

#endif
