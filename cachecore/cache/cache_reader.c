/* Reads of what is cached, in flight while their thread does other things.
 *
 *    start --> memory tier ------------------------------------------------> ended --> take
 *      `-----> lookup: pinned --> in flight: a place in the ring's buffer        ^
 *                                   |-- answered: verified, copied, unpinned ----|
 *                                   `-- late: the ring is left to the kernel ----'  not got
 *
 * Each piece has a read of its own: of its blocks and, unless memory has it, of its record, side by side in whole pages
 * of the buffer. It is checked when both have come, in any order of pieces. So no read waits for another, with one
 * exception: when a disk is late, the ring is given up with everything in flight. Until then the others have been
 * answered; what was started last is read otherwise by the caller.
 *
 * The ring is borrowed for the first read and returned after the last. A thread that always has something in flight
 * would keep it, so nothing more is started while another thread waits for a ring.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cache/cache_internal.h"

enum {
    PIECE_READS = RING_READS_MAX / 2, /* each needs two reads of the ring at most */
    PAGES = RING_BOUNCE / CACHE_BLOCK,
    RING_WAIT_MS = 100, /* for a ring; the thread's other clients and sockets wait meanwhile */
};

/* A piece that is read from the disk; all zero: unused. Read i has these of the ring: 2 * i, of the
 * record, and 2 * i + 1, of the blocks. */
struct piece_read {
    struct cache_group *group; /* NULL: unused */
    struct hit hit;
    uint32_t off, len;    /* blocks of the slot */
    unsigned page, pages; /* in the ring's buffer */
    bool reads_record;
    unsigned pending; /* reads without an answer */
    uint64_t deadline_ms;
};

struct cache_reader {
    struct cache *c;
    struct ring *ring; /* NULL: nothing is in flight */
    size_t in_flight;
    uint64_t look_ms;                  /* no deadline passes before */
    struct cache_group *first, **last; /* those that have ended */
    unsigned free_pages;
    bool used[PAGES];
    size_t answered, answers; /* which[answered..answers) have come, and wait to be checked */
    uint16_t which[RING_READS_MAX];
    struct piece_read piece_reads[PIECE_READS];
    struct ring_read reads[2 * PIECE_READS];
};

int cache_reader_new(struct cache *c, struct cache_reader **out)
{
    struct cache_reader *r = calloc(1, sizeof *r);
    if (!r)
        return error_no_memory();
    r->c = c;
    r->last = &r->first;
    r->free_pages = PAGES;
    *out = r;
    return 0;
}

void cache_reader_free(struct cache_reader *r)
{
    assert(!r || (!r->in_flight && !r->first));
    free(r);
}

/* ---- room ---- */

/* Most reads are of one chunk, and so have one record; they may begin and end within blocks. */
bool cache_reader_has_room(const struct cache_reader *r, size_t n, size_t bytes)
{
    if (r->in_flight && rings_wanted(r->c->readers))
        return false;
    return r->in_flight + n <= PIECE_READS && bytes / CACHE_BLOCK + 2 * n <= r->free_pages;
}

/* Find adjacent pages for a read. */
static bool take_pages(struct cache_reader *r, struct piece_read *read)
{
    uint32_t len = read->len + cache_class_record_size(read->hit.slot.place.class);
    read->pages = GR_ALIGN_UP(len, (uint32_t)CACHE_BLOCK) / CACHE_BLOCK;
    for (unsigned at = 0, n = 0; at < PAGES; at++) {
        n = r->used[at] ? 0 : n + 1;
        if (n < read->pages)
            continue;
        read->page = at + 1 - n;
        memset(r->used + read->page, true, read->pages);
        r->free_pages -= read->pages;
        return true;
    }
    read->pages = 0;
    return false;
}

static void give_pages(struct cache_reader *r, struct piece_read *read)
{
    memset(r->used + read->page, false, read->pages);
    r->free_pages += read->pages;
}

/* ---- the end of a read ---- */

