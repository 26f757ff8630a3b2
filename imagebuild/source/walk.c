/* Jobs are pages to ask for: a directory, and behind which name. They lie on a stack, so that what waits there stays
 * small whatever the tree's width: a page puts the rest of its directory at the bottom and its subdirectories on top.
 * Pages go through a bounded queue to the calling thread, which visits.
 *
 * The walk is over when no job waits and none is under way; the last thread to notice closes the queue. A failure of a
 * page or of the visitor stops all: the first one is reported. The mutex guards jobs, busy, running, failed and the
 * counts, and is held across neither requests nor visits.
 */
#include "imagebuild/source/walk.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/queue.h"
#include "base/thread.h"
#include "base/vec.h"
#include "imagebuild/source/source_kinds.h"

enum { THREADS_MAX = 64, PATH_LEN_MAX = 64 << 10 };

struct job {
    char *path;  /* relative to the root; "" is the root */
    char *after; /* NULL: from the first entry */
};

struct told {
    char *path;
    struct webhdfs_page *page;
};

struct walk {
    const struct hdfs_walk *config;
    struct queue *pages; /* of struct told */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    VEC(struct job) jobs;
    unsigned busy, running;
    struct error failed; /* code 0: none; -ECANCELED without more: the visitor's */
};

static void job_release(struct job *job)
{
    free(job->path);
    free(job->after);
}

#define CLEANUP_JOB CLEANUP(job_release) struct job

static void told_free(struct told *t)
{
    if (t->page)
        webhdfs_page_free(t->page);
    free(t->path);
    free(t);
}
DEFINE_CLEANUP(told, struct told *, told_free)

static void fail_locked(struct walk *w, int rc)
{
    if (!w->failed.code)
        error_take(&w->failed, rc);
    pthread_cond_broadcast(&w->changed);
}

/* Append base (if any), a slash and a name: a path below the root. */
static int join(struct bytes *out, const char *base, const char *name)
{
    bytes_clear(out);
    int rc = bytes_printf(out, "%s%s%s", base, *base && *name ? "/" : "", name);
    return rc || !bytes_string(out) ? error_set(-EINVAL, "HDFS: a path is longer than %d bytes", PATH_LEN_MAX) : 0;
}

/* ---- the threads that list ---- */

/* false: the walk is over. */
static bool take_job(struct walk *w, struct job *out)
{
    SCOPED_LOCK(&w->mutex);
    while (!w->failed.code && !w->jobs.len && w->busy)
        pthread_cond_wait(&w->changed, &w->mutex);
    if (w->failed.code || !w->jobs.len)
        return false;
    *out = w->jobs.items[--w->jobs.len];
    w->busy++;
    return true;
}

static int push_job_locked(struct walk *w, const char *path, const char *after)
{
    CLEANUP_JOB job = {.path = strdup(path), .after = after ? strdup(after) : NULL};
    if (!job.path || (after && !job.after) || vec_push(&w->jobs, job))
        return error_no_memory();
    job = (struct job){.path = NULL};
    return 0;
}

static int push_jobs(struct walk *w, const struct job *done, const struct webhdfs_page *page)
{
    CLEANUP_BYTES path = BYTES_INIT(PATH_LEN_MAX);
    size_t count = webhdfs_page_count(page);
    SCOPED_LOCK(&w->mutex);
    int rc = webhdfs_page_more(page) ? push_job_locked(w, done->path, webhdfs_page_status(page, count - 1)->name) : 0;
    for (size_t i = count; !rc && i--;) {
        const struct webhdfs_status *s = webhdfs_page_status(page, i);
        if (s->type != WEBHDFS_DIRECTORY)
            continue;
        rc = join(&path, done->path, s->name);
        if (!rc && rules_take(w->config->rules, (const char *)path.data, path.len, true))
            rc = push_job_locked(w, (const char *)path.data, NULL);
    }
    pthread_cond_broadcast(&w->changed);
    return rc;
}

static int fetch(struct walk *w, const struct job *job, struct webhdfs_page **out)
{
    const struct hdfs_walk *c = w->config;
    CLEANUP_BYTES path = BYTES_INIT(2 * PATH_LEN_MAX);
    struct source_try try = {0};
    int rc = bytes_printf(&path, "%s%s%s", c->root, *job->path ? "/" : "", job->path);
    if (rc)
        return error_set(-EINVAL, "HDFS: a path is longer than %d bytes", PATH_LEN_MAX);
    while ((rc = webhdfs_list(c->client, (const char *)path.data, path.len, job->after, out)) &&
           !(rc = source_retry_wait(c->retry, &try, rc)))
        ;
    return rc;
}

