/* From byte offsets to chunks: every operation is one walk over the leaves of a range.
 *
 *    image_read --> span_locate (leaf by leaf) --> read_span --> batch of pieces --> cache_read
 *    image_prefetch      likewise                                                --> cache_ensure
 *
 * A subtree of holes (a zero digest) is passed in one step. A leaf is released before its chunks are fetched. Pieces
 * are collected in a batch of fixed size on the stack, so a request of any length uses the same memory.
 *
 * A read never waits for a lock of the image: the manifest is constant, nodes belong to node_cache, notes are atomic,
 * and readahead does without its runs when their lock is taken. */
#include "image/image_internal.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"

enum { BATCH = 64, INDEX_MEMORY_DEFAULT = 64 << 20 }; /* pieces; bytes */

DEFINE_CLEANUP(image, struct image *, image_close)

int image_open(const struct image_config *config, const struct digest *digest, struct image **out)
{
    CLEANUP(cleanup_image) struct image *img = calloc(1, sizeof *img);
    if (!img)
        return error_no_memory();
    img->refs = 1;
    img->config = *config;
    img->digest = *digest;
    img->quota = config->quota;
    img->manifest = *config->manifest;
    img->config.manifest = &img->manifest;
    const struct node_cache_config nodes = {
        .cache = config->cache,
        .store = config->store,
        .fenced = config->fenced,
        .manifest = &img->manifest,
        .memory = config->index_memory ? config->index_memory : INDEX_MEMORY_DEFAULT,
    };
    pthread_mutex_init(&img->streams_lock, NULL);
    warm_turns_init(&img->warm_turns);
    warm_note_init(&img->warm_note);
    int rc = demand_init(&img->demand, manifest_chunk_count(&img->manifest), img->manifest.chunk_size);
    if (!rc)
        rc = node_cache_new(&nodes, &img->nodes);
    if (rc)
        return rc;
    *out = steal_ptr(&img);
    return 0;
}

struct image *image_ref(struct image *img)
{
    atomic_fetch_add_explicit(&img->refs, 1, memory_order_relaxed);
    return img;
}

void image_close(struct image *img)
{
    if (!img || atomic_fetch_sub_explicit(&img->refs, 1, memory_order_acq_rel) != 1)
        return;
    node_cache_free(img->nodes);
    demand_release(&img->demand);
    pthread_mutex_destroy(&img->streams_lock);
    warm_turns_release(&img->warm_turns);
    warm_note_release(&img->warm_note);
    free(img);
}

void image_set_index_memory(struct image *img, size_t bytes)
{
    node_cache_set_memory(img->nodes, bytes);
}

void image_set_quota(struct image *img, unsigned quota)
{
    atomic_store_explicit(&img->quota, quota, memory_order_relaxed);
}

const struct manifest *image_manifest(const struct image *img)
{
    return &img->manifest;
}

const struct digest *image_digest(const struct image *img)
{
    return &img->digest;
}

struct recorder_place *image_recorder(struct image *img)
{
    return &img->recorder;
}

/* ---- the walk ---- */

/* Written so that off + len cannot overflow. */
int image_check_range(const struct image *img, uint64_t off, uint64_t len)
{
    if (off <= img->manifest.size && len <= img->manifest.size - off)
        return 0;
    return error_set(-EINVAL, "image: bytes [%llu, +%llu) reach past the image's end at %llu", (unsigned long long)off,
                     (unsigned long long)len, (unsigned long long)img->manifest.size);
}

/* One operation in progress: the pieces that wait for the cache, and what the operation has cost so far. */
struct batch {
    struct image *img;
    bool prefetch;
    size_t count;
    struct cache_served served;
    uint64_t index_us; /* spent in the index, fetching its nodes included */
    struct cache_piece pieces[BATCH];
    uint64_t chunks[BATCH]; /* their chunk numbers; for reads only */
    uint64_t refused_at;    /* first offset that is not cached, when cache-only mode refuses a read */
    struct readahead ahead;
};

/* Return the offset of the first piece that is not cached, or of the first piece if all are cached by now. */
static uint64_t first_missing(const struct batch *b)
{
    size_t i = 0;
    while (i < b->count && cache_has(b->img->config.cache, &b->pieces[i].ref.digest))
        i++;
    i = i < b->count ? i : 0;
    return b->chunks[i] * b->img->manifest.chunk_size + b->pieces[i].offset;
}

