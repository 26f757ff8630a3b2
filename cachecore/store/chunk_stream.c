/* The calling thread walks the index, cuts it into jobs (neighbouring chunks of one pack, or holes)
 * and puts them into a ring in address order; threads read them in any order; when the ring is full
 * the calling thread waits for its oldest job and hands that one on. So the order costs no thread
 * and no copy, and the ring is the only bound on memory.
 *
 *   job: free -> (filled) open -> (submitted) queued -> (read by a thread) done -> (visited) free
 *
 * `lock` guards `done` alone; a job's other fields belong to whoever holds it by its state.
 */
#include "store/chunk_stream.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/queue.h"
#include "store/chunk_read.h"
#include "store/index_read.h"

enum { JOB_CHUNKS = CHUNK_STREAM_JOB / CHUNK_SIZE_MIN };

struct job {
    uint64_t first, count;
    bool hole, done;
    struct chunk_ref refs[JOB_CHUNKS];
    struct buf *plain[JOB_CHUNKS];
    struct error *errors[JOB_CHUNKS]; /* NULL where plain is set */
};

struct stream {
    struct store *store;
    const struct chunk_stream_options *options;
    chunk_stream_visit *visit;
    void *arg;
    uint32_t job_chunks;

    struct job *jobs;
    size_t capacity;
    uint64_t head, tail; /* jobs[head % capacity] is the oldest submitted, tail the open one */
    bool open;

    struct queue *todo;
    _Atomic bool stopped; /* queued jobs are no longer wanted */
    pthread_mutex_t lock;
    pthread_cond_t job_done;
    pthread_t threads[CHUNK_STREAM_THREADS_MAX];
    size_t thread_count;
};

static void job_chunk_done(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    struct job *job = arg;
    job->plain[i] = plain;
    if (!rc)
        return;
    job->errors[i] = malloc(sizeof *job->errors[i]);
    if (job->errors[i])
        error_take(job->errors[i], rc);
}

static void job_clear(struct job *job)
{
    for (uint64_t i = 0; i < (job->hole ? 0 : job->count); i++) {
        if (job->plain[i])
            buf_unref(job->plain[i]);
        free(job->errors[i]);
        job->plain[i] = NULL;
        job->errors[i] = NULL;
    }
    job->count = 0;
    job->done = false;
}

static void *work(void *arg)
{
    struct stream *st = arg;
    for (struct job *job; (job = queue_pop(st->todo));) {
        if (!atomic_load(&st->stopped)) {
            const struct chunk_ref *refs[JOB_CHUNKS];
            for (uint64_t i = 0; i < job->count; i++)
                refs[i] = &job->refs[i];
            /* the refs' own results, which job_chunk_done got, say everything */
            (void)chunk_read_run(st->store, refs, job->count, job_chunk_done, job);
        }
        SCOPED_LOCK(&st->lock);
        job->done = true;
        pthread_cond_broadcast(&st->job_done);
    }
    return NULL;
}

static int hand_on_chunks(struct stream *st, struct job *job)
{
    for (uint64_t i = 0; i < job->count; i++) {
        struct chunk_item item = {.number = job->first + i, .count = 1, .ref = &job->refs[i]};
        if (job->plain[i])
            item.data = job->plain[i]->data;
        else
            item.rc = job->errors[i] ? error_restore(job->errors[i]) : error_set(-ENOMEM, "out of memory");
        int rc = st->visit(st->arg, &item);
        if (rc)
            return rc;
    }
    return 0;
}

/* Wait for the oldest job and hand it on. */
static int hand_on_oldest(struct stream *st)
{
    struct job *job = &st->jobs[st->head % st->capacity];
    {
        SCOPED_LOCK(&st->lock);
        while (!job->done)
            pthread_cond_wait(&st->job_done, &st->lock);
    }
    int rc = 0;
    if (st->options->cancel && *st->options->cancel)
        rc = error_set(-ECANCELED, "interrupted");
    else if (job->hole)
        rc = st->visit(st->arg, &(struct chunk_item){.number = job->first, .count = job->count});
    else
        rc = hand_on_chunks(st, job);
    job_clear(job);
    st->head++;
    return rc;
}

