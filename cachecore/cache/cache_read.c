/* The read path.
 *
 *    pieces --> memory tier ----------------------------------------------------> dst
 *        rest --> lookup, one locked section: hits pinned, misses' fetches started
 *                   hits ----> read from disk without the lock, verified -------> dst
 *                   |             `-- failed or late: joins the misses
 *                   misses --> waited for, after the disk reads ----------------> dst
 *
 * A window of pieces is looked up in one locked section. A fill makes its chunk readable under that lock and retires
 * the in-flight fetch afterwards. So a chunk that is neither readable nor in flight during the lookup really has to
 * be fetched, and nothing is fetched twice. Disk reads and fetches overlap.
 *
 * All disk reads of one cache_read share disk_timeout_ms. A hit that is late becomes a miss, but its chunk stays in
 * the cache: nothing is known against it. A hit that fails its read or its checksum is dropped.
 *
 * Nothing is allocated: windows live on the stack. The one exception is a chunk kept compressed, which is read and
 * decoded whole, whichever part of it is requested.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "cache/cache_internal.h"

enum { WINDOW = MISSES_MAX /* pieces looked up together */ };

/* What the lookup of one window found. */
struct window {
    size_t hit_count, late_count;
    struct hit hits[WINDOW];
    struct misses misses;
    const struct cache_piece *late[WINDOW]; /* reached the memory tier after the first look */
};

/* ---- memory ---- */

/* Count a piece for its reader, where the reader asked for it. */
static void count_served(const struct cache_piece *p, enum cache_source source)
{
    if (!p->served)
        return;
    p->served->pieces[source]++;
    p->served->bytes[source] += p->len;
}

/* Count a hit in memory as a use on disk: otherwise the chunks used most would look cold to the disk's eviction policy,
 * which would evict them. A random sample of the hits is enough. Never waits for the lock: this is the fastest path. */
static void tell_disk(struct cache *c, const struct digest *digest)
{
    if (!c->dir_count || pthread_mutex_trylock(&c->lock))
        return; /* another hit will report it */
    uint32_t id = space_find(&c->space, digest);
    struct space_slot slot;
    if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY && space_can_pin(&c->space, id)) {
        space_pin(&c->space, id, &slot);
        space_unpin(slot.pins);
    }
    space_assert(&c->space);
    pthread_mutex_unlock(&c->lock);
}

bool cache_serve_from_memory(struct cache *c, const struct cache_piece *p)
{
    if (!c->memory_tier)
        return false;
    enum memory_tier_result rc =
        memory_tier_read(c->memory_tier, &p->ref.digest, p->ref.plain_len, p->offset, p->len, p->dst);
    if (rc == MEMORY_TIER_MISS)
        return false;
    if (rc == MEMORY_TIER_HIT_TELL)
        tell_disk(c, &p->ref.digest);
    count_served(p, CACHE_FROM_MEMORY);
    return true;
}

/* ---- misses ---- */

/* Count what waiting since since_us for a miss's fetch has cost its reader. Returns the source of the bytes. */
static enum cache_source count_wait(struct cache *c, const struct miss *miss, uint64_t since_us)
{
    struct cache_served *served = miss->piece->served;
    struct inflight_times t;
    inflight_times(miss->inflight, since_us, &t);
    histogram_add(&c->fetch_waits, t.queued_us + t.get_us);
    served->store.queued_us += t.queued_us;
    served->store.get_us += t.get_us;
    enum cache_source source = t.from_node ? CACHE_FROM_PEER : t.from_l2 ? CACHE_FROM_L2 : CACHE_FROM_STORE;
    if (t.queued_us + t.get_us < served->slowest_us)
        return source;
    served->slowest_us = t.queued_us + t.get_us;
    served->slowest = miss->piece->ref;
    served->store.tries = t.tries;
    memcpy(served->store.from, t.from, sizeof served->store.from);
    return source;
}

