/* The readers. Each claims the next part in path order, under the lock, and appends it to the list in the same step;
 * it then reads without the lock. So the part that the consumer waits for is always claimed by a reader already, and
 * readers that wait for budget cannot delay it.
 *
 *   claimed (in the list, being read) -> ready -> taken (current) -> freed
 *                  \-> abandoned (unlinked by the consumer; its reader frees it)
 *
 * Budget: a part is claimed if it fits, or if nothing at all is claimed or taken. Once a part does not fit, no more
 * are claimed until an eighth of the budget is free; otherwise each part that leaves would wake a reader for one
 * part. At most `limit` readers read at a time. That number is given, or found by read_concurrency.c, whose intervals
 * end where parts do.
 *
 * Waking a thread takes longer than reading a small file from memory. So a reader of a near source claims a run of
 * small files, as far as the budget lasts, and marks all of them ready at once.
 *
 * A reader that finds no file to cut reads the nodes (`advancing`). It releases the lock for that, since it may pass
 * millions of paths without bytes. One lock guards list, budget and current file.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/thread.h"
#include "imagebuild/content/content_internal.h"

/* Return the bytes that a claim takes of the budget. */
static size_t content_claim_cost(const struct content_claim *c)
{
    return c->len + sizeof *c + c->path_len + c->validator_len;
}

void content_claim_free(struct content_claim *c)
{
    free(c->data);
    free(c->error);
    free(c);
}

bool content_reader_reads(const struct node *n)
{
    return S_ISREG(n->mode) && n->link == n->rank && n->size && n->plan != NODE_KEEP;
}

/* ------------------------------------------------------------------ claiming */

/* End the nodes with an error, which the consumer gets after the parts already claimed. */
static void fail_locked(struct content_reader *b, int rc)
{
    error_take(&b->feed, rc);
    b->exhausted = true;
}

/* Make b->node the next file to read. Releases the lock meanwhile and holds it again on return; `advancing` keeps
 * other readers off cursor and node. */
static void advance_locked(struct content_reader *b)
{
    int rc;
    b->advancing = true;
    pthread_mutex_unlock(&b->lock);
    while ((rc = nodes_next(b->cursor, &b->node)) == 1 && !content_reader_reads(&b->node))
        ;
    pthread_mutex_lock(&b->lock);
    b->advancing = false;
    b->have_node = rc == 1;
    b->node_offset = 0;
    if (rc < 0)
        fail_locked(b, rc);
    b->exhausted |= !b->have_node;
}

/* Return the length of the next part. Whether a file is a single part must not depend on the source: only such files
 * are compared with others, and equal ones share their blocks in the image. */
static size_t next_len_locked(const struct content_reader *b)
{
    const bool short_parts = b->source->near && b->node.plan != NODE_MOVE && b->node.size > b->part;
    const size_t part = short_parts ? GR_MIN(b->part, (size_t)CONTENT_NEAR_PART) : b->part;
    return (size_t)GR_MIN(b->node.size - b->node_offset, (uint64_t)part);
}

/* Return the budget: all of the memory for a source over a network, whose answers take time. */
static size_t budget_locked(const struct content_reader *b)
{
    return b->source->near ? GR_MIN(b->memory, (size_t)b->limit * CONTENT_NEAR_BUDGET) : b->memory;
}

/* Return whether the next part fits into the budget. A part larger than all of it is let through alone. */
static bool has_budget_locked(const struct content_reader *b)
{
    size_t cost = next_len_locked(b) + sizeof(struct content_claim) + b->node.path_len + b->node.validator_len;
    const size_t budget = budget_locked(b);
    return !b->used || (cost <= budget && b->used <= budget - cost);
}

/* Return whether there is a part to claim now. Notes for read_concurrency.c that the writer is behind. */
static bool may_claim_locked(struct content_reader *b)
{
    if (b->reading >= b->limit || !b->have_node)
        return false;
    b->full = b->full || !has_budget_locked(b);
    b->interval.held_up |= b->full;
    return !b->full;
}

