/* Sequential runs: a leaf without misses, or one that is complete, is not searched for runs. So readers of cached data
 * pay one load, not a lock. The first miss in a leaf begins a run; the second read may fetch ahead.
 *
 * Page faults: a program that maps a file faults its pages in one by one. It reaches the end of a chunk long before it
 * looks like a run, and then waits a round trip for the next chunk. So a short read that misses also fetches the next
 * chunk, if that has paid off before. Each such chunk costs one unit of the image's credit. Each short read that went
 * from the end of one chunk to the beginning of the next earns NEXT_WORTH units, provided that the next chunk was
 * missing or had been fetched this way.
 *
 * The credit is a relaxed atomic: a lost update costs or saves one chunk.
 */
#include "image/readahead/readahead.h"

enum { NEXT_WORTH = 3, NEXT_CREDIT_MOST = 48, SHORT_PART = 4 /* a short read is at most this part of a chunk */ };

void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len)
{
    r->img = img;
    r->off = off;
    r->len = len;
    r->in_streams = r->next = false;
    r->count = 0;
}

/* Account for the read in the image's runs and return what to fetch ahead. If another reader holds the lock, skip
 * readahead: a read must not wait for it. */
static struct stream_window find_window(struct readahead *r, const struct stream_limits *limits)
{
    struct stream_window none = {0, 0};
    if (r->in_streams || pthread_mutex_trylock(&r->img->streams_lock))
        return none;
    r->in_streams = true;
    struct stream_window w = streams_read(&r->img->streams, r->off, r->len, limits);
    pthread_mutex_unlock(&r->img->streams_lock);
    return w;
}

static void add_piece(struct readahead *r, const struct chunk_ref *ref, uint32_t number)
{
    r->pieces[r->count] =
        (struct cache_piece){.ref = *ref, .store = r->img->config.store, .quota = r->img->config.quota};
    r->chunks[r->count++] = number;
}

static bool is_short(const struct readahead *r)
{
    return r->len <= r->img->manifest.chunk_size / SHORT_PART;
}

static int credit(const struct readahead *r)
{
    return atomic_load_explicit(&r->img->next_credit, memory_order_relaxed);
}

static void change_credit(struct readahead *r, int by)
{
    atomic_store_explicit(&r->img->next_credit, GR_MIN(credit(r) + by, (int)NEXT_CREDIT_MOST), memory_order_relaxed);
}

/* Choose the chunk after the read's last one, if the read itself will miss: its chunk is neither known nor cached. */
static void choose_next(struct readahead *r, const struct span *span)
{
    uint64_t chunk = (r->off + r->len - 1) / r->img->manifest.chunk_size;
    const struct chunk_ref *ref = span_chunk(span, chunk);
    const struct chunk_ref *next = chunk + 1 < span->end ? span_chunk(span, chunk + 1) : NULL;
    uint32_t number = (uint32_t)(chunk - span->first);
    if (!ref || !next || demand_is_known(r->leaf, number) || cache_has(r->img->config.cache, &ref->digest) ||
        !demand_claim(r->leaf, number + 1))
        return;
    add_piece(r, next, number + 1);
    r->next = true;
}

/* Did a short read go from the end of the previous chunk to the beginning of this one? */
static bool has_crossed(const struct readahead *r, const struct demand_leaf *leaf, uint32_t within)
{
    return is_short(r) && r->off % r->img->manifest.chunk_size < DEMAND_PAGE && within &&
           demand_was_asked(leaf, within - 1);
}

/* Readahead of a run comes first. Only if there is none may a short read take the next chunk. */
void readahead_choose(struct readahead *r, const struct span *span)
{
    const struct manifest *m = &r->img->manifest;
    if (!r->img->config.readahead || !span->leaf)
        return;
    r->leaf = demand_leaf(&r->img->demand, span->first / INDEX_FANOUT);
    if (!r->leaf || demand_is_complete(r->leaf))
        return;
    const struct stream_limits limits = {
        .most = GR_MIN(r->img->config.readahead, (uint64_t)READAHEAD_CHUNKS * m->chunk_size),
        .stop = span->end * m->chunk_size,
        .align = m->chunk_size,
    };
    struct stream_window w = find_window(r, &limits);
    for (uint64_t chunk = w.from / m->chunk_size; chunk * m->chunk_size < w.to; chunk++) {
        const struct chunk_ref *ref = span_chunk(span, chunk);
        uint32_t number = (uint32_t)(chunk - span->first);
        if (ref && r->count < READAHEAD_CHUNKS && demand_claim(r->leaf, number))
            add_piece(r, ref, number);
    }
    if (!r->count && is_short(r) && credit(r) > 0)
        choose_next(r, span);
}

/* The cache may take fewer pieces than it was given: the others are released, for another read to choose. */
void readahead_started(struct readahead *r)
{
    if (r->next && r->pieces[0].started)
        change_credit(r, -1);
    for (size_t i = 0; i < r->count; i++)
        if (r->pieces[i].started)
            counter_add(&r->img->readahead_bytes, r->pieces[i].ref.plain_len);
        else
            demand_unclaim(r->leaf, r->chunks[i]);
    r->count = 0;
    r->next = false;
}

/* Called per chunk and after the read, since only then is it known whether anything was missing. */
void readahead_note(struct readahead *r, uint64_t chunk, uint32_t len, bool missed)
{
    struct demand *d = &r->img->demand;
    uint64_t number = chunk / INDEX_FANOUT;
    uint32_t within = (uint32_t)(chunk % INDEX_FANOUT);
    struct demand_leaf *leaf = missed ? demand_missed(d, number, within) : demand_leaf(d, number);
    if (!leaf)
        return;
    /* readahead_choose skipped the runs of a leaf without a miss: begin a run now. */
    if (missed)
        (void)find_window(r, &(struct stream_limits){.align = 1});
    bool used = demand_read(leaf, within, len);
    if ((used || missed) && has_crossed(r, leaf, within))
        change_credit(r, NEXT_WORTH);
    if (used)
        counter_add(&r->img->ahead_used_bytes, image_chunk_len(r->img, chunk));
    if ((used || missed) && r->img->noted)
        r->img->noted(r->img->noted_arg, r->img, number);
}