/* Wait for a miss's fetch, and count the wait where the reader asked for it. */
static int wait_for(struct cache *c, struct miss *miss, struct buf **out, enum cache_source *out_source)
{
    if (!miss->piece->served)
        return misses_wait(c, miss, out);
    uint64_t since_us = clock_now_us();
    int rc = misses_wait(c, miss, out);
    if (rc != -ECANCELED) /* -ECANCELED: the wait was given up, and the fetch may still be in flight */
        *out_source = count_wait(c, miss, since_us);
    return rc;
}

/* Wait for a miss and copy its bytes to the reader. */
static int deliver(struct cache *c, struct miss *miss)
{
    CLEANUP_BUF struct buf *plain = NULL;
    const struct cache_piece *p = miss->piece;
    enum cache_source source = CACHE_FROM_STORE;
    int rc = wait_for(c, miss, &plain, &source);
    if (rc)
        return rc;
    if ((uint64_t)p->offset + p->len > plain->len)
        return error_set(-EINVAL, "cache: piece outside of its chunk");
    memcpy(p->dst, plain->data + p->offset, p->len);
    counter_add(&c->stats.misses, 1);
    counter_add(&c->stats.miss_bytes, p->len);
    count_served(p, source);
    return 0;
}

/* ---- looking up ---- */

bool cache_is_slow(const struct cache *c, unsigned dir)
{
    return c->tiered && c->space.dirs[dir].media == CACHE_MEDIA_HDD;
}

/* A piece whose reference gives another length than the slot is a miss: the fetch then refuses a false reference. A
 * slot that cannot take another pin is a miss too, which does no harm. */
bool cache_is_hit_locked(struct cache *c, const struct cache_piece *p, uint32_t id)
{
    const struct slot *slot = space_slot_at(&c->space, id);
    bool hit = slot->state == SLOT_READY && slot->plain_len == p->ref.plain_len &&
               (uint64_t)p->offset + p->len <= slot->plain_len && space_can_pin(&c->space, id);
    if (hit && !cache_dir_reads(c->dirs[space_dir_of(&c->space, id)])) {
        counter_add(&c->stats.bypassed, 1);
        return false;
    }
    return hit;
}

/* Return the slot to read the piece from, or SPACE_NONE. */
static uint32_t hit_slot_locked(struct cache *c, const struct cache_piece *p)
{
    uint32_t id = c->dir_count ? space_find(&c->space, &p->ref.digest) : SPACE_NONE;
    return id != SPACE_NONE && cache_is_hit_locked(c, p, id) ? id : SPACE_NONE;
}

/* Tell the eviction policy of one medium that a chunk was missed. */
static void note_miss_locked(struct cache *c, const struct cache_piece *p, enum cache_media media)
{
    if (c->dir_count && p->ref.plain_len && p->ref.plain_len <= CHUNK_SIZE_MAX) {
        struct space_request request = fill_request(&p->ref);
        request.media = media;
        request.asked = p->len;
        space_miss(&c->space, &request);
    }
}

void cache_pin_hit_locked(struct cache *c, struct hit *hit, const struct cache_piece *p, uint32_t id)
{
    hit->piece = p;
    hit->as_stored = false;
    space_pin_read(&c->space, id, p->len, &hit->slot);
    if (cache_is_slow(c, hit->slot.dir))
        note_miss_locked(c, p, CACHE_MEDIA_SSD);
}

/* Sort the pieces into hits (pinned), pieces that are in memory by now, and misses. */
static void look_up_locked(struct cache *c, struct window *w, const struct cache_piece *const *pieces, size_t n)
{
    w->hit_count = w->misses.count = w->late_count = 0;
    for (size_t i = 0; i < n; i++) {
        const struct cache_piece *p = pieces[i];
        uint32_t id = hit_slot_locked(c, p);
        if (id != SPACE_NONE) {
            cache_pin_hit_locked(c, &w->hits[w->hit_count++], p, id);
        } else if (memory_tier_has(c->memory_tier, &p->ref.digest)) {
            w->late[w->late_count++] = p;
        } else {
            misses_add(&w->misses, p);
            note_miss_locked(c, p, CACHE_MEDIA_ANY);
        }
    }
}

/* ---- hits ---- */

