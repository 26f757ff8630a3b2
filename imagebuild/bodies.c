/* Readers claim parts in path order under the lock, append them to `parts` while claiming, and read
 * them without the lock; the consumer takes parts from the front when they are ready. So whatever the
 * consumer waits for is in some reader's hands already, and readers that wait for room cannot hold
 * it up:
 *
 *   claimed (in parts, reading) -> ready -> taken (current) -> freed
 *                  \-> abandoned (unlinked; its reader frees it)
 *
 * Room: a part is claimed when it fits in the budget, or when nothing at all is claimed or taken.
 *
 * A file of which a part proves stale is taken over by the consumer: what is claimed of it is thrown
 * away and it is read again by the consumer alone, part after part (`redo`), one part beyond the
 * budget. What is handed on thus depends on the parts' outcomes only, never on who read when.
 *
 * One lock guards parts, budget, cursor and every change of the tree.
 */
#include "imagebuild/bodies.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "base/counter.h"
#include "base/error.h"
#include "format/catalog.h"

enum { JOBS_MAX = 1024 };

struct part {
    struct part *next;
    node_id node;
    uint64_t offset, size; /* in the file; of the file */
    size_t len;
    bool ready, abandoned;
    int rc;
    struct error *error;  /* rc's sentence; NULL: out of memory for it */
    struct digest digest; /* of whole-file parts */
    uint8_t *data;
};

/* A file that the consumer reads by itself. */
struct redo {
    bool active, counted; /* counted: as changed */
    node_id node;
    unsigned tries; /* versions asked for, the listing's among them */
    uint64_t offset;
    struct source_version version;
    uint8_t *data;
};

struct bodies {
    struct source *source;
    struct tree *tree;
    size_t memory, part;
    bool strict;
    pthread_mutex_t lock;
    pthread_cond_t room, ready;
    /* under the lock */
    bool stop, exhausted, out_of_memory;
    struct tree_cursor *cursor;
    node_id file; /* being cut into parts; NODE_NONE: take the next */
    uint64_t file_offset;
    struct part *first, **last_next;
    size_t used; /* bytes of claimed, ready, abandoned and current parts */
    unsigned reading;
    /* the consumer's own */
    struct part *current;
    struct redo redo;
    struct hasher *hasher; /* of a file of several parts */
    bool hashing;
    struct bytes path;
    struct error failed;
    counter changed, vanished, read_bytes;
    unsigned thread_count;
    pthread_t threads[];
};

/* What a reader needs to know of its part, copied under the lock. */
struct claim {
    struct part *part;
    struct bytes path;
    char validator[SOURCE_VALIDATOR_MAX];
    size_t validator_len;
};

static size_t cost_of(const struct part *p)
{
    return p->len + sizeof *p;
}

static void free_part(struct part *p)
{
    free(p->data);
    free(p->error);
    free(p);
}

/* ------------------------------------------------------------------ readers */

/* The next file with bytes; false: there is none. */
static bool next_file_locked(struct bodies *b)
{
    while (b->file == NODE_NONE && !b->exhausted) {
        node_id id = tree_cursor_next(b->cursor);
        if (id == NODE_NONE) {
            b->exhausted = true;
            break;
        }
        const struct node *n = tree_node(b->tree, id);
        if (S_ISREG(n->mode) && n->link == id && n->size) {
            b->file = id;
            b->file_offset = 0;
        }
    }
    return b->file != NODE_NONE;
}

static size_t next_len_locked(const struct bodies *b)
{
    return (size_t)GR_MIN(tree_node(b->tree, b->file)->size - b->file_offset, (uint64_t)b->part);
}

static bool has_room_locked(const struct bodies *b)
{
    size_t cost = next_len_locked(b) + sizeof(struct part);
    return !b->used || (cost <= b->memory && b->used <= b->memory - cost);
}

static void append_locked(struct bodies *b, struct part *p)
{
    *b->last_next = p;
    b->last_next = &p->next;
}

static struct part *unlink_first_locked(struct bodies *b)
{
    struct part *p = b->first;
    b->first = p->next;
    if (!b->first)
        b->last_next = &b->first;
    return p;
}

