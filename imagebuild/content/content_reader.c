/* The consumer. It takes parts from the front of the list that the readers fill (content_reader_threads.c), and
 * delivers them.
 *
 * When a part turns out to be stale, the consumer takes over the whole file: it abandons the file's other claims and
 * reads the file again by itself, part after part (`redo`), with one part beyond the budget. So the delivered parts
 * depend only on the results of the reads, never on which thread made them or when.
 *
 *   list:  part -> part -> part ...        redo.active: source_stat, source_read, one part at a time
 *           | ok: deliver                        ^                | stale again: next version, up to CONTENT_TRIES
 *           | stale ------- abandon_file --------+                | gone: vanished
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "format/catalog.h"
#include "imagebuild/content/content_internal.h"

/* Results of a step of the consumer, besides -errno. STEP_AGAIN: nothing to deliver yet, take another step. */
enum { STEP_END = 0, STEP_PART = 1, STEP_AGAIN = 2 };

/* Return the path of the file being redone, for messages. */
static const char *redo_path(struct content_reader *b)
{
    const char *path = bytes_string(&b->redo.path);
    return path ? path : "?";
}

/* Complete a part before it is delivered: set the digest of its file. `whole` is that of a file of one part, which a
 * reader computed. */
static void content_reader_hand_on(struct content_reader *b, struct content_part *part, const struct digest *whole)
{
    if (part->first && b->hashing)
        (void)hasher_finish(b->hasher); /* drop the digest of a version that went stale */
    b->hashing = !part->last;
    if (part->first && part->last) {
        part->content = *whole;
        return;
    }
    hasher_update(b->hasher, part->data, part->len);
    if (part->last)
        part->content = hasher_finish(b->hasher);
}

/* ------------------------------------------------------------------ files that changed */

/* Abandon a file's claims and cut no more parts off it. A claim that its reader still holds is freed by that reader. */
static void abandon_file(struct content_reader *b, uint32_t rank)
{
    SCOPED_LOCK(&b->lock);
    if (b->have_node && b->node.rank == rank)
        b->have_node = false;
    while (b->first && b->first->rank == rank) {
        struct content_claim *c = content_reader_unlink_first_locked(b);
        c->abandoned = true;
        if (c->ready) {
            content_reader_give_back_locked(b, c);
            content_claim_free(c);
        }
    }
    pthread_cond_broadcast(&b->budget_freed);
}

/* The file is gone: report it instead of a part, or fail with `strict`. */
static int vanish(struct content_reader *b, struct content_part *out)
{
    b->redo.active = false;
    if (b->strict)
        return error_set(-ENOENT, "source: '%s' vanished while the build ran; --strict makes this an error",
                         redo_path(b));
    if (counter_get(&b->vanished) < SOURCE_VANISHED_NAMED)
        log_warning("source: '%s' was listed, but is not there when it is read: it is left out of the image",
                    redo_path(b));
    counter_add(&b->vanished, 1);
    *out = (struct content_part){.rank = b->redo.rank, .vanished = true};
    return STEP_PART;
}

static bool is_listed_version(const struct content_redo *r)
{
    const struct source_version *v = &r->version;
    return r->size == v->size && r->validator.len == v->validator_len &&
           !memcmp(v->validator_len ? (const char *)r->validator.data : "", v->validator, v->validator_len);
}

/* Find out which version the source has now, and begin to read it. An empty file is complete at once. */
static int redo_version(struct content_reader *b, struct content_part *out)
{
    struct content_redo *r = &b->redo;
    if (++r->tries > CONTENT_TRIES)
        return error_set(-ESTALE, "source: '%s' changed %d times while it was read; build when nobody writes to it",
                         redo_path(b), CONTENT_TRIES);
    int rc = source_stat(b->source, (const char *)r->path.data, r->path.len, &r->version);
    if (rc == -ENOENT)
        return vanish(b, out);
    if (rc)
        return rc;
    if (!is_listed_version(r) && !r->counted) {
        r->counted = true;
        counter_add(&b->changed, 1);
    }
    r->offset = 0;
    r->active = r->version.size > 0;
    if (r->active)
        return STEP_AGAIN;
    *out = (struct content_part){.rank = r->rank, .first = true, .last = true, .version = &r->version};
    return STEP_PART;
}

