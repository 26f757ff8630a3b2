/* A hit's blocks of 4 KiB and its record, which has their checksums, are read together into the ring's
 * bounce buffer and checked there; then the wanted bytes are copied out. Never straight to dst: dst
 * is the caller's, who must be able to go while the disk still owes an answer.
 *
 * A hit allocates nothing. The exception is a chunk kept compressed, which is read and decoded in whole
 * for any part of it.
 */
#include "cache/hit.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "cache/cache_internal.h"

enum { CACHE_LINE = 64 };

/* One disk read for a hit: bytes [off, off+len) of its slot in whole blocks, or with len 0 its record.
 * The record is read in the same submission as the blocks and stands before them. */
struct part {
    struct hit *hit;
    uint32_t off, len;
};

/* The ring's buffer is filled with blocks from the front and with records from the back. */
struct batch {
    struct cache *c;
    struct ring *ring; /* NULL: none was to be had, or the time is over */
    uint64_t deadline_ms;
    uint32_t front, back;
    size_t n;
    struct part parts[RING_READS_MAX];
    struct ring_read reads[RING_READS_MAX];
};

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

/* What is wanted of bytes [off, off+len) of the slot. */
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

/* Compare each block with its checksum and copy it while it is at hand; the disk left all of them far
 * from this CPU, so the next one is called in meanwhile. */
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

/* Check what was read and copy the wanted bytes out. */
static void take_part(const struct cache *c, const struct part *part, const struct ring_read *read)
{
    struct hit *hit = part->hit;
    if (!hit->rc)
        hit->rc = read->rc;
    if (hit->rc)
        return;
    if (part->len)
        hit->rc = take_blocks(hit, part->off, read->buf, GR_MIN(part->len, hit->slot.stored_len - part->off));
    else
        hit->rc = check_record(c, hit);
}

/* A ring for the next reads, the first from dir; none when that went down a moment ago, or when so little of
 * the time is left, perhaps by waiting for the ring, that being late would say nothing about a disk. */
static void need_ring(struct batch *b, unsigned dir)
{
    uint64_t half = b->c->disk_timeout_ms / 2;
    if (cache_dir_reads(b->c->dirs[dir]) && clock_now_ms() + half < b->deadline_ms)
        b->ring = rings_borrow(b->c->readers, b->deadline_ms - half);
}

/* The directories that were late are set aside before the ring is returned: those who wait for it would
 * lose their rings to the same disks, until there are none left for the others. */
static void lose_ring(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        if (b->reads[i].rc == -ETIMEDOUT)
            cache_note(b->c, b->parts[i].hit->slot.dir, CACHE_READING, -ETIMEDOUT);
    rings_return(b->ring);
    b->ring = NULL;
}

static void flush_batch(struct batch *b)
{
    if (!b->n)
        return;
    bool in_time = ring_read_all(b->ring, b->reads, b->n, b->deadline_ms);
    for (size_t i = 0; i < b->n; i++)
        take_part(b->c, &b->parts[i], &b->reads[i]);
    if (!in_time)
        lose_ring(b);
    start_batch(b);
}

static void add_record(struct batch *b, struct hit *hit)
{
    const struct space_slot *slot = &hit->slot;
    uint32_t len = cache_class_record_size(slot->place.class);
    b->back -= len;
    hit->record = ring_bounce(b->ring) + b->back;
    b->parts[b->n] = (struct part){.hit = hit};
    b->reads[b->n++] = (struct ring_read){
        .file = cache_record_file(slot->dir),
        .off = cache_place_record_offset(&b->c->dirs[slot->dir]->geometry, &slot->place),
        .len = len,
        .buf = hit->record,
    };
}

static void add_blocks(struct batch *b, struct hit *hit, uint32_t off, uint32_t len)
{
    const struct space_slot *slot = &hit->slot;
    b->parts[b->n] = (struct part){.hit = hit, .off = off, .len = len};
    b->reads[b->n++] = (struct ring_read){
        .file = cache_data_file(slot->dir),
        .off = cache_place_data_offset(&b->c->dirs[slot->dir]->geometry, &slot->place) + off,
        .len = len,
        .buf = ring_bounce(b->ring) + b->front,
    };
    b->front += len;
}

/* The blocks to read: those of the piece, or all there are. -ECANCELED: no memory for them. */
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

/* Decode a whole chunk for the part of it that is wanted. */
static int unpack(const struct hit *hit)
{
    const struct cache_piece *p = hit->piece;
    const struct space_slot *slot = &hit->slot;
    if (p->len == slot->plain_len)
        return chunk_unpack(hit->packed, slot->stored_len, p->dst, p->len);
    CLEANUP_PAGES plain = {.data = pages_get(slot->plain_len), .len = slot->plain_len};
    int rc = plain.data ? chunk_unpack(hit->packed, slot->stored_len, plain.data, slot->plain_len) : -ENOMEM;
    if (!rc)
        memcpy(p->dst, (const uint8_t *)plain.data + p->offset, p->len);
    return rc == -ENOMEM ? -ECANCELED : rc;
}

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

void hit_read_all(struct cache *c, struct hit *hits, size_t n, uint64_t *left_ms)
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
        if (!hits[i].rc && hits[i].packed)
            hits[i].rc = unpack(&hits[i]);
        pages_put(hits[i].packed, hits[i].slot.stored_len);
    }
}
