/* Retries of requests to a server, shared by the sources that have one. A failed operation is repeated with growing
 * pauses until timeout_ms have passed since its first failure. After 3 s of trouble a warning is logged. Pauses end
 * when the build is cancelled.
 *
 *   struct source_try t = {0};
 *   while ((rc = request()) && !(rc = source_retry_wait(&s->retry, &t, rc)))
 *       ;
 *
 * Any thread may use a struct source_retry; a struct source_try belongs to one operation of one thread.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_RETRY_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_RETRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "imagebuild/source/source.h"

/* The retries of one source. */
struct source_retry {
    const char *url; /* for messages; the source's string */
    uint64_t timeout_ms;
    const volatile int *interrupted; /* source_options.cancel; may be NULL */
    pthread_mutex_t lock;            /* guards cancelled; never held across a request */
    pthread_cond_t cancelling;       /* signalled when cancelled is set */
    bool cancelled;
    _Atomic uint64_t warned_ms; /* time of the last warning (clock_now_ms); 0: none yet */
};

/* Consecutive failures of one operation; {0} before the first one and after a success. */
struct source_try {
    uint64_t until_ms; /* when to give up (clock_now_ms); 0: no failure yet */
    unsigned pause_ms; /* before the next try, without jitter */
};

/* url is not copied. It, and what options->cancel points to, must outlive r. */
void source_retry_init(struct source_retry *r, const char *url, const struct source_options *options);
void source_retry_release(struct source_retry *r);

/* After the failure rc: wait and return 0 if the operation may be tried again. Otherwise return at once: rc, if it is
 * neither -EAGAIN nor -ETIMEDOUT, or if the next try would come too late; -ECANCELED, if the build ends. The pause
 * respects a Retry-After of the server, up to 60 s. */
GR_MUST_CHECK int source_retry_wait(struct source_retry *r, struct source_try *t, int rc);
/* End all waits with -ECANCELED, now and later. */
void source_retry_cancel(struct source_retry *r);

#endif
