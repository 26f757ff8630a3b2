/* A job's thread appends lines to a bounded buffer; the daemon's thread empties it:
 *
 *     job's thread    work -> control_job_send -> append to pending, resume the connection
 *                                                 (waits while BUFFER bytes are unsent)
 *     daemon's        control_job_take -> copy from pending; nothing there: suspend the connection
 *
 * Suspending and resuming both happen under the job's lock; otherwise a line that comes between "nothing is pending"
 * and the suspend would never be sent.
 *
 * The job has two owners, its thread's slot and the HTTP answer; the last one to let go frees it. A client that went
 * away is only noticed when something is sent to it, so the work must send a line of progress now and then. */
#include "server/control_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "format/json_name.h"

enum { BUFFER = 256 << 10, LINE_MAX_BYTES = 1 << 20, BLOCK = 64 << 10 }; /* bytes */
enum { TELL_EVERY_MS = 500 };

/* One job. What stands before lock is set before the thread starts, except for refs, cancel and told_ms. */
struct control_job {
    struct control_jobs *jobs;
    struct MHD_Connection *connection;
    control_work *work;
    void *arg;
    control_free *free_arg;
    char *store;           /* owned; "": it waits for none, or for any */
    size_t slot;           /* its index in jobs->slots */
    _Atomic unsigned refs; /* the slot's and the answer's */
    volatile int cancel;   /* set under lock, read without it */
    uint64_t told_ms;      /* clock_now_ms when a line of progress was due last; only its thread uses it */

    pthread_mutex_t lock;
    pthread_cond_t room;  /* pending was sent in part, or the job is cancelled */
    struct bytes pending; /* whole lines; this and the members below are under lock */
    size_t sent;          /* bytes of pending that the daemon has taken */
    bool done, suspended; /* the work has ended; the connection waits for a line */
};

/* The slots and their threads. lock guards all of it, except that control_jobs_stop joins without it. */
struct control_jobs {
    pthread_mutex_t lock;
    bool stopping;
    struct {
        struct control_job *job; /* holds a reference; NULL: the slot is free */
        pthread_t thread;
        bool ended; /* the work is done: join the thread and free the slot */
    } slots[CONTROL_JOBS_OF_ALL_MAX];
};

/* Drop a reference; frees the job with the last. */
static void job_unref(struct control_job *job)
{
    if (atomic_fetch_sub(&job->refs, 1) != 1)
        return;
    free(job->store);
    bytes_release(&job->pending);
    pthread_cond_destroy(&job->room);
    pthread_mutex_destroy(&job->lock);
    free(job);
}

/* ---- lines ---- */

const volatile int *control_job_cancel(const struct control_job *job)
{
    return &job->cancel;
}

int control_job_check(const struct control_job *job)
{
    return cancel_check(&job->cancel);
}

bool control_job_due(struct control_job *job)
{
    uint64_t now = clock_now_ms();
    if (now - job->told_ms < TELL_EVERY_MS)
        return false;
    job->told_ms = now;
    return true;
}

/* Let the daemon call control_job_take again. */
static void resume_locked(struct control_job *job)
{
    if (job->suspended) {
        job->suspended = false;
        MHD_resume_connection(job->connection);
    }
}

int control_job_send(struct control_job *job, const char *name, json_t *value)
{
    CLEANUP_JSON json_t *object = json_pack("{s:o}", name, value);
    CLEANUP_FREE char *line = object ? json_dumps(object, JSON_COMPACT) : NULL;
    if (!line)
        return error_no_memory();
    SCOPED_LOCK(&job->lock);
    while (job->pending.len - job->sent >= BUFFER && !job->cancel)
        pthread_cond_wait(&job->room, &job->lock);
    if (job->cancel)
        return error_set(-ECANCELED, "control: the client is gone");
    if (job->sent >= BUFFER) { /* pending never ran empty: drop the sent part, or it grows without end */
        job->pending.len -= job->sent;
        memmove(job->pending.data, job->pending.data + job->sent, job->pending.len);
        job->sent = 0;
    }
    size_t before = job->pending.len;
    int rc = bytes_append(&job->pending, line, strlen(line));
    if (!rc)
        rc = bytes_append(&job->pending, "\n", 1);
    if (rc) {
        job->pending.len = before;
        return rc == -EMSGSIZE ? error_set(rc, "control: a line of the answer is too long") : rc;
    }
    resume_locked(job);
    return 0;
}