/* Read the batch's pieces and tell readahead about them. */
static int flush_reads(struct batch *b)
{
    uint64_t missed = cache_served_fetched(&b->served);
    int rc = cache_read(b->img->config.cache, b->pieces, b->count, b->ahead.pieces, b->ahead.count, PRIORITY_DEMAND);
    missed = cache_served_fetched(&b->served) - missed;
    readahead_started(&b->ahead);
    if (rc == -ENODATA)
        b->refused_at = first_missing(b);
    for (size_t i = 0; !rc && i < b->count; i++)
        readahead_note(&b->ahead, b->chunks[i], b->pieces[i].len, missed);
    return rc;
}

/* Pass the batch to the cache and empty it. */
static int image_flush(struct batch *b)
{
    if (!b->count)
        return 0;
    int rc = b->prefetch ? cache_ensure(b->img->config.cache, b->pieces, b->count, PRIORITY_WARM) : flush_reads(b);
    b->count = 0;
    return rc;
}

/* Return the piece of a chunk of the image that a read wants at dst. */
static struct cache_piece piece_of(struct image *img, const struct chunk_ref *ref, uint32_t offset, uint32_t len,
                                   uint8_t *dst, struct cache_served *served)
{
    return (struct cache_piece){.ref = *ref,
                                .store = img->config.store,
                                .offset = offset,
                                .len = len,
                                .quota = image_quota(img),
                                .fenced = img->config.fenced,
                                .dst = dst,
                                .served = served};
}

/* Add a piece, with a flush before it if the batch is full. */
static int add_piece(struct batch *b, const struct chunk_ref *ref, uint32_t offset, uint32_t len, uint8_t *dst)
{
    int rc = b->count == BATCH ? image_flush(b) : 0;
    if (!rc)
        b->pieces[b->count++] = piece_of(b->img, ref, offset, len, dst, &b->served);
    return rc;
}

/* Add the part of [*off, end) that lies in one span; advances *off. dst: where the byte at *off goes; NULL: prefetch.
 * Holes are zeroed at once. */
static int read_span(struct batch *b, const struct span *span, uint64_t *off, uint64_t end, uint8_t *dst)
{
    const struct manifest *m = &b->img->manifest;
    uint64_t stop = GR_MIN(end, span->end * m->chunk_size), start = *off;
    while (*off < stop) {
        uint64_t chunk = *off / m->chunk_size;
        uint32_t within = (uint32_t)(*off % m->chunk_size);
        uint32_t len = (uint32_t)GR_MIN(stop - *off, (uint64_t)m->chunk_size - within);
        uint8_t *to = dst ? dst + (*off - start) : NULL;
        struct chunk_ref ref;
        if (span_chunk(span, chunk, &ref)) {
            if (to)
                recorder_note(&b->img->recorder, chunk, &ref.digest);
            int rc = add_piece(b, &ref, within, len, to);
            if (rc)
                return rc;
            b->chunks[b->count - 1] = chunk;
        } else if (to) {
            memset(to, 0, len);
            counter_add(&b->img->hole_bytes, len);
        }
        *off += len;
    }
    if (dst && *off == end && b->count)
        readahead_choose(&b->ahead, span);
    return 0;
}

/* Add what one read was served to the image's counters. */
static void count_served(struct image *img, const struct cache_served *served)
{
    for (size_t i = 0; i < CACHE_SOURCES; i++) {
        if (!served->pieces[i])
            continue;
        counter_add(&img->served[i], served->pieces[i]);
        counter_add(&img->served_bytes[i], served->bytes[i]);
    }
}

/* Keep the leaf after the span, if the span's first chunk is missing. A client that caches an image in order has a
 * whole leaf's chunks in flight, so all its requests would wait for the next leaf. A failure is reported by the request
 * that needs that leaf. */
static void keep_next_leaf(struct image *img, const struct span *span)
{
    struct chunk_ref ref;
    struct span next;
    if (span_chunk(span, span->first, &ref) && span->end < manifest_chunk_count(&img->manifest) &&
        !cache_has(img->config.cache, &ref.digest) && !span_locate(img->nodes, span->end, SPAN_KEPT, &next))
        node_unref(next.leaf);
}

