/* Reads slots of the cache from their disks: the read path's hits (cache_read.c).
 *
 * A hit needs its 4 KiB blocks and its record, which holds their checksums. A record that was used lately is still in
 * memory (record_memory.h) and is copied into the ring's bounce buffer. What is not is read into it in one submission:
 *
 *    0                                                                RING_BOUNCE
 *    | blocks of hit 1 | blocks of hit 2 | ... free ... | record 2 | record 1 |
 *    front ------------------------------->             <----------------- back
 *
 * There they are checked, and the requested bytes are copied out. The disk never writes to dst directly: dst belongs to
 * the caller, who must be able to leave while the disk still owes an answer. */
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/pages.h"
#include "cache/cache_internal.h"

enum { CACHE_LINE = 64 };

/* The reads of one submission. */
struct batch {
    struct cache *c;
    struct ring *ring; /* NULL: not borrowed yet, lost, or there was no time left */
    uint64_t deadline_ms;
    uint32_t front, back; /* in the bounce buffer: end of the blocks, start of the records */
    size_t n;
    struct hit_part parts[RING_READS_MAX];
    struct ring_read reads[RING_READS_MAX];
};

/* Empty the batch: the whole buffer is free. */
static void start_batch(struct batch *b)
{
    b->front = 0;
    b->back = RING_BOUNCE;
    b->n = 0;
}

/* Is this the record of the chunk that the slot was looked up for? */
static int check_record(const struct cache *c, const struct hit *hit)
{
    struct cache_record r;
    const struct cache_geometry *g = &c->dirs[hit->slot.dir]->geometry;
    bool good = cache_meta_record_decode(g, &hit->slot.place, hit->record, &r) &&
                digest_equal(&r.digest, &hit->piece->ref.digest) && r.plain_len == hit->slot.plain_len &&
                r.stored_len == hit->slot.stored_len;
    return good ? 0 : -EBADMSG;
}

/* Copy the requested part of bytes [off, off+len) of the slot: to dst, or all of it to `packed` for a compressed chunk.
 */
static void copy_wanted(const struct hit *hit, uint32_t off, const uint8_t *data, uint32_t len)
{
    const struct cache_piece *p = hit->piece;
    if (hit->packed) {
        memcpy(hit->packed + off, data, len);
        return;
    }
    uint32_t from = GR_MAX(off, p->offset), to = GR_MIN(off + len, p->offset + p->len);
    memcpy(p->dst + (from - p->offset), data + (from - off), to - from);
}

/* Check each block against its checksum and copy it while it is in the CPU's cache. The disk left the data in memory,
 * so the next block is prefetched meanwhile. */
static int take_blocks(const struct hit *hit, uint32_t off, const uint8_t *data, uint32_t len)
{
    for (uint32_t at = 0; at < len; at += CACHE_BLOCK) {
        uint32_t n = GR_MIN(len - at, (uint32_t)CACHE_BLOCK);
        for (uint32_t line = at + n; line < GR_MIN(at + n + CACHE_BLOCK, len); line += CACHE_LINE)
            __builtin_prefetch(data + line);
        if (!cache_meta_blocks_hold(hit->record, off + at, data + at, n))
            return -EBADMSG;
        copy_wanted(hit, off + at, data + at, n);
    }
    return 0;
}

void hit_part_take(const struct cache *c, const struct hit_part *part, const struct ring_read *read)
{
    struct hit *hit = part->hit;
    if (!hit->rc)
        hit->rc = read->rc;
    if (hit->rc)
        return;
    const struct digest *digest = &hit->piece->ref.digest;
    if (part->len)
        hit->rc = take_blocks(hit, part->off, read->buf, GR_MIN(part->len, hit->slot.stored_len - part->off));
    else
        hit->rc = check_record(c, hit);
    if (hit->rc) /* perhaps what is in memory was at fault: the chunk's next hit reads its record from disk */
        record_memory_forget(c->records, digest);
    else if (!part->len)
        record_memory_put(c->records, digest, hit->record, cache_class_record_size(hit->slot.place.class));
}

bool hit_remembers_record(struct cache *c, struct hit *hit)
{
    uint32_t len = cache_class_record_size(hit->slot.place.class);
    if (!record_memory_get(c->records, &hit->piece->ref.digest, hit->record, len) || check_record(c, hit))
        return false;
    counter_add(&c->stats.record_hits, 1);
    return true;
}

struct ring_read hit_part_read(const struct cache *c, const struct hit_part *part, uint8_t *buf)
{
    const struct space_slot *slot = &part->hit->slot;
    const struct cache_geometry *g = &c->dirs[slot->dir]->geometry;
    if (!part->len)
        return (struct ring_read){.file = cache_record_file(slot->dir),
                                  .off = cache_place_record_offset(g, &slot->place),
                                  .len = cache_class_record_size(slot->place.class),
                                  .buf = buf};
    return (struct ring_read){.file = cache_data_file(slot->dir),
                              .off = cache_place_data_offset(g, &slot->place) + part->off,
                              .len = part->len,
                              .buf = buf};
}

/* Borrow a ring for the next reads, of which the first is from `dir`. Borrow none when that directory is down, or
 * when less than half of the timeout is left, perhaps after waiting for the ring: a read that is late then would say
 * nothing about its disk. */
static void need_ring(struct batch *b, unsigned dir)
{
    uint64_t half = b->c->disk_timeout_ms / 2;
    if (cache_dir_reads(b->c->dirs[dir]) && clock_now_ms() + half < b->deadline_ms)
        b->ring = rings_borrow(b->c->readers, b->deadline_ms - half);
}