/* libmicrohttpd's content reader: copy what it sends next, or suspend the connection until there is more. */
static ssize_t control_job_take(void *arg, uint64_t pos, char *out, size_t max)
{
    struct control_job *job = arg;
    SCOPED_LOCK(&job->lock);
    size_t n = GR_MIN(job->pending.len - job->sent, max);
    if (!n && job->done)
        return MHD_CONTENT_READER_END_OF_STREAM;
    if (!n) {
        job->suspended = true;
        MHD_suspend_connection(job->connection);
        return 0;
    }
    memcpy(out, job->pending.data + job->sent, n);
    job->sent += n;
    if (job->sent == job->pending.len)
        job->sent = job->pending.len = 0;
    pthread_cond_signal(&job->room);
    return (ssize_t)n;
}

/* Have the work end soon, and wake it if it waits for room. */
static void cancel(struct control_job *job)
{
    SCOPED_LOCK(&job->lock);
    __atomic_store_n(&job->cancel, 1, __ATOMIC_RELAXED);
    pthread_cond_signal(&job->room);
}

/* libmicrohttpd drops the answer: it is sent, or the client is gone. */
static void end_answer(void *arg)
{
    cancel(arg);
    job_unref(arg);
}

/* ---- threads ---- */

/* The job's thread. */
static void *run_job(void *arg)
{
    struct control_job *job = arg;
    int rc = job->work(job, job->arg);
    if (!rc)
        rc = control_job_send(job, "result", json_pack("{s:b}", "ok", 1));
    struct error failed;
    error_take(&failed, rc);
    job->free_arg(job->arg);
    if (rc && rc != -ECANCELED && control_job_send(job, "error", json_lossy(failed.text)))
        log_debug("a client left before it was told why its job failed: %s", failed.text);
    {
        SCOPED_LOCK(&job->lock);
        job->done = true;
        resume_locked(job);
    }
    SCOPED_LOCK(&job->jobs->lock);
    job->jobs->slots[job->slot].ended = true;
    return NULL;
}

/* Join a job's thread, which has ended or is about to, and free its slot. No other thread changes the slots. */
static void reap(struct control_jobs *jobs, size_t i)
{
    pthread_join(jobs->slots[i].thread, NULL);
    job_unref(jobs->slots[i].job);
    jobs->slots[i].job = NULL;
    jobs->slots[i].ended = false;
}

/* Find a free slot, if the store may have one more. Finished jobs are joined here, since no other thread waits for
 * them. */
static int find_slot_locked(struct control_jobs *jobs, const char *store, size_t *out)
{
    unsigned mine = 0, stores = 0; /* jobs of this store; of all stores */
    *out = CONTROL_JOBS_OF_ALL_MAX;
    for (size_t i = 0; i < CONTROL_JOBS_OF_ALL_MAX; i++) {
        if (jobs->slots[i].ended)
            reap(jobs, i);
        const struct control_job *job = jobs->slots[i].job;
        if (!job)
            *out = i;
        mine += job && !strcmp(job->store, store);
        stores += job && *job->store;
    }
    if (mine < CONTROL_JOBS_MAX && (!*store || stores < CONTROL_JOBS_OF_STORES_MAX))
        return 0;
    if (mine >= CONTROL_JOBS_MAX && *store)
        return error_set(-EBUSY,
                         "%d such requests wait for %s already; try again, and if that goes on, see whether it answers",
                         CONTROL_JOBS_MAX, store);
    return error_set(-EBUSY, "%d such requests are being answered already; try again",
                     *store ? CONTROL_JOBS_OF_STORES_MAX : CONTROL_JOBS_MAX);
}

/* Start the job in a free slot. */
static int start_thread_locked(struct control_jobs *jobs, struct control_job *job)
{
    size_t i;
    if (jobs->stopping) /* control_jobs_stop joins what runs now, and would miss a new one */
        return error_set(-EBUSY, "the server is being stopped; try again when it serves again");
    int rc = find_slot_locked(jobs, job->store, &i);
    if (rc)
        return rc;
    job->slot = i;
    rc = thread_start(&jobs->slots[i].thread, run_job, job);
    if (!rc)
        jobs->slots[i].job = job;
    return rc ? -ENOMEM : 0;
}

/* Make a job with both references; NULL: out of memory. */
static struct control_job *job_new(struct control_jobs *jobs, struct MHD_Connection *connection)
{
    struct control_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    job->jobs = jobs;
    job->connection = connection;
    job->told_ms = clock_now_ms();
    job->pending = (struct bytes)BYTES_INIT(2 * BUFFER + LINE_MAX_BYTES);
    atomic_init(&job->refs, 2); /* its thread's and its answer's */
    pthread_mutex_init(&job->lock, NULL);
    pthread_cond_init(&job->room, NULL);
    return job;
}

