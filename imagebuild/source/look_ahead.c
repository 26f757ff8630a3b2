/* A question is owned by whoever took it out of a queue; both queues have room for all of them, so nobody waits to put
 * one in. */
#include "imagebuild/source/look_ahead.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/queue.h"
#include "base/thread.h"

enum { THREADS_DEFAULT = 8, THREADS_MAX = 64, LOOKS_PER_THREAD = 4 };
enum { ENTRY_OVERHEAD = 32 }; /* of the allocator, and in the vector */

struct look_ahead {
    struct look_ahead_config config;
    struct queue *todo, *done;
    _Atomic bool stopping; /* what nobody has begun to look at need not be looked at */
    struct look looks[THREADS_MAX * LOOKS_PER_THREAD];
    struct look *free[THREADS_MAX * LOOKS_PER_THREAD];
    size_t look_count, free_count, open; /* open: asked, not answered */
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
};

/* ------------------------------------------------------------------ workers */

static const void *look_ahead_put(char **to, const void *from, size_t len)
{
    char *at = *to;
    if (len)
        memcpy(at, from, len);
    *to += len;
    return at;
}

int look_keep(void *arg, const struct source_entry *e)
{
    struct look *look = arg;
    struct source_entry *copy;
    size_t size = sizeof *copy + e->path_len + e->validator_len + e->target_len + e->xattrs_len + 1;
    copy = malloc(size);
    if (!copy)
        return error_no_memory();
    char *to = (char *)(copy + 1);
    *copy = *e;
    copy->path = look_ahead_put(&to, e->path, e->path_len);
    copy->validator = look_ahead_put(&to, e->validator, e->validator_len);
    copy->target = look_ahead_put(&to, e->target, e->target_len);
    copy->xattrs = e->xattrs ? look_ahead_put(&to, e->xattrs, e->xattrs_len) : NULL;
    if (!vec_push(&look->entries, copy)) {
        look->kept += size + ENTRY_OVERHEAD;
        return 0;
    }
    free(copy);
    return error_no_memory();
}

void look_forget(struct look *look)
{
    for (size_t i = 0; i < look->entries.len; i++)
        free(look->entries.items[i]);
    vec_release(&look->entries);
    look->kept = 0;
}

static void *work_run(void *arg)
{
    struct look_ahead *l = arg;
    struct look *look;
    while ((look = queue_pop(l->todo)) && !atomic_load(&l->stopping)) {
        error_take(&look->error, l->config.work(l->config.arg, look));
        if (!queue_push(l->done, look))
            break;
    }
    return NULL;
}

/* ------------------------------------------------------------------ the asker */

int look_ahead_wait(struct look_ahead *l, bool *out_taken)
{
    *out_taken = l->open > 0;
    if (!l->open)
        return 0;
    struct look *look = queue_pop(l->done);
    l->open--;
    int rc = l->config.answer(l->config.arg, look);
    look_forget(look);
    l->free[l->free_count++] = look;
    return rc;
}

static int look_ahead_fill(struct look *look, const struct source_ask *ask, int kind)
{
    if (look->path_cap < ask->path_len + 1) {
        char *fresh = realloc(look->path, ask->path_len + 1);
        if (!fresh)
            return error_no_memory();
        look->path = fresh;
        look->path_cap = ask->path_len + 1;
    }
    if (ask->path_len)
        memcpy(look->path, ask->path, ask->path_len);
    look->path[ask->path_len] = 0;
    look->ask = *ask;
    look->ask.path = look->path;
    look->kind = kind;
    return 0;
}

int look_ahead_ask(struct look_ahead *l, const struct source_ask *ask, int kind)
{
    bool taken;
    int rc = l->free_count ? 0 : look_ahead_wait(l, &taken);
    if (rc)
        return rc;
    struct look *look = l->free[l->free_count - 1];
    rc = look_ahead_fill(look, ask, kind);
    if (rc)
        return rc;
    l->free_count--;
    l->open++;
    return queue_push(l->todo, look) ? 0 : -EIO; /* never: nobody has closed it */
}

/* ------------------------------------------------------------------ life */

void look_ahead_stop(struct look_ahead *l)
{
    if (!l)
        return;
    atomic_store(&l->stopping, true);
    if (l->todo)
        queue_close(l->todo);
    for (unsigned i = 0; i < l->thread_count; i++)
        pthread_join(l->threads[i], NULL);
    queue_free(l->todo);
    queue_free(l->done);
    for (size_t i = 0; i < l->look_count; i++) {
        look_forget(&l->looks[i]);
        free(l->looks[i].path);
    }
    free(l);
}

static int look_ahead_start_threads(struct look_ahead *l)
{
    unsigned wanted = GR_MIN(l->config.threads ? l->config.threads : THREADS_DEFAULT, (unsigned)THREADS_MAX);
    l->look_count = (size_t)wanted * LOOKS_PER_THREAD;
    for (size_t i = 0; i < l->look_count; i++)
        l->free[l->free_count++] = &l->looks[i];
    l->todo = queue_new(l->look_count);
    l->done = queue_new(l->look_count);
    if (!l->todo || !l->done)
        return error_no_memory();
    for (int rc; l->thread_count < wanted; l->thread_count++)
        if ((rc = thread_start(&l->threads[l->thread_count], work_run, l)))
            return rc;
    return 0;
}

int look_ahead_start(const struct look_ahead_config *config, struct look_ahead **out)
{
    struct look_ahead *l = calloc(1, sizeof *l);
    if (!l)
        return error_no_memory();
    l->config = *config;
    int rc = look_ahead_start_threads(l);
    if (rc)
        look_ahead_stop(l);
    else
        *out = l;
    return rc;
}
