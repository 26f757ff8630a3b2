/* The walk's threads and queues (source_internal.h).
 *
 *   places (stack, unbounded but for 1 GiB)          batches (queue, at most two a thread)
 *   +------+  take_place   +--------+  hand_over    +-------+  take_batch   +----------------+
 *   | top  | ------------> | walker | ------------> | first | ------------> | calling thread |
 *   +------+ <------------ +--------+               +-------+               +----------------+
 *             walk_push     w->batch                                         visit
 *
 * Entries travel in batches, since a lock and a wakeup for each entry would cost more than listing it. A thread fills
 * its own batch without a lock. It hands the batch over when it is full, or when no place waits, so that the visitor
 * does not wait for a batch that is not filled.
 *
 * The queue of batches is bounded: a slow visitor stops the threads in walk_emit. The stack cannot be bounded that way,
 * since the threads that push places are those that pop them, and all of them might wait for room. So the walk fails
 * when the stack grows over WAITING_MAX.
 *
 * One mutex guards struct run. It is held across neither `list` nor `visit`. The walk is over when `over` is set (an
 * error) or when no place waits and no thread is busy, since only busy threads push places.
 */
#include "imagebuild/source/source_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/thread.h"

/* WAITING_MAX: bytes of all places on the stack. A batch is larger only if a single entry is. */
enum { THREADS_MAX = 64, BATCH_BYTES = 64 << 10, WAITING_MAX = 1 << 30 };

/* A place on the stack. Its strings follow it in the same allocation. */
struct waiting {
    struct waiting *below;
    size_t size; /* bytes of the allocation */
    struct walk_place place;
    char text[];
};

/* An entry in a batch. Its strings follow it; the next entry begins `size` bytes after this one, which keeps the
 * alignment. */
struct emitted {
    size_t size;
    struct source_entry entry;
    char text[];
};

/* Entries that travel together. `len` of the `size` bytes are used. */
struct batch {
    struct batch *next;
    size_t len, size;
    _Alignas(struct emitted) uint8_t data[];
};

/* A running walk. The mutex guards everything but config. */
struct run {
    const struct walk *config;
    pthread_mutex_t mutex;
    pthread_cond_t work;  /* threads wait for a place, for something to share, or for the end */
    pthread_cond_t found; /* the caller waits for a batch or for the end */
    pthread_cond_t room;  /* threads wait for room in the queue of batches */
    struct waiting *top;
    size_t waiting_bytes;
    struct batch *first, *last;
    unsigned ready, ready_max; /* batches in the queue; their limit */
    unsigned busy, running;    /* threads that list or share; threads that have not ended */
    bool alone;                /* the place being listed has walk_place.alone: no other may begin */
    uint64_t changes;          /* counts places listed or shared; after a change, sharing may succeed again */
    bool over;                 /* an error: no further place is begun, no further batch visited */
    struct error failed;       /* the first error; code 0: none */
};

struct walker {
    struct run *run;
    struct batch *batch;
    uint64_t changes; /* run->changes when this thread last tried to share */
    pthread_t thread;
};

/* End the walk with rc, unless an earlier error has ended it, and wake all threads. */
static void walk_fail_locked(struct run *r, int rc)
{
    if (!r->over)
        error_take(&r->failed, rc);
    r->over = true;
    pthread_cond_broadcast(&r->work);
    pthread_cond_broadcast(&r->found);
    pthread_cond_broadcast(&r->room);
}

/* Copy len bytes to *to and move it after them. Return the copy. */
static char *walk_put(char **to, const void *from, size_t len)
{
    char *at = *to;
    if (len)
        memcpy(at, from, len);
    *to += len;
    return at;
}

/* ------------------------------------------------------------------ places */

int walk_push(struct walker *w, const struct walk_place *place)
{
    struct run *r = w->run;
    size_t after_len = place->after ? strlen(place->after) : 0;
    size_t size = sizeof(struct waiting) + place->path_len + 1 + after_len + 1;
    struct waiting *p = malloc(size);
    if (!p)
        return error_no_memory();
    char *to = p->text;
    *p = (struct waiting){.size = size, .place = *place};
    p->place.path = walk_put(&to, place->path, place->path_len);
    walk_put(&to, "", 1);
    if (place->after)
        p->place.after = walk_put(&to, place->after, after_len + 1);
    SCOPED_LOCK(&r->mutex);
    if (r->waiting_bytes + size > WAITING_MAX) {
        free(p);
        return error_set(-ENOMEM,
                         "source: %s: over %d MiB of names wait to be listed; leave directories out with "
                         "--exclude",
                         r->config->url, WAITING_MAX >> 20);
    }
    p->below = r->top;
    r->top = p;
    r->waiting_bytes += size;
    /* one more place: one more thread has work */
    pthread_cond_signal(&r->work);
    return 0;
}

