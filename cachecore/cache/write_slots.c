/* Writing chunks into slots: claim the slots, write, make them readable.
 *
 *    cache.lock: claim -> filling     no lock: data, then records     cache.lock: commit -> ready, or abort -> free
 *
 * A call writes up to CACHE_FILLS_MAX chunks together: one submission for the data of all, one hand-over for their
 * records, one wake-up of the threads that wait for the outcome. A call that holds a claim never waits for another one,
 * so two calls cannot wait for each other. Chunks that another thread is writing are waited for afterwards, one by one.
 */
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "cache/cache_internal.h"

/* What a claim waits for. */
enum claim_wait {
    CLAIM_AT_ONCE, /* nothing: -EBUSY when another thread fills the chunk, -EAGAIN when all slots are busy */
    CLAIM_JOIN,    /* another thread's fill of the chunk */
    CLAIM_WAIT,    /* a slot too */
};

/* Can any directory take a chunk now? */
static bool takes_fills(const struct cache *c)
{
    for (size_t i = 0; i < c->dir_count; i++)
        if (cache_dir_fills(c->dirs[i]))
            return true;
    return false;
}

/* Claim a slot (filling) for the chunk, or return 0 without a claim if the chunk is already readable. -ENODEV: the
 * chunk is pinned in a directory that cannot be read; else as space_alloc. */
static int claim_locked(struct cache *c, struct fill_item *item, enum claim_wait wait)
{
    const struct space_request *request = &item->request;
    for (;;) {
        uint32_t id = space_find(&c->space, &request->digest);
        if (id != SPACE_NONE && cache_readable_locked(c, id))
            return 0;
        if (id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_READY) {
            if (!takes_fills(c) || space_slot_at(&c->space, id)->flags & RECORD_PINNED)
                return -ENODEV;        /* a user's pin stays with its slot, readable or not */
            space_drop(&c->space, id); /* its directory is down: cache the chunk in another one */
            id = SPACE_NONE;
        }
        bool damaged = id != SPACE_NONE && space_slot_at(&c->space, id)->state == SLOT_DAMAGED;
        if (id == SPACE_NONE || damaged) {
            int rc = damaged ? space_refill(&c->space, id, request, &item->slot)
                             : space_alloc(&c->space, request, &item->slot);
            item->claimed = !rc;
            if (rc != -EAGAIN || wait != CLAIM_WAIT)
                return rc;
        } else if (wait == CLAIM_AT_ONCE) {
            return -EBUSY;
        }
        space_assert(&c->space);
        pthread_cond_wait(&c->changed, &c->lock);
    }
}

/* Claim slots under the lock. c->waiters is raised before the pins are looked at, and cache_unpin looks at it after
 * it has released the pin, so a release is never missed. */
static void claim(struct cache *c, struct fill_item *items, size_t n, enum claim_wait wait)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    atomic_fetch_add(&c->waiters, 1);
    for (size_t i = 0; i < n; i++) {
        items[i].claimed = false;
        items[i].rc = claim_locked(c, &items[i], wait);
    }
    atomic_fetch_sub(&c->waiters, 1);
}

/* End the claims of one directory, and wake the threads that wait for the outcome. */
static void end_claims(struct cache *c, const struct fill_item *items, size_t n, unsigned dir)
{
    SCOPED_SPACE_LOCK(&c->lock, &c->space);
    for (size_t i = 0; i < n; i++) {
        if (!items[i].claimed || items[i].slot.dir != dir)
            continue;
        if (items[i].rc)
            space_abort(&c->space, items[i].slot.id);
        else
            space_commit(&c->space, items[i].slot.id);
    }
    pthread_cond_broadcast(&c->changed);
}

/* What a result says of the disk: a missed deadline most, for its late writes must not meet new ones; then a failure.
 */
static int weight_of(int rc)
{
    return rc == -ETIMEDOUT ? 3 : rc && rc != -ECANCELED && rc != -EAGAIN && rc != -ENOMEM ? 2 : rc ? 1 : 0;
}

/* A call counts once for the health, since the disk may have failed its writes as one. */
static int result_of(const struct cache_fill *fills, size_t n)
{
    int rc = 0;
    for (size_t i = 0; i < n; i++)
        rc = weight_of(fills[i].rc) > weight_of(rc) ? fills[i].rc : rc;
    return rc;
}

void fill_write(struct cache *c, unsigned dir, struct cache_fill *fills, size_t n)
{
    uint64_t timeout_ms = (uint64_t)c->disk_timeout_ms * WRITE_TIMEOUT_FACTOR;
    for (size_t i = 0; i < n; i++)
        fills[i].rc = -EAGAIN; /* no ring, or the directory went down while this thread waited for one */
    struct ring *ring = rings_borrow(c->writers, clock_now_ms() + timeout_ms);
    if (!ring)
        return;
    if (cache_dir_fills(c->dirs[dir]))
        cache_dir_fill(c->dirs[dir], ring, fills, n, clock_now_ms() + timeout_ms);
    cache_note(c, dir, CACHE_WRITING,
               result_of(fills, n)); /* before the ring is returned: its next user could lose it to the same disk */
    rings_return(ring);
}

