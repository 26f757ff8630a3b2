/* Up to 16 shards, chosen by digest. Each has a lock, a `struct space` (index, size classes and eviction: the disk
 * cache's code over one "directory" that is memory) and one mapping:
 *
 *    | slots of chunks | CRC-32C of each 4 KiB of them | full digest of each slot |
 *
 * A read finds and pins its slot under the shard's lock, then checks and copies block by block without the lock (the
 * checksum brings a block into the CPU's cache, from where it is copied), and unpins without it. A put owns its slot
 * (filling) while it copies. Nothing is allocated except when a slab is bound, once for each slab and size class.
 *
 * Lock order: a shard's lock is innermost; no two are held together.
 */
#include "cache/memory_tier.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "cache/index/space.h"
#include "format/chunk.h"

enum {
    BLOCK = 4096, /* bytes that one checksum covers */
    SHARDS_MAX = 16,
    SHARD_SHIFT = 29, /* one shard for each 512 MiB: with less memory a shard would have too few slabs */
    TELL_EVERY = 32,  /* one hit in 32, by chance, is reported to the disk cache */
    HUGE_PAGE = 2 << 20,
};

/* One shard, on cache lines of its own. `lock` guards space, random and the counters. */
struct shard {
    pthread_mutex_t lock;
    struct space space;
    uint64_t random; /* state of the generator in time_to_tell_locked */
    uint64_t hits, hit_bytes, crc_errors;
    /* constant from here on */
    struct cache_geometry geometry;
    uint32_t slab_slots; /* slots of a slab of the smallest class: the most there are */
    void *map;
    size_t map_size;
    uint8_t *data;
    uint32_t *crcs;
    struct digest *digests;
} __attribute__((aligned(128)));

struct memory_tier {
    unsigned shard_mask;
    struct shard *shards;
};
DEFINE_CLEANUP(memory_tier, struct memory_tier *, memory_tier_free)

/* ---- life ---- */

/* Map all of a shard's memory at once: pages that are never touched cost nothing, and the kernel refuses here what it
 * could never grant. */