/* Walk over [off, off+len), span by span. */
static int image_walk(struct batch *b, uint8_t *dst, uint64_t off, uint64_t len)
{
    struct image *img = b->img;
    uint64_t start = off, end = off + len;
    while (off < end) {
        struct span span;
        uint64_t began_us = clock_now_us();
        int rc = span_locate(img->nodes, off / img->manifest.chunk_size, dst ? SPAN_FETCHED : SPAN_KEPT, &span);
        b->index_us += clock_now_us() - began_us;
        if (rc) {
            b->refused_at = off;
            return rc;
        }
        if (!span.leaf && !dst) {
            off = GR_MIN(end, span.end * img->manifest.chunk_size);
            continue;
        }
        if (!dst && off == span.first * img->manifest.chunk_size)
            keep_next_leaf(img, &span);
        rc = read_span(b, &span, &off, end, dst ? dst + (off - start) : NULL);
        node_unref(span.leaf);
        if (rc)
            return rc;
    }
    return image_flush(b);
}

int image_refuse(struct image *img, uint64_t off)
{
    counter_add(&img->fence_refusals, 1);
    return error_set(-EIO,
                     "the bytes at offset %llu are not cached, and this image is in cache-only mode (fence=warmed); "
                     "'granary ls IMAGE --at %llu' names the file, 'granary warm' caches it",
                     (unsigned long long)off, (unsigned long long)off);
}

static void batch_begin(struct batch *b, struct image *img, bool prefetch, uint64_t off)
{
    b->img = img;
    b->prefetch = prefetch;
    b->count = 0;
    b->served = (struct cache_served){0};
    b->index_us = 0;
    b->refused_at = off;
}

/* Count the batch, and return rc, or the refusal where cache-only mode ended it. */
static int batch_end(struct batch *b, int rc)
{
    count_served(b->img, &b->served);
    return rc == -ENODATA ? image_refuse(b->img, b->refused_at) : rc;
}

/* Walk with readahead. Returns the walk's result; *b has what it cost. */
static int walk_batched(struct batch *b, struct image *img, uint8_t *dst, uint64_t off, uint64_t len)
{
    batch_begin(b, img, !dst, off);
    readahead_init(&b->ahead, img, off, len);
    return batch_end(b, image_walk(b, dst, off, len));
}

/* ---- the log of slow reads ---- */

void slow_reads_init(struct slow_reads *s, uint64_t least_us)
{
    *s = (struct slow_reads){.least_us = least_us, .limit = LOG_LIMIT_INIT, .lock = PTHREAD_MUTEX_INITIALIZER};
}

static double seconds(uint64_t us)
{
    return (double)us / 1e6;
}

/* Describe the chunk with the longest wait, and where it was fetched from. */
static void describe_slowest(const struct cache_served *served, char *out, size_t size)
{
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    const struct chunk_ref *ref = &served->slowest;
    if (!served->slowest_us) {
        *out = 0;
        return;
    }
    snprintf(out, size, "; longest for chunk %s in %s: asked %u times, last of %s", digest_hex(&ref->digest, hex),
             object_key(ref->kind, &ref->object, key), served->store.tries,
             *served->store.from ? served->store.from : "nobody");
}

static void keep_slow(struct slow_reads *s, const struct batch *b, uint64_t off, uint64_t len, uint64_t took_us, int rc)
{
    const struct cache_served *served = &b->served;
    struct slow_read read = {.image = b->img->digest,
                             .offset = off,
                             .len = len,
                             .ended_ms = clock_now_ms(),
                             .took_us = took_us,
                             .index_us = b->index_us,
                             .disk_us = served->disk_us,
                             .queued_us = served->store.queued_us,
                             .store_us = served->store.get_us,
                             .failed = rc};
    snprintf(read.from, sizeof read.from, "%s", served->slowest_us ? served->store.from : "");
    slow_reads_keep(s, &read);
}

/* One line: the whole time, split into index, disk, queue and store; "other" is the rest. The chunk with the longest
 * wait is named, with the object it is in. Counted before the rate limit, so that the counter also covers reads that
 * were not logged. Leaves the thread's error message as it is. */
static void say_slow(struct slow_reads *s, const struct batch *b, uint64_t off, uint64_t len, uint64_t took_us, int rc)
{
    const struct cache_served *served = &b->served;
    uint64_t known_us = b->index_us + served->disk_us + served->store.queued_us + served->store.get_us;
    char hex[DIGEST_HEX_SIZE], slowest[512];
    counter_add(&s->total, 1);
    describe_slowest(served, slowest, sizeof slowest);
    log_limited(&s->limit, LOG_LEVEL_WARNING,
                "slow read: %llu bytes at %llu of image sha256:%s %s %.3f s: index %.3f, disk %.3f, queue %.3f, store "
                "%.3f, other %.3f%s",
                (unsigned long long)len, (unsigned long long)off, digest_hex(&b->img->digest, hex),
                rc ? "failed after" : "took", seconds(took_us), seconds(b->index_us), seconds(served->disk_us),
                seconds(served->store.queued_us), seconds(served->store.get_us),
                seconds(took_us > known_us ? took_us - known_us : 0), slowest);
    keep_slow(s, b, off, len, took_us, rc); /* before it is named */
    if (s->ask)
        s->ask(s->ask_arg, b->img, off);
}