static void put_ended(struct cache_reader *r, struct cache_group *g)
{
    g->next = NULL;
    *r->last = g;
    r->last = &g->next;
}

/* Free its place. With its last read the group has ended. */
static void release_read(struct cache_reader *r, struct piece_read *read, uint64_t now_us)
{
    struct cache_group *g = read->group;
    give_pages(r, read);
    read->group = NULL;
    r->in_flight--;
    if (--g->pending)
        return;
    if (g->pieces[0].served)
        g->pieces[0].served->disk_us += now_us - g->began_us;
    put_ended(r, g);
}

/* hit.rc is final. */
static void end_read(struct cache_reader *r, struct piece_read *read, uint64_t now_us)
{
    cache_hit_ended(r->c, &read->hit);
    if (read->hit.rc)
        read->group->got = false;
    else
        cache_count_hit(r->c, &read->hit);
    histogram_add(&r->c->disk_reads, now_us - read->group->began_us);
    release_read(r, read, now_us);
}

/* It was never submitted, or goes with a ring that is given up. That says nothing about its disk: the caller reads it
 * otherwise, and it is counted there. */
static void cancel_read(struct cache_reader *r, struct piece_read *read, uint64_t now_us)
{
    cache_unpin(r->c, &read->hit.slot);
    read->group->got = false;
    release_read(r, read, now_us);
}

/* Return the ring after the last read. */
static void leave_ring(struct cache_reader *r)
{
    if (r->in_flight || !r->ring)
        return;
    rings_return(steal_ptr(&r->ring));
    r->look_ms = 0;
}

/* Check what was read, the record first. */
static void check_read(struct cache_reader *r, struct piece_read *read)
{
    size_t i = (size_t)(read - r->piece_reads);
    if (read->reads_record)
        hit_part_take(r->c, &(struct hit_part){.hit = &read->hit}, &r->reads[2 * i]);
    hit_part_take(r->c, &(struct hit_part){.hit = &read->hit, .off = read->off, .len = read->len},
                  &r->reads[2 * i + 1]);
}

/* ---- a disk that is late, or an io_uring that fails ---- */

/* Give up everything in flight. Directories that are late, if the answers have been taken, are taken out of use before
 * the ring is returned: else threads that wait for one would lose theirs to the same disk. */
static void give_up(struct cache_reader *r, uint64_t now_us, bool taken)
{
    for (size_t i = 0; i < PIECE_READS; i++) {
        struct piece_read *read = &r->piece_reads[i];
        bool late = read->group && taken && read->pending && read->deadline_ms <= now_us / 1000;
        read->hit.rc = late ? -ETIMEDOUT : -ECANCELED;
        if (late)
            cache_note(r->c, read->hit.slot.dir, CACHE_READING, -ETIMEDOUT);
    }
    ring_give_up(r->ring, r->reads);
    rings_return(steal_ptr(&r->ring));
    for (size_t i = 0; i < PIECE_READS; i++) {
        struct piece_read *read = &r->piece_reads[i];
        if (read->group)
            (read->hit.rc == -ETIMEDOUT ? end_read : cancel_read)(r, read, now_us);
    }
    r->answered = r->answers = 0;
    r->look_ms = 0;
}

/* Is a disk late? Deadlines are looked at only when one may have passed. */
static bool is_late(struct cache_reader *r, uint64_t now_ms)
{
    if (now_ms < r->look_ms)
        return false;
    r->look_ms = UINT64_MAX;
    for (size_t i = 0; i < PIECE_READS; i++)
        if (r->piece_reads[i].group)
            r->look_ms = GR_MIN(r->look_ms, r->piece_reads[i].deadline_ms);
    return r->look_ms <= now_ms;
}

/* ---- start ---- */

/* May a chunk be in flight? Not a compressed one, which is decoded whole, nor one on a slow disk, or where reads block
 * their thread. A hit of a directory that fails would be counted here and where it is read once more. */