static int map_shard(struct shard *s)
{
    uint64_t data = cache_geometry_data_size(&s->geometry), crcs = data / BLOCK * sizeof *s->crcs;
    uint64_t digests = (uint64_t)s->geometry.slab_count * s->slab_slots * sizeof *s->digests;
    s->map_size = data + crcs + digests + HUGE_PAGE;
    void *map = mmap(NULL, s->map_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return -errno;
    s->map = map;
    s->data = (uint8_t *)GR_ALIGN_UP((uintptr_t)map, (uintptr_t)HUGE_PAGE);
    s->crcs = (uint32_t *)(s->data + data);
    s->digests = (struct digest *)(s->data + data + crcs);
    (void)madvise(s->data, data, MADV_HUGEPAGE); /* fewer TLB misses, where the kernel has huge pages */
    (void)madvise(map, s->map_size, MADV_DONTDUMP);
    return 0;
}

/* Plan a shard as if it were a cache directory of that size, and map it. */
static int shard_init(struct shard *s, uint64_t memory)
{
    pthread_mutex_init(&s->lock, NULL);
    s->random = (uintptr_t)s | 1;
    int rc = cache_geometry_plan(memory, &s->geometry);
    if (rc)
        return rc;
    s->slab_slots = cache_class_slots(&s->geometry, 0);
    return map_shard(s);
}

static void shard_release(struct shard *s)
{
    if (s->map)
        munmap(s->map, s->map_size);
    space_release(&s->space);
    pthread_mutex_destroy(&s->lock);
}

/* A power of two, so that a mask of the digest's bits chooses the shard. */
static unsigned shards_for(uint64_t memory)
{
    unsigned n = 1;
    while (n < SHARDS_MAX && memory >> SHARD_SHIFT >= 2 * (uint64_t)n)
        n *= 2;
    return n;
}

int memory_tier_new(uint64_t memory, enum evict_policy policy, struct memory_tier **out)
{
    if (memory < CACHE_BUDGET_MIN)
        return error_set(-EINVAL, "cache: a memory tier of %llu bytes is too small; give it at least 16 MiB",
                         (unsigned long long)memory);
    CLEANUP(cleanup_memory_tier) struct memory_tier *f = calloc(1, sizeof *f);
    unsigned n = shards_for(memory);
    if (f)
        f->shards = aligned_alloc(_Alignof(struct shard), n * sizeof *f->shards);
    if (!f || !f->shards)
        return error_no_memory();
    memset(f->shards, 0, n * sizeof *f->shards);
    f->shard_mask = n - 1;
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = shard_init(&f->shards[i], memory / n);
    /* after all that the kernel may refuse: this takes time for large ones */
    for (unsigned i = 0; !rc && i < n; i++) {
        struct space_config config = {.dirs = {{.geometry = f->shards[i].geometry}}, .dir_count = 1, .policy = policy};
        rc = space_init(&f->shards[i].space, &config);
    }
    if (rc == -ENOMEM)
        return error_set(rc, "cache: no %llu bytes of memory for memory=; give less", (unsigned long long)memory);
    if (rc)
        return rc;
    *out = steal_ptr(&f);
    return 0;
}

void memory_tier_free(struct memory_tier *f)
{
    if (!f)
        return;
    for (unsigned i = 0; f->shards && i <= f->shard_mask; i++)
        shard_release(&f->shards[i]);
    free(f->shards);
    free(f);
}

/* ---- slots ---- */

static struct shard *shard_of(struct memory_tier *f, const struct digest *digest)
{
    return &f->shards[le32_get(digest->b + 28) &
                      f->shard_mask]; /* the last bytes: space chooses its buckets by the first */
}

static struct digest *digest_at(const struct shard *s, const struct space_slot *slot)
{
    return &s->digests[(size_t)slot->place.slab * s->slab_slots + slot->place.slot];
}

static uint8_t *data_at(const struct shard *s, const struct space_slot *slot, uint32_t **out_crcs)
{
    uint64_t off = cache_place_data_offset(&s->geometry, &slot->place);
    *out_crcs = s->crcs + off / BLOCK;
    return s->data + off;
}

/* Return the slot from which the chunk can be read, or SPACE_NONE. */
static uint32_t find_ready_locked(const struct shard *s, const struct digest *digest)
{
    uint32_t id = space_find(&s->space, digest);
    return id != SPACE_NONE && space_slot_at(&s->space, id)->state == SLOT_READY ? id : SPACE_NONE;
}

/* By chance, not by a counter: readers that go round and round would always report the same chunk. */
static bool time_to_tell_locked(struct shard *s)
{
    s->random = s->random * 6364136223846793005u + 1442695040888963407u;
    return s->random >> 32 < UINT32_MAX / TELL_EVERY;
}

static struct space_request request_of(const struct digest *digest, uint32_t len, bool force)
{
    return (struct space_request){
        .digest = *digest, .plain_len = len, .stored_len = len, .media = CACHE_MEDIA_ANY, .force = force};
}

/* Look the chunk up; pin its slot and count the hit, or tell the policy of the miss. */
static enum memory_tier_result pin(struct shard *s, const struct digest *digest, uint32_t plain_len, uint32_t len,
                                   struct space_slot *slot)
{
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    uint32_t id = find_ready_locked(s, digest);
    if (id == SPACE_NONE && plain_len && plain_len <= CHUNK_SIZE_MAX) {
        struct space_request request = request_of(digest, plain_len, false);
        request.asked = len;
        space_miss(&s->space, &request);
    }
    if (id == SPACE_NONE || space_slot_at(&s->space, id)->plain_len != plain_len || !space_can_pin(&s->space, id))
        return MEMORY_TIER_MISS;
    space_pin_read(&s->space, id, len, slot);
    s->hits++;
    s->hit_bytes += len;
    return time_to_tell_locked(s) ? MEMORY_TIER_HIT_TELL : MEMORY_TIER_HIT;
}

/* Take back a hit whose bytes proved bad, count the fault and drop the chunk. */
static void drop_bad(struct shard *s, uint32_t id, const struct digest *digest, uint32_t len)
{
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    s->hits--;
    s->hit_bytes -= len;
    s->crc_errors++;
    if (find_ready_locked(s, digest) == id) /* else another reader dropped it first */
        space_drop(&s->space, id);
}

/* ---- reading ---- */

/* Check every block that [offset, end) touches, and copy the wanted bytes. false: a block is wrong. */
static bool copy_out(const struct shard *s, const struct space_slot *slot, uint32_t offset, uint32_t end, uint8_t *dst)
{
    uint32_t *crcs;
    const uint8_t *data = data_at(s, slot, &crcs);
    for (uint32_t block = offset / BLOCK * BLOCK; block < end; block += BLOCK) {
        uint32_t block_end = GR_MIN(block + BLOCK, slot->plain_len);
        if (crc32c(data + block, block_end - block) != crcs[block / BLOCK])
            return false;
        uint32_t from = GR_MAX(block, offset), to = GR_MIN(block_end, end);
        memcpy(dst + (from - offset), data + from, to - from);
    }
    return true;
}

enum memory_tier_result memory_tier_read(struct memory_tier *f, const struct digest *digest, uint32_t plain_len,
                                         uint32_t offset, uint32_t len, uint8_t *dst)
{
    struct shard *s = shard_of(f, digest);
    struct space_slot slot;
    if ((uint64_t)offset + len > plain_len)
        return MEMORY_TIER_MISS;
    enum memory_tier_result hit = pin(s, digest, plain_len, len, &slot);
    if (hit == MEMORY_TIER_MISS)
        return hit;
    bool good = digest_equal(digest_at(s, &slot), digest) && copy_out(s, &slot, offset, offset + len, dst);
    space_unpin(slot.pins);
    if (good)
        return hit;
    drop_bad(s, slot.id, digest, len);
    return MEMORY_TIER_MISS;
}

bool memory_tier_has(struct memory_tier *f, const struct digest *digest)
{
    if (!f)
        return false;
    struct shard *s = shard_of(f, digest);
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    return find_ready_locked(s, digest) != SPACE_NONE;
}

/* ---- putting ---- */

bool memory_tier_admits(struct memory_tier *f, const struct digest *digest, uint32_t len)
{
    struct shard *s = shard_of(f, digest);
    const struct space_request request = request_of(digest, len, false);
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    return space_find(&s->space, digest) == SPACE_NONE && space_admits(&s->space, &request);
}

/* Claim a slot (filling) for the chunk, or set *done when it is here already. */
static int memory_tier_claim(struct shard *s, const struct digest *digest, uint32_t len, bool force,
                             struct space_slot *slot, bool *done)
{
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    uint32_t id = space_find(&s->space, digest);
    *done = id != SPACE_NONE && space_slot_at(&s->space, id)->state == SLOT_READY;
    if (id != SPACE_NONE)
        return *done ? 0 : -EAGAIN;
    const struct space_request request = request_of(digest, len, force);
    return space_alloc(&s->space, &request, slot);
}

int memory_tier_put(struct memory_tier *f, const struct digest *digest, const uint8_t *data, uint32_t len, bool force)
{
    struct shard *s = shard_of(f, digest);
    struct space_slot slot;
    bool done;
    int rc = memory_tier_claim(s, digest, len, force, &slot, &done);
    if (rc || done)
        return rc;
    uint32_t *crcs;
    uint8_t *to = data_at(s, &slot, &crcs);
    /* The slot is filling: no reader finds it before the commit. */
    for (uint32_t off = 0; off < len; off += BLOCK) {
        uint32_t n = GR_MIN(len - off, (uint32_t)BLOCK);
        crcs[off / BLOCK] = crc32c(data + off, n);
        memcpy(to + off, data + off, n);
    }
    *digest_at(s, &slot) = *digest;
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    space_commit(&s->space, slot.id);
    return 0;
}

bool memory_tier_drop(struct memory_tier *f, const struct digest *digest)
{
    if (!f)
        return false;
    struct shard *s = shard_of(f, digest);
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    uint32_t id = find_ready_locked(s, digest);
    if (id != SPACE_NONE)
        space_drop(&s->space, id);
    return id != SPACE_NONE;
}

/* Drop the ready chunks of one slab. The lock is held for one slab at a time, so that readers go on. */
static void clear_slab(struct shard *s, uint32_t number)
{
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    for (uint32_t i = 0; i < s->space.slabs[number].slot_count; i++)
        if (s->space.slabs[number].slots[i].state == SLOT_READY)
            space_drop(&s->space, number << SPACE_SLOT_BITS | i);
}

void memory_tier_clear(struct memory_tier *f)
{
    for (unsigned i = 0; f && i <= f->shard_mask; i++)
        for (uint32_t k = 0; k < f->shards[i].space.slab_count; k++)
            clear_slab(&f->shards[i], k);
}

/* ---- figures ---- */

void memory_tier_stats(struct memory_tier *f, struct memory_tier_stats *out)
{
    memset(out, 0, sizeof *out);
    for (unsigned i = 0; i <= f->shard_mask; i++) {
        struct shard *s = &f->shards[i];
        SCOPED_SPACE_LOCK(&s->lock, &s->space);
        out->hits += s->hits;
        out->hit_bytes += s->hit_bytes;
        out->crc_errors += s->crc_errors;
        out->evictions += s->space.evictions;
        out->entries += s->space.entries;
        out->used_bytes += s->space.used_bytes;
        out->capacity += s->space.capacity;
    }
}

uint8_t *memory_tier_peek(struct memory_tier *f, const struct digest *digest)
{
    struct shard *s = shard_of(f, digest);
    struct space_slot slot;
    uint32_t *crcs;
    SCOPED_SPACE_LOCK(&s->lock, &s->space);
    uint32_t id = find_ready_locked(s, digest);
    if (id == SPACE_NONE)
        return NULL;
    space_pin(&s->space, id, &slot);
    space_unpin(slot.pins);
    return data_at(s, &slot, &crcs);
}

void memory_tier_check(struct memory_tier *f)
{
    for (unsigned i = 0; i <= f->shard_mask; i++) {
        SCOPED_SPACE_LOCK(&f->shards[i].lock, &f->shards[i].space);
        space_check(&f->shards[i].space);
    }
}
