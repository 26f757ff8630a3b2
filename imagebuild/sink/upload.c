/* A list of jobs, `threads` threads that take the oldest, and a byte budget that upload_put waits for.
 *
 *   upload_put -> [job][job][job] -> thread: look, put -> done
 *                                    thread: ...          (check jobs: look only)
 *
 * A job is a put, which carries the object's bytes, or a check of an object that was found present. `pending` counts
 * jobs that are in the list or held by a thread; a flush waits until it is 0. After the first error threads take jobs
 * and drop them without touching the store, so that flush and free end soon.
 *
 * One lock guards all of struct upload. It is not held while the store works or step runs.
 */
#include "imagebuild/sink/upload.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/thread.h"
#include "base/vec.h"
#include "repository/gc_marks.h"
#include "repository/repository.h"

/* Limits the list by number as well, since check jobs carry no bytes. */
enum { JOBS_MAX = 1024 };
enum { HEALED_NAMED_MAX = 8 };

/* An object that was handed over. */
struct object_name {
    struct digest digest;
    enum object_kind kind;
    bool reused; /* the store had it before */
    size_t len;
};

/* check: look the object up again; `bytes` is empty then. */
struct job {
    struct job *next;
    struct object_name name;
    bool check;
    bool send; /* put it even if the store seems to have it */
    struct bytes bytes;
};

/* The lock guards everything from `head` on but thread_count and threads. */
struct upload {
    struct store *store;
    size_t memory;
    struct step step;
    bool send_packs; /* the caller's thread's */
    pthread_mutex_t lock;
    pthread_cond_t work;  /* a job was added, or stop */
    pthread_cond_t ended; /* a job ended */
    struct job *head, **tail;
    size_t pending, pending_bytes;
    VEC(struct bytes) spares; /* empty, with the memory of stored packs */
    size_t spare_bytes;       /* their memory */
    bool stop;
    struct error error; /* the first one */
    struct upload_counts counts;
    VEC(struct object_name) done; /* every object known to be in the store */
    unsigned thread_count;
    pthread_t threads[];
};

/* Keep the memory of a stored pack for a later one, as far as the budget has room beside what is in flight: to have
 * fresh memory cleared by the kernel takes as long as filling it. */
static void keep_spare_locked(struct upload *u, struct job *job)
{
    const size_t cap = job->bytes.cap;
    if (job->name.kind != OBJECT_PACK || !cap || u->pending_bytes + u->spare_bytes + cap > u->memory)
        return;
    bytes_clear(&job->bytes);
    if (vec_push(&u->spares, job->bytes))
        return;
    u->spare_bytes += cap;
    job->bytes = (struct bytes)BYTES_INIT(0);
}

/* Look an object up again before it is relied upon. A wrong length counts as gone. */
static int check_object(struct upload *u, const struct object_name *name)
{
    char key[OBJECT_KEY_MAX];
    struct store_item item;
    object_key(name->kind, &name->digest, key);
    int rc = store_stat(u->store, key, &item);
    if (rc == -ENOENT)
        return error_set(-EAGAIN,
                         "build: %s/%s was there before and is gone now (a garbage collection while the build stood "
                         "still?); nothing was published, run the build again",
                         u->store->url, key);
    if (!rc && item.size != name->len)
        return error_set(
            -EAGAIN,
            "build: %s/%s has %llu bytes by now, of %zu: something damaged it while the build ran; nothing "
            "was published, run the build again",
            u->store->url, key, (unsigned long long)item.size, name->len);
    return rc;
}

/* Count a put and remember the object. */
static int count_put_locked(struct upload *u, const struct job *job, enum repository_found found)
{
    bool pack = job->name.kind == OBJECT_PACK, existed = found == REPOSITORY_WHOLE;
    struct object_name name = job->name;
    name.reused = existed;
    u->counts.packs_reused += pack && existed;
    u->counts.packs_new += pack && !existed;
    u->counts.objects_new += !existed;
    u->counts.objects_healed += found == REPOSITORY_DAMAGED;
    u->counts.bytes += existed ? 0 : job->bytes.len;
    return vec_push(&u->done, name);
}