static bool is_quick_locked(const struct cache *c, uint32_t id)
{
    if (space_slot_at(&c->space, id)->flags & RECORD_ZSTD)
        return false;
    unsigned dir = space_dir_of(&c->space, id);
    return !cache_is_slow(c, dir) && rings_can_start(c->readers, cache_data_file(dir)) &&
           rings_can_start(c->readers, cache_record_file(dir)) &&
           cache_dir_state(c->dirs[dir], CACHE_READING) == HEALTH_NORMAL;
}

/* Return the slot to read the piece from, or SPACE_NONE. */
static uint32_t quick_slot_locked(struct cache *c, const struct cache_piece *p)
{
    uint32_t id = c->dir_count ? space_find(&c->space, &p->ref.digest) : SPACE_NONE;
    return id != SPACE_NONE && is_quick_locked(c, id) && cache_is_hit_locked(c, p, id) ? id : SPACE_NONE;
}

/* Pin a piece's slot for a read. false: there is no room. */
static bool add_read_locked(struct cache_reader *r, struct cache_group *g, const struct cache_piece *p, uint32_t id)
{
    size_t i = 0;
    while (i < PIECE_READS && r->piece_reads[i].group)
        i++;
    if (i == PIECE_READS || !space_can_pin(&r->c->space, id))
        return false;
    struct piece_read *read = &r->piece_reads[i];
    *read = (struct piece_read){.group = g, .off = p->offset & ~(uint32_t)(CACHE_BLOCK - 1)};
    read->len = GR_ALIGN_UP(p->offset + p->len, (uint32_t)CACHE_BLOCK) - read->off;
    cache_pin_hit_locked(r->c, &read->hit, p, id);
    r->in_flight++;
    g->pending++;
    return true;
}

/* Add reads for all pieces of a group that memory does not have, or none: reading a part of a group is useless. */
static void add_group_locked(struct cache_reader *r, struct cache_group *g)
{
    uint32_t ids[CACHE_GROUP_MAX];
    g->got = true;
    for (size_t i = 0; i < g->count && g->got; i++) {
        bool here = memory_tier_has(r->c->memory_tier, &g->pieces[i].ref.digest);
        ids[i] = here ? SPACE_NONE : quick_slot_locked(r->c, &g->pieces[i]);
        g->got = here || ids[i] != SPACE_NONE;
    }
    for (size_t i = 0; i < g->count && g->got; i++) /* a chunk may be there several times, and find no pin */
        if (ids[i] != SPACE_NONE)
            g->got = add_read_locked(r, g, &g->pieces[i], ids[i]);
}

/* Is this piece read from the disk? */
static bool is_being_read(const struct cache_reader *r, const struct cache_piece *p)
{
    for (size_t i = 0; i < PIECE_READS; i++)
        if (r->piece_reads[i].group && r->piece_reads[i].hit.piece == p)
            return true;
    return false;
}

/* Copy the pieces of a group that memory had. */
static void serve_rest(struct cache_reader *r, struct cache_group *g)
{
    for (size_t i = 0; i < g->count && g->got; i++)
        if (!is_being_read(r, &g->pieces[i]))
            g->got = cache_serve_from_memory(r->c, &g->pieces[i]); /* unless it has left memory again */
}

/* Prepare a read. false: it is not possible. */
static bool prepare_read(struct cache_reader *r, struct piece_read *read)
{
    struct hit *hit = &read->hit;
    size_t i = (size_t)(read - r->piece_reads);
    if (!r->ring || !cache_dir_reads(r->c->dirs[hit->slot.dir]) ||
        !ring_can_start(r->ring, cache_data_file(hit->slot.dir)) ||
        !ring_can_start(r->ring, cache_record_file(hit->slot.dir)) || !take_pages(r, read))
        return false;
    uint8_t *blocks = ring_bounce(r->ring) + (size_t)read->page * CACHE_BLOCK;
    hit->record = blocks + read->len;
    read->reads_record = !hit_remembers_record(r->c, hit);
    if (read->reads_record) {
        r->reads[2 * i] = hit_part_read(r->c, &(struct hit_part){.hit = hit}, hit->record);
        ring_start(r->ring, r->reads, 2 * i);
    }
    r->reads[2 * i + 1] =
        hit_part_read(r->c, &(struct hit_part){.hit = hit, .off = read->off, .len = read->len}, blocks);
    ring_start(r->ring, r->reads, 2 * i + 1);
    read->pending = 1 + read->reads_record;
    return true;
}