void walk_vanished(struct walker *w, const char *path, size_t len)
{
    bool named;
    {
        /* the warning is I/O and stays outside the lock */
        SCOPED_LOCK(&w->run->mutex);
        named = source_counts_vanished(w->run->config->counts, path, len);
    }
    if (named)
        source_warn_vanished(path, len);
}

/* ------------------------------------------------------------------ entries */

/* Append the thread's batch to the queue; waits for room. -ECANCELED: the walk is over, and the batch stays the
 * thread's. */
static int hand_over_locked(struct walker *w)
{
    struct run *r = w->run;
    while (r->ready == r->ready_max && !r->over)
        pthread_cond_wait(&r->room, &r->mutex);
    if (r->over)
        return error_set(-ECANCELED, "source: the listing was stopped");
    if (r->last)
        r->last->next = w->batch;
    else
        r->first = w->batch;
    r->last = steal_ptr(&w->batch);
    r->ready++;
    pthread_cond_signal(&r->found);
    return 0;
}

static int hand_over(struct walker *w)
{
    SCOPED_LOCK(&w->run->mutex);
    return hand_over_locked(w);
}

int walk_emit(void *walker, const struct source_entry *e)
{
    struct walker *w = walker;
    size_t align = _Alignof(struct emitted);
    size_t size = sizeof(struct emitted) + e->path_len + e->validator_len + e->target_len + e->xattrs_len;
    size = (size + align - 1) / align * align;
    /* size is a multiple of the alignment, so the next entry in the batch is aligned too */
    int rc = w->batch && w->batch->size - w->batch->len < size ? hand_over(w) : 0;
    if (rc)
        return rc;
    if (!w->batch) {
        size_t room = GR_MAX(size, (size_t)BATCH_BYTES);
        w->batch = malloc(sizeof *w->batch + room);
        if (!w->batch)
            return error_no_memory();
        *w->batch = (struct batch){.size = room};
    }
    struct emitted *copy = (struct emitted *)(w->batch->data + w->batch->len);
    char *to = copy->text;
    copy->size = size;
    copy->entry = *e;
    copy->entry.path = walk_put(&to, e->path, e->path_len);
    copy->entry.validator = walk_put(&to, e->validator, e->validator_len);
    copy->entry.target = walk_put(&to, e->target, e->target_len);
    copy->entry.xattrs = e->xattrs ? walk_put(&to, e->xattrs, e->xattrs_len) : NULL;
    w->batch->len += size;
    return 0;
}

/* Wait for the next batch. NULL: the walk has failed, or all threads have ended and the queue is empty. */
static struct batch *take_batch(struct run *r)
{
    SCOPED_LOCK(&r->mutex);
    while (!r->over && !r->first && r->running)
        pthread_cond_wait(&r->found, &r->mutex);
    struct batch *b = r->first;
    if (r->over || !b)
        return NULL;
    r->first = b->next;
    if (!r->first)
        r->last = NULL;
    r->ready--;
    pthread_cond_signal(&r->room);
    return b;
}

/* Visit the entries and free the batch. Visitors refuse names with -EINVAL and do not know the source, so that error
 * gets its address here. */
static int visit_batch(const struct walk *c, struct batch *b)
{
    int rc = 0;
    for (size_t at = 0; !rc && at < b->len;) {
        const struct emitted *next = (const struct emitted *)(b->data + at);
        rc = c->visit(c->visit_arg, &next->entry);
        at += next->size;
    }
    free(b);
    return rc == -EINVAL ? error_prefix(rc, "source: %s", c->url) : rc;
}

/* ------------------------------------------------------------------ threads */