/* Take the directories that were late out of use before the ring is returned. In the other order, threads that wait
 * for a ring would lose theirs to the same disk, until none is left for the good ones. */
static void lose_ring(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->reads[i].rc == -ETIMEDOUT)
            cache_note(b->c, b->parts[i].hit->slot.dir, CACHE_READING, -ETIMEDOUT);
    rings_return(b->ring);
    b->ring = NULL;
}

/* Submit what has been collected, wait for it, check it and copy it out. */
static void flush_batch(struct batch *b)
{
    if (!b->n)
        return;
    bool in_time = ring_read_all(b->ring, b->reads, b->n, b->deadline_ms);
    for (size_t i = 0; i < b->n; i++)
        hit_part_take(b->c, &b->parts[i], &b->reads[i]);
    if (!in_time)
        lose_ring(b);
    start_batch(b);
}

static void add_part(struct batch *b, struct hit_part part, uint8_t *buf)
{
    b->parts[b->n] = part;
    b->reads[b->n] = hit_part_read(b->c, &part, buf);
    b->n++;
}

/* Put a hit's record at the back of the buffer: from memory, else add its read. */
static void add_record(struct batch *b, struct hit *hit)
{
    b->back -= cache_class_record_size(hit->slot.place.class);
    hit->record = ring_bounce(b->ring) + b->back;
    if (!hit_remembers_record(b->c, hit))
        add_part(b, (struct hit_part){.hit = hit}, hit->record);
}

/* Add the read of a hit's blocks, at the front of the buffer. */
static void add_blocks(struct batch *b, struct hit *hit, uint32_t off, uint32_t len)
{
    add_part(b, (struct hit_part){.hit = hit, .off = off, .len = len}, ring_bounce(b->ring) + b->front);
    b->front += len;
}

/* Set the range of blocks to read: those of the piece, or all of a compressed chunk, for which it allocates
 * hit->packed. -ECANCELED: out of memory. */
static int blocks_of(struct hit *hit, uint32_t *off, uint32_t *end)
{
    const struct cache_piece *p = hit->piece;
    *off = p->offset & ~(uint32_t)(CACHE_BLOCK - 1);
    *end = GR_ALIGN_UP(p->offset + p->len, (uint32_t)CACHE_BLOCK);
    if (!(hit->slot.flags & RECORD_ZSTD))
        return 0;
    *off = 0;
    *end = GR_ALIGN_UP(hit->slot.stored_len, (uint32_t)CACHE_BLOCK);
    hit->packed = pages_get(hit->slot.stored_len);
    return hit->packed ? 0 : -ECANCELED;
}

/* Decode a compressed chunk and copy the requested part. Decodes straight into dst when the whole chunk is requested.
 */
static int unpack(const struct hit *hit)
{
    const struct cache_piece *p = hit->piece;
    const struct space_slot *slot = &hit->slot;
    if (hit->as_stored) {
        memcpy(p->dst, hit->packed, slot->stored_len);
        return 0;
    }
    if (p->len == slot->plain_len)
        return chunk_unpack(hit->packed, slot->stored_len, p->dst, p->len);
    CLEANUP_PAGES plain = {.data = pages_get(slot->plain_len), .len = slot->plain_len};
    int rc = plain.data ? chunk_unpack(hit->packed, slot->stored_len, plain.data, slot->plain_len) : -ENOMEM;
    if (!rc)
        memcpy(p->dst, (const uint8_t *)plain.data + p->offset, p->len);
    return rc == -ENOMEM ? -ECANCELED : rc;
}

/* Add a hit's reads to the batch, with as many submissions as its length takes. The record comes along each time: the
 * buffer is reused after a flush. */
static void add_hit(struct batch *b, struct hit *hit)
{
    uint32_t off, end;
    hit->packed = NULL;
    hit->rc = blocks_of(hit, &off, &end);
    uint32_t record = cache_class_record_size(hit->slot.place.class);
    while (off < end && !hit->rc) {
        if (!b->ring)
            need_ring(b, hit->slot.dir);
        if (!b->ring || !cache_dir_reads(b->c->dirs[hit->slot.dir])) {
            hit->rc = -ECANCELED;
            return;
        }
        uint32_t room = b->back - b->front;
        if (b->n + 2 > RING_READS_MAX || room < record + CACHE_BLOCK) {
            flush_batch(b);
            continue;
        }
        add_record(b, hit);
        uint32_t len = GR_MIN(end - off, (room - record) & ~(uint32_t)(CACHE_BLOCK - 1));
        add_blocks(b, hit, off, len);
        off += len;
    }
}

void read_slots(struct cache *c, struct hit *hits, size_t n, uint64_t *left_ms)
{
    struct batch b;
    b.c = c;
    b.ring = NULL;
    uint64_t began_us = clock_now_us();
    b.deadline_ms = began_us / 1000 + *left_ms;
    start_batch(&b);
    for (size_t i = 0; i < n; i++)
        add_hit(&b, &hits[i]);
    flush_batch(&b);
    if (b.ring)
        rings_return(b.ring);
    uint64_t now_us = clock_now_us(), now = now_us / 1000;
    histogram_add(&c->disk_reads, now_us - began_us);
    *left_ms = b.deadline_ms > now ? b.deadline_ms - now : 0;
    for (size_t i = 0; i < n; i++) {
        if (!hits[i].packed)
            continue;
        if (!hits[i].rc)
            hits[i].rc = unpack(&hits[i]);
        pages_put(hits[i].packed, hits[i].slot.stored_len);
    }
}
