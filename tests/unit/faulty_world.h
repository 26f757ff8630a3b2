/* A cache whose disk is the fake one (fake/disk_fake.h), which fails, hangs and lies on demand. */
#ifndef GRANARY_UNIT_FAULTY_WORLD_H
#define GRANARY_UNIT_FAULTY_WORLD_H

#include "fake/disk_fake.h"
#include "unit/cache_world.h"

#define K 1024u
static const uint32_t lens[] = {128 * K, 64 * K, 5000, 300 * K}; /* each in a slab of its own */

enum { CHUNKS = 24, SOON_MS = 100 };

/* A cache whose disk is the fake one, with two or three directories when others are given. */
static inline void faulty_world_of(struct world *w, const char *second, const char *third)
{
    struct cache_test_hooks hooks = {.no_uring = true, .calls = disk_fake_calls()};
    world_init(w, CHUNKS, lens, GR_ARRAY_SIZE(lens), 32 << 20);
    w->config.dirs[1].path = second;
    w->config.dirs[2].path = third;
    w->config.dirs[1].size = w->config.dirs[2].size = 32 << 20;
    w->config.dir_count = third ? 3 : second ? 2 : 1;
    world_open_hooks(w, &hooks);
}

static inline void faulty_world(struct world *w, const char *second)
{
    faulty_world_of(w, second, NULL);
}

/* Short deadlines are for disks that hang here, and for nothing else: a real disk may be busy for longer. */
static inline uint32_t set_timeout(struct world *w, uint32_t ms)
{
    return atomic_exchange(&w->cache->disk_timeout_ms, ms);
}

/* Read a chunk of a directory that hangs, until that is found out. */
static inline void find_out(struct world *w, unsigned chunk)
{
    uint32_t before = set_timeout(w, SOON_MS);
    while (!count_of(w, "reading_down"))
        world_expect(w, chunk);
    set_timeout(w, before);
}

static inline void faulty_release(struct world *w)
{
    disk_fake_reset();
    world_check(w);
    world_release(w);
}

static inline uint64_t now_hits(struct world *w)
{
    return count_of(w, "hits_total");
}

/* All are hits: nothing was lost. */
static inline void expect_all_hits(struct world *w)
{
    uint64_t before = now_hits(w);
    world_expect_all(w);
    assert_int_equal(now_hits(w) - before, CHUNKS);
}

#endif