static void describe_locked(struct bodies *b, struct claim *c, const struct node *n)
{
    const char *validator = tree_validator(b->tree, n, &c->validator_len);
    memcpy(c->validator, validator ? validator : "", c->validator_len);
    c->part->rc = tree_path(b->tree, c->part->node, &c->path);
}

/* Wait for something to read and claim it; false: no more. */
static bool claim_next(struct bodies *b, struct claim *c)
{
    struct part *p = calloc(1, sizeof *p);
    SCOPED_LOCK(&b->lock);
    while (p && !b->stop && next_file_locked(b) && !has_room_locked(b))
        pthread_cond_wait(&b->room, &b->lock);
    if (!p || b->stop || b->file == NODE_NONE) {
        b->out_of_memory |= !p;
        free(p);
        pthread_cond_signal(&b->ready); /* the consumer may wait for a part that does not come */
        pthread_cond_signal(&b->room);  /* the next one leaves too */
        return false;
    }
    const struct node *n = tree_node(b->tree, b->file);
    *p = (struct part){.node = b->file, .size = n->size, .offset = b->file_offset, .len = next_len_locked(b)};
    b->file_offset += p->len;
    if (b->file_offset == n->size)
        b->file = NODE_NONE;
    b->used += cost_of(p);
    b->reading++;
    append_locked(b, p);
    c->part = p;
    describe_locked(b, c, n);
    if (next_file_locked(b) && has_room_locked(b))
        pthread_cond_signal(&b->room);
    return true;
}

static int read_part(struct bodies *b, const struct claim *c)
{
    struct part *p = c->part;
    if (p->rc)
        return p->rc;
    p->data = malloc(p->len);
    if (!p->data)
        return error_set(-ENOMEM, "source: out of memory for %zu bytes of a file", p->len);
    struct source_read read = {.path = (const char *)c->path.data,
                               .path_len = c->path.len,
                               .validator = c->validator,
                               .validator_len = c->validator_len,
                               .offset = p->offset,
                               .len = p->len,
                               .dst = p->data};
    int rc = b->source->ops->read(b->source, &read);
    if (rc)
        return rc;
    counter_add(&b->read_bytes, p->len);
    if (p->len == p->size)
        p->digest = digest_of(p->data, p->len);
    return 0;
}

static void finish_part(struct bodies *b, struct part *p, int rc)
{
    if (rc) {
        p->error = malloc(sizeof *p->error);
        if (p->error)
            error_take(p->error, rc);
    }
    SCOPED_LOCK(&b->lock);
    b->reading--;
    p->rc = rc;
    p->ready = true;
    if (p->abandoned) {
        b->used -= cost_of(p);
        free_part(p);
        pthread_cond_broadcast(&b->room);
    } else if (p == b->first) {
        pthread_cond_signal(&b->ready);
    }
}

static void *reader(void *arg)
{
    struct bodies *b = arg;
    struct claim c = {.path = {.max = CATALOG_PATH_MAX + 1}};
    while (claim_next(b, &c))
        finish_part(b, c.part, read_part(b, &c));
    bytes_release(&c.path);
    return NULL;
}

/* ------------------------------------------------------------------ the consumer */

/* What a step of the consumer came to, besides -errno. */
enum { STEP_END = 0, STEP_PART = 1, STEP_AGAIN = 2 };

/* For messages; b->path holds it too. */
static const char *path_of(struct bodies *b, node_id node)
{
    const char *path = tree_path(b->tree, node, &b->path) ? NULL : bytes_string(&b->path);
    return path ? path : "?";
}

static void hand_on(struct bodies *b, node_id node, const struct body_part *part, const struct digest *whole)
{
    struct node *n = tree_node(b->tree, node);
    if (part->first && b->hashing)
        (void)hasher_finish(b->hasher); /* of a version that was given up */
    b->hashing = !part->last;
    if (part->first && part->last) {
        n->content = *whole;
        return;
    }
    hasher_update(b->hasher, part->data, part->len);
    if (part->last)
        n->content = hasher_finish(b->hasher);
}

/* Throw away what is claimed of a file, and claim no more of it. */
static void abandon_file(struct bodies *b, node_id node)
{
    SCOPED_LOCK(&b->lock);
    if (b->file == node)
        b->file = NODE_NONE;
    while (b->first && b->first->node == node) {
        struct part *p = unlink_first_locked(b);
        p->abandoned = true;
        if (p->ready) {
            b->used -= cost_of(p);
            free_part(p);
        }
    }
    pthread_cond_broadcast(&b->room);
}

