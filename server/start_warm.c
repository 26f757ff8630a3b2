/* One thread tries every export once, and those that failed again after a pause. It remembers an export by its number,
 * which ascends and is never reused: exports up to `last` were tried, and `unfinished` lists those of them whose
 * metadata is not all cached. A new export has a higher number than `last`, so one pass over the stack finds both
 * kinds.
 *
 * An export that was added without warming is passed over. One whose image or index is damaged or gone is not tried
 * again. Warming metadata needs no catalog. Index nodes come through a separate store handle, which `ending` cancels;
 * chunks already in flight end when the images' own stores are cancelled. */
#include "server/server_internal.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "image/warm/warm_run.h"

/* The pause doubles from PAUSE_MIN_MS to PAUSE_MAX_MS. */
enum { STORE_TIMEOUT_MS = 30000, PAUSE_MIN_MS = 1000, PAUSE_MAX_MS = 60000 };

/* An export whose metadata could not be cached completely yet. */
struct unfinished {
    uint64_t number;
    bool said; /* its failure was logged */
};

/* The warming thread and its list. */
struct start_warm {
    struct stack *stack;
    pthread_t thread;
    VEC(struct unfinished) unfinished; /* ascending by number; used by the thread only, like last */
    uint64_t last;                     /* the highest number tried */
    volatile int ending;               /* set under lock; read without it, by the stores too */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool added; /* an export was added since the last round began; under lock */
};

/* Called by warm_run as it proceeds: cancels it when the server ends. */
static int start_warm_tell(void *arg, const struct warm_report *report)
{
    const struct start_warm *w = arg;
    return cancel_check(&w->ending);
}

/* Ignore a file that failed: the result's first error is logged once for the export. */
static int ignore_failed(void *arg, const char *path, size_t len, const char *why)
{
    return start_warm_tell(arg, NULL);
}

/* Warm one export's metadata through a separate store handle. Returns false when another try may succeed. Only the
 * first failure is logged: a store that is down for hours fails once a minute. */
static bool try_export(struct start_warm *w, struct stack_export *e, bool *said)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct warm_result result;
    int rc = stack_open_store(w->stack, e, STORE_TIMEOUT_MS, &w->ending, &store);
    const struct warm_config config = {.img = stack_export_image(e),
                                       .store = store,
                                       .what = WARM_METADATA,
                                       .tell = start_warm_tell,
                                       .failed = ignore_failed,
                                       .arg = w};
    if (!rc)
        rc = warm_run(&config, &result);
    if (!rc && result.error.code)
        rc = error_restore(&result.error);
    if (cancel_asked(&w->ending) || rc == -ECANCELED)
        return true;
    const char *why = rc ? error_text() : result.after.missing ? "the cache is too small" : NULL;
    if (!why)
        log_debug("export '%s': its metadata is in the cache", stack_export_name(e));
    else if (!*said)
        log_warning("export '%s': its metadata is not all in the cache: %s", stack_export_name(e), why);
    *said = *said || why;
    return !rc || rc == -ENOENT || rc == -EBADMSG;
}

/* Try the new and the unfinished exports, and rebuild the list of unfinished ones in place: kept entries never outrun
 * the entries read, since both ascend. Exports that were removed drop out. */
static int try_all(struct start_warm *w)
{
    size_t at = 0, kept = 0;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    while (!cancel_asked(&w->ending) && (e = stack_next(w->stack, e))) {
        struct unfinished u = {.number = stack_export_number(e)};
        while (at < w->unfinished.len && w->unfinished.items[at].number < u.number)
            at++;
        bool known = at < w->unfinished.len && w->unfinished.items[at].number == u.number;
        if (u.number <= w->last && !known) /* tried, and done */
            continue;
        if (known)
            u = w->unfinished.items[at++];
        w->last = GR_MAX(w->last, u.number);
        if (stack_export_unwarmed(e) || try_export(w, e, &u.said))
            continue;
        if (vec_reserve(&w->unfinished, 1))
            return -ENOMEM;
        w->unfinished.items[kept++] = u;
        w->unfinished.len = GR_MAX(w->unfinished.len, kept);
    }
    w->unfinished.len = kept;
    return 0;
}

/* Wait until the server ends, an export is added, or ms have passed (0: no limit). */
static void start_warm_pause_for(struct start_warm *w, uint64_t ms)
{
    struct timespec until = clock_at_ms(clock_now_ms() + ms);
    SCOPED_LOCK(&w->lock);
    int rc = 0;
    while (!w->ending && !w->added && rc != ETIMEDOUT)
        rc = ms ? pthread_cond_timedwait(&w->changed, &w->lock, &until) : pthread_cond_wait(&w->changed, &w->lock);
    w->added = false;
}

/* The thread: a round over the exports, then a pause that doubles while exports are unfinished. */
static void *start_warm_run(void *arg)
{
    struct start_warm *w = arg;
    uint64_t pause = PAUSE_MIN_MS;
    while (!cancel_asked(&w->ending)) {
        if (try_all(w))
            log_warning("%s: metadata is not cached ahead of its readers", error_text());
        start_warm_pause_for(w, w->unfinished.len ? pause : 0);
        pause = w->unfinished.len ? GR_MIN(2 * pause, (uint64_t)PAUSE_MAX_MS) : PAUSE_MIN_MS;
    }
    return NULL;
}

static void start_warm_release(struct start_warm *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    vec_release(&w->unfinished);
    free(w);
}

int start_warm_begin(struct stack *stack, struct start_warm **out)
{
    struct start_warm *w = calloc(1, sizeof *w);
    if (!w)
        return error_no_memory();
    w->stack = stack;
    pthread_mutex_init(&w->lock, NULL);
    thread_cond_init(&w->changed);
    int rc = thread_start(&w->thread, start_warm_run, w);
    if (rc)
        start_warm_release(w);
    else
        *out = w;
    return rc;
}

/* A flag, not a count: one round tries every new export. */
void start_warm_added(struct start_warm *w)
{
    if (!w)
        return;
    SCOPED_LOCK(&w->lock);
    w->added = true;
    pthread_cond_signal(&w->changed);
}

void start_warm_end(struct start_warm *w)
{
    if (!w)
        return;
    {
        SCOPED_LOCK(&w->lock);
        __atomic_store_n(&w->ending, 1, __ATOMIC_RELAXED);
        pthread_cond_signal(&w->changed);
    }
    pthread_join(w->thread, NULL);
    start_warm_release(w);
}