/* Is a chunk that failed among others to be tried alone? What failed may have been another one's: adjacent slots are
 * one write, and the thread of a ring ends with the first failure. Not where the disk gave no answer in time. */
static bool wants_another_try(const struct fill_item *item, size_t n)
{
    return n > 1 && item->claimed && item->rc && item->rc != -ETIMEDOUT && item->rc != -EAGAIN;
}

/* Write the claimed chunks of one directory, and end their claims: they must not wait for another directory, whose disk
 * may hang. */
static void write_to(struct cache *c, unsigned dir, struct fill_item *items, size_t n)
{
    struct cache_fill fills[CACHE_FILLS_MAX];
    size_t which[CACHE_FILLS_MAX], count = 0;
    for (size_t i = 0; i < n; i++)
        if (items[i].claimed && items[i].slot.dir == dir) {
            fills[count] = (struct cache_fill){&items[i].slot, &items[i].request.digest, items[i].stored, 0};
            which[count++] = i;
        }
    if (count)
        fill_write(c, dir, fills, count);
    for (size_t i = 0; i < count; i++) {
        struct fill_item *item = &items[which[i]];
        item->rc = fills[i].rc;
        if (item->rc != -EAGAIN && !wants_another_try(item, n))
            counter_add(item->rc ? &c->stats.fill_errors : &c->stats.fills, 1);
        counter_add(&c->stats.fill_bytes, item->rc ? 0 : item->stored->len);
    }
    if (count)
        end_claims(c, items, n, dir);
}

/* Try the items once, each in the directory chosen now. */
static void fill_once(struct cache *c, struct fill_item *items, size_t n, enum claim_wait wait)
{
    claim(c, items, n, wait);
    for (unsigned dir = 0; dir < c->dir_count; dir++)
        write_to(c, dir, items, n);
}

/* Did the write of an item with `wait` fail with its directory, while another one takes chunks? */
static bool goes_elsewhere(const struct cache *c, const struct fill_item *item)
{
    return item->rc && item->wait && item->claimed && !cache_dir_fills(c->dirs[item->slot.dir]) && takes_fills(c);
}

static void fill_one(struct cache *c, struct fill_item *item)
{
    size_t tries = 0;
    do
        fill_once(c, item, 1, item->wait ? CLAIM_WAIT : CLAIM_JOIN);
    while (goes_elsewhere(c, item) && ++tries < c->dir_count);
}

/* Is an item that was tried among others to be tried alone, where it may wait? */
static bool goes_alone(const struct cache *c, const struct fill_item *item, size_t n)
{
    bool no_slot = item->wait && item->rc == -EAGAIN && !item->claimed;
    return item->rc == -EBUSY || no_slot || wants_another_try(item, n) || goes_elsewhere(c, item);
}

void fill_items(struct cache *c, struct fill_item *items, size_t n)
{
    assert(n <= CACHE_FILLS_MAX);
    if (n > 1)
        fill_once(c, items, n, CLAIM_AT_ONCE);
    for (size_t i = 0; i < n; i++)
        if (n == 1 || goes_alone(c, &items[i], n))
            fill_one(c, &items[i]);
}

struct space_request fill_request(const struct chunk_ref *ref)
{
    return (struct space_request){
        .digest = ref->digest,
        .plain_len = ref->plain_len,
        .stored_len = ref->plain_len,
        .flags = ref->kind == OBJECT_INDEX ? RECORD_META : 0,
        .media = CACHE_MEDIA_ANY,
    };
}

int fill_chunk(struct cache *c, const struct space_request *request, struct buf *stored)
{
    struct fill_item item = {.request = *request, .stored = stored, .wait = true};
    fill_items(c, &item, 1);
    return item.rc;
}

/* Keep the compressed bytes where they save a size class, or where other nodes ask for them. A slot is a power of two:
 * smaller savings would only cost readers the decoding. */
void fill_item_init(const struct cache *c, struct fill_item *item, struct inflight *inflight, struct buf *plain,
                    bool named)
{
    uint32_t tag = inflight_tag(inflight);
    CLEANUP_BUF struct buf *stored = inflight_stored(inflight);
    *item = (struct fill_item){.request = fill_request(inflight_chunk(inflight)), .wait = named};
    item->request.group = (uint16_t)(tag <= SPACE_GROUPS_MAX ? tag : 0);
    item->request.force = named;
    bool saves = stored && cache_class_of((uint32_t)stored->len) < cache_class_of(item->request.plain_len);
    if (stored && (saves || c->as_stored)) {
        item->request.stored_len = (uint32_t)stored->len;
        item->request.flags |= RECORD_ZSTD;
        item->stored = steal_ptr(&stored);
    } else {
        item->stored = buf_ref(plain);
    }
}

int fill_inflight(struct cache *c, struct inflight *inflight, struct buf *plain, bool named)
{
    struct fill_item item;
    fill_item_init(c, &item, inflight, plain, named);
    fill_items(c, &item, 1);
    buf_unref(item.stored);
    return item.rc;
}
