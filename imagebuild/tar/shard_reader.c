/* Blocks are numbered through all files. Block n has slot n % places of a ring. Threads claim blocks in order while
 * slots are free, and the reader takes them in order.
 *
 *   ring:     [in use] [done] [reading] [done] [reading] [free]
 *              ^ taken - 1, if holding                    ^ claimed
 *              taken <= n < claimed: being read, or done and waiting
 *
 * A claimed block belongs to its thread until `done` is set, and then to the reader.
 */
#include "imagebuild/tar/shard_reader.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/thread.h"

enum { THREADS_DEFAULT = 8, THREADS_MAX = 16, PLACES_PER_THREAD = 2, PLACES_MAX = THREADS_MAX * PLACES_PER_THREAD };

/* A piece of a file. */
struct block {
    size_t shard; /* index in config.shards */
    uint64_t offset;
    size_t len;
    bool done;
    struct error error;
    uint8_t *data; /* SHARD_BLOCK bytes */
};

struct shard_reader {
    struct shard_reader_config config;
    pthread_mutex_t lock; /* guards what follows up to the threads; never held during a read */
    pthread_cond_t changed;
    struct block ring[PLACES_MAX];
    size_t places;
    uint64_t claimed, taken;
    size_t next_shard; /* where the next block to be claimed begins */
    uint64_t next_offset;
    bool stopping;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
    /* used by the reader alone, but `holding` under the lock: */
    size_t begun; /* files begun */
    bool holding; /* the block before `taken` is in use by the caller */
};

/* ------------------------------------------------------------------ reading ahead */

static const struct shard *shard_at(const struct shard_reader *r, size_t i)
{
    return &r->config.shards[i];
}

/* Return whether a block is left to be claimed, moving on past ended files. */
static bool any_left_locked(struct shard_reader *r)
{
    while (r->next_shard < r->config.count && r->next_offset >= shard_at(r, r->next_shard)->version.size) {
        r->next_shard++;
        r->next_offset = 0;
    }
    return r->next_shard < r->config.count;
}

/* Claim the next block, waiting for a free slot. NULL: nothing is left, or stop. */
static struct block *shard_reader_claim(struct shard_reader *r)
{
    SCOPED_LOCK(&r->lock);
    for (;;) {
        if (r->stopping || !any_left_locked(r))
            return NULL;
        if (r->claimed - r->taken + r->holding < r->places)
            break;
        pthread_cond_wait(&r->changed, &r->lock);
    }
    struct block *b = &r->ring[r->claimed++ % r->places];
    uint64_t left = shard_at(r, r->next_shard)->version.size - r->next_offset;
    b->shard = r->next_shard;
    b->offset = r->next_offset;
    b->len = (size_t)GR_MIN(left, (uint64_t)SHARD_BLOCK);
    b->done = false;
    r->next_offset += b->len;
    return b;
}

static int read_block(struct shard_reader *r, struct block *b)
{
    const struct shard *shard = shard_at(r, b->shard);
    const struct source_read read = {.path = shard->path,
                                     .path_len = shard->path_len,
                                     .validator = shard->version.validator,
                                     .validator_len = shard->version.validator_len,
                                     .offset = b->offset,
                                     .len = b->len,
                                     .dst = b->data,
                                     .size = shard->version.size};
    if (!b->data)
        return error_no_memory();
    return source_read(r->config.source, &read);
}

/* A thread that reads ahead. */
static void *read_run(void *arg)
{
    struct shard_reader *r = arg;
    struct block *b;
    while ((b = shard_reader_claim(r))) {
        if (!b->data)
            b->data = malloc(SHARD_BLOCK);
        struct error error;
        error_take(&error, read_block(r, b));
        SCOPED_LOCK(&r->lock);
        b->error = error;
        b->done = true;
        pthread_cond_broadcast(&r->changed);
    }
    return NULL;
}

/* ------------------------------------------------------------------ the reader */

/* Take the next block if it belongs to a file before index `end`, waiting for it. NULL: it does not, or there is
 * none. */
static struct block *due(struct shard_reader *r, size_t end)
{
    SCOPED_LOCK(&r->lock);
    if (r->holding) {
        r->holding = false;
        pthread_cond_broadcast(&r->changed);
    }
    while (r->taken == r->claimed && any_left_locked(r) && r->next_shard < end)
        pthread_cond_wait(&r->changed, &r->lock);
    if (r->taken == r->claimed)
        return NULL;
    struct block *b = &r->ring[r->taken % r->places];
    if (b->shard >= end)
        return NULL;
    while (!b->done)
        pthread_cond_wait(&r->changed, &r->lock);
    r->taken++;
    r->holding = true;
    return b;
}

int shard_reader_next(struct shard_reader *r, const void **data, size_t *len)
{
    struct block *b = due(r, r->begun);
    *len = 0;
    if (!b)
        return 0;
    if (b->error.code)
        return error_restore(&b->error);
    *data = b->data;
    *len = b->len;
    return 0;
}

int shard_reader_begin(struct shard_reader *r, const struct shard **out)
{
    const void *data;
    size_t len;
    int rc;
    while (!(rc = shard_reader_next(r, &data, &len)) && len)
        ;
    if (rc || r->begun == r->config.count)
        return rc;
    *out = shard_at(r, r->begun++);
    return 1;
}

/* ------------------------------------------------------------------ life */

void shard_reader_stop(struct shard_reader *r)
{
    if (!r)
        return;
    struct source *source = r->config.source;
    pthread_mutex_lock(&r->lock);
    bool early = r->taken < r->claimed || any_left_locked(r);
    r->stopping = true;
    pthread_cond_broadcast(&r->changed);
    pthread_mutex_unlock(&r->lock);
    if (early)
        source_cancel(source);
    for (unsigned i = 0; i < r->thread_count; i++)
        pthread_join(r->threads[i], NULL);
    for (size_t i = 0; i < PLACES_MAX; i++)
        free(r->ring[i].data);
    pthread_cond_destroy(&r->changed);
    pthread_mutex_destroy(&r->lock);
    free(r);
}

int shard_reader_start(const struct shard_reader_config *config, struct shard_reader **out)
{
    struct shard_reader *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    unsigned wanted = GR_MIN(config->threads ? config->threads : THREADS_DEFAULT, (unsigned)THREADS_MAX);
    r->config = *config;
    r->places = (size_t)wanted * PLACES_PER_THREAD;
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->changed, NULL);
    int rc = 0;
    for (; !rc && r->thread_count < wanted; r->thread_count += !rc)
        rc = thread_start(&r->threads[r->thread_count], read_run, r);
    if (rc)
        shard_reader_stop(r);
    else
        *out = r;
    return rc;
}
