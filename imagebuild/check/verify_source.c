/* The calling thread walks the catalog and queues the files to be compared. Threads take them, and read each file
 * piece by piece as the version that the catalog names.
 *
 * `lock` guards the result, the first error and calls of problem(). It is not held while the source works. After the
 * first error the threads drain the queue without reading, so that the producer never blocks.
 */
#include "imagebuild/check/check.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/queue.h"
#include "base/thread.h"
#include "repository/read/catalog_read.h"

enum { THREADS = 8, THREADS_MAX = 256 };

/* A file to be compared; text is path and validator. */
struct job {
    uint64_t size;
    struct digest content;
    size_t path_len, validator_len;
    char text[];
};

enum outcome { SAME, CHANGED, REMOVED, DAMAGED };

/* Shared by the producer and all threads. */
struct comparing {
    struct source *source;
    const struct verify_source_options *options;
    struct verify_source_result *result;
    uint64_t total; /* about how many files will be compared */
    struct queue *todo;
    _Atomic bool stopped;
    pthread_mutex_t lock; /* guards result, failed, problem() */
    struct error failed;
};

/* Keep the first error and stop everything. */
static void verify_source_fail(struct comparing *c, int rc)
{
    SCOPED_LOCK(&c->lock);
    if (!c->failed.code)
        error_take(&c->failed, rc);
    atomic_store(&c->stopped, true);
}

/* ------------------------------------------------------------------ one file */

/* Read the file as the image's version, in pieces, and hash it. */
static int read_all(struct comparing *c, const struct job *job, uint8_t *piece, struct hasher *h)
{
    for (uint64_t at = 0; at < job->size; at += VERIFY_SOURCE_PIECE) {
        struct source_read read = {.path = job->text,
                                   .path_len = job->path_len,
                                   .validator = job->text + job->path_len,
                                   .validator_len = job->validator_len,
                                   .offset = at,
                                   .len = GR_MIN(job->size - at, (uint64_t)VERIFY_SOURCE_PIECE),
                                   .dst = piece};
        int rc = cancel_check(c->options->cancel);
        if (!rc)
            rc = source_read(c->source, &read);
        if (rc)
            return rc;
        hasher_update(h, piece, read.len);
    }
    return 0;
}

/* Compare versions alone: for an empty file, or before a file without a validator is read. */
static int verify_source_look_at(struct comparing *c, const struct job *job, enum outcome *out)
{
    struct source_version now;
    int rc = source_stat(c->source, job->text, job->path_len, &now);
    if (rc)
        return rc;
    bool same = now.size == job->size && now.validator_len == job->validator_len &&
                !memcmp(now.validator, job->text + job->path_len, now.validator_len);
    *out = same ? SAME : CHANGED;
    return 0;
}

/* Compare one file. A stale or missing one is an outcome, not an error. */
static int compare_file(struct comparing *c, const struct job *job, uint8_t *piece, struct hasher *h, enum outcome *out)
{
    int rc = 0;
    *out = SAME;
    if (!job->size || !job->validator_len)
        rc = verify_source_look_at(c, job, out);
    if (!rc && *out == SAME && job->size) {
        rc = read_all(c, job, piece, h);
        struct digest found = hasher_finish(h); /* always: it resets the hasher for the next file */
        if (!rc && !digest_equal(&found, &job->content))
            *out = job->validator_len ? DAMAGED : CHANGED;
    }
    if (rc == -ESTALE)
        *out = CHANGED;
    if (rc == -ENOENT)
        *out = REMOVED;
    return rc == -ESTALE || rc == -ENOENT ? 0 : rc;
}

static void verify_source_report(struct comparing *c, const struct job *job, enum outcome outcome)
{
    struct verify_source_result *r = c->result;
    SCOPED_LOCK(&c->lock);
    r->files += outcome == SAME || outcome == DAMAGED;
    r->bytes += outcome == SAME || outcome == DAMAGED ? job->size : 0;
    r->changed += outcome == CHANGED;
    r->removed += outcome == REMOVED;
    r->damaged += outcome == DAMAGED;
    if (outcome != DAMAGED || !c->options->problem)
        return;
    (void)error_set(-EBADMSG, "file '%.*s': %s has other bytes than the image, though it is the same version",
                    (int)GR_MIN(job->path_len, (size_t)256), job->text, c->source->url);
    c->options->problem(c->options->arg, error_text());
}

