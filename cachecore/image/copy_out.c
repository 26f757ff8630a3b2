/* Hands out a whole image: threads take pieces of it in order, read their chunks through the cache, and compare each
 * with its SHA-256 once more. A hit in the cache has been compared with a CRC only. */
#include <errno.h>
#include <stdlib.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/parallel.h"
#include "image/image_internal.h"

enum { COPY_THREADS = 8, COPY_PIECE = 4 << 20, COPY_CHUNKS_MAX = 64 };

struct copying {
    struct image *img;
    uint64_t per_piece; /* chunks */
    image_copy_visit *visit;
    int (*step)(void *arg, uint64_t done);
    void *arg;
    const volatile int *cancel;
    counter done; /* bytes, holes included */
};

/* Compare a chunk, and hand it out. */
static int hand_out(const struct copying *c, const struct cache_piece *piece, uint64_t chunk)
{
    char hex[DIGEST_HEX_SIZE];
    const struct digest digest = digest_of(piece->dst, piece->len);
    if (!digest_equal(&digest, &piece->ref.digest))
        return error_set(-EBADMSG, "chunk %s has other bytes than its name says", digest_hex(&piece->ref.digest, hex));
    return c->visit(c->arg, chunk * c->img->manifest.chunk_size, piece->dst, piece->len);
}

/* Collect the chunks [first, end) of one span. */
static size_t collect(const struct copying *c, const struct span *span, uint64_t first, uint64_t end, uint8_t *data,
                      struct cache_piece *pieces, uint64_t *chunks)
{
    size_t n = 0;
    for (uint64_t chunk = first; chunk < end; chunk++) {
        const struct chunk_ref *ref = span_chunk(span, chunk);
        if (!ref)
            continue;
        chunks[n] = chunk;
        pieces[n++] = (struct cache_piece){.ref = *ref,
                                           .store = c->img->config.store,
                                           .len = ref->plain_len,
                                           .quota = image_quota(c->img),
                                           .fenced = c->img->config.fenced,
                                           .dst = data + (chunk - first) * c->img->manifest.chunk_size};
    }
    return n;
}

/* Copy the chunks [first, end), which one span has. */
static int copy_span(struct copying *c, const struct span *span, uint64_t first, uint64_t end, uint8_t *data)
{
    struct cache_piece pieces[COPY_CHUNKS_MAX];
    uint64_t chunks[COPY_CHUNKS_MAX];
    size_t n = span->leaf ? collect(c, span, first, end, data, pieces, chunks) : 0;
    int rc = n ? cache_read(c->img->config.cache, pieces, n, NULL, 0, PRIORITY_WARM) : 0;
    if (rc == -ENODATA)
        rc = error_set(-EIO, "the image is in cache-only mode (fence=warmed), and not all of it is cached");
    for (size_t i = 0; !rc && i < n; i++)
        rc = hand_out(c, &pieces[i], chunks[i]);
    return rc;
}

static int copy_piece(void *arg, size_t i)
{
    struct copying *c = arg;
    const struct manifest *m = &c->img->manifest;
    uint64_t first = i * c->per_piece, end = GR_MIN(first + c->per_piece, manifest_chunk_count(m));
    CLEANUP_FREE uint8_t *data = malloc(c->per_piece * m->chunk_size);
    int rc = data ? cancel_check(c->cancel) : error_no_memory();
    while (!rc && first < end) {
        struct span span;
        rc = span_locate(c->img->nodes, first, SPAN_FETCHED, &span);
        if (rc)
            return rc == -ENODATA ? error_set(-EIO, "the image's index is not cached") : rc;
        uint64_t stop = GR_MIN(end, span.end);
        rc = copy_span(c, &span, first, stop, data);
        node_unref(span.leaf);
        if (!rc)
            counter_add(&c->done, GR_MIN(stop * m->chunk_size, m->size) - first * m->chunk_size);
        first = stop;
    }
    return rc;
}

static int copy_step(void *arg)
{
    struct copying *c = arg;
    int rc = cancel_check(c->cancel);
    return rc ? rc : c->step(c->arg, counter_get(&c->done));
}

int image_copy_out(struct image *img, const volatile int *cancel, image_copy_visit *visit,
                   int (*step)(void *arg, uint64_t done), void *arg)
{
    uint64_t chunk_size = img->manifest.chunk_size, count = manifest_chunk_count(&img->manifest);
    struct copying c = {.img = img,
                        .per_piece = GR_MIN(GR_MAX(COPY_PIECE / chunk_size, (uint64_t)1), (uint64_t)COPY_CHUNKS_MAX),
                        .visit = visit,
                        .step = step,
                        .arg = arg,
                        .cancel = cancel};
    const struct parallel work = {.count = (size_t)((count + c.per_piece - 1) / c.per_piece),
                                  .threads = COPY_THREADS,
                                  .item = copy_piece,
                                  .step = copy_step,
                                  .arg = &c};
    return parallel_run(&work);
}