/* Read the next part of the file that the consumer reads by itself. */
static int redo_step(struct content_reader *b, struct content_part *out)
{
    struct content_redo *r = &b->redo;
    size_t len = (size_t)GR_MIN(r->version.size - r->offset, (uint64_t)b->part);
    if (!r->data)
        r->data = malloc(b->part);
    if (!r->data)
        return error_no_memory();
    struct source_read read = {.path = (const char *)r->path.data,
                               .path_len = r->path.len,
                               .validator = r->version.validator,
                               .validator_len = r->version.validator_len,
                               .offset = r->offset,
                               .len = len,
                               .dst = r->data,
                               .size = r->version.size};
    int rc = source_read(b->source, &read);
    if (rc == -ESTALE)
        return redo_version(b, out);
    if (rc)
        return rc == -ENOENT ? vanish(b, out) : rc;
    counter_add(&b->read_bytes, len);
    *out = (struct content_part){.rank = r->rank,
                                 .data = r->data,
                                 .len = len,
                                 .offset = r->offset,
                                 .size = r->version.size,
                                 .first = !r->offset,
                                 .last = r->offset + len == r->version.size,
                                 .version = &r->version};
    struct digest whole = {{0}};
    if (out->first && out->last)
        whole = digest_of(r->data, len);
    content_reader_hand_on(b, out, &whole);
    r->offset += len;
    r->active = !out->last;
    return STEP_PART;
}

/* Copy what the consumer needs to read the file of c by itself. */
static int take_over(struct content_reader *b, const struct content_claim *c)
{
    struct content_redo *r = &b->redo;
    r->rank = c->rank;
    r->size = c->size;
    r->tries = 1; /* the node's version */
    r->counted = false;
    bytes_clear(&r->path);
    bytes_clear(&r->validator);
    int rc = bytes_append(&r->path, c->text, c->path_len);
    return rc ? rc : bytes_append(&r->validator, c->text + c->path_len, c->validator_len);
}

/* ------------------------------------------------------------------ the consumer */

/* Wait until the first claim is read, and unlink it. NULL: the end, or an error in *rc. */
static struct content_claim *wait_first(struct content_reader *b, int *rc)
{
    SCOPED_LOCK(&b->lock);
    while (!(b->first ? b->first->ready : b->exhausted && !b->have_node))
        pthread_cond_wait(&b->ready, &b->lock);
    *rc = !b->first && b->feed.code ? error_restore(&b->feed) : 0;
    return b->first ? content_reader_unlink_first_locked(b) : NULL;
}

/* Handle a part that could not be read. A file that changed is read again by the consumer, and one that is gone is
 * reported as vanished; other errors end the run. */
static int part_failed(struct content_reader *b, const struct content_claim *c, struct content_part *out)
{
    bool lost = c->rc == -ENOENT || c->rc == -ESTALE;
    if (!lost)
        return c->error ? error_restore(c->error) : error_no_memory();
    abandon_file(b, c->rank);
    int rc = take_over(b, c);
    if (rc)
        return rc;
    if (c->rc == -ENOENT)
        return vanish(b, out);
    if (b->strict)
        return error_set(-ESTALE, "source: '%s' changed while the build ran; --strict makes this an error",
                         redo_path(b));
    return redo_version(b, out);
}

/* Deliver the next part of the list. */
static int part_step(struct content_reader *b, struct content_part *out)
{
    int rc;
    struct content_claim *c = b->current = wait_first(b, &rc);
    if (!c)
        return rc ? rc : STEP_END;
    if (c->rc)
        return part_failed(b, c, out);
    *out = (struct content_part){.rank = c->rank,
                                 .data = c->data,
                                 .len = c->len,
                                 .offset = c->offset,
                                 .size = c->size,
                                 .first = !c->offset,
                                 .last = c->offset + c->len == c->size};
    content_reader_hand_on(b, out, &c->digest);
    return STEP_PART;
}