/* Submit the reads that were added. */
static void submit_added(struct cache_reader *r, uint64_t now_us)
{
    uint64_t deadline_ms = now_us / 1000 + r->c->disk_timeout_ms;
    if (!r->ring)
        r->ring = rings_borrow(r->c->readers, now_us / 1000 + RING_WAIT_MS);
    if (!r->look_ms)
        r->look_ms = deadline_ms;
    for (size_t i = 0; i < PIECE_READS; i++) {
        struct piece_read *read = &r->piece_reads[i];
        if (!read->group || read->deadline_ms)
            continue;
        read->deadline_ms = deadline_ms;
        if (!prepare_read(r, read))
            cancel_read(r, read, now_us);
    }
    if (r->ring && !ring_submit(r->ring, deadline_ms))
        give_up(r, now_us, false);
    leave_ring(r);
}

void cache_reader_start(struct cache_reader *r, struct cache_group *const *groups, size_t n)
{
    struct cache *c = r->c;
    uint64_t now_us = clock_now_us();
    size_t before = r->in_flight, left = 0;
    for (size_t i = 0; i < n; i++) {
        struct cache_group *g = groups[i];
        g->pending = 0;
        g->began_us = now_us;
        g->got = g->count == 1 && cache_serve_from_memory(c, &g->pieces[0]);
        g->next = g->got || !g->count ? g : NULL; /* itself: nothing is left to do */
        left += !g->next;
    }
    if (left) {
        SCOPED_SPACE_LOCK(&c->lock, &c->space);
        for (size_t i = 0; i < n; i++)
            if (!groups[i]->next)
                add_group_locked(r, groups[i]);
    }
    for (size_t i = 0; i < n; i++) {
        struct cache_group *g = groups[i];
        if (!g->next && g->got && g->pending < g->count)
            serve_rest(r, g);
        if (!g->pending)
            put_ended(r, g);
    }
    if (r->in_flight > before)
        submit_added(r, now_us);
}

/* ---- take ---- */

/* Check reads that have been answered, until a group has ended. */
static void check_answered(struct cache_reader *r, uint64_t now_us)
{
    while (r->answered < r->answers && !r->first) {
        struct piece_read *read = &r->piece_reads[r->which[r->answered++] / 2];
        if (--read->pending)
            continue;
        check_read(r, read);
        end_read(r, read, now_us);
    }
}

struct cache_group *cache_reader_take(struct cache_reader *r)
{
    if (!r->first && r->ring) {
        uint64_t now_us = clock_now_us();
        check_answered(r, now_us);
        while (!r->first && (r->answers = ring_take(r->ring, r->reads, r->which))) {
            r->answered = 0;
            check_answered(r, now_us);
        }
        if (!r->first && r->in_flight && is_late(r, now_us / 1000))
            give_up(r, now_us, true);
        leave_ring(r);
    }
    struct cache_group *g = r->first;
    if (!g)
        return NULL;
    r->first = g->next;
    if (!r->first)
        r->last = &r->first;
    return g;
}

int cache_reader_fd(const struct cache_reader *r, int *out_wait_ms)
{
    uint64_t now = clock_now_ms();
    if (!r->ring)
        return -1;
    *out_wait_ms = r->look_ms > now ? (int)GR_MIN(r->look_ms - now, (uint64_t)60000) : 0;
    return ring_fd(r->ring);
}