void content_reader_give_back_locked(struct content_reader *b, const struct content_claim *c)
{
    b->used -= content_claim_cost(c);
    const size_t budget = budget_locked(b);
    if (!b->full || b->used > budget - budget / 8)
        return;
    b->full = false;
    pthread_cond_signal(&b->budget_freed);
}

struct content_claim *content_reader_unlink_first_locked(struct content_reader *b)
{
    struct content_claim *c = b->first;
    b->first = c->next;
    if (!b->first)
        b->last_next = &b->first;
    return c;
}

/* Cut the next part off the file and append it to the list. NULL: out of memory. */
static struct content_claim *cut_locked(struct content_reader *b)
{
    const struct node *n = &b->node;
    struct content_claim *c = calloc(1, sizeof *c + n->path_len + n->validator_len);
    if (!c)
        return NULL;
    *c = (struct content_claim){.rank = n->rank,
                                .move = n->plan == NODE_MOVE && b->parent,
                                .address = n->address,
                                .offset = b->node_offset,
                                .size = n->size,
                                .len = next_len_locked(b),
                                .path_len = n->path_len,
                                .validator_len = n->validator_len};
    memcpy(c->text, n->path, n->path_len);
    if (n->validator_len)
        memcpy(c->text + n->path_len, n->validator, n->validator_len);
    b->node_offset += c->len;
    b->have_node = b->node_offset < n->size;
    b->used += content_claim_cost(c);
    *b->last_next = c;
    b->last_next = &c->next;
    return c;
}

/* The claims of one reader: one part, or several whole small files. */
struct run {
    size_t count, bytes;
    struct content_claim *claims[CONTENT_RUN];
};

/* Return whether the next part, a whole small file of a near source, can join the run. May release the lock. */
static bool continues_locked(struct content_reader *b, const struct run *run)
{
    if (!b->source->near || run->count == CONTENT_RUN || b->stop)
        return false;
    if (!b->have_node && !b->exhausted && !b->advancing)
        advance_locked(b);
    return b->have_node && !b->stop && !b->node_offset && b->node.plan != NODE_MOVE && !b->full &&
           b->node.size <= CONTENT_RUN_BYTES && run->bytes + b->node.size <= CONTENT_RUN_BYTES && has_budget_locked(b);
}

/* Claim the next part and what can join it. An empty run: out of memory. */
static void claim_run_locked(struct content_reader *b, struct run *run)
{
    struct content_claim *c;
    do {
        c = cut_locked(b);
        if (!c)
            break;
        run->claims[run->count++] = c;
        run->bytes += c->len;
    } while (continues_locked(b, run));
    b->reading += run->count > 0;
}

/* Wait for something to read and claim it. An empty run: nothing is left, or stop. */
static void claim_next(struct content_reader *b, struct run *run)
{
    *run = (struct run){.count = 0};
    SCOPED_LOCK(&b->lock);
    while (!b->stop && (b->have_node || !b->exhausted)) {
        if (!b->have_node && !b->advancing)
            advance_locked(b);
        else if (may_claim_locked(b))
            break;
        else
            pthread_cond_wait(&b->budget_freed, &b->lock);
    }
    bool claims = b->have_node && !b->stop;
    if (claims)
        claim_run_locked(b, run);
    if (claims && !run->count) {
        b->have_node = false;
        fail_locked(b, error_no_memory());
    }
    if (!run->count)
        pthread_cond_signal(&b->ready); /* the consumer may wait for a part that will not come */
    if (!run->count || (b->reading < b->limit && !b->full))
        pthread_cond_signal(&b->budget_freed); /* pass the wakeup on: the next reader claims, or ends too */
}

/* ------------------------------------------------------------------ reading */

