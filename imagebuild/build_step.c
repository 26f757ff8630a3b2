/* What a build does between any two pieces of work: check for cancellation, report progress, renew the lease. */
#include "imagebuild/build_internal.h"

#include <errno.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"

enum { PROGRESS_MS = 200 };

/* Call options.progress at most once per PROGRESS_MS, and at once when the phase changes. */
static void build_step_report(struct build *b, const char *phase)
{
    if (!b->options.progress)
        return;
    uint64_t now = clock_now_ms();
    /* phases are string constants, but equal ones need not be one */
    bool same = b->progress.phase && !strcmp(phase, b->progress.phase);
    if (same && now - b->reported_ms < PROGRESS_MS)
        return;
    b->reported_ms = now;
    b->progress.phase = phase;
    if (b->upload)
        b->progress.bytes_uploaded = upload_counts(b->upload).bytes;
    b->options.progress(b->options.progress_arg, &b->progress);
}

int build_step(struct build *b, const char *phase)
{
    /* checked first: an interrupted build must not wait for the lease */
    if (cancel_asked(b->options.cancel))
        return error_set(-ECANCELED, "build: interrupted; nothing was published");
    b->phase = phase;
    build_step_report(b, phase);
    /* writes nothing until the last renewal is a minute old */
    return b->lease ? lease_renew(b->lease) : 0;
}

int build_same_step(void *arg)
{
    struct build *b = arg;
    return build_step(b, b->phase);
}