static bool count_vanished(struct walk *w, const struct job *job)
{
    SCOPED_LOCK(&w->mutex);
    return source_counts_vanished(w->config->counts, job->path, strlen(job->path));
}

static int vanished(struct walk *w, const struct job *job)
{
    if (count_vanished(w, job))
        source_warn_vanished(job->path, strlen(job->path));
    return 0;
}

static int do_job(struct walk *w, struct job *job)
{
    CLEANUP(cleanup_told) struct told *told = calloc(1, sizeof *told);
    if (!told)
        return error_no_memory();
    int rc = fetch(w, job, &told->page);
    if (rc == -ENOENT && *job->path)
        return vanished(w, job);
    if (!rc)
        rc = push_jobs(w, job, told->page);
    if (rc)
        return rc;
    told->path = steal_ptr(&job->path);
    if (queue_push(w->pages, told))
        told = NULL;
    return 0; /* a closed queue: the visitor wants no more */
}

static void *list(void *arg)
{
    struct walk *w = arg;
    for (;;) {
        CLEANUP_JOB job = {.path = NULL};
        if (!take_job(w, &job))
            break;
        int rc = do_job(w, &job);
        SCOPED_LOCK(&w->mutex);
        w->busy--;
        if (rc)
            fail_locked(w, rc);
        pthread_cond_broadcast(&w->changed);
    }
    SCOPED_LOCK(&w->mutex);
    if (!--w->running)
        queue_close(w->pages);
    return NULL;
}

/* ---- the thread that visits ---- */

static int visit_page(const struct hdfs_walk *c, const struct told *told)
{
    CLEANUP_BYTES path = BYTES_INIT(PATH_LEN_MAX);
    int rc = 0;
    for (size_t i = 0; !rc && i < webhdfs_page_count(told->page); i++) {
        const struct webhdfs_status *s = webhdfs_page_status(told->page, i);
        rc = join(&path, told->path, s->name);
        if (!rc)
            rc = c->visit(c->arg, (const char *)path.data, path.len, s);
    }
    return rc;
}

/* Visit until the queue is closed and empty. */
static int visit_all(struct walk *w)
{
    struct told *next;
    int rc = 0;
    while ((next = queue_pop(w->pages))) {
        CLEANUP(cleanup_told) struct told *told = next;
        if (rc)
            continue;
        rc = visit_page(w->config, told);
        if (!rc)
            continue;
        queue_close(w->pages);
        SCOPED_LOCK(&w->mutex);
        fail_locked(w, rc);
    }
    return rc;
}

static int walk_all(struct walk *w)
{
    pthread_t threads[THREADS_MAX];
    unsigned wanted = GR_MAX(1U, GR_MIN(w->config->threads, (unsigned)THREADS_MAX)), started = 0;
    int rc = 0;
    w->running = 1; /* ours, until all have been started */
    while (!rc && started < wanted) {
        {
            SCOPED_LOCK(&w->mutex);
            w->running++;
        }
        rc = thread_start(&threads[started], list, w);
        started += !rc;
    }
    {
        SCOPED_LOCK(&w->mutex);
        w->running -= rc ? 2 : 1;
        if (rc)
            fail_locked(w, rc);
        if (!w->running)
            queue_close(w->pages);
    }
    (void)visit_all(w);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    return w->failed.code ? error_restore(&w->failed) : 0;
}

int hdfs_walk_run(const struct hdfs_walk *config)
{
    struct walk w = {.config = config, .pages = queue_new(2 * (size_t)config->threads + 2)};
    if (!w.pages)
        return error_no_memory();
    pthread_mutex_init(&w.mutex, NULL);
    pthread_cond_init(&w.changed, NULL);
    int rc = push_job_locked(&w, "", NULL); /* nobody else is there yet */
    if (!rc)
        rc = walk_all(&w);
    for (size_t i = 0; i < w.jobs.len; i++)
        job_release(&w.jobs.items[i]);
    vec_release(&w.jobs);
    queue_free(w.pages);
    pthread_cond_destroy(&w.changed);
    pthread_mutex_destroy(&w.mutex);
    return rc;
}
