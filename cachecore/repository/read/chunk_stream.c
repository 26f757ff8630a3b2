/* The calling thread walks the index, cuts it into jobs (neighbouring chunks of one pack, or holes) and puts them into
 * a ring (base/in_order.h) in address order. Threads work on jobs in any order. When the ring is full, the calling
 * thread waits for the oldest job and delivers its chunks. So delivery in order costs no extra thread and no copy, and
 * the size of the ring bounds the memory.
 *
 *   walk -> [oldest ... newest] -> visit      the ring; both ends in the calling thread
 *               ^ threads read and verify
 */
#include "repository/read/chunk_read.h"

#include "base/cancel.h"
#include "base/error.h"
#include "base/in_order.h"
#include "repository/read/index_read.h"

/* As many as a job can have with the smallest chunks. */
enum { JOB_CHUNKS = CHUNK_STREAM_JOB / CHUNK_SIZE_MIN };

/* A slot of the ring. */
struct job {
    uint64_t first, count;
    bool hole;
    struct chunk_ref refs[JOB_CHUNKS];
    struct buf *plain[JOB_CHUNKS];
    struct error *errors[JOB_CHUNKS]; /* NULL if plain is set, or if there was no memory for it */
};

/* The stream, on the caller's stack. Threads read only `store`. */
struct stream {
    struct store *store;
    const struct chunk_stream_options *options;
    chunk_stream_visit *visit;
    void *arg;
    uint32_t job_chunks;
    struct in_order *jobs;
    bool open; /* the ring's next slot is being filled and not submitted yet */
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

static void job_clear(void *slot)
{
    struct job *job = slot;
    for (uint64_t i = 0; i < (job->hole ? 0 : job->count); i++) {
        if (job->plain[i])
            buf_unref(job->plain[i]);
        free(job->errors[i]);
    }
}

static void job_work(void *arg, void *slot)
{
    const struct stream *st = arg;
    struct job *job = slot;
    const struct chunk_ref *refs[JOB_CHUNKS];
    for (uint64_t i = 0; i < (job->hole ? 0 : job->count); i++)
        refs[i] = &job->refs[i];
    if (!job->hole)
        /* job_chunk_done got the result of each ref */
        (void)chunk_read_run(st->store, refs, job->count, job_chunk_done, job);
}

/* Visit the chunks of a job. */
static int hand_on_chunks(struct stream *st, struct job *job)
{
    for (uint64_t i = 0; i < job->count; i++) {
        struct chunk_item item = {.number = job->first + i, .count = 1, .ref = &job->refs[i]};
        if (job->plain[i])
            item.data = job->plain[i]->data;
        else
            item.rc = job->errors[i] ? error_restore(job->errors[i]) : error_no_memory();
        int rc = st->visit(st->arg, &item);
        if (rc)
            return rc;
    }
    return 0;
}

/* Wait for the oldest job, if there is one, and visit its chunks. */
static int hand_on_oldest(struct stream *st)
{
    struct job *job = in_order_take(st->jobs);
    if (!job)
        return 0;
    int rc = cancel_check(st->options->cancel);
    if (!rc && job->hole)
        rc = st->visit(st->arg, &(struct chunk_item){.number = job->first, .count = job->count});
    else if (!rc)
        rc = hand_on_chunks(st, job);
    in_order_drop(st->jobs);
    return rc;
}

static void submit(struct stream *st)
{
    st->open = false;
    in_order_give(st->jobs);
}

/* Can chunk `number` be appended to the open job? Only if it follows without a gap, so that no other byte is read. */
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

/* Append a chunk, or `count` holes (ref NULL), to the open job or a new one. While the ring is full, deliver. */
static int chunk_stream_add(struct stream *st, uint64_t number, uint64_t count, const struct chunk_ref *ref)
{
    struct job *job = st->open ? in_order_slot(st->jobs) : NULL;
    if (job && !continues(st, job, number, ref)) {
        submit(st);
        job = NULL;
    }
    if (!job) {
        while (!(job = in_order_slot(st->jobs))) {
            int rc = hand_on_oldest(st);
            if (rc)
                return rc;
        }
        job->first = number;
        job->hole = !ref;
        st->open = true;
    }
    if (ref)
        job->refs[job->count] = *ref;
    job->count += count;
    return 0;
}

/* The index walk's callback; chunks NULL: a subtree of holes. */
static int walk_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct stream *st = arg;
    bool (*wanted)(void *arg, uint64_t number) = st->options->wanted;
    if (!chunks)
        return wanted ? 0 : chunk_stream_add(st, first, count, NULL);
    for (uint64_t i = 0; i < count; i++) {
        if (wanted && (chunk_is_hole(&chunks[i]) || !wanted(st->arg, first + i)))
            continue;
        int rc = chunk_stream_add(st, first + i, 1, chunk_is_hole(&chunks[i]) ? NULL : &chunks[i]);
        if (rc)
            return rc;
    }
    return 0;
}

int chunk_stream(struct store *s, const struct manifest *m, const struct chunk_stream_options *options,
                 chunk_stream_visit *visit, void *arg)
{
    unsigned threads = GR_MIN(options->threads ? options->threads : CHUNK_STREAM_THREADS, CHUNK_STREAM_THREADS_MAX);
    CLEANUP(cleanup_in_order) struct in_order *jobs = NULL;
    struct stream st = {
        .store = s, .options = options, .visit = visit, .arg = arg, .job_chunks = CHUNK_STREAM_JOB / m->chunk_size};
    const struct in_order_config ring = {.threads = threads,
                                         .slots = 2 * (size_t)threads + 2,
                                         .size = sizeof(struct job),
                                         .work = job_work,
                                         .clear = job_clear,
                                         .arg = &st};
    const struct index_walk_ops ops = {.chunks = walk_chunks};
    int rc = in_order_new(&ring, &jobs);
    st.jobs = jobs;
    if (!rc)
        rc = index_walk(s, m, &ops, &st);
    if (!rc && st.open)
        submit(&st);
    /* The walk has ended: deliver the jobs left in the ring. */
    while (!rc && in_order_take(jobs))
        rc = hand_on_oldest(&st);
    return rc;
}
