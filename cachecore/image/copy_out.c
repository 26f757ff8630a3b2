/* Hands out a whole image: threads take pieces of it in order, read their chunks through the cache, and compare each
 * with its SHA-256 once more. A hit in the cache has been compared with a CRC only.
 *
 * What is handed out gets the name of the content root, under which other images find it. So the digests of the very
 * bytes are hashed, in order, and must give that root: readers do not compare the index's nodes with it. A thread that
 * is WINDOW pieces ahead of the slowest waits for it, so that few digests are kept. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cancel.h"
#include "base/error.h"
#include "base/parallel.h"
#include "format/chunk.h"
#include "format/content_root.h"
#include "image/image_internal.h"

enum { COPY_THREADS = 8, COPY_PIECE = 4 << 20, COPY_CHUNKS_MAX = 64, WINDOW = 4 * COPY_THREADS, SAMPLES = 32 };

/* The digests of one piece's chunks; zero: a hole. */
struct piece_digests {
    bool ready;
    size_t count;
    struct digest digests[COPY_CHUNKS_MAX];
};

struct copying {
    struct image *img;
    uint64_t per_piece; /* chunks */
    const struct image_copy *how;
    counter done; /* bytes, holes included */

    pthread_mutex_t lock; /* guards the rest; of `pieces`, `ready` */
    pthread_cond_t moved; /* `next` or `failed` has changed */
    size_t next;          /* the first piece that is not in `root` yet */
    bool failed;          /* some piece was: wait for none */
    struct content_root *root;
    struct piece_digests pieces[WINDOW]; /* piece i has [i % WINDOW] */
};

/* ---- the content root ---- */

/* Wait until piece i has a place for its digests. The slowest piece never waits. false: another has failed. */
static bool window_enter(struct copying *c, size_t i)
{
    SCOPED_LOCK(&c->lock);
    while (!c->failed && i >= c->next + WINDOW)
        pthread_cond_wait(&c->moved, &c->lock);
    return !c->failed;
}

/* Piece i is done, with rc: hash all digests that are next. */
static void window_leave(struct copying *c, size_t i, int rc)
{
    SCOPED_LOCK(&c->lock);
    c->failed |= rc != 0;
    c->pieces[i % WINDOW].ready = true;
    for (struct piece_digests *p; !c->failed && (p = &c->pieces[c->next % WINDOW])->ready; c->next++) {
        for (size_t k = 0; k < p->count; k++)
            content_root_add(c->root, &p->digests[k]);
        p->ready = false;
    }
    pthread_cond_broadcast(&c->moved);
}

static int check_root(struct copying *c)
{
    const struct digest is = content_root_finish(c->root);
    return digest_equal(&is, &c->img->manifest.content_root)
               ? 0
               : error_set(-EBADMSG, "the image's index has other chunks than its content root says; 'granary verify' "
                                     "says more, or build the image again");
}

/* ---- pieces ---- */

/* Note the digest of a chunk that was handed out; zero for zeros, which the check of a file takes for a hole. */
static void note_digest(const struct cache_piece *piece, struct digest *out)
{
    if (!chunk_all_zero(piece->dst, piece->len))
        *out = piece->ref.digest;
}

/* Compare a chunk, and hand it out. *out: see note_digest. */
static int hand_out(const struct copying *c, const struct cache_piece *piece, uint64_t chunk, struct digest *out)
{
    char hex[DIGEST_HEX_SIZE];
    const struct digest digest = digest_of(piece->dst, piece->len);
    if (!digest_equal(&digest, &piece->ref.digest)) {
        (void)!cache_evict(c->img->config.cache, &piece->ref.digest, true); /* the next read fetches it */
        return error_set(
            -EBADMSG,
            "chunk %s had other bytes in the cache than its name says, and was evicted: try again, and look "
            "for bad memory or a bad disk if that repeats",
            digest_hex(&piece->ref.digest, hex));
    }
    note_digest(piece, out);
    return c->how->visit(c->how->arg, chunk * c->img->manifest.chunk_size, piece->dst, piece->len);
}

/* Collect the chunks [first, end) of one span. */
static size_t collect(const struct copying *c, const struct span *span, uint64_t first, uint64_t end, uint8_t *data,
                      struct cache_piece *pieces, uint64_t *chunks)
{
    size_t n = 0;
    for (uint64_t chunk = first; chunk < end; chunk++) {
        struct chunk_ref ref;
        if (!span_chunk(span, chunk, &ref))
            continue;
        chunks[n] = chunk;
        pieces[n++] = (struct cache_piece){.ref = ref,
                                           .store = c->img->config.store,
                                           .len = ref.plain_len,
                                           .quota = image_quota(c->img),
                                           .fenced = c->img->config.fenced,
                                           .dst = data + (chunk - first) * c->img->manifest.chunk_size};
    }
    return n;
}

/* Does the other version have this chunk at `off`? Then dst has its bytes. */
static bool peek_is(image_peek *peek, void *arg, uint64_t off, const struct chunk_ref *ref, uint8_t *dst)
{
    if (!peek(arg, off, dst, ref->plain_len))
        return false;
    const struct digest is = digest_of(dst, ref->plain_len);
    return digest_equal(&is, &ref->digest);
}