static int vanish(struct bodies *b, node_id node)
{
    b->redo.active = false;
    if (b->strict)
        return error_set(-ENOENT, "source: '%s' vanished while the build ran; --strict makes this an error",
                         path_of(b, node));
    counter_add(&b->vanished, 1);
    SCOPED_LOCK(&b->lock);
    tree_drop(b->tree, node);
    return STEP_AGAIN;
}

static bool same_version(const struct bodies *b, const struct node *n, const struct source_version *v)
{
    size_t len;
    const char *validator = tree_validator(b->tree, n, &len);
    return n->size == v->size && len == v->validator_len && !memcmp(validator ? validator : "", v->validator, len);
}

/* Ask for the version that is there now and begin to read it. */
static int redo_version(struct bodies *b)
{
    struct redo *r = &b->redo;
    if (++r->tries > BODY_TRIES)
        return error_set(-ESTALE, "source: '%s' changed %d times while it was read; build when nobody writes to it",
                         path_of(b, r->node), BODY_TRIES);
    int rc = tree_path(b->tree, r->node, &b->path);
    if (!rc)
        rc = b->source->ops->stat(b->source, (const char *)b->path.data, b->path.len, &r->version);
    if (rc == -ENOENT)
        return vanish(b, r->node);
    if (rc)
        return rc;
    struct node *n = tree_node(b->tree, r->node);
    if (!same_version(b, n, &r->version) && !r->counted) {
        r->counted = true;
        counter_add(&b->changed, 1);
    }
    SCOPED_LOCK(&b->lock);
    rc = tree_set_version(b->tree, r->node, &r->version);
    r->offset = 0;
    r->active = r->version.size > 0; /* an empty file has no parts */
    return rc ? rc : STEP_AGAIN;
}

/* The next part of the file that the consumer reads by itself. */
static int redo_step(struct bodies *b, struct body_part *out)
{
    struct redo *r = &b->redo;
    size_t len = (size_t)GR_MIN(r->version.size - r->offset, (uint64_t)b->part);
    if (!r->data)
        r->data = malloc(b->part);
    if (!r->data)
        return error_set(-ENOMEM, "source: out of memory for a part of a file");
    int rc = tree_path(b->tree, r->node, &b->path);
    if (rc)
        return rc;
    struct source_read read = {.path = (const char *)b->path.data,
                               .path_len = b->path.len,
                               .validator = r->version.validator,
                               .validator_len = r->version.validator_len,
                               .offset = r->offset,
                               .len = len,
                               .dst = r->data};
    rc = b->source->ops->read(b->source, &read);
    if (rc == -ESTALE)
        return redo_version(b);
    if (rc)
        return rc == -ENOENT ? vanish(b, r->node) : rc;
    counter_add(&b->read_bytes, len);
    *out = (struct body_part){.node = r->node,
                              .data = r->data,
                              .len = len,
                              .offset = r->offset,
                              .size = r->version.size,
                              .first = !r->offset,
                              .last = r->offset + len == r->version.size};
    struct digest whole = {{0}};
    if (out->first && out->last)
        whole = digest_of(r->data, len);
    hand_on(b, r->node, out, &whole);
    r->offset += len;
    r->active = !out->last;
    return STEP_PART;
}

/* The first part claimed, once it is read; NULL: the end, or *rc. */
static struct part *wait_first(struct bodies *b, int *rc)
{
    SCOPED_LOCK(&b->lock);
    while (!(b->first ? b->first->ready : b->exhausted && b->file == NODE_NONE) && !b->out_of_memory)
        pthread_cond_wait(&b->ready, &b->lock);
    *rc = b->out_of_memory ? error_set(-ENOMEM, "source: out of memory while reading files") : 0;
    return *rc || !b->first ? NULL : unlink_first_locked(b);
}

