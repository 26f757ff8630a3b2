/* The way of a read. A window of pieces is looked up under one lock: hits are pinned, misses start
 * their fetch before the lock is given back. (A fill makes its chunk readable under that lock and
 * retires the flight afterwards, so a chunk that is neither readable nor in the air at that moment
 * really has to be fetched: nothing is fetched twice.) Then, without the lock, the hits are read
 * from disk while the misses travel; a hit that fails its checksum or its read is dropped and joins
 * the misses; at last the misses are waited for.
 *
 * A disk read covers whole CRC blocks (cache_meta.h), the last one cut at the chunk's end rounded to
 * 4 KiB: a checksum needs all the bytes it was made of. It goes straight to dst where that is
 * aligned and takes exactly those blocks, otherwise to the reader's bounce buffer.
 *
 * A hit allocates nothing: windows live on the stack.
 */
#include <errno.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "cache/cache_internal.h"

enum {
    WINDOW = 64,      /* pieces looked up together */
    AHEAD_MAX = 64,   /* neighbours fetched with a window's misses */
    WARM_WINDOW = 16, /* chunks of cache_ensure in the air at once */
    ALIGN = 4096,
};

struct hit {
    const struct cache_piece *piece;
    struct space_slot slot;
    int rc; /* of its reads: 0 so far */
};

struct miss {
    const struct cache_piece *piece;
    struct flight *flight;
};

struct window {
    size_t hit_count, miss_count;
    struct hit hits[WINDOW];
    struct miss misses[WINDOW];
};

/* ---- misses ---- */

/* Start one fetch for n misses, all of one store, and the neighbours. */
static int start_group(struct cache *c, struct miss *misses, size_t n, const struct chunk_ref *const *ahead,
                       size_t ahead_count, enum fetch_lane lane)
{
    const struct chunk_ref *refs[WINDOW + AHEAD_MAX];
    struct flight *flights[WINDOW];
    for (size_t i = 0; i < n; i++)
        refs[i] = &misses[i].piece->ref;
    for (size_t i = 0; i < ahead_count; i++)
        refs[n + i] = ahead[i];
    int rc = fetch_start(c->fetch, misses[0].piece->store, refs, n + ahead_count, n, lane, flights);
    for (size_t i = 0; !rc && i < n; i++)
        misses[i].flight = flights[i];
    return rc;
}

static bool ready_locked(const struct cache *c, const struct digest *digest)
{
    uint32_t id = c->dir_count ? space_find(&c->space, digest) : SPACE_NONE;
    return id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY;
}

/* Misses from `from` on, grouped by store; neighbours go with the last group of their store. */
static int start_misses_locked(struct cache *c, struct window *w, size_t from, const struct cache_piece *ahead,
                               size_t ahead_count, enum fetch_lane lane)
{
    const struct chunk_ref *wanted[AHEAD_MAX];
    while (from < w->miss_count) {
        struct store *store = w->misses[from].piece->store;
        size_t to = from, wanted_count = 0;
        while (to < w->miss_count && w->misses[to].piece->store == store)
            to++;
        for (size_t i = 0; to == w->miss_count && i < ahead_count && wanted_count < AHEAD_MAX; i++)
            if (ahead[i].store == store && !ready_locked(c, &ahead[i].ref.digest))
                wanted[wanted_count++] = &ahead[i].ref;
        int rc = start_group(c, w->misses + from, to - from, wanted, wanted_count, lane);
        if (rc)
            return rc;
        from = to;
    }
    return 0;
}

/* Wait for a miss and give its bytes to the reader. */
static int deliver(struct cache *c, struct miss *miss)
{
    CLEANUP_BUF struct buf *plain = NULL;
    const struct cache_piece *p = miss->piece;
    int rc = flight_wait(miss->flight, &plain);
    if (rc)
        return rc;
    if ((uint64_t)p->offset + p->len > plain->len)
        return error_set(-EINVAL, "cache: piece outside of its chunk");
    memcpy(p->dst, plain->data + p->offset, p->len);
    counter_add(&c->stats.misses, 1);
    counter_add(&c->stats.miss_bytes, p->len);
    return 0;
}

/* Wait for a miss and keep it. */
static int keep(struct cache *c, struct miss *miss)
{
    CLEANUP_BUF struct buf *plain = NULL;
    int rc = flight_wait(miss->flight, &plain);
    if (rc)
        return rc;
    rc = fill_chunk(c, &miss->piece->ref.digest, plain, true);
    return rc ? error_set(-EIO, "cache: a chunk could not be kept: %s", strerror(-rc)) : 0;
}

typedef int miss_use(struct cache *c, struct miss *miss);

/* End every flight of the window; those before the first error (start_rc counts) are used. */
static int finish_misses(struct cache *c, struct window *w, int start_rc, miss_use *use)
{
    struct error first;
    error_take(&first, start_rc);
    for (size_t i = 0; i < w->miss_count; i++) {
        if (!w->misses[i].flight)
            continue;
        int rc = first.code ? 0 : use(c, &w->misses[i]);
        if (rc)
            error_take(&first, rc);
        flight_unref(w->misses[i].flight);
    }
    return first.code ? error_restore(&first) : 0;
}

