/* Lifting and moving hot chunks (hot.c), one at a time. A lifted chunk is read whole into the memory tier. A move
 * uses two slots (space.h, state moving):
 *
 *    new slot  free -> moving, chunk and record written -> ready, in the index
 *    old slot  ready, read from ------------------------> moving, record blanked -> free
 *
 * Readers use the old slot until the change and the new one after it. A kill in between leaves records in both slots;
 * the next load believes the one with the later sequence number, and both say the same. When the fast directory
 * evicts the chunk, it is not written back to the slow one: it is fetched again if it is read.
 */
#include "cache/cache_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/thread.h"
#include "format/chunk.h"

enum {
    REST = 3, /* the pause after a job, in multiples of the job's duration */
    REST_MAX_US = 250000,
    READ_PART = 256 << 10,
};

struct mover {
    struct cache *cache;
    struct mover_stats stats;
    pthread_t thread;
    bool running;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    bool stopping;
};

/* ---- moving ---- */

/* Read the stored bytes of a pinned slot in parts and check them against its record, which goes to *out_record.
 * -EBADMSG: the record or a block is wrong; else -errno of the disk. */
static int read_slot(struct cache *c, const struct space_slot *slot, const struct digest *digest, struct ring *ring,
                     uint8_t *stored, struct cache_record *out_record, uint64_t deadline_ms)
{
    const struct cache_geometry *g = &c->dirs[slot->dir]->geometry;
    uint8_t *record = ring_bounce(ring) + READ_PART;
    struct ring_read reads[2] = {{.file = cache_record_file(slot->dir),
                                  .off = cache_place_record_offset(g, &slot->place),
                                  .len = cache_class_record_size(slot->place.class),
                                  .buf = record},
                                 {.file = cache_data_file(slot->dir), .buf = ring_bounce(ring)}};
    for (uint32_t off = 0; off < slot->stored_len; off += READ_PART) {
        uint32_t len = GR_MIN(slot->stored_len - off, (uint32_t)READ_PART);
        reads[1].off = cache_place_data_offset(g, &slot->place) + off;
        reads[1].len = GR_ALIGN_UP(len, (uint32_t)CACHE_BLOCK);
        ring_read_all(ring, off ? reads + 1 : reads, off ? 1 : 2, deadline_ms);
        if (reads[0].rc || reads[1].rc)
            return reads[0].rc ? reads[0].rc : reads[1].rc;
        if (!off && !(cache_meta_record_decode(g, &slot->place, record, out_record) &&
                      digest_equal(&out_record->digest, digest) && out_record->stored_len == slot->stored_len))
            return -EBADMSG;
        if (!cache_meta_blocks_hold(record, off, reads[1].buf, len))
            return -EBADMSG;
        memcpy(stored + off, reads[1].buf, len);
    }
    return 0;
}

/* Copy a chunk's bytes between two slots that the caller holds. 0: the new slot's record is written too. */
static int copy_chunk(struct cache *c, const struct space_slot *from, struct space_slot *to,
                      const struct digest *digest)
{
    uint64_t deadline_ms = clock_now_ms() + c->disk_timeout_ms;
    CLEANUP_BUF struct buf *stored = buf_new(from->stored_len);
    struct ring *ring = stored ? rings_borrow(c->readers, deadline_ms) : NULL;
    if (!ring)
        return -EAGAIN;
    struct cache_record record = {0};
    int rc = read_slot(c, from, digest, ring, stored->data, &record, deadline_ms);
    cache_note(c, from->dir, CACHE_READING, rc); /* before the ring is returned */
    rings_return(ring);
    if (rc)
        return rc;
    to->owner = record.owner; /* the owner is kept in records only */
    struct cache_fill fill = {to, digest, stored, 0};
    fill_write(c, to->dir, &fill, 1);
    return fill.rc;
}

/* Pin the old slot and allocate the new one. false: the chunk is not on a slow directory, or no fast one has room for
 * it. */
static bool begin_move(struct cache *c, const struct digest *digest, struct space_slot *from, struct space_slot *to)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    uint32_t id = space_find(&c->space, digest);
    if (id == SPACE_NONE || space_slot_at(&c->space, id)->state != SLOT_READY || !space_can_pin(&c->space, id))
        return false;
    const struct cache_dir *dir = c->dirs[space_dir_of(&c->space, id)];
    if (dir->media != CACHE_MEDIA_HDD || !cache_dir_reads(dir))
        return false;
    if (space_alloc_move(&c->space, id, CACHE_MEDIA_SSD, to))
        return false;
    space_pin(&c->space, id, from);
    return true;
}