/* Count a hit that could not be read, and drop its chunk unless the failure says nothing about it. */
static void note_failed(struct cache *c, struct hit *hit)
{
    if (hit->rc == -ECANCELED) {
        counter_add(&c->stats.bypassed, 1);
        return;
    }
    if (hit->rc == -ETIMEDOUT) {
        counter_add(&c->stats.read_timeouts, 1);
        return;
    }
    counter_add(hit->rc == -EBADMSG ? &c->stats.crc_errors : &c->stats.read_errors, 1);
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, &hit->piece->ref.digest);
    if (id == hit->slot.id && space_slot_at(&c->space, id)->state == SLOT_READY)
        space_drop(&c->space, id); /* the slot may hold another chunk by now: another reader found the fault first */
}

void cache_hit_ended(struct cache *c, struct hit *hit)
{
    if (hit->rc != -ETIMEDOUT) /* timeouts have been noted at the end of the wait */
        cache_note(c, hit->slot.dir, CACHE_READING, hit->rc);
    const struct cache_piece *p = hit->piece;
    if (hit->rc)
        note_failed(c, hit);
    else if (c->memory_tier && p->len == p->ref.plain_len &&
             !hit->as_stored) /* a refusal is no fault: it stays on disk only */
        memory_tier_put(c->memory_tier, &p->ref.digest, p->dst, p->len, false);
    cache_unpin(c, &hit->slot);
}

/* Read the hits in at most *left_ms, note the results and release the pins. Subtracts the time taken from *left_ms. */
static void read_pinned(struct cache *c, struct window *w, uint64_t *left_ms)
{
    read_slots(c, w->hits, w->hit_count, left_ms);
    for (size_t i = 0; i < w->hit_count; i++)
        cache_hit_ended(c, &w->hits[i]);
}

void cache_count_hit(struct cache *c, const struct hit *hit)
{
    counter_add(&c->stats.hits, 1);
    counter_add(&c->stats.hit_bytes, hit->piece->len);
    count_served(hit->piece, CACHE_FROM_DISK);
    if (c->hot)
        hot_hit(c->hot, hit->piece, cache_is_slow(c, hit->slot.dir));
}

/* Read and count the hits. Those that failed are appended to the misses. */
static void read_hits(struct cache *c, struct window *w, uint64_t *left_ms)
{
    uint64_t began_us = clock_now_us();
    read_pinned(c, w, left_ms);
    if (w->hits[0].piece->served) /* all pieces of a call belong to one reader */
        w->hits[0].piece->served->disk_us += clock_now_us() - began_us;
    for (size_t i = 0; i < w->hit_count; i++) {
        const struct hit *hit = &w->hits[i];
        if (hit->rc)
            misses_add(&w->misses, hit->piece);
        else
            cache_count_hit(c, hit);
    }
}

/* What is not on disk is no miss for the eviction policy: no reader asks here for the chunk. */
bool cache_read_kept(struct cache *c, const struct cache_piece *piece)
{
    uint64_t left_ms = c->disk_timeout_ms;
    struct window w;
    w.hit_count = 0;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        uint32_t id = hit_slot_locked(c, piece);
        if (id != SPACE_NONE)
            cache_pin_hit_locked(c, &w.hits[w.hit_count++], piece, id);
    }
    if (w.hit_count)
        read_pinned(c, &w, &left_ms);
    return w.hit_count && !w.hits[0].rc;
}

/* The base may be cached compressed. It is not counted as a reader's hit or miss. */
struct buf *cache_find_base(void *arg, struct store *store, const struct chunk_ref *base)
{
    struct cache *c = arg;
    CLEANUP_BUF struct buf *plain = buf_new(base->plain_len);
    if (!plain)
        return NULL;
    const struct cache_piece piece = {.ref = *base, .store = store, .len = base->plain_len, .dst = plain->data};
    bool found = cache_serve_from_memory(c, &piece) || (c->dir_count && cache_read_kept(c, &piece));
    return found ? steal_ptr(&plain) : NULL;
}