/* ---- hits ---- */

/* A part of a hit in one disk read: bytes [off, off+len) of its slot, whole CRC blocks. */
struct part {
    struct hit *hit;
    uint32_t off, len;
    bool direct;
};

struct batch {
    struct ring *ring;
    uint32_t bounce_used;
    size_t n;
    struct part parts[RING_READS_MAX];
    struct ring_read reads[RING_READS_MAX];
};

static bool crcs_hold(const struct part *part, const uint8_t *data)
{
    const struct space_slot *slot = &part->hit->slot;
    uint32_t end = GR_MIN(part->off + part->len, slot->plain_len);
    for (uint32_t off = part->off; off < end; off += CACHE_BLOCK)
        if (crc32c(data + (off - part->off), GR_MIN(end - off, (uint32_t)CACHE_BLOCK)) != slot->crcs[off / CACHE_BLOCK])
            return false;
    return true;
}

/* Check what was read and copy the wanted bytes out of the bounce buffer. */
static void take_part(struct part *part, const struct ring_read *read)
{
    struct hit *hit = part->hit;
    const struct cache_piece *p = hit->piece;
    if (read->rc || hit->rc) {
        hit->rc = hit->rc ? hit->rc : read->rc;
        return;
    }
    if (!crcs_hold(part, read->buf)) {
        hit->rc = -EBADMSG;
        return;
    }
    uint32_t from = GR_MAX(part->off, p->offset), to = GR_MIN(part->off + part->len, p->offset + p->len);
    if (!part->direct)
        memcpy(p->dst + (from - p->offset), read->buf + (from - part->off), to - from);
}

static void flush_batch(struct batch *b)
{
    if (!b->n)
        return;
    ring_read_all(b->ring, b->reads, b->n);
    for (size_t i = 0; i < b->n; i++)
        take_part(&b->parts[i], &b->reads[i]);
    b->n = 0;
    b->bounce_used = 0;
}

static void add_read(struct batch *b, struct cache *c, struct hit *hit, uint32_t off, uint32_t len, uint8_t *direct)
{
    const struct cache_geometry *g = &c->dirs[hit->slot.dir]->geometry;
    b->parts[b->n] = (struct part){.hit = hit, .off = off, .len = len, .direct = direct != NULL};
    b->reads[b->n] = (struct ring_read){
        .file = hit->slot.dir,
        .off = cache_place_data_offset(g, &hit->slot.place) + off,
        .len = len,
        .buf = direct ? direct : ring_bounce(b->ring) + b->bounce_used,
    };
    if (!direct)
        b->bounce_used += len;
    b->n++;
}

static void add_hit(struct batch *b, struct cache *c, struct hit *hit)
{
    const struct cache_piece *p = hit->piece;
    uint32_t off = p->offset & ~(uint32_t)(CACHE_BLOCK - 1);
    uint32_t end = GR_MIN(GR_ALIGN_UP(p->offset + p->len, (uint32_t)CACHE_BLOCK),
                          GR_ALIGN_UP(hit->slot.plain_len, (uint32_t)ALIGN));
    if (off == p->offset && end == p->offset + p->len && (uintptr_t)p->dst % ALIGN == 0) {
        if (b->n == RING_READS_MAX)
            flush_batch(b);
        add_read(b, c, hit, off, end - off, p->dst);
        return;
    }
    while (off < end) {
        uint32_t room = (RING_BOUNCE - b->bounce_used) & ~(uint32_t)(CACHE_BLOCK - 1);
        if (!room || b->n == RING_READS_MAX) {
            flush_batch(b);
            continue;
        }
        uint32_t len = GR_MIN(end - off, room);
        add_read(b, c, hit, off, len, NULL);
        off += len;
    }
}

static void drop_hit(struct cache *c, struct hit *hit)
{
    cache_dir_fault(c->dirs[hit->slot.dir], "reading", hit->rc);
    counter_add(hit->rc == -EBADMSG ? &c->stats.crc_errors : &c->stats.read_errors, 1);
    SCOPED_LOCK(&c->lock);
    uint32_t id = space_find(&c->space, &hit->piece->ref.digest);
    if (id == hit->slot.id && space_slot_at(&c->space, id)->state == SLOT_READY)
        space_drop(&c->space, id); /* it may be gone by another reader's finding */
}

/* Read the hits; those that failed are dropped from the cache and appended to the misses. */
static void read_hits(struct cache *c, struct window *w)
{
    struct ring *ring = rings_borrow(c->rings);
    struct batch b = {.ring = ring};
    for (size_t i = 0; ring && i < w->hit_count; i++)
        add_hit(&b, c, &w->hits[i]);
    flush_batch(&b);
    if (ring)
        rings_return(ring);
    for (size_t i = 0; i < w->hit_count; i++) {
        struct hit *hit = &w->hits[i];
        if (ring && hit->rc)
            drop_hit(c, hit);
        cache_unpin(c, &hit->slot);
        if (!ring || hit->rc) {
            w->misses[w->miss_count++] = (struct miss){.piece = hit->piece};
        } else {
            counter_add(&c->stats.hits, 1);
            counter_add(&c->stats.hit_bytes, hit->piece->len);
        }
    }
}