/* The part could not be read. */
static int part_failed(struct bodies *b, const struct part *p)
{
    if (p->rc == -ENOENT || p->rc == -ESTALE)
        abandon_file(b, p->node);
    if (p->rc == -ENOENT)
        return vanish(b, p->node);
    if (p->rc != -ESTALE)
        return p->error ? error_restore(p->error) : error_set(p->rc, "source: out of memory");
    if (b->strict)
        return error_set(-ESTALE, "source: '%s' changed while the build ran; --strict makes this an error",
                         path_of(b, p->node));
    b->redo.node = p->node;
    b->redo.tries = 1; /* the listing's */
    b->redo.counted = false;
    return redo_version(b);
}

static int part_step(struct bodies *b, struct body_part *out)
{
    int rc;
    struct part *p = b->current = wait_first(b, &rc);
    if (!p)
        return rc ? rc : STEP_END;
    if (p->rc)
        return part_failed(b, p);
    *out = (struct body_part){.node = p->node,
                              .data = p->data,
                              .len = p->len,
                              .offset = p->offset,
                              .size = p->size,
                              .first = !p->offset,
                              .last = p->offset + p->len == p->size};
    hand_on(b, p->node, out, &p->digest);
    return STEP_PART;
}

static void release_current(struct bodies *b)
{
    struct part *p = steal_ptr(&b->current);
    if (!p)
        return;
    SCOPED_LOCK(&b->lock);
    b->used -= cost_of(p);
    pthread_cond_signal(&b->room);
    free_part(p);
}

int bodies_next(struct bodies *b, struct body_part *out)
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

static int start_readers(struct bodies *b, unsigned jobs)
{
    for (; b->thread_count < jobs; b->thread_count++) {
        int error = pthread_create(&b->threads[b->thread_count], NULL, reader, b);
        if (error && !b->thread_count)
            return error_set(-error, "source: cannot start a reader: %s", strerror(error));
        if (error)
            break; /* fewer do it too */
    }
    return 0;
}

static void cleanup_bodies(struct bodies **b)
{
    bodies_free(*b);
}

int bodies_start(const struct bodies_config *config, struct bodies **out)
{
    unsigned jobs = GR_MIN(GR_MAX(config->jobs, 1u), (unsigned)JOBS_MAX);
    CLEANUP(cleanup_bodies) struct bodies *b = calloc(1, sizeof *b + jobs * sizeof *b->threads);
    if (!b)
        return error_set(-ENOMEM, "source: out of memory");
    pthread_mutex_init(&b->lock, NULL);
    pthread_cond_init(&b->room, NULL);
    pthread_cond_init(&b->ready, NULL);
    b->source = config->source;
    b->tree = config->tree;
    b->memory = config->memory;
    b->part = config->part ? config->part : BODY_PART;
    b->strict = config->strict;
    b->file = NODE_NONE;
    b->last_next = &b->first;
    b->path.max = CATALOG_PATH_MAX + 1;
    b->hasher = hasher_new();
    if (!b->hasher)
        return error_set(-ENOMEM, "source: out of memory");
    int rc = tree_cursor_new(b->tree, &b->cursor);
    if (!rc)
        rc = start_readers(b, jobs);
    if (rc)
        return rc;
    *out = steal_ptr(&b);
    return 0;
}

uint64_t bodies_changed(const struct bodies *b)
{
    return counter_get((counter *)&b->changed);
}

uint64_t bodies_vanished(const struct bodies *b)
{
    return counter_get((counter *)&b->vanished);
}

uint64_t bodies_read_bytes(const struct bodies *b)
{
    return counter_get((counter *)&b->read_bytes);
}

static void stop_readers(struct bodies *b)
{
    pthread_mutex_lock(&b->lock);
    b->stop = true;
    bool reading = b->reading;
    pthread_cond_broadcast(&b->room);
    pthread_mutex_unlock(&b->lock);
    if (reading && b->source->ops->cancel)
        b->source->ops->cancel(b->source);
    for (unsigned i = 0; i < b->thread_count; i++)
        pthread_join(b->threads[i], NULL);
}

void bodies_free(struct bodies *b)
{
    if (!b)
        return;
    stop_readers(b);
    while (b->first)
        free_part(unlink_first_locked(b));
    if (b->current)
        free_part(b->current);
    tree_cursor_free(b->cursor);
    hasher_free(b->hasher);
    bytes_release(&b->path);
    free(b->redo.data);
    pthread_cond_destroy(&b->ready);
    pthread_cond_destroy(&b->room);
    pthread_mutex_destroy(&b->lock);
    free(b);
}