/* Take from another version what it has of these chunks, and leave the others in `pieces`. */
static int share_some(const struct copying *c, struct cache_piece *pieces, uint64_t *chunks, size_t *n, uint64_t first,
                      struct digest *out)
{
    const struct image_copy *how = c->how;
    size_t left = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < *n; i++) {
        const struct cache_piece *p = &pieces[i];
        uint64_t off = chunks[i] * c->img->manifest.chunk_size;
        if (!peek_is(how->peek, how->arg, off, &p->ref, p->dst)) {
            chunks[left] = chunks[i];
            pieces[left++] = *p;
        } else if (!how->share(how->arg, off, p->len)) {
            note_digest(p, &out[chunks[i] - first]);
        } else {
            rc = hand_out(c, p, chunks[i], &out[chunks[i] - first]);
        }
    }
    *n = left;
    return rc;
}

/* Copy the chunks [first, end), which one span has. out: the digests of those that are no holes. */
static int copy_span(struct copying *c, const struct span *span, uint64_t first, uint64_t end, uint8_t *data,
                     struct digest *out)
{
    struct cache_piece pieces[COPY_CHUNKS_MAX];
    uint64_t chunks[COPY_CHUNKS_MAX];
    size_t n = span->leaf ? collect(c, span, first, end, data, pieces, chunks) : 0;
    int rc = c->how->peek ? share_some(c, pieces, chunks, &n, first, out) : 0;
    if (!rc && n)
        rc = cache_read(c->img->config.cache, pieces, n, NULL, 0, PRIORITY_WARM);
    for (size_t i = 0; !rc && i < n; i++)
        rc = hand_out(c, &pieces[i], chunks[i], &out[chunks[i] - first]);
    return rc;
}

static int copy_chunks(struct copying *c, uint64_t first, uint64_t end, struct digest *out)
{
    const struct manifest *m = &c->img->manifest;
    CLEANUP_FREE uint8_t *data = malloc(c->per_piece * m->chunk_size);
    int rc = data ? cancel_check(c->how->cancel) : error_no_memory();
    for (uint64_t at = first, stop; !rc && at < end; at = stop) {
        struct span span;
        rc = span_locate(c->img->nodes, at, SPAN_FETCHED, &span);
        if (rc)
            break;
        stop = GR_MIN(end, span.end);
        rc = copy_span(c, &span, at, stop, data, out + (at - first));
        node_unref(span.leaf);
        if (!rc)
            counter_add(&c->done, GR_MIN(stop * m->chunk_size, m->size) - at * m->chunk_size);
    }
    return rc == -ENODATA ? error_set(-EIO, "not all of the image is cached, and it is in cache-only mode "
                                            "(fence=warmed); 'granary warm' caches it")
                          : rc;
}

static int copy_piece(void *arg, size_t i)
{
    struct copying *c = arg;
    uint64_t first = i * c->per_piece, end = GR_MIN(first + c->per_piece, manifest_chunk_count(&c->img->manifest));
    if (!window_enter(c, i))
        return -ECANCELED; /* the piece that failed has the sentence */
    struct piece_digests *p = &c->pieces[i % WINDOW];
    p->count = (size_t)(end - first);
    memset(p->digests, 0, sizeof p->digests);
    int rc = copy_chunks(c, first, end, p->digests);
    window_leave(c, i, rc);
    return rc;
}

static int copy_step(void *arg)
{
    struct copying *c = arg;
    int rc = cancel_check(c->how->cancel);
    return rc ? rc : c->how->step(c->how->arg, counter_get(&c->done));
}

int image_copy_out(struct image *img, const struct image_copy *how)
{
    const struct manifest *m = &img->manifest;
    CLEANUP_FREE struct copying *c = calloc(1, sizeof *c);
    if (!c)
        return error_no_memory();
    c->img = img;
    c->per_piece = GR_MIN(GR_MAX(COPY_PIECE / m->chunk_size, (uint64_t)1), (uint64_t)COPY_CHUNKS_MAX);
    c->how = how;
    int rc = content_root_new(m->size, m->chunk_size, &c->root);
    if (rc)
        return rc;
    const struct parallel work = {.count = (size_t)((manifest_chunk_count(m) + c->per_piece - 1) / c->per_piece),
                                  .threads = COPY_THREADS,
                                  .item = copy_piece,
                                  .step = copy_step,
                                  .arg = c};
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->moved, NULL);
    rc = parallel_run(&work);
    if (!rc)
        rc = check_root(c);
    pthread_cond_destroy(&c->moved);
    pthread_mutex_destroy(&c->lock);
    content_root_free(c->root);
    return rc;
}

/* ---- samples ---- */

/* Find a chunk without the store. 1: *out is it; 0: a hole; -ENODATA and the like: its index node is not cached. */
static int find_cached(struct image *img, uint64_t chunk, struct chunk_ref *out)
{
    struct span span;
    int rc = span_locate(img->nodes, chunk, SPAN_CACHED, &span);
    if (rc)
        return rc;
    rc = span.leaf && span_chunk(&span, chunk, out);
    node_unref(span.leaf);
    return rc;
}

unsigned image_likeness(struct image *img, image_peek *peek, void *arg)
{
    const struct manifest *m = &img->manifest;
    uint64_t total = manifest_chunk_count(m), samples = GR_MIN(total, (uint64_t)SAMPLES);
    CLEANUP_FREE uint8_t *data = malloc(m->chunk_size);
    unsigned found = 0, like = 0;
    struct chunk_ref ref = {0};
    for (uint64_t i = 0; data && i < samples; i++) {
        uint64_t chunk = i * total / samples + total / samples / 2; /* the middle of part i */
        if (find_cached(img, chunk, &ref) <= 0)
            continue;
        found++;
        like += peek_is(peek, arg, chunk * m->chunk_size, &ref, data);
    }
    return found ? like * 100 / found : 0;
}
