/* The catalog is not asked for, and index nodes come through a store handle of its own, which ends with it. What is in
 * the air ends when the images' stores are told to.
 */
#include "plugin/start_warm.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "image/warm_run.h"

enum { STORE_TIMEOUT_MS = 30000, PAUSE_MIN_MS = 1000, PAUSE_MAX_MS = 60000 };

struct start_warm {
    struct stack *stack;
    pthread_t thread;
    volatile int ending; /* set under the lock; stores look at it */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool *done, *said; /* by image */
};

static bool is_ending(const struct start_warm *w)
{
    return __atomic_load_n(&w->ending, __ATOMIC_RELAXED);
}

static int tell(void *arg, const struct warm_told *told)
{
    return is_ending(arg) ? error_set(-ECANCELED, "interrupted") : 0;
}

static int ignore_failed(void *arg, const char *path, size_t len, const char *why)
{
    return tell(arg, NULL);
}

static int warm_image(struct start_warm *w, size_t i, struct warm_result *out)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    int rc = stack_open_store(w->stack, i, STORE_TIMEOUT_MS, &w->ending, &store);
    const struct warm_config config = {.img = stack_image_at(w->stack, i),
                                       .store = store,
                                       .what = WARM_METADATA,
                                       .tell = tell,
                                       .failed = ignore_failed,
                                       .arg = w};
    return rc ? rc : warm_run(&config, out);
}

static void say(struct start_warm *w, size_t i, const char *why)
{
    if (!w->said[i])
        log_warning("export '%s': its metadata is not all in the cache: %s", stack_export_name(w->stack, i), why);
    w->said[i] = true;
}

/* false: it is worth another try. */
static bool try_image(struct start_warm *w, size_t i)
{
    struct warm_result result;
    int rc = warm_image(w, i, &result);
    if (!rc && result.error.code)
        rc = error_restore(&result.error);
    if (is_ending(w) || rc == -ECANCELED)
        return true;
    if (rc)
        say(w, i, error_text());
    else if (result.after.missing)
        say(w, i, "the cache is too small");
    else
        log_debug("export '%s': its metadata is in the cache", stack_export_name(w->stack, i));
    return !rc || rc == -ENOENT || rc == -EBADMSG;
}

static void pause_for(struct start_warm *w, uint64_t ms)
{
    struct timespec until = clock_at_ms(clock_now_ms() + ms);
    SCOPED_LOCK(&w->lock);
    while (!w->ending && pthread_cond_timedwait(&w->changed, &w->lock, &until) != ETIMEDOUT)
        ;
}

static void *run(void *arg)
{
    struct start_warm *w = arg;
    size_t left = stack_image_count(w->stack);
    for (uint64_t pause = PAUSE_MIN_MS; left && !is_ending(w); pause = GR_MIN(2 * pause, (uint64_t)PAUSE_MAX_MS)) {
        for (size_t i = 0; i < stack_image_count(w->stack) && !is_ending(w); i++)
            if (!w->done[i] && try_image(w, i)) {
                w->done[i] = true;
                left--;
            }
        if (left && !is_ending(w))
            pause_for(w, pause);
    }
    return NULL;
}

static void release(struct start_warm *w)
{
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w->done);
    free(w->said);
    free(w);
}

int start_warm_begin(struct stack *stack, struct start_warm **out)
{
    struct start_warm *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(-ENOMEM, "out of memory");
    size_t count = stack_image_count(stack);
    w->stack = stack;
    w->done = calloc(count + 1, sizeof *w->done);
    w->said = calloc(count + 1, sizeof *w->said);
    pthread_mutex_init(&w->lock, NULL);
    thread_cond_init(&w->changed);
    int rc = w->done && w->said ? thread_start(&w->thread, run, w) : error_set(-ENOMEM, "out of memory");
    if (rc)
        release(w);
    else
        *out = w;
    return rc;
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
    release(w);
}