/* ---- read and prefetch ---- */

static void count_read(struct image *img, size_t len)
{
    counter_add(&img->reads, 1);
    counter_add(&img->read_bytes, len);
}

/* Measure a read that began at began_us and ended with rc; log it if it was slow. */
static void time_read(const struct batch *b, uint64_t off, size_t len, uint64_t began_us, int rc)
{
    struct slow_reads *slow = b->img->config.slow;
    uint64_t took_us = clock_now_us() - began_us;
    if (b->img->config.latency)
        histogram_add(b->img->config.latency, took_us);
    if (slow && slow->least_us && took_us >= slow->least_us)
        say_slow(slow, b, off, len, took_us, rc);
}

int image_read(struct image *img, void *dst, uint64_t off, size_t len)
{
    int rc = image_check_range(img, off, len);
    if (rc)
        return rc;
    count_read(img, len);
    struct batch b;
    uint64_t began_us = clock_now_us();
    rc = walk_batched(&b, img, dst, off, len);
    time_read(&b, off, len, began_us, rc);
    return rc;
}

/* ---- reads in flight ---- */

/* Add the piece of a chunk, if readahead has nothing to decide about it. */
static bool add_cached_piece(struct image *img, struct image_cached_read *r, uint64_t chunk, uint32_t offset,
                             uint32_t len, uint8_t *dst)
{
    const struct demand_leaf *leaf = demand_leaf(&img->demand, chunk / INDEX_FANOUT);
    struct cache_group *g = &r->group;
    struct span span;
    if (g->count == CACHE_GROUP_MAX || readahead_looks_at(img, leaf, r->off) ||
        span_locate(img->nodes, chunk, SPAN_HELD, &span))
        return false;
    struct chunk_ref ref;
    bool added = span_chunk(&span, chunk, &ref);
    if (added) {
        r->chunks[g->count] = chunk;
        g->pieces[g->count++] = piece_of(img, &ref, offset, len, dst, &r->served);
    }
    node_unref(span.leaf);
    return added;
}

/* Set up the pieces of a read: all of them, or none. */
static void add_cached(struct image *img, struct image_cached_read *r)
{
    uint64_t chunk_size = img->manifest.chunk_size, off = r->off, end = r->off + r->len;
    bool can = r->len && !image_check_range(img, r->off, r->len);
    r->image = img;
    r->served = (struct cache_served){0};
    r->group.count = 0;
    while (can && off < end) {
        uint32_t within = (uint32_t)(off % chunk_size);
        uint32_t len = (uint32_t)GR_MIN(end - off, chunk_size - within);
        can = add_cached_piece(img, r, off / chunk_size, within, len, (uint8_t *)r->dst + (off - r->off));
        off += len;
    }
    if (!can)
        r->group.count = 0;
}

void image_start_cached(struct image *img, struct cache_reader *reader, struct image_cached_read *const *reads,
                        size_t n)
{
    struct cache_group *groups[IMAGE_READS_MAX];
    assert(n <= IMAGE_READS_MAX);
    for (size_t i = 0; i < n; i++) {
        add_cached(img, reads[i]);
        groups[i] = &reads[i]->group;
    }
    cache_reader_start(reader, groups, n);
}

/* Count a read, and tell readahead and a recording about it. */
static void note_cached(struct image_cached_read *r)
{
    struct batch b;
    batch_begin(&b, r->image, false, r->off);
    b.served = r->served;
    readahead_init(&b.ahead, r->image, r->off, r->len);
    readahead_passed(r->image, demand_leaf(&r->image->demand, r->chunks[0] / INDEX_FANOUT), r->off, r->len);
    for (size_t i = 0; i < r->group.count; i++) {
        recorder_note(&r->image->recorder, r->chunks[i], &r->group.pieces[i].ref.digest);
        readahead_note(&b.ahead, r->chunks[i], r->group.pieces[i].len, false);
    }
    count_read(r->image, r->len);
    time_read(&b, r->off, r->len, r->group.began_us, 0);
}

static_assert(offsetof(struct image_cached_read, group) == 0, "a group is found in its read");