/* Switch the chunk to its new slot. false: it was evicted, pinned or unpinned meanwhile. */
static bool commit_move(struct cache *c, const struct space_slot *from, const struct space_slot *to)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    return space_commit_move(&c->space, from->id, to->id);
}

/* Free the slot that is not the chunk's, and wake threads that wait for one. */
static void end_move(struct cache *c, const struct space_slot *slot)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    space_abort(&c->space, slot->id);
    pthread_cond_broadcast(&c->changed);
}

/* Move a chunk to a fast directory, if one has room for it. Readers are never blocked. */
static void move_chunk(struct mover *m, const struct digest *digest)
{
    struct cache *c = m->cache;
    struct space_slot from, to;
    if (!begin_move(c, digest, &from, &to))
        return;
    int rc = copy_chunk(c, &from, &to, digest);
    bool moved = !rc && commit_move(c, &from, &to);
    cache_unpin(c, &from);
    counter_add(&m->stats.moves, moved);
    /* Blank the record of the slot that is not the chunk's: otherwise a restart would bring an evicted chunk back. */
    const struct space_slot *left = moved ? &from : &to;
    cache_blank_slot(c, left);
    end_move(c, left);
}

/* ---- the thread ---- */

/* Read a chunk whole, which puts it into the memory tier. */
static void lift_chunk(struct mover *m, struct cache_piece *piece)
{
    struct memory_tier *memory_tier = m->cache->memory_tier;
    if (!memory_tier_admits(memory_tier, &piece->ref.digest, piece->ref.plain_len))
        return;
    CLEANUP_BUF struct buf *plain = buf_new(piece->ref.plain_len);
    if (!plain)
        return;
    piece->dst = plain->data;
    if (cache_read_kept(m->cache, piece)) /* a whole hit enters the memory tier */
        counter_add(&m->stats.lifts, 1);
}

/* Pause between jobs. false: the mover is to stop. */
static bool rest(struct mover *m, uint64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += (long)(us % 1000000) * 1000;
    until.tv_sec += (time_t)(us / 1000000) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    SCOPED_LOCK(&m->lock);
    while (!m->stopping && !pthread_cond_timedwait(&m->wake, &m->lock, &until))
        ;
    return !m->stopping;
}

/* The thread. After a stop it only empties the queue, so that every chunk is freed. */
static void *mover_work(void *arg)
{
    struct mover *m = arg;
    struct hot_chunk *chunk;
    bool go = true;
    while ((chunk = hot_take(m->cache->hot))) {
        uint64_t start = clock_now_us();
        if (go && chunk->work & HOT_LIFT)
            lift_chunk(m, &chunk->piece);
        if (go && chunk->work & HOT_MOVE)
            move_chunk(m, &chunk->piece.ref.digest);
        hot_done(m->cache->hot, chunk);
        uint64_t took = clock_now_us() - start;
        go = go && rest(m, GR_MIN(took * REST, (uint64_t)REST_MAX_US));
    }
    return NULL;
}

int mover_new(struct cache *c, struct mover **out)
{
    struct mover *m = calloc(1, sizeof *m);
    if (!m)
        return error_no_memory();
    m->cache = c;
    thread_cond_init(&m->wake);
    pthread_mutex_init(&m->lock, NULL);
    *out = m;
    return 0;
}

int mover_start_thread(struct mover *m)
{
    int rc = thread_start(&m->thread, mover_work, m);
    m->running = !rc;
    return rc ? error_prefix(rc, "cache") : 0;
}

void mover_stop(struct mover *m)
{
    if (!m)
        return;
    {
        SCOPED_LOCK(&m->lock);
        m->stopping = true;
        pthread_cond_broadcast(&m->wake);
    }
    hot_close(m->cache->hot);
    if (m->running)
        pthread_join(m->thread, NULL);
    m->running = false;
}

void mover_free(struct mover *m)
{
    if (!m)
        return;
    pthread_cond_destroy(&m->wake);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

struct mover_stats *mover_stats(struct mover *m)
{
    return &m->stats;
}