/* Ownership: the thread frees arg if it was started, else this function does. The job has two references, the
 * thread's and the answer's; destroying the response drops the second. */
int control_jobs_start(struct control_jobs *jobs, struct MHD_Connection *connection, const char *store,
                       control_work *work, void *arg, control_free *free_arg)
{
    struct control_job *job = job_new(jobs, connection);
    struct MHD_Response *response =
        job ? MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK, control_job_take, job, end_answer) : NULL;
    int rc = -ENOMEM;
    if (response) {
        job->work = work;
        job->arg = arg;
        job->free_arg = free_arg;
        job->store = strdup(store);
        SCOPED_LOCK(&jobs->lock);
        rc = job->store ? start_thread_locked(jobs, job) : -ENOMEM;
    }
    if (!rc) {
        MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "application/x-ndjson");
        if (MHD_queue_response(connection, MHD_HTTP_OK, response) != MHD_YES)
            rc = -EIO; /* the response is destroyed below, which cancels the job */
    } else {
        free_arg(arg);
        if (job)
            job_unref(job); /* the reference of the thread that was not started */
    }
    if (response)
        MHD_destroy_response(response); /* drops the answer's reference, now or after the last byte was sent */
    else if (job)
        job_unref(job);
    return rc;
}

int control_jobs_new(struct control_jobs **out)
{
    struct control_jobs *jobs = calloc(1, sizeof *jobs);
    if (!jobs)
        return error_no_memory();
    pthread_mutex_init(&jobs->lock, NULL);
    *out = jobs;
    return 0;
}

/* The references of the answers remain until the daemon is stopped. */
void control_jobs_stop(struct control_jobs *jobs)
{
    if (!jobs)
        return;
    {
        SCOPED_LOCK(&jobs->lock);
        jobs->stopping = true;
        for (size_t i = 0; i < CONTROL_JOBS_OF_ALL_MAX; i++)
            if (jobs->slots[i].job)
                cancel(jobs->slots[i].job);
    }
    /* Without the lock, which run_job needs to end; the slots do not change any more. */
    for (size_t i = 0; i < CONTROL_JOBS_OF_ALL_MAX; i++)
        if (jobs->slots[i].job)
            reap(jobs, i);
}

void control_jobs_free(struct control_jobs *jobs)
{
    if (!jobs)
        return;
    pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}

/* ---- what the jobs share: the export that a request means, and JSON ---- */

/* Is "sha256:<hex>" the image's digest? */
static bool has_digest(const struct image *img, const char *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return !strncmp(digest, "sha256:", 7) && !strcmp(digest + 7, digest_hex(image_digest(img), hex));
}

/* A name is looked up among all exports, not by stack_get: a request may name the image too, and "" is a name here. */
int control_export_find(struct stack *stack, const char *name, const char *digest, struct stack_export **out)
{
    size_t count = stack_count(stack);
    if (!name && !digest && count > 1)
        return error_set(-EINVAL, "this server has %zu exports; say which (granary status names them)", count);
    for (struct stack_export *e = NULL; (e = stack_next(stack, e));)
        if ((!name || !strcmp(name, stack_export_name(e))) && (!digest || has_digest(stack_export_image(e), digest))) {
            *out = e;
            return 0;
        }
    return error_set(-ENOENT, "there is no export '%.100s' here", name ? name : digest ? digest : "");
}

/* jansson's functions accept NULL for a value that could not be allocated: json_pack then fails in turn,
 * json_object_set_new leaves the member out. So nothing here checks for memory; json_dumps and control_job_send report
 * a missing object. */
json_t *control_json_integer(uint64_t n)
{
    return json_integer((json_int_t)n);
}

json_t *control_json_digest(const struct digest *digest)
{
    char hex[DIGEST_HEX_SIZE];
    return json_sprintf("sha256:%s", digest_hex(digest, hex));
}

json_t *control_json_export(const struct stack_export *export)
{
    const char *name = stack_export_name(export);
    json_t *object = json_object();
    json_name_set(object, "export", name, strlen(name));
    json_object_set_new(object, "digest", control_json_digest(image_digest(stack_export_image(export))));
    return object;
}

void control_json_add(json_t *object, const struct control_sum *sums, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_object_set_new(object, sums[i].key, control_json_integer(sums[i].value));
}
