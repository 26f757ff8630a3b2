/* Hash and compress chunks in a ring; below, join them to packs.
 *
 * The ring has slots. The caller fills slot `head`, submits it to the workers' queue and moves to the next slot. When
 * that slot is in use, the ring is full and the slot holds the oldest chunk: the caller waits for it and emits it.
 *
 *   FREE --chunker_submit--> BUSY --worker--> DONE --emit_oldest--> FREE
 *
 *   ring:  [free][DONE][BUSY][DONE][BUSY][free ...]
 *                ^ head - count          ^ head
 *
 * `lock` guards the states alone. A slot's bytes belong to the caller while FREE or DONE, and to one worker while
 * BUSY. The queue's own lock orders the change from FREE to BUSY.
 */
#include "imagebuild/sink/sink_internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/queue.h"
#include "base/thread.h"

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_DONE };

/* A chunk in the ring. */
struct slot {
    enum slot_state state;
    uint64_t number;
    uint32_t len;
    uint8_t *plain;
    struct chunker_known known;
    struct bytes stored;
    struct chunk_ref ref; /* complete when DONE, but for object, kind and offset */
    struct error error;   /* code 0: encoded */
};

/* lock guards slot states; all else is the caller's. */
struct chunker {
    struct chunker_config config;
    struct queue *queue; /* slots to encode; it can hold them all, so a push never waits */
    pthread_mutex_t lock;
    pthread_cond_t done; /* a slot became DONE */
    size_t head;         /* the slot to be filled next */
    size_t count;        /* slots submitted and not emitted, those before head */
    size_t slot_count;
    struct slot *slots;
    unsigned worker_count;
    pthread_t *workers;
};

/* Encode one chunk: upon its base if that saves enough, else by itself; not at all if its digest is all that is needed.
 */
static int encode(const struct chunker *c, struct slot *slot)
{
    const struct chunker_known *known = &slot->known;
    const int level = c->config.zstd_level;
    bytes_clear(&slot->stored);
    if (known->same) {
        slot->ref.digest = known->digest;
        return 0;
    }
    return known->plain ? chunk_encode_upon(&known->base, known->plain->data, slot->plain, slot->len, level,
                                            &slot->stored, &slot->ref)
                        : chunk_encode(slot->plain, slot->len, level, &slot->stored, &slot->ref);
}

/* Encode slots until the queue closes. An error stays in the slot, for emit_oldest. */
static void *worker_main(void *arg)
{
    struct chunker *c = arg;
    struct slot *slot;
    while ((slot = queue_pop(c->queue))) {
        int rc = encode(c, slot);
        buf_unref(steal_ptr(&slot->known.plain));
        if (rc)
            error_take(&slot->error, rc);
        SCOPED_LOCK(&c->lock);
        slot->state = SLOT_DONE;
        pthread_cond_signal(&c->done);
    }
    return NULL;
}

/* Return the number of slots: enough to keep workers busy, within CHUNKER_MEMORY, and two at least so that filling
 * and encoding overlap. */
static size_t ring_size(const struct chunker_config *config)
{
    size_t by_memory = CHUNKER_MEMORY / (2 * (size_t)config->chunk_size);
    return GR_MAX(GR_MIN((size_t)config->workers * 4, by_memory), (size_t)2);
}

static int allocate(struct chunker *c)
{
    c->slot_count = ring_size(&c->config);
    c->slots = calloc(c->slot_count, sizeof *c->slots);
    c->workers = calloc(c->config.workers, sizeof *c->workers);
    c->queue = queue_new(c->slot_count);
    if (!c->slots || !c->workers || !c->queue)
        return error_no_memory();
    for (size_t i = 0; i < c->slot_count; i++) {
        c->slots[i].plain = malloc(c->config.chunk_size);
        /* zstd may need more space than the result takes */
        c->slots[i].stored = (struct bytes)BYTES_INIT((size_t)c->config.chunk_size * 2 + 4096);
        if (!c->slots[i].plain)
            return error_no_memory();
    }
    return 0;
}

/* Start the workers; chunker_free joins those that did start. */
static int start_workers(struct chunker *c)
{
    for (; c->worker_count < c->config.workers; c->worker_count++) {
        int rc = thread_start(&c->workers[c->worker_count], worker_main, c);
        if (rc)
            return error_prefix(rc, "build");
    }
    return 0;
}

int chunker_new(const struct chunker_config *config, struct chunker **out)
{
    struct chunker *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->config = *config;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->done, NULL);
    int rc = allocate(c);
    if (!rc)
        rc = start_workers(c);
    if (rc) {
        chunker_free(c);
        return rc;
    }
    *out = c;
    return 0;
}

void chunker_free(struct chunker *c)
{
    if (!c)
        return;
    if (c->queue)
        queue_close(c->queue);
    for (unsigned i = 0; i < c->worker_count; i++)
        pthread_join(c->workers[i], NULL);
    for (size_t i = 0; c->slots && i < c->slot_count; i++) {
        free(c->slots[i].plain);
        buf_unref(c->slots[i].known.plain);
        bytes_release(&c->slots[i].stored);
    }
    queue_free(c->queue);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    free(c->workers);
    free(c->slots);
    free(c);
}

