/* Runs of one image may overlap. The one that began last is noted; when it ends, none is, though an older one may go
 * on: its end is near, as the newer one fetched the same chunks. */
#include "base/clock.h"
#include "image/image_internal.h"
#include "image/warm/warm_run.h"

enum { TELLS_MS = 2000 /* a rate over less tells nothing */ };

void warm_note_init(struct warm_note *n)
{
    *n = (struct warm_note){.current = 0};
    pthread_mutex_init(&n->lock, NULL);
}

void warm_note_release(struct warm_note *n)
{
    pthread_mutex_destroy(&n->lock);
}

unsigned warm_note_begin(struct warm_note *n, uint64_t had, uint64_t total)
{
    SCOPED_LOCK(&n->lock);
    n->current = ++n->begun;
    n->began_ms = clock_now_ms();
    n->had = n->done = had;
    n->total = total;
    return n->current;
}

void warm_note_done(struct warm_note *n, unsigned run, uint64_t done)
{
    SCOPED_LOCK(&n->lock);
    if (n->current == run)
        n->done = done;
}

void warm_note_end(struct warm_note *n, unsigned run)
{
    SCOPED_LOCK(&n->lock);
    if (n->current == run)
        n->current = 0;
}

/* What is left takes as long, for each byte, as what was fetched so far. */
bool warm_progress(struct image *img, struct warm_progress *out)
{
    struct warm_note *n = &img->warm_note;
    SCOPED_LOCK(&n->lock);
    uint64_t ms = clock_now_ms() - n->began_ms, fetched = n->done - n->had, left = n->total - n->done;
    bool tells = fetched && ms >= TELLS_MS;
    *out =
        (struct warm_progress){.bytes_done = n->done,
                               .bytes_total = n->total,
                               .left_ms = tells ? (uint64_t)((double)ms * (double)left / (double)fetched) : UINT64_MAX};
    return n->current;
}