static void *compare_main(void *arg)
{
    struct comparing *c = arg;
    CLEANUP_FREE uint8_t *piece = malloc(VERIFY_SOURCE_PIECE);
    CLEANUP(cleanup_hasher) struct hasher *h = hasher_new();
    if (!piece || !h)
        verify_source_fail(c, error_no_memory());
    for (struct job *job; (job = queue_pop(c->todo)); free(job)) {
        enum outcome outcome = DAMAGED;
        int rc = atomic_load(&c->stopped) ? 0 : compare_file(c, job, piece, h, &outcome);
        if (rc)
            verify_source_fail(c, rc);
        else if (!atomic_load(&c->stopped))
            verify_source_report(c, job, outcome);
    }
    return NULL;
}

/* ------------------------------------------------------------------ all of them */

/* Return a pseudo-random number that is always the same for a path of an image. */
static uint64_t lot(const struct manifest *m, const struct catalog_entry *e)
{
    uint64_t image, path;
    struct digest d = digest_of(e->path, e->path_len);
    memcpy(&image, m->content_root.b, sizeof image);
    memcpy(&path, d.b, sizeof path);
    path = (path ^ image) * UINT64_C(0x9E3779B97F4A7C15);
    return path ^ path >> 32;
}

/* Queue a file. The queue refuses it only once it is closed. */
static int verify_source_hand_on(struct comparing *c, const struct catalog_entry *e)
{
    CLEANUP_FREE struct job *job = malloc(sizeof *job + e->path_len + e->validator_len);
    if (!job)
        return error_no_memory();
    *job = (struct job){
        .size = e->size, .content = e->content, .path_len = e->path_len, .validator_len = e->validator_len};
    memcpy(job->text, e->path, e->path_len);
    if (e->validator_len)
        memcpy(job->text + e->path_len, e->validator, e->validator_len);
    if (queue_push(c->todo, job))
        (void)steal_ptr(&job);
    return 0;
}

/* Report progress and check for cancellation. */
static int look_after(struct comparing *c)
{
    if (c->options->progress) {
        pthread_mutex_lock(&c->lock);
        uint64_t files = c->result->files + c->result->changed + c->result->removed, bytes = c->result->bytes;
        pthread_mutex_unlock(&c->lock);
        c->options->progress(c->options->arg, files, c->total, bytes);
    }
    return cancel_check(c->options->cancel);
}

/* Walk the catalog and queue the files that are in the sample. */
static int verify_source_choose(struct comparing *c, struct store *s, const struct manifest *m)
{
    CLEANUP(cleanup_catalog_cursor) struct catalog_cursor *cursor = NULL;
    const struct catalog_entry *e;
    uint64_t files = m->counts.files, sample = c->options->sample;
    bool all = !sample || sample >= files;
    /* a file is in the sample if its number is in the lowest sample/files of all numbers */
    uint64_t below = all ? 0 : UINT64_MAX / files * sample;
    c->total = all ? files : sample;
    int rc = catalog_cursor_new(s, m, "", 0, CATALOG_CURSOR_AHEAD, &cursor);
    while (!rc && !atomic_load(&c->stopped) && (rc = catalog_cursor_next(cursor, &e)) > 0) {
        rc = 0;
        if (!S_ISREG(e->mode) || e->hard_link || (!all && lot(m, e) >= below))
            continue;
        rc = verify_source_hand_on(c, e);
        if (!rc)
            rc = look_after(c);
    }
    return rc;
}

int verify_source(struct store *s, const struct manifest *m, struct source *source,
                  const struct verify_source_options *options, struct verify_source_result *out)
{
    unsigned want = GR_MIN(options->threads ? options->threads : THREADS, (unsigned)THREADS_MAX), started = 0;
    struct comparing c = {.source = source, .options = options, .result = out, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[THREADS_MAX];
    int rc = 0;
    *out = (struct verify_source_result){0};
    c.todo = queue_new(want);
    if (!c.todo)
        return error_no_memory();
    while (started < want && !(rc = thread_start(&threads[started], compare_main, &c)))
        started++;
    if (started) /* fewer threads will do */
        rc = verify_source_choose(&c, s, m);
    if (rc)
        verify_source_fail(&c, rc);
    queue_close(c.todo);
    for (unsigned i = 0; i < started; i++)
        pthread_join(threads[i], NULL);
    queue_free(c.todo);
    pthread_mutex_destroy(&c.lock);
    return c.failed.code ? error_restore(&c.failed) : 0;
}