/* Free the part that was delivered last: the caller has used its bytes by now. */
static void release_current(struct content_reader *b)
{
    struct content_claim *c = steal_ptr(&b->current);
    if (!c)
        return;
    SCOPED_LOCK(&b->lock);
    content_reader_give_back_locked(b, c);
    content_claim_free(c);
}

int content_reader_next(struct content_reader *b, struct content_part *out)
{
    int rc = b->failed.code ? error_restore(&b->failed) : STEP_AGAIN;
    while (rc == STEP_AGAIN) {
        release_current(b);
        rc = b->redo.active ? redo_step(b, out) : part_step(b, out);
    }
    if (rc < 0 && !b->failed.code)
        error_take(&b->failed, rc);
    return rc;
}

/* ------------------------------------------------------------------ life */

/* Start as many readers as `jobs` says, or as read_concurrency begins with. */
static int start_readers(struct content_reader *b, unsigned jobs)
{
    SCOPED_LOCK(&b->lock);
    b->find_limit = !jobs;
    if (b->source->near)
        read_concurrency_init_near(&b->concurrency, (unsigned)GR_MAX(sysconf(_SC_NPROCESSORS_ONLN), 1L));
    else
        read_concurrency_init(&b->concurrency);
    b->interval.start_ms = clock_now_ms();
    return content_reader_set_limit_locked(b, jobs ? GR_MIN(jobs, (unsigned)CONTENT_JOBS_MAX) : b->concurrency.limit);
}

static void cleanup_content_reader(struct content_reader **b)
{
    content_reader_free(*b);
}

int content_reader_start(const struct content_reader_config *config, struct content_reader **out)
{
    CLEANUP(cleanup_content_reader) struct content_reader *b = calloc(1, sizeof *b);
    if (!b)
        return error_no_memory();
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->budget_freed, NULL);
    pthread_cond_init(&b->ready, NULL);
    b->source = config->source;
    b->parent = config->parent;
    b->memory = config->memory;
    b->part = config->part ? config->part : CONTENT_PART;
    b->strict = config->strict;
    b->last_next = &b->first;
    b->redo.path.max = CATALOG_PATH_MAX + 1;
    b->redo.validator.max = SOURCE_VALIDATOR_MAX;
    b->hasher = hasher_new();
    if (!b->hasher)
        return error_no_memory();
    int rc = nodes_cursor_new(config->nodes, &b->cursor);
    if (!rc)
        rc = start_readers(b, config->jobs);
    if (rc)
        return rc;
    *out = steal_ptr(&b);
    return 0;
}

struct content_reader_counts content_reader_counts(struct content_reader *b)
{
    return (struct content_reader_counts){.changed = counter_get(&b->changed),
                                          .vanished = counter_get(&b->vanished),
                                          .read_bytes = counter_get(&b->read_bytes),
                                          .moved_bytes = counter_get(&b->moved_bytes),
                                          .unmovable = counter_get(&b->unmovable)};
}

static void cancel_reads(struct source *s)
{
    if (s)
        source_cancel(s);
}

/* Stop the readers. Sources are cancelled only if a read is in flight, because a cancelled source cannot be used
 * again. */
static void stop_readers(struct content_reader *b)
{
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    bool reading = b->reading;
    pthread_cond_broadcast(&b->budget_freed);
    pthread_mutex_unlock(&b->lock);
    if (reading) {
        cancel_reads(b->source);
        cancel_reads(b->parent);
    }
    for (unsigned i = 0; i < b->thread_count; i++)
        pthread_join(b->threads[i], NULL);
}

void content_reader_free(struct content_reader *b)
{
    if (!b)
        return;
    stop_readers(b);
    while (b->first)
        content_claim_free(content_reader_unlink_first_locked(b));
    if (b->current)
        content_claim_free(b->current);
    nodes_cursor_free(b->cursor);
    hasher_free(b->hasher);
    bytes_release(&b->redo.path);
    bytes_release(&b->redo.validator);
    free(b->redo.data);
    pthread_cond_destroy(&b->ready);
    pthread_cond_destroy(&b->budget_freed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