static int read_from(struct content_reader *b, struct source *from, const struct content_claim *c)
{
    struct source_read read = {.path = c->text,
                               .path_len = c->path_len,
                               .validator = c->text + c->path_len,
                               .validator_len = c->validator_len,
                               .offset = c->offset,
                               .len = c->len,
                               .dst = c->data,
                               .size = c->size,
                               .address = c->address};
    int rc = source_read(from, &read);
    if (!rc)
        counter_add(from == b->parent ? &b->moved_bytes : &b->read_bytes, c->len);
    return rc;
}

/* Read one part. A part that the parent cannot deliver is read from the source: the bytes are the same. */
static int read_part(struct content_reader *b, struct content_claim *c)
{
    c->data = malloc(c->len);
    if (!c->data)
        return error_no_memory();
    int rc = c->move ? read_from(b, b->parent, c) : 0;
    if (rc && rc != -ECANCELED) {
        counter_add(&b->unmovable, 1);
        log_warning("build: '%.*s' is read from the source, since the parent image does not give it: %s",
                    (int)GR_MIN(c->path_len, (size_t)300), c->text, error_text());
        c->move = false;
        rc = 0;
    }
    if (!rc && !c->move)
        rc = read_from(b, b->source, c);
    if (!rc && c->len == c->size)
        c->digest = digest_of(c->data, c->len);
    return rc;
}

static void *reader(void *arg);

int content_reader_set_limit_locked(struct content_reader *b, unsigned limit)
{
    for (; b->thread_count < limit && !b->stop; b->thread_count++) {
        int rc = thread_start(&b->threads[b->thread_count], reader, b);
        if (rc && !b->thread_count)
            return error_prefix(rc, "source");
        if (rc)
            break; /* fewer threads are enough */
    }
    b->limit = GR_MIN(limit, b->thread_count);
    return 0;
}

/* Account for a run, and at the end of an interval let read_concurrency choose another limit. */
static void measure_locked(struct content_reader *b, const struct run *run)
{
    uint64_t now = clock_now_ms(), ms = now - b->interval.start_ms;
    for (size_t i = 0; i < run->count; i++)
        b->interval.bytes += run->claims[i]->rc ? 0 : run->claims[i]->len;
    b->interval.requests += run->count;
    if (!read_concurrency_interval_over(&b->concurrency, ms, b->interval.requests))
        return;
    read_concurrency_interval(&b->concurrency, b->interval.bytes, b->interval.requests, ms, b->interval.held_up);
    b->interval.start_ms = now;
    b->interval.bytes = b->interval.requests = 0;
    b->interval.held_up = false;
    content_reader_set_limit_locked(b, b->concurrency.limit); /* cannot fail: this thread is a reader */
}

/* Keep a read's result for the consumer. */
static void keep_error(struct content_claim *c, int rc)
{
    c->rc = rc;
    c->error = rc ? malloc(sizeof *c->error) : NULL;
    if (c->error)
        error_take(c->error, rc);
}

/* Mark a run ready. Claims that the consumer abandoned meanwhile are freed here. */
static void finish_run(struct content_reader *b, const struct run *run)
{
    SCOPED_LOCK(&b->lock);
    b->reading--;
    if (b->find_limit)
        measure_locked(b, run);
    for (size_t i = 0; i < run->count; i++) {
        struct content_claim *c = run->claims[i];
        c->ready = true;
        if (c == b->first)
            pthread_cond_signal(&b->ready);
        if (!c->abandoned)
            continue;
        content_reader_give_back_locked(b, c);
        content_claim_free(c);
    }
}

/* A reader thread. */
static void *reader(void *arg)
{
    struct content_reader *b = arg;
    struct run run;
    for (claim_next(b, &run); run.count; claim_next(b, &run)) {
        for (size_t i = 0; i < run.count; i++)
            keep_error(run.claims[i], read_part(b, run.claims[i]));
        finish_run(b, &run);
    }
    return NULL;
}
