/* Exports added and removed over the control socket. */
#ifndef GRANARY_SERVER_CONTROL_EXPORTS_H
#define GRANARY_SERVER_CONTROL_EXPORTS_H

#include "server/added_exports.h"
#include "server/control_job.h"

/* NULL members: not given. */
struct control_exports_request {
    const char *name;
    const char *image; /* a reference, as image= has it */
    const char *mount; /* "1": for mounts (added_exports.h) */
};

struct control_exports;

/* Check a request; *out: for one of those below, which takes it. -EINVAL. */
GR_MUST_CHECK int control_exports_prepare(struct added_exports *added, const struct control_exports_request *request,
                                          bool put, struct control_exports **out);
/* A control_work and its control_free. Sends, each as an object in a line of its own:
 *   export    {export, digest, content_root, size} of one that is served now
 *   removed   {removed}: whether it was, for mounts; always true otherwise
 *   result    the last line: {"ok": true} */
int control_exports_run(struct control_job *job, void *request);
void control_exports_free(void *request);

#endif
