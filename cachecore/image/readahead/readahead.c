/* A leaf of which nothing was missed, or nothing is missing any more, has no runs looked for: readers of what is cached
 * pay for a load, not for a lock. The first miss of a leaf begins a run, the second read of it may go ahead.
 *
 * Who maps a file and faults its pages in one by one comes to the end of a chunk long before he is a run, and waits for
 * the next one for a round trip. So a short read that misses takes the next chunk along, where that has paid: it costs
 * one of a credit, which grows by NEXT_WORTH with each short read that has come from the end of one chunk to the
 * begin of the next, whether that was missing or had been taken along. The credit is relaxed: a chunk more or less.
 */
#include "image/readahead/readahead.h"

enum { NEXT_WORTH = 3, NEXT_CREDIT_MOST = 48, SHORT_PART = 4 /* of a chunk: a short read at most */ };

void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len)
{
    r->img = img;
    r->off = off;
    r->len = len;
    r->in_streams = r->next = false;
    r->count = 0;
}

/* Who finds the runs locked does without. */
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

/* The chunk behind the read's, if that is missing: nobody has asked for it, nor has it been fetched ahead. */
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

/* A short read has come to a chunk's begin from the one before, and this one was missing or had been taken along. */
static bool has_crossed(const struct readahead *r, const struct demand_leaf *leaf, uint32_t within)
{
    return is_short(r) && r->off % r->img->manifest.chunk_size < DEMAND_PAGE && within &&
           demand_was_asked(leaf, within - 1);
}

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

void readahead_note(struct readahead *r, uint64_t chunk, uint32_t len, bool missed)
{
    struct demand *d = &r->img->demand;
    uint64_t number = chunk / INDEX_FANOUT;
    uint32_t within = (uint32_t)(chunk % INDEX_FANOUT);
    struct demand_leaf *leaf = missed ? demand_missed(d, number, within) : demand_leaf(d, number);
    if (!leaf)
        return;
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
