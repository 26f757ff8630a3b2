/* Readers claim parts in path order under the lock, append them to the list while claiming, and read them without the
 * lock; the consumer takes parts from the front when they are ready. So whatever the consumer waits for is in some
 * reader's hands already, and readers that wait for room cannot hold it up:
 *
 *   claimed (in the list, reading) -> ready -> taken (current) -> freed
 *                  \-> abandoned (unlinked; its reader frees it)
 *
 * Room: a part is claimed when it fits in the budget, or when nothing at all is claimed or taken. At most `limit` parts
 * are read at a time, a number given or found by jobs.c, whose intervals end where parts do.
 *
 * The nodes are read by whichever reader finds no file to cut (`advancing`), without the lock, since it may have to
 * pass millions of paths that have nothing to read. One lock guards list, budget and file.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "imagebuild/bodies_internal.h"

size_t body_claim_cost(const struct body_claim *c)
{
    return c->len + sizeof *c + c->path_len + c->validator_len;
}

void body_claim_free(struct body_claim *c)
{
    free(c->data);
    free(c->error);
    free(c);
}

bool bodies_reads(const struct node *n)
{
    return S_ISREG(n->mode) && n->link == n->rank && n->size && n->plan != NODE_KEEP;
}

/* ------------------------------------------------------------------ claiming */

static void fail_locked(struct bodies *b, int rc)
{
    error_take(&b->feed, rc);
    b->exhausted = true;
}

/* Make b->node the next file to read; called and returning with the lock held. */
static void advance_locked(struct bodies *b)
{
    int rc;
    b->advancing = true;
    pthread_mutex_unlock(&b->lock);
    while ((rc = nodes_next(b->cursor, &b->node)) == 1 && !bodies_reads(&b->node))
        ;
    pthread_mutex_lock(&b->lock);
    b->advancing = false;
    b->have_node = rc == 1;
    b->node_offset = 0;
    if (rc < 0)
        fail_locked(b, rc);
    b->exhausted |= !b->have_node;
}

static size_t next_len_locked(const struct bodies *b)
{
    return (size_t)GR_MIN(b->node.size - b->node_offset, (uint64_t)b->part);
}

static bool has_room_locked(const struct bodies *b)
{
    size_t cost = next_len_locked(b) + sizeof(struct body_claim) + b->node.path_len + b->node.validator_len;
    return !b->used || (cost <= b->memory && b->used <= b->memory - cost);
}

/* Is there a part to claim? That the writer is behind is noted for jobs.c. */
static bool may_claim_locked(struct bodies *b)
{
    if (b->reading >= b->limit || !b->have_node)
        return false;
    bool room = has_room_locked(b);
    b->interval.held_up |= !room;
    return room;
}

static void append_locked(struct bodies *b, struct body_claim *c)
{
    *b->last_next = c;
    b->last_next = &c->next;
}

struct body_claim *bodies_unlink_first_locked(struct bodies *b)
{
    struct body_claim *c = b->first;
    b->first = c->next;
    if (!b->first)
        b->last_next = &b->first;
    return c;
}

/* Cut the next part off the file. NULL: out of memory. */
static struct body_claim *cut_locked(struct bodies *b)
{
    const struct node *n = &b->node;
    struct body_claim *c = calloc(1, sizeof *c + n->path_len + n->validator_len);
    if (!c)
        return NULL;
    *c = (struct body_claim){.rank = n->rank,
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
    b->used += body_claim_cost(c);
    b->reading++;
    append_locked(b, c);
    return c;
}

/* Wait for something to read and claim it; NULL: no more. */
static struct body_claim *claim_next(struct bodies *b)
{
    SCOPED_LOCK(&b->lock);
    while (!b->stop && (b->have_node || !b->exhausted)) {
        if (!b->have_node && !b->advancing)
            advance_locked(b);
        else if (may_claim_locked(b))
            break;
        else
            pthread_cond_wait(&b->room, &b->lock);
    }
    struct body_claim *c = b->have_node && !b->stop ? cut_locked(b) : NULL;
    if (!c && b->have_node && !b->stop) {
        b->have_node = false;
        fail_locked(b, error_set(-ENOMEM, "source: out of memory while reading files"));
    }
    if (!c)
        pthread_cond_signal(&b->ready); /* the consumer may wait for a part that does not come */
    pthread_cond_signal(&b->room);      /* the next one goes on, or leaves too */
    return c;
}

/* ------------------------------------------------------------------ reading */

static int read_from(struct bodies *b, struct source *from, const struct body_claim *c)
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
    int rc = from->ops->read(from, &read);
    if (!rc)
        counter_add(from == b->parent ? &b->moved_bytes : &b->read_bytes, c->len);
    return rc;
}

static int read_part(struct bodies *b, struct body_claim *c)
{
    c->data = malloc(c->len);
    if (!c->data)
        return error_set(-ENOMEM, "source: out of memory for %zu bytes of a file", c->len);
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

static void *reader(void *bodies);

int bodies_set_limit_locked(struct bodies *b, unsigned limit)
{
    for (; b->thread_count < limit && !b->stop; b->thread_count++) {
        int error = pthread_create(&b->threads[b->thread_count], NULL, reader, b);
        if (error && !b->thread_count)
            return error_set(-error, "source: cannot start a reader: %s", strerror(error));
        if (error)
            break; /* fewer do it too */
    }
    b->limit = GR_MIN(limit, b->thread_count);
    return 0;
}

/* A part was read: is it time to try another number of jobs? */
static void measure_locked(struct bodies *b, uint64_t bytes)
{
    uint64_t now = clock_now_ms(), ms = now - b->interval.start_ms;
    b->interval.bytes += bytes;
    b->interval.requests++;
    if (!jobs_interval_over(&b->jobs, ms, b->interval.requests))
        return;
    jobs_interval(&b->jobs, b->interval.bytes, b->interval.requests, ms, b->interval.held_up);
    b->interval.start_ms = now;
    b->interval.bytes = b->interval.requests = 0;
    b->interval.held_up = false;
    bodies_set_limit_locked(b, b->jobs.limit); /* cannot fail: this is a reader */
}

static void finish_part(struct bodies *b, struct body_claim *c, int rc)
{
    if (rc) {
        c->error = malloc(sizeof *c->error);
        if (c->error)
            error_take(c->error, rc);
    }
    SCOPED_LOCK(&b->lock);
    b->reading--;
    c->rc = rc;
    c->ready = true;
    if (b->find_limit)
        measure_locked(b, rc ? 0 : c->len);
    if (c->abandoned) {
        b->used -= body_claim_cost(c);
        body_claim_free(c);
        pthread_cond_broadcast(&b->room);
    } else if (c == b->first) {
        pthread_cond_signal(&b->ready);
    }
    pthread_cond_signal(&b->room);
}

static void *reader(void *bodies)
{
    struct bodies *b = bodies;
    struct body_claim *c;
    while ((c = claim_next(b)))
        finish_part(b, c, read_part(b, c));
    return NULL;
}
