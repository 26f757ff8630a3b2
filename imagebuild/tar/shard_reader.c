/* Reading shards ahead: threads read blocks of the files, and one reader takes the blocks in order.
 *
 * Blocks are numbered through all files; block n has slot n % places of a ring. A thread claims the next block while
 * there is a free slot.
 *
 *   ring:     [in use] [done] [reading] [done] [reading] [free]
 *              ^ taken - 1, if holding                    ^ claimed
 *              taken <= n < claimed: being read, or done and waiting
 *
 * A claimed block belongs to its thread until `done` is set, and then to the reader.
 */
#include "imagebuild/tar/tar_internal.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

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

/* ------------------------------------------------------------------ decompressing */

/* Decompress here rather than in libarchive, which does not compare gzip's checksum, and may stop at the end of the
 * tar before the end of the stream. A shard may hold several compressed streams, one after the other. */

enum { PIECE = 1 << 20 }; /* bytes */

/* in[0 .. in_len) is input from the reader that is not used yet. */
struct shard_stream {
    struct shard_reader *reader;
    enum shard_kind kind;
    z_stream gzip;
    bool gzip_open;
    ZSTD_DStream *zstd;
    const uint8_t *in;
    size_t in_len;
    bool inside;    /* a compressed stream has begun and not ended */
    uint8_t *piece; /* output */
};

int shard_stream_new(struct shard_reader *reader, struct shard_stream **out)
{
    CLEANUP(cleanup_shard_stream) struct shard_stream *s = calloc(1, sizeof *s);
    if (!s || !(s->piece = malloc(PIECE)))
        return error_no_memory();
    s->reader = reader;
    *out = steal_ptr(&s);
    return 0;
}

void shard_stream_free(struct shard_stream *s)
{
    if (!s)
        return;
    if (s->gzip_open)
        inflateEnd(&s->gzip);
    ZSTD_freeDStream(s->zstd);
    free(s->piece);
    free(s);
}

int shard_stream_begin(struct shard_stream *s, enum shard_kind kind)
{
    s->kind = kind;
    s->in_len = 0;
    s->inside = false;
    if (kind == SHARD_GZIP && !s->gzip_open) {
        if (inflateInit2(&s->gzip, MAX_WBITS + 16) != Z_OK) /* 16: gzip's header and trailer */
            return error_no_memory();
        s->gzip_open = true;
    }
    if (kind == SHARD_ZSTD && !s->zstd && !(s->zstd = ZSTD_createDStream()))
        return error_no_memory();
    return 0;
}

/* Decompress some of s->in; *out: bytes filled in s->piece. */
static int inflate_some(struct shard_stream *s, size_t *out)
{
    z_stream *z = &s->gzip;
    if (!s->inside && inflateReset(z) != Z_OK)
        return error_set(-EBADMSG, "gzip cannot begin");
    uInt given = (uInt)GR_MIN(s->in_len, (size_t)UINT_MAX);
    z->next_in = (Bytef *)s->in;
    z->avail_in = given;
    z->next_out = s->piece;
    z->avail_out = PIECE;
    int rc = inflate(z, Z_NO_FLUSH);
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR)
        return error_set(-EBADMSG, "gzip: %s", z->msg ? z->msg : "bad data");
    s->inside = rc != Z_STREAM_END;
    s->in += given - z->avail_in;
    s->in_len -= given - z->avail_in;
    *out = PIECE - z->avail_out;
    return 0;
}

/* The same for zstd. */
static int unzstd_some(struct shard_stream *s, size_t *out)
{
    ZSTD_inBuffer in = {.src = s->in, .size = s->in_len};
    ZSTD_outBuffer to = {.dst = s->piece, .size = PIECE};
    if (!s->inside)
        ZSTD_DCtx_reset(s->zstd, ZSTD_reset_session_only);
    size_t rc = ZSTD_decompressStream(s->zstd, &to, &in);
    if (ZSTD_isError(rc))
        return error_set(-EBADMSG, "zstd: %s", ZSTD_getErrorName(rc));
    s->inside = rc != 0;
    s->in += in.pos;
    s->in_len -= in.pos;
    *out = to.pos;
    return 0;
}

int shard_stream_next(struct shard_stream *s, const void **data, size_t *len)
{
    if (s->kind == SHARD_TAR)
        return shard_reader_next(s->reader, data, len);
    *data = s->piece;
    *len = 0;
    /* the decompressor may hold output that needs no further input, so try once before reading more */
    for (bool flushed = !s->inside;; flushed = true) {
        if (flushed && !s->in_len) {
            const void *more;
            int rc = shard_reader_next(s->reader, &more, &s->in_len);
            if (rc)
                return rc;
            if (!s->in_len)
                /* the file's end is good only between two streams */
                return s->inside ? error_set(-EBADMSG, "the packed stream is cut short") : 0;
            s->in = more;
        }
        int rc = s->kind == SHARD_GZIP ? inflate_some(s, len) : unzstd_some(s, len);
        if (rc || *len)
            return rc;
    }
}