/* Take the oldest job, waiting for one. NULL: stop, and no jobs are left. *out_skip: drop it without working on it. */
static struct job *take_job(struct upload *u, bool *out_skip)
{
    SCOPED_LOCK(&u->lock);
    while (!u->head && !u->stop)
        pthread_cond_wait(&u->work, &u->lock);
    struct job *job = u->head;
    if (job) {
        u->head = job->next;
        if (!u->head)
            u->tail = &u->head;
    }
    *out_skip = u->error.code || u->stop;
    return job;
}

/* Account for a job, and wake the caller if it waits for budget or in a flush. */
static void end_job(struct upload *u, struct job *job, int rc, bool skipped, enum repository_found found)
{
    SCOPED_LOCK(&u->lock);
    if (!rc && !skipped && !job->check && count_put_locked(u, job, found))
        rc = error_no_memory();
    if (rc && !u->error.code) /* later errors mostly follow from the first */
        error_take(&u->error, rc);
    u->pending--;
    u->pending_bytes -= job->bytes.len;
    keep_spare_locked(u, job);
    pthread_cond_broadcast(&u->ended);
}

/* Log the first few damaged objects by name; upload_counts has the number. */
static void warn_of_healed(struct upload *u, const struct object_name *name)
{
    char key[OBJECT_KEY_MAX];
    if (upload_counts(u).objects_healed < HEALED_NAMED_MAX)
        log_warning("build: %s/%s is there, but cut short or with other bytes: it is written again", u->store->url,
                    object_key(name->kind, &name->digest, key));
}

static int put(struct upload *u, const struct job *job, enum repository_found *out)
{
    const struct object_name *name = &job->name;
    char key[OBJECT_KEY_MAX];
    if (!job->send)
        return repository_put_object(u->store, name->kind, job->bytes.data, job->bytes.len, &name->digest, NULL, out);
    const struct store_put put = {.key = object_key(name->kind, &name->digest, key),
                                  .data = job->bytes.data,
                                  .len = job->bytes.len,
                                  .sha256 = &name->digest,
                                  .mode = STORE_PUT_ALWAYS};
    return store_put(u->store, &put);
}

/* An upload thread: work on jobs until stop. */
static void *upload_main(void *arg)
{
    struct upload *u = arg;
    struct job *job;
    bool skip;
    while ((job = take_job(u, &skip))) {
        enum repository_found found = REPOSITORY_ABSENT;
        int rc = 0;
        if (!skip && job->check)
            rc = check_object(u, &job->name);
        else if (!skip)
            rc = put(u, job, &found);
        if (!rc && found == REPOSITORY_DAMAGED)
            warn_of_healed(u, &job->name);
        end_job(u, job, rc, skip, found);
        bytes_release(&job->bytes);
        free(job);
    }
    return NULL;
}

int upload_new(const struct upload_config *config, struct upload **out)
{
    struct upload *u = calloc(1, sizeof *u + config->threads * sizeof *u->threads);
    if (!u)
        return error_no_memory();
    u->store = config->store;
    u->memory = config->memory;
    u->step = config->step;
    u->tail = &u->head;
    pthread_mutex_init(&u->lock, NULL);
    pthread_cond_init(&u->work, NULL);
    thread_cond_init(&u->ended);
    for (; u->thread_count < config->threads; u->thread_count++) {
        int rc = thread_start(&u->threads[u->thread_count], upload_main, u);
        if (rc) {
            upload_free(u);
            return error_prefix(rc, "build");
        }
    }
    *out = u;
    return 0;
}

void upload_free(struct upload *u)
{
    if (!u)
        return;
    pthread_mutex_lock(&u->lock);
    u->stop = true;
    pthread_cond_broadcast(&u->work);
    pthread_mutex_unlock(&u->lock);
    for (unsigned i = 0; i < u->thread_count; i++)
        pthread_join(u->threads[i], NULL);
    assert(!u->head); /* the threads emptied the list */
    pthread_cond_destroy(&u->ended);
    pthread_cond_destroy(&u->work);
    pthread_mutex_destroy(&u->lock);
    vec_release(&u->done);
    for (size_t i = 0; i < u->spares.len; i++)
        bytes_release(&u->spares.items[i]);
    vec_release(&u->spares);
    free(u);
}