/* Wait for the oldest chunk and emit it. */
static int emit_oldest(struct chunker *c)
{
    struct slot *slot = &c->slots[(c->head + c->slot_count - c->count) % c->slot_count];
    pthread_mutex_lock(&c->lock);
    while (slot->state != SLOT_DONE)
        pthread_cond_wait(&c->done, &c->lock);
    slot->state = SLOT_FREE;
    pthread_mutex_unlock(&c->lock);
    c->count--;
    if (slot->error.code)
        return error_restore(&slot->error);
    return c->config.emit(c->config.arg, slot->number, &slot->ref, &slot->stored);
}

int chunker_begin(struct chunker *c, uint8_t ***out)
{
    if (c->count == c->slot_count) {
        int rc = emit_oldest(c);
        if (rc)
            return rc;
    }
    *out = &c->slots[c->head].plain;
    return 0;
}

void chunker_submit(struct chunker *c, uint64_t number, uint32_t len, const struct chunker_known *known)
{
    struct slot *slot = &c->slots[c->head];
    slot->number = number;
    slot->len = len;
    slot->known = *known;
    slot->state = SLOT_BUSY;
    c->head = (c->head + 1) % c->slot_count;
    c->count++;
    if (!queue_push(c->queue, slot))
        abort(); /* only chunker_free closes the queue */
}

int chunker_drain(struct chunker *c)
{
    int rc = 0;
    while (c->count && !rc)
        rc = emit_oldest(c);
    return rc;
}

/* ------------------------------------------------------------------ packs */

/* One pack is in progress. Which chunks share a pack depends only on their order and stored lengths, so two runs of a
 * build form the same packs, and the second finds them in the store. */

/* A chunk of the pack in progress, whose reference lacks the pack's name; or one that was passed. */
struct waiting {
    uint64_t number;
    bool passed;
    struct chunk_ref ref;
};

/* waiting[0 .. count) are the chunks in `pack`, in order, and among them those that were passed. */
struct packer {
    struct packer_config config;
    struct bytes pack;
    struct hasher *hasher; /* of the pack: each chunk while it is in the CPU's caches, and without a pause at the end */
    size_t count;
    struct waiting waiting[PACK_CHUNKS];
};

int packer_new(const struct packer_config *config, struct packer **out)
{
    struct packer *p = malloc(sizeof *p);
    struct hasher *hasher = hasher_new();
    if (!p || !hasher) {
        hasher_free(hasher);
        free(p);
        return error_no_memory();
    }
    p->config = *config;
    /* one chunk may be longer than a small pack_size */
    p->pack = (struct bytes)BYTES_INIT(GR_MAX(config->pack_size, (size_t)CHUNK_SIZE_MAX));
    p->hasher = hasher;
    p->count = 0;
    *out = p;
    return 0;
}

void packer_free(struct packer *p)
{
    if (!p)
        return;
    bytes_release(&p->pack);
    hasher_free(p->hasher);
    free(p);
}

/* Hand the pack to the upload under its name, unless it is empty, and emit the references that now are complete.
 * upload_put leaves p->pack empty. */
static int close_pack(struct packer *p)
{
    struct digest name = hasher_finish(p->hasher);
    int rc = p->pack.len ? upload_put(p->config.upload, OBJECT_PACK, &p->pack, &name) : 0;
    for (size_t i = 0; i < p->count && !rc; i++) {
        if (!p->waiting[i].passed)
            p->waiting[i].ref.object = name;
        rc = p->config.emit(p->config.arg, p->waiting[i].number, &p->waiting[i].ref);
    }
    p->count = 0;
    return rc;
}

int packer_add(struct packer *p, uint64_t number, const struct chunk_ref *ref, const struct bytes *stored)
{
    int rc = 0;
    if (p->count && (p->count == PACK_CHUNKS || p->pack.len + stored->len > p->config.pack_size))
        rc = close_pack(p);
    if (rc)
        return rc;
    struct waiting *w = &p->waiting[p->count];
    w->number = number;
    w->passed = false;
    w->ref = *ref;
    w->ref.kind = OBJECT_PACK;
    /* a pack has at most 1 GiB (build.c), so offsets fit */
    w->ref.offset = (uint32_t)p->pack.len;
    rc = bytes_append(&p->pack, stored->data, stored->len);
    if (rc)
        return rc;
    hasher_update(p->hasher, stored->data, stored->len);
    p->count++;
    return 0;
}

int packer_pass(struct packer *p, uint64_t number, const struct chunk_ref *ref)
{
    int rc = p->count == PACK_CHUNKS ? close_pack(p) : 0;
    if (!rc)
        p->waiting[p->count++] = (struct waiting){.number = number, .passed = true, .ref = *ref};
    return rc;
}

int packer_finish(struct packer *p)
{
    return p->count ? close_pack(p) : 0;
}