/* Add the chunk to the hits, if it is on disk in the form that it is asked for. */
static void pin_stored_locked(struct cache *c, struct window *w, const struct cache_piece *p)
{
    uint32_t id = hit_slot_locked(c, p);
    if (id == SPACE_NONE || !fill_has_stored_locked(c, &p->ref))
        return;
    struct hit *hit = &w->hits[w->hit_count++];
    hit->piece = p;
    hit->as_stored = true;
    space_pin_read(&c->space, id, p->ref.plain_len, &hit->slot);
}

/* The memory tier has chunks as readers want them, which is how those are stored that do not compress. */
static void read_stored_window(struct cache *c, const struct cache_piece *pieces, size_t n, bool *got,
                               uint64_t *left_ms)
{
    struct window w;
    w.hit_count = 0;
    for (size_t i = 0; i < n; i++)
        got[i] = !(pieces[i].ref.flags & CHUNK_ZSTD) && cache_serve_from_memory(c, &pieces[i]);
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        for (size_t i = 0; i < n; i++)
            if (!got[i])
                pin_stored_locked(c, &w, &pieces[i]);
    }
    if (w.hit_count)
        read_pinned(c, &w, left_ms);
    for (size_t i = 0; i < w.hit_count; i++) {
        const struct cache_piece *p = w.hits[i].piece;
        got[p - pieces] = !w.hits[i].rc && crc32c(p->dst, p->ref.stored_len) == p->ref.stored_crc;
    }
}

void cache_read_stored(struct cache *c, const struct cache_piece *pieces, size_t n, bool *out_got)
{
    uint64_t left_ms = c->disk_timeout_ms;
    for (size_t done = 0, part; done < n; done += part) {
        part = GR_MIN(n - done, (size_t)WINDOW);
        read_stored_window(c, pieces + done, part, out_got + done, &left_ms);
    }
}

/* ---- cache_read ---- */

/* Read the pieces that were not in memory: from disk or by a fetch. Hits that failed start their fetches in a second
 * locked section. */
static int read_window(struct cache *c, const struct cache_piece *const *pieces, size_t n, struct cache_piece *ahead,
                       size_t ahead_count, enum fetch_priority priority, uint64_t *left_ms)
{
    struct window w;
    int rc;
    {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        look_up_locked(c, &w, pieces, n);
        rc = w.misses.count || ahead_count ? misses_start_locked(c, &w.misses, 0, ahead, ahead_count, priority) : 0;
    }
    size_t started = w.misses.count;
    for (size_t i = 0; i < w.late_count; i++)
        if (!cache_serve_from_memory(c, w.late[i])) /* it has left memory again */
            misses_add(&w.misses, w.late[i]);
    if (w.hit_count)
        read_hits(c, &w, left_ms);
    if (!rc && w.misses.count > started) {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        rc = misses_start_locked(c, &w.misses, started, NULL, 0, priority);
    }
    return w.misses.count ? misses_finish(c, &w.misses, rc, deliver, false) : 0;
}

int cache_read(struct cache *c, const struct cache_piece *pieces, size_t n, struct cache_piece *ahead,
               size_t ahead_count, enum fetch_priority priority)
{
    uint64_t left_ms = c->disk_timeout_ms; /* shared by all disk reads of this call */
    struct chunk_stripe stripe = {.known = false};
    for (size_t i = 0; i < ahead_count; i++) /* before the lock: among many nodes the choice takes a while */
        ahead[i].others = !fill_is_ours(c, ahead[i].store, &ahead[i].ref, &stripe);
    for (size_t done = 0; done < n;) {
        size_t part = GR_MIN(n - done, (size_t)WINDOW);
        const struct cache_piece *left[WINDOW]; /* what memory does not have */
        size_t left_count = 0;
        for (size_t i = done; i < done + part; i++)
            if (!cache_serve_from_memory(c, &pieces[i]))
                left[left_count++] = &pieces[i];
        int rc =
            left_count || ahead_count ? read_window(c, left, left_count, ahead, ahead_count, priority, &left_ms) : 0;
        if (rc)
            return rc;
        ahead_count = 0; /* neighbours go with the first window only */
        done += part;
    }
    return 0;
}

bool cache_is_fenced(const struct cache *c)
{
    return c->fenced;
}
