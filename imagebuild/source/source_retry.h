/* Patience with a server, shared by the sources that have one: a failed operation is repeated with growing pauses until
 * timeout_ms have passed since its first failure. Who waits for more than 3 s is told why in the log. Pauses end at
 * once when the build does.
 *
 *   struct source_try t = {0};
 *   while ((rc = ask()) && !(rc = source_retry_wait(&s->retry, &t, rc)))
 *       ;
 *
 * Any thread; a source_try belongs to one.
 */
#ifndef GRANARY_IMAGEBUILD_SOURCE_SOURCE_RETRY_H
#define GRANARY_IMAGEBUILD_SOURCE_SOURCE_RETRY_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "imagebuild/source/source.h"

struct source_retry {
    const char *url; /* for messages; the source's */
    uint64_t timeout_ms;
    const volatile int *interrupted; /* of struct source_options; may be NULL */
    pthread_mutex_t lock;            /* guards cancelled; never held across a request */
    pthread_cond_t cancelling;
    bool cancelled;
    _Atomic uint64_t warned_ms; /* when the log last heard of trouble; 0: never */
};

/* One operation's failures in a row; {0} before the first and after a success. */
struct source_try {
    uint64_t until_ms;
    unsigned pause_ms;
};

void source_retry_init(struct source_retry *r, const char *url, const struct source_options *options);
void source_retry_release(struct source_retry *r);

/* Wait before the next try. 0: try again; rc, when it is neither -EAGAIN nor -ETIMEDOUT or it has taken too long;
 * -ECANCELED. */
GR_MUST_CHECK int source_retry_wait(struct source_retry *r, struct source_try *t, int rc);
/* All waits, of now and later, end with -ECANCELED. */
void source_retry_cancel(struct source_retry *r);

#endif
