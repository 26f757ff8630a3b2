/* A ring of jobs, each the bases of a stretch of the parent's chunks, read by threads (base/in_order.h):
 *
 *   parent's chunks   |  job  |  job  |  job  |  job  | ...
 *                       ^ asked for last              ^ next: not submitted yet
 *
 * A chunk that stays as it was is not asked for. Where each job follows the one used before, twice as many are read
 * ahead as before; after a jump, only the one that is needed. What is read ahead changes no result.
 */
#include "imagebuild/sink/sink_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/in_order.h"
#include "base/log.h"
#include "imagebuild/rebuild/parent.h"
#include "repository/read/chunk_read.h"

enum { JOB_BYTES = 1 << 20, JOB_CHUNKS = JOB_BYTES / CHUNK_SIZE_MIN, THREADS = 4 };

/* A slot of the ring: the bases for the parent's chunks first .. first + count - 1. A reference that is a hole: there
 * is none. */
struct job {
    uint64_t first, count;
    struct chunk_ref refs[JOB_CHUNKS];
    struct buf *plain[JOB_CHUNKS]; /* NULL: missing or damaged */
    struct error damage;           /* of one of those */
    struct error error;            /* of the store */
};

struct bases {
    const struct sink_parent *parent;
    struct parent_index *index;
    struct in_order *ring;
    uint64_t job_chunks;
    uint64_t end;        /* the parent's chunks */
    uint64_t next;       /* the chunk that the next job begins with */
    uint64_t used;       /* one more than the last chunk of the job used last */
    size_t jobs, window; /* jobs in the ring; how many there should be */
    bool warned;
};

/* ------------------------------------------------------------------ one job, in a thread of the ring */

/* Neighbours that one get reads. */
struct run {
    struct job *job;
    const struct chunk_ref *const *refs;
};

static void take_base(void *arg, size_t i, int rc, struct buf *plain, const void *stored)
{
    const struct run *run = arg;
    run->job->plain[run->refs[i] - run->job->refs] = plain;
    if (rc)
        error_take(error_of_one_thing(rc) ? &run->job->damage : &run->job->error, rc);
}

static int by_place(const void *a, const void *b)
{
    const struct chunk_ref *x = *(const struct chunk_ref *const *)a, *y = *(const struct chunk_ref *const *)b;
    int order = memcmp(&x->object, &y->object, DIGEST_SIZE);
    return order ? order : x->offset < y->offset ? -1 : x->offset > y->offset;
}

static void read_job(void *bases, void *slot)
{
    const struct bases *b = bases;
    struct job *job = slot;
    const struct chunk_ref *refs[JOB_CHUNKS];
    size_t n = 0;
    for (uint64_t i = 0; i < job->count; i++)
        if (!chunk_is_hole(&job->refs[i]))
            refs[n++] = &job->refs[i];
    qsort(refs, n, sizeof *refs, by_place);
    for (size_t begin = 0, end; begin < n; begin = end) {
        end = chunk_reads_end(refs, begin, n, UINT64_MAX);
        struct run run = {.job = job, .refs = &refs[begin]};
        /* take_base gets each result */
        (void)chunk_read_run(b->parent->store, run.refs, end - begin, take_base, &run);
    }
}

static void clear_job(void *slot)
{
    struct job *job = slot;
    for (uint64_t i = 0; i < job->count; i++)
        buf_unref(job->plain[i]);
}

/* ------------------------------------------------------------------ the ring */

static int open_ring(struct bases *b)
{
    const struct in_order_config ring = {.threads = THREADS,
                                         .slots = BASES_JOBS,
                                         .size = sizeof(struct job),
                                         .work = read_job,
                                         .clear = clear_job,
                                         .arg = b};
    return in_order_new(&ring, &b->ring);
}

int bases_new(const struct sink_parent *parent, struct parent_index *index, struct bases **out)
{
    struct bases *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    b->parent = parent;
    b->index = index;
    b->job_chunks = GR_MAX(JOB_BYTES / parent->manifest->chunk_size, 1u);
    b->end = manifest_chunk_count(parent->manifest);
    b->window = 1;
    int rc = open_ring(b);
    if (rc)
        bases_free(b);
    else
        *out = b;
    return rc;
}

void bases_free(struct bases *b)
{
    if (!b)
        return;
    in_order_free(b->ring);
    free(b);
}

/* Return the base that a chunk of the parent offers; a hole: none. */
static struct chunk_ref base_of(const struct bases *b, const struct chunk_ref *chunk)
{
    const struct chunk_ref none = {.offset = 0};
    if (chunk_is_hole(chunk))
        return none;
    const struct chunk_ref base = chunk_is_delta(chunk) ? chunk_base_ref(chunk) : *chunk;
    return b->parent->damaged && digest_map_find(b->parent->damaged, &base.object) ? none : base;
}

/* Submit the next job. */
static int submit_job(struct bases *b)
{
    struct job *job = in_order_slot(b->ring);
    const uint64_t count = GR_MIN(b->job_chunks, b->end - b->next);
    for (uint64_t i = 0; i < count; i++) {
        const uint64_t number = b->next + i;
        const struct chunk_ref *leaf;
        int rc = parent_index_leaf(b->index, number / INDEX_FANOUT, &leaf);
        if (rc)
            return rc;
        if (leaf)
            job->refs[i] = base_of(b, &leaf[number % INDEX_FANOUT]);
    }
    job->first = b->next;
    job->count = count;
    b->next += count;
    b->jobs++;
    in_order_give(b->ring);
    return 0;
}

/* Return the job that has the bases of chunk `number`, when it is done. */
static int find_job(struct bases *b, uint64_t number, struct job **out)
{
    struct job *job = in_order_take(b->ring);
    while (job && (number < job->first || number >= job->first + job->count)) {
        in_order_drop(b->ring);
        b->jobs--;
        job = in_order_take(b->ring);
    }
    if (!job)
        b->next = number / b->job_chunks * b->job_chunks;
    const uint64_t first = job ? job->first : b->next;
    if (first >= b->used || number < b->used - GR_MIN(b->used, b->job_chunks)) /* another job than before */
        b->window = first == b->used ? GR_MIN(2 * b->window, (size_t)BASES_JOBS) : 1;
    int rc = 0;
    while (!rc && b->jobs < b->window && b->next < b->end)
        rc = submit_job(b);
    job = rc ? NULL : in_order_take(b->ring);
    if (job)
        b->used = job->first + job->count;
    *out = job;
    return rc;
}

int bases_get(struct bases *b, uint64_t number, uint32_t len, struct chunk_base *out, struct buf **out_plain)
{
    struct job *job;
    *out_plain = NULL;
    if (number >= b->end)
        return 0;
    int rc = find_job(b, number, &job);
    if (!rc && job->error.code)
        rc = error_restore(&job->error);
    if (rc)
        return rc == -ECANCELED || rc == PARENT_DAMAGED ? rc : parent_refused(rc);
    if (job->damage.code && !b->warned) {
        (void)error_restore(&job->damage);
        log_warning("build: metadata is stored in full where the parent's cannot be read: %s", error_text());
        b->warned = true;
    }
    const uint64_t i = number - job->first;
    if (!job->plain[i] || job->refs[i].plain_len != len)
        return 0;
    *out = chunk_as_base(&job->refs[i]);
    *out_plain = buf_ref(job->plain[i]);
    return 0;
}