/* ---- cache_read ---- */

/* The slot to read the piece from, or SPACE_NONE. A reference that lies about the chunk's length is
 * the fetch's to refuse; a slot with all the pins it can have (one chunk many times in many
 * requests) is fetched, which does no harm. */
static uint32_t hit_slot_locked(const struct cache *c, const struct cache_piece *p)
{
    uint32_t id = c->dir_count ? space_find(&c->space, &p->ref.digest) : SPACE_NONE;
    if (id == SPACE_NONE)
        return id;
    const struct slot *slot = space_slot_at(&c->space, id);
    bool hit = slot->state == SLOT_READY && slot->plain_len == p->ref.plain_len &&
               (uint64_t)p->offset + p->len <= slot->plain_len && space_can_pin(&c->space, id);
    return hit ? id : SPACE_NONE;
}

static void look_up_locked(struct cache *c, struct window *w, const struct cache_piece *pieces, size_t n)
{
    w->hit_count = w->miss_count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cache_piece *p = &pieces[i];
        uint32_t id = hit_slot_locked(c, p);
        if (id != SPACE_NONE) {
            struct hit *hit = &w->hits[w->hit_count++];
            hit->piece = p;
            hit->rc = 0;
            space_pin(&c->space, id, &hit->slot);
        } else {
            w->misses[w->miss_count++] = (struct miss){.piece = p};
        }
    }
}

static int read_window(struct cache *c, const struct cache_piece *pieces, size_t n, const struct cache_piece *ahead,
                       size_t ahead_count, enum fetch_lane lane, bool *out_missed)
{
    struct window w;
    int rc;
    {
        SCOPED_LOCK(&c->lock);
        look_up_locked(c, &w, pieces, n);
        rc = start_misses_locked(c, &w, 0, ahead, ahead_count, lane);
    }
    size_t started = w.miss_count;
    *out_missed = started > 0;
    if (w.hit_count)
        read_hits(c, &w);
    if (!rc && w.miss_count > started) {
        SCOPED_LOCK(&c->lock);
        rc = start_misses_locked(c, &w, started, NULL, 0, lane);
    }
    return w.miss_count ? finish_misses(c, &w, rc, deliver) : 0;
}

int cache_read(struct cache *c, const struct cache_piece *pieces, size_t n, const struct cache_piece *ahead,
               size_t ahead_count, enum fetch_lane lane)
{
    for (size_t done = 0; done < n;) {
        size_t part = GR_MIN(n - done, (size_t)WINDOW);
        bool missed;
        int rc = read_window(c, pieces + done, part, ahead, ahead_count, lane, &missed);
        if (rc)
            return rc;
        if (missed)
            ahead_count = 0; /* asked for once */
        done += part;
    }
    return 0;
}

/* ---- cache_ensure ---- */

/* Which of the n pieces are missing; returns their bytes. */
static size_t look_for_missing_locked(const struct cache *c, const struct cache_piece *pieces, size_t n,
                                      struct window *w)
{
    size_t bytes = 0;
    w->miss_count = 0;
    for (size_t i = 0; i < n; i++)
        if (!ready_locked(c, &pieces[i].ref.digest)) {
            w->misses[w->miss_count++] = (struct miss){.piece = &pieces[i]};
            bytes += pieces[i].ref.plain_len;
        }
    return bytes;
}

static int ensure_window(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_lane lane)
{
    struct window w;
    size_t bytes;
    {
        SCOPED_LOCK(&c->lock);
        bytes = look_for_missing_locked(c, pieces, n, &w);
    }
    if (!bytes)
        return 0;
    fill_warm_acquire(&c->fill, bytes);
    int rc;
    {
        SCOPED_LOCK(&c->lock);
        look_for_missing_locked(c, pieces, n, &w); /* again: the wait may have been long */
        rc = start_misses_locked(c, &w, 0, NULL, 0, lane);
    }
    rc = finish_misses(c, &w, rc, keep);
    fill_warm_release(&c->fill, bytes);
    return rc;
}

int cache_ensure(struct cache *c, const struct cache_piece *pieces, size_t n, enum fetch_lane lane)
{
    if (!c->dir_count)
        return n ? error_set(-EIO, "cache: there is no cache directory to keep chunks in; give cache=DIR:SIZE") : 0;
    for (size_t done = 0; done < n;) {
        size_t part = GR_MIN(n - done, (size_t)WARM_WINDOW);
        int rc = ensure_window(c, pieces + done, part, lane);
        if (rc)
            return rc;
        done += part;
    }
    return 0;
}