struct image_cached_read *image_take_cached(struct cache_reader *reader)
{
    struct cache_group *g = cache_reader_take(reader);
    if (!g)
        return NULL;
    struct image_cached_read *r = (struct image_cached_read *)g; /* its first member */
    r->got = g->count && g->got;
    if (r->got)
        note_cached(r);
    count_served(r->image, &r->served);
    return r;
}

int image_prefetch(struct image *img, uint64_t off, uint64_t len)
{
    int rc = image_check_range(img, off, len);
    if (rc)
        return rc;
    counter_add(&img->prefetches, 1);
    counter_add(&img->prefetch_bytes, len);
    struct batch b;
    return walk_batched(&b, img, NULL, off, len);
}

/* Consecutive chunks mostly lie in the same leaf, so the span is kept until a chunk falls outside of it. */
int image_prefetch_chunks(struct image *img, const uint64_t *chunks, size_t n)
{
    struct batch b;
    batch_begin(&b, img, true, n ? chunks[0] * img->manifest.chunk_size : 0);
    struct span span = {0};
    uint64_t bytes = 0;
    int rc = 0;
    counter_add(&img->prefetches, 1);
    for (size_t i = 0; !rc && i < n; i++) {
        uint64_t off = chunks[i] * img->manifest.chunk_size;
        if (chunks[i] < span.first || chunks[i] >= span.end) {
            node_unref(steal_ptr(&span.leaf));
            rc = image_check_range(img, off, 1);
            rc = rc ? rc : span_locate(img->nodes, chunks[i], SPAN_KEPT, &span);
        }
        bytes += rc ? 0 : GR_MIN((uint64_t)img->manifest.chunk_size, img->manifest.size - off);
        struct chunk_ref ref;
        if (!rc && span_chunk(&span, chunks[i], &ref))
            rc = add_piece(&b, &ref, 0, 0, NULL);
    }
    node_unref(span.leaf);
    counter_add(&img->prefetch_bytes, bytes);
    return batch_end(&b, rc ? rc : image_flush(&b));
}

/* ---- counters ---- */

/* The counters are read one by one: a concurrent read may be in some of them only. */
void image_traffic(struct image *img, struct image_traffic *out)
{
    *out = (struct image_traffic){.reads = counter_get(&img->reads),
                                  .read_bytes = counter_get(&img->read_bytes),
                                  .hole_bytes = counter_get(&img->hole_bytes),
                                  .prefetches = counter_get(&img->prefetches),
                                  .prefetch_bytes = counter_get(&img->prefetch_bytes),
                                  .fence_refusals = counter_get(&img->fence_refusals)};
    for (size_t i = 0; i < CACHE_SOURCES; i++) {
        out->served.pieces[i] = counter_get(&img->served[i]);
        out->served.bytes[i] = counter_get(&img->served_bytes[i]);
    }
}

void image_counters(struct image *img, counter_visit *visit, void *arg)
{
    struct node_cache_stats nodes;
    node_cache_stats(img->nodes, &nodes);
    const struct counter_row rows[] = {
        {"granary_image_reads_total", "Reads", counter_get(&img->reads)},
        {"granary_image_read_bytes_total", "Bytes read", counter_get(&img->read_bytes)},
        {"granary_image_hole_bytes_total", "Bytes read that were holes", counter_get(&img->hole_bytes)},
        {"granary_image_prefetches_total", "Ranges that clients asked to cache", counter_get(&img->prefetches)},
        {"granary_image_prefetch_bytes_total", "Bytes that clients asked to cache", counter_get(&img->prefetch_bytes)},
        {"granary_image_readahead_bytes_total",
         "Bytes of chunks fetched ahead of sequential readers and of page faults", counter_get(&img->readahead_bytes)},
        {"granary_image_completion_bytes_total",
         "Bytes of chunks fetched by completion of regions that are read in random order",
         counter_get(&img->completion_bytes)},
        {"granary_image_ahead_used_bytes_total", "Bytes of chunks fetched ahead that were read afterwards",
         counter_get(&img->ahead_used_bytes)},
        {"granary_image_node_hits_total", "Index nodes found in memory", nodes.hits},
        {"granary_image_node_misses_total", "Index nodes not in memory, read through the cache", nodes.misses},
        {"granary_image_node_evictions_total", "Index nodes evicted from memory to make room for others",
         nodes.evictions},
        {"granary_image_node_bytes", "Memory held by decoded index nodes now", nodes.bytes},
    };
    counter_show(rows, GR_ARRAY_SIZE(rows), visit, arg);
}
