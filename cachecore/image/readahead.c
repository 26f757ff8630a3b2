/* Sequential runs. A read belongs to the run whose end is nearest. A random read that happens to fall near a run counts
 * as part of it; that costs at most its own length ahead. The next part is fetched when less than half of the window is
 * left ahead of the reader. So a steady reader never waits, and each GET is large enough to be worth its round trip.
 *
 * A leaf without misses, or one that is complete, is not searched for runs. So readers of cached data pay one load, not
 * a lock. The first miss in a leaf begins a run; the second read may fetch ahead.
 *
 * Page faults: a program that maps a file faults its pages in one by one. It reaches the end of a chunk long before it
 * looks like a run, and then waits a round trip for the next chunk. So a short read that misses also fetches the next
 * chunk, if that has paid off before. Each such chunk costs one unit of the image's credit. Each short read that went
 * from the end of one chunk to the beginning of the next earns NEXT_WORTH units, provided that the next chunk was
 * missing or had been fetched this way.
 *
 * The credit is a relaxed atomic: a lost update costs or saves one chunk.
 */
#include "image/image_internal.h"

enum { NEXT_WORTH = 3, NEXT_CREDIT_MOST = 48, SHORT_PART = 4 /* a short read is at most this part of a chunk */ };

/* ---- runs ---- */

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Return the run that a read at `off` continues, or NULL. */
static struct stream *streams_find(struct streams *s, uint64_t off)
{
    struct stream *best = NULL;
    for (size_t i = 0; i < STREAMS_MAX; i++) {
        struct stream *run = &s->runs[i];
        if (!run->used || off < run->begin || off + STREAM_BACK < run->end || off > run->end + STREAM_FORWARD)
            continue;
        if (!best || distance(off, run->end) < distance(off, best->end))
            best = run;
    }
    return best;
}

/* Begin a run at `off`, in place of the least recently used one. */
static struct stream *streams_begin(struct streams *s, uint64_t off)
{
    struct stream *oldest = &s->runs[0];
    for (size_t i = 1; i < STREAMS_MAX; i++)
        if (s->runs[i].used < oldest->used)
            oldest = &s->runs[i];
    *oldest = (struct stream){.begin = off, .end = off};
    return oldest;
}

/* Return how many bytes may be fetched ahead of the run's end. A run that skips more than it reads gets nothing. */
static uint64_t window_of(const struct stream *run, uint64_t most)
{
    if (run->bytes <= STREAM_FREE || run->bytes < (run->end - run->begin) / 2)
        return 0;
    return GR_MIN(run->bytes - STREAM_FREE, most);
}

/* Count a read in its run. */
static void streams_count(struct streams *s, struct stream *run, uint64_t off, uint64_t len)
{
    run->used = ++s->clock;
    run->end = GR_MAX(run->end, off + len);
    run->bytes = GR_MIN(run->bytes + len, run->end - run->begin); /* reading the same bytes again is no progress */
}

struct stream_window streams_read(struct streams *s, uint64_t off, uint64_t len, const struct stream_limits *limits)
{
    struct stream *run = streams_find(s, off);
    /* The first read of a run gets no window, however long it is: kernels read a file of a megabyte at once. */
    bool follows = run;
    if (!run)
        run = streams_begin(s, off);
    streams_count(s, run, off, len);

    uint64_t window = window_of(run, limits->most), from = GR_MAX(run->ahead, run->end);
    from = GR_ALIGN_UP(from, limits->align);
    uint64_t to = GR_MIN(GR_ALIGN_UP(run->end + window, limits->align), limits->stop);
    if (!follows || !window || to <= from || from - run->end >= window / 2 + limits->align)
        return (struct stream_window){from, from};
    run->ahead = to;
    return (struct stream_window){from, to};
}

/* ---- one read ---- */

void readahead_init(struct readahead *r, struct image *img, uint64_t off, uint64_t len)
{
    r->img = img;
    r->off = off;
    r->len = len;
    r->in_streams = r->next = false;
    r->count = 0;
}

/* May the leaf have runs? Only if something of it was missed, and not everything of it is cached again. */
static bool has_runs(const struct image *img, const struct demand_leaf *leaf)
{
    return leaf && !demand_is_complete(leaf) && img->config.readahead;
}

/* A read that continues no run, or one from which nothing is fetched ahead yet, need not be looked at if it is a hit.
 * Nor is it if another reader holds the lock, as in find_window. */
bool readahead_looks_at(struct image *img, const struct demand_leaf *leaf, uint64_t off)
{
    if (!has_runs(img, leaf) || pthread_mutex_trylock(&img->streams_lock))
        return false;
    const struct stream *run = streams_find(&img->streams, off);
    bool looks = run && window_of(run, img->config.readahead);
    pthread_mutex_unlock(&img->streams_lock);
    return looks;
}

/* Count the hit in the run that it continues, if there is one: the next read may then have a window. */
void readahead_passed(struct image *img, const struct demand_leaf *leaf, uint64_t off, uint64_t len)
{
    if (!has_runs(img, leaf) || pthread_mutex_trylock(&img->streams_lock))
        return;
    struct stream *run = streams_find(&img->streams, off);
    if (run)
        streams_count(&img->streams, run, off, len);
    pthread_mutex_unlock(&img->streams_lock);
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
        (struct cache_piece){.ref = *ref, .store = r->img->config.store, .quota = image_quota(r->img)};
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
    struct chunk_ref ref, next;
    uint32_t number = (uint32_t)(chunk - span->first);
    if (!span_chunk(span, chunk, &ref) || chunk + 1 >= span->end || !span_chunk(span, chunk + 1, &next) ||
        demand_is_known(r->leaf, number) || cache_has(r->img->config.cache, &ref.digest) ||
        !demand_claim(r->leaf, number + 1))
        return;
    add_piece(r, &next, number + 1);
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
        struct chunk_ref ref;
        uint32_t number = (uint32_t)(chunk - span->first);
        if (r->count < READAHEAD_CHUNKS && span_chunk(span, chunk, &ref) && demand_claim(r->leaf, number))
            add_piece(r, &ref, number);
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
    bool used = demand_read(d, leaf, within, len);
    if ((used || missed) && has_crossed(r, leaf, within))
        change_credit(r, NEXT_WORTH);
    if (used)
        counter_add(&r->img->ahead_used_bytes, image_chunk_len(r->img, chunk));
    if ((used || missed) && r->img->noted)
        r->img->noted(r->img->noted_arg, r->img, number);
}