static void submit(struct stream *st)
{
    struct job *job = &st->jobs[st->tail++ % st->capacity];
    st->open = false;
    if (job->hole)
        job->done = true;
    else if (!queue_push(st->todo, job))
        abort(); /* closed only after the walk */
}

/* Whether chunk `number` goes into the open job. */
static bool continues(const struct stream *st, const struct job *job, uint64_t number, const struct chunk_ref *ref)
{
    if (job->first + job->count != number || job->hole != !ref)
        return false;
    if (job->hole)
        return true;
    const struct chunk_ref *last = &job->refs[job->count - 1];
    return job->count < st->job_chunks && digest_equal(&last->object, &ref->object) && ref->offset >= last->offset &&
           ref->offset - last->offset == last->stored_len;
}

/* ref NULL: `count` holes. */
static int add(struct stream *st, uint64_t number, uint64_t count, const struct chunk_ref *ref)
{
    struct job *job = &st->jobs[st->tail % st->capacity];
    if (st->open && !continues(st, job, number, ref))
        submit(st);
    if (!st->open) {
        while (st->tail - st->head == st->capacity) {
            int rc = hand_on_oldest(st);
            if (rc)
                return rc;
        }
        job = &st->jobs[st->tail % st->capacity];
        job->first = number;
        job->hole = !ref;
        st->open = true;
    }
    if (ref)
        job->refs[job->count] = *ref;
    job->count += count;
    return 0;
}

static int walk_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct stream *st = arg;
    bool (*wanted)(void *arg, uint64_t number) = st->options->wanted;
    if (!chunks)
        return wanted ? 0 : add(st, first, count, NULL);
    for (uint64_t i = 0; i < count; i++) {
        if (wanted && (chunk_is_hole(&chunks[i]) || !wanted(st->arg, first + i)))
            continue;
        int rc = add(st, first + i, 1, chunk_is_hole(&chunks[i]) ? NULL : &chunks[i]);
        if (rc)
            return rc;
    }
    return 0;
}

static int start(struct stream *st, unsigned threads)
{
    st->todo = queue_new(st->capacity);
    st->jobs = calloc(st->capacity, sizeof *st->jobs);
    if (!st->todo || !st->jobs)
        return error_set(-ENOMEM, "out of memory while starting to read chunks");
    while (st->thread_count < threads) {
        int rc = pthread_create(&st->threads[st->thread_count], NULL, work, st);
        if (rc && !st->thread_count)
            return error_set(-rc, "cannot start a thread to read chunks: %s", strerror(rc));
        if (rc)
            break; /* fewer will do */
        st->thread_count++;
    }
    return 0;
}

static void stop(struct stream *st)
{
    atomic_store(&st->stopped, true);
    if (st->todo)
        queue_close(st->todo);
    for (size_t i = 0; i < st->thread_count; i++)
        pthread_join(st->threads[i], NULL);
    for (size_t i = 0; st->jobs && i < st->capacity; i++)
        job_clear(&st->jobs[i]);
    queue_free(st->todo);
    free(st->jobs);
    pthread_mutex_destroy(&st->lock);
    pthread_cond_destroy(&st->job_done);
}

int chunk_stream(struct store *s, const struct manifest *m, const struct chunk_stream_options *options,
                 chunk_stream_visit *visit, void *arg)
{
    unsigned threads = GR_MIN(options->threads ? options->threads : CHUNK_STREAM_THREADS, CHUNK_STREAM_THREADS_MAX);
    struct stream st = {.store = s,
                        .options = options,
                        .visit = visit,
                        .arg = arg,
                        .job_chunks = CHUNK_STREAM_JOB / m->chunk_size,
                        .capacity = 2 * (size_t)threads + 2,
                        .lock = PTHREAD_MUTEX_INITIALIZER,
                        .job_done = PTHREAD_COND_INITIALIZER};
    const struct index_walk_ops ops = {.chunks = walk_chunks};
    int rc = start(&st, threads);
    if (!rc)
        rc = index_walk(s, m, &ops, &st);
    if (!rc && st.open)
        submit(&st);
    while (!rc && st.head < st.tail)
        rc = hand_on_oldest(&st);
    stop(&st);
    return rc;
}
