/* Exports added and removed over the control socket. */
#ifndef GRANARY_SERVER_CONTROL_EXPORTS_H
#define GRANARY_SERVER_CONTROL_EXPORTS_H

#include "server/added_exports.h"
#include "server/control_job.h"

/* The parameters of a request, as text. NULL members: not given. */
struct control_exports_request {
    const char *name;
    const char *image; /* a reference, as the parameter image= has it; PUT only */
    const char *mount; /* "1": for mounts (added_exports.h) */
};

struct control_exports;

/* Check a request; put: add an export, else remove one. *out: what control_exports_run and control_exports_free take.
 * added NULL is -EINVAL, with a sentence that exports do not change here. -EINVAL; -ENOMEM. */
GR_MUST_CHECK int control_exports_prepare(struct added_exports *added, const struct control_exports_request *request,
                                          bool put, struct control_exports **out);
/* A control_work and its control_free. Sends these objects, one a line:
 *   export    {export, digest, content_root, size} of the export that is served now
 *   removed   {removed}: false only when a mount's export stays because others need it
 *   result    the last line: {"ok": true}
 */
int control_exports_run(struct control_job *job, void *request);
void control_exports_free(void *request);

#endif