/* Wait for a place to list and return it in *out; NULL: try to share another thread's place. Return false when the
 * walk is over; the thread's entries are handed over then. A thread without work first hands over its batch, then
 * looks for work to share, and waits only after that. */
static bool take_place(struct walker *w, struct waiting **out)
{
    struct run *r = w->run;
    SCOPED_LOCK(&r->mutex);
    while (!r->over && (!r->top || (r->busy && (r->top->place.alone || r->alone)))) {
        if (w->batch) {
            (void)hand_over_locked(w); /* refused only if over, which the loop sees */
            /* no place waits, and no thread is left that could push one */
        } else if (!r->busy) {
            return false;
        } else if (r->config->share && w->changes != r->changes) {
            w->changes = r->changes;
            r->busy++;
            *out = NULL;
            return true;
        } else {
            pthread_cond_wait(&r->work, &r->mutex);
        }
    }
    if (r->over)
        return false;
    *out = r->top;
    r->top = (*out)->below;
    r->waiting_bytes -= (*out)->size;
    r->busy++;
    r->alone = (*out)->place.alone;
    return true;
}

/* List one place. A place that has gone since it was pushed is no error, unless it is the root. */
static int walk_list_place(struct walker *w, const struct walk_place *place)
{
    const struct walk *c = w->run->config;
    int rc = c->list(c->arg, w, place);
    if (rc != -ENOENT || !place->path_len)
        return rc;
    walk_vanished(w, place->path, place->path_len);
    return 0;
}

/* A thread of the walk. */
static void *work(void *arg)
{
    struct walker *w = arg;
    struct run *r = w->run;
    struct waiting *p;
    while (take_place(w, &p)) {
        assert(p || r->config->share); /* no place is taken only to share */
        int rc = p ? walk_list_place(w, &p->place) : r->config->share(r->config->arg, w);
        bool changed = p || rc == 1;
        free(p);
        SCOPED_LOCK(&r->mutex);
        r->busy--;
        r->alone = false;
        r->changes += changed;
        if (rc < 0)
            walk_fail_locked(r, rc);
        /* Nobody is busy: the walk may be over, or a place that must be alone can begin. A change: there may be more to
         * share. */
        if (!r->busy || (changed && r->config->share))
            pthread_cond_broadcast(&r->work);
    }
    free(w->batch);
    SCOPED_LOCK(&r->mutex);
    if (!--r->running)
        pthread_cond_signal(&r->found);
    return NULL;
}

/* Start the threads, visit what they emit, and wait until they have ended. Return the first error. */
static int run_threads(struct run *r)
{
    struct walker walkers[THREADS_MAX];
    unsigned wanted = GR_MAX(1U, GR_MIN(r->config->threads, (unsigned)THREADS_MAX)), started = 0;
    struct batch *b;
    int rc = 0;
    r->running = wanted; /* before any thread starts: take_batch ends when this is 0 */
    r->ready_max = 2 * wanted;
    for (; !rc && started < wanted; started += !rc) {
        walkers[started] = (struct walker){.run = r};
        rc = thread_start(&walkers[started].thread, work, &walkers[started]);
    }
    while (!rc && (b = take_batch(r)))
        rc = visit_batch(r->config, b);
    if (rc) {
        SCOPED_LOCK(&r->mutex);
        walk_fail_locked(r, rc);
    }
    for (unsigned i = 0; i < started; i++)
        pthread_join(walkers[i].thread, NULL);
    return r->failed.code ? error_restore(&r->failed) : 0;
}

int walk_run(const struct walk *config)
{
    struct run r = {.config = config};
    struct walker root = {.run = &r};
    pthread_mutex_init(&r.mutex, NULL);
    pthread_cond_init(&r.work, NULL);
    pthread_cond_init(&r.found, NULL);
    pthread_cond_init(&r.room, NULL);
    int rc = walk_push(&root, &(struct walk_place){.path = ""});
    if (!rc)
        rc = run_threads(&r);
    for (struct waiting *p = r.top, *below; p; p = below) {
        below = p->below;
        free(p);
    }
    for (struct batch *b = r.first, *next; b; b = next) {
        next = b->next;
        free(b);
    }
    pthread_cond_destroy(&r.room);
    pthread_cond_destroy(&r.found);
    pthread_cond_destroy(&r.work);
    pthread_mutex_destroy(&r.mutex);
    return rc;
}
