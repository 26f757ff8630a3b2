/* A ring of slots. The caller fills slot `head`, submits it to the workers' queue and goes on to the next; when the
 * ring comes round to a slot that is not free, its chunk is the oldest, so the caller waits for that one and hands it
 * on. A slot is FREE -> (submit) BUSY -> (worker) DONE -> (hand on) FREE; `lock` guards the state alone, the slot's
 * bytes belong to whoever the state says.
 */
#include "imagebuild/sink/chunker.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/queue.h"

enum slot_state { SLOT_FREE, SLOT_BUSY, SLOT_DONE };

struct slot {
    enum slot_state state;
    uint64_t number;
    uint32_t len;
    uint8_t *plain;
    struct bytes stored;
    struct chunk_ref ref;
    struct error error;
};

struct chunker {
    struct chunker_config config;
    struct queue *queue; /* of slots to encode; holds all of them, so a push never waits */
    pthread_mutex_t lock;
    pthread_cond_t done;
    size_t head;  /* the slot being filled, or to be filled next */
    size_t count; /* slots submitted and not handed on: those before head */
    size_t slot_count;
    struct slot *slots;
    unsigned worker_count;
    pthread_t *workers;
};

static void *worker_main(void *arg)
{
    struct chunker *c = arg;
    struct slot *slot;
    while ((slot = queue_pop(c->queue))) {
        bytes_clear(&slot->stored);
        int rc = chunk_encode(slot->plain, slot->len, c->config.zstd_level, &slot->stored, &slot->ref);
        if (rc)
            error_take(&slot->error, rc);
        SCOPED_LOCK(&c->lock);
        slot->state = SLOT_DONE;
        pthread_cond_signal(&c->done);
    }
    return NULL;
}

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
        /* zstd may want more room than it uses in the end */
        c->slots[i].stored = (struct bytes)BYTES_INIT((size_t)c->config.chunk_size * 2 + 4096);
        if (!c->slots[i].plain)
            return error_no_memory();
    }
    return 0;
}

static int start_workers(struct chunker *c)
{
    for (; c->worker_count < c->config.workers; c->worker_count++) {
        int rc = pthread_create(&c->workers[c->worker_count], NULL, worker_main, c);
        if (rc)
            return error_set(-rc, "build: cannot start %u compression threads", c->config.workers);
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
        bytes_release(&c->slots[i].stored);
    }
    queue_free(c->queue);
    pthread_cond_destroy(&c->done);
    pthread_mutex_destroy(&c->lock);
    free(c->workers);
    free(c->slots);
    free(c);
}

/* Hand on the oldest chunk. */
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

void chunker_submit(struct chunker *c, uint64_t number, uint32_t len)
{
    struct slot *slot = &c->slots[c->head];
    slot->number = number;
    slot->len = len;
    slot->state = SLOT_BUSY;
    c->head = (c->head + 1) % c->slot_count;
    c->count++;
    if (!queue_push(c->queue, slot))
        abort(); /* closed only by chunker_free */
}

int chunker_drain(struct chunker *c)
{
    int rc = 0;
    while (c->count && !rc)
        rc = emit_oldest(c);
    return rc;
}