/* Return whether a job may be added. A single one always may, however large it is. */
static bool has_budget_locked(const struct upload *u, const struct job *job)
{
    return !u->pending || (u->pending < JOBS_MAX && u->pending_bytes + job->bytes.len <= u->memory);
}

/* Wait until a job ends, a second at most, then call step. The lock is released for step, which may use the store. */
static int wait_ended_locked(struct upload *u)
{
    const struct timespec until = clock_at_ms(clock_now_ms() + 1000);
    pthread_cond_timedwait(&u->ended, &u->lock, &until);
    pthread_mutex_unlock(&u->lock);
    int rc = upload_step(u);
    pthread_mutex_lock(&u->lock);
    return rc;
}

/* Append a job once there is budget for it. On failure the job stays the caller's. *out_spare, unless NULL, gets
 * spare memory if there is any. */
static int add_job(struct upload *u, struct job *job, struct bytes *out_spare)
{
    int rc = upload_step(u);
    SCOPED_LOCK(&u->lock);
    while (!rc && !u->error.code && !has_budget_locked(u, job))
        rc = wait_ended_locked(u);
    if (rc || u->error.code)
        return rc ? rc : error_restore(&u->error);
    *u->tail = job;
    u->tail = &job->next;
    u->pending++;
    u->pending_bytes += job->bytes.len;
    pthread_cond_signal(&u->work);
    /* the latest is likeliest to be in the CPU's caches */
    if (out_spare && u->spares.len) {
        *out_spare = u->spares.items[--u->spares.len];
        u->spare_bytes -= out_spare->cap;
    }
    return 0;
}

int upload_put(struct upload *u, enum object_kind kind, struct bytes *bytes, const struct digest *name)
{
    struct job *job = malloc(sizeof *job);
    if (!job)
        return error_no_memory();
    *job = (struct job){.name = {.digest = *name, .kind = kind, .len = bytes->len},
                        .send = u->send_packs && kind == OBJECT_PACK,
                        .bytes = *bytes};
    struct bytes spare = BYTES_INIT(0);
    int rc = add_job(u, job, kind == OBJECT_PACK ? &spare : NULL);
    if (rc) {
        free(job); /* the bytes stay the caller's */
        return rc;
    }
    /* the caller's buffer keeps its limit */
    spare.max = bytes->max;
    *bytes = spare;
    return 0;
}

void upload_send_packs(struct upload *u)
{
    u->send_packs = true;
}

int upload_rely(struct upload *u, enum object_kind kind, const struct digest *name, size_t len)
{
    const struct object_name object = {.digest = *name, .kind = kind, .reused = true, .len = len};
    SCOPED_LOCK(&u->lock);
    return vec_push(&u->done, object) ? error_no_memory() : 0;
}

int upload_step(struct upload *u)
{
    return step_take(&u->step);
}

int upload_flush(struct upload *u)
{
    int rc = 0;
    SCOPED_LOCK(&u->lock);
    while (u->pending && !rc)
        rc = wait_ended_locked(u);
    return rc ? rc : u->error.code ? error_restore(&u->error) : 0;
}

/* Queue a check of every object that was there before, or of all, and wait for them. */
static int check_listed(struct upload *u, bool all)
{
    /* after a flush no thread appends to the list, so it needs no lock */
    for (size_t i = 0; i < u->done.len; i++) {
        if (!all && !u->done.items[i].reused)
            continue;
        struct job *job = malloc(sizeof *job);
        if (!job)
            return error_no_memory();
        *job = (struct job){.name = u->done.items[i], .check = true};
        int rc = add_job(u, job, NULL);
        if (rc) {
            free(job);
            return rc;
        }
    }
    return upload_flush(u);
}

int upload_check_present(struct upload *u, bool all)
{
    CLEANUP_DIGEST_MAP names = {0};
    int rc = check_listed(u, all);
    for (size_t i = 0; i < u->done.len && rc >= 0; i++)
        rc = digest_map_add(&names, &u->done.items[i].digest, 0);
    return rc < 0 ? rc : gc_unmark(u->store, &names, &u->step);
}

struct upload_counts upload_counts(struct upload *u)
{
    SCOPED_LOCK(&u->lock);
    return u->counts;
}
