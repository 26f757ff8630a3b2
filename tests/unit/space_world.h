/* A space without a disk, and chunks by number in it, for the tests of slots and slabs. */
#ifndef GRANARY_TESTS_UNIT_SPACE_WORLD_H
#define GRANARY_TESTS_UNIT_SPACE_WORLD_H

#include "unit/cmocka_all.h"

#include <errno.h>

#include "cache/index/space.h"

/* The last `slow` directories are on the slower medium. */
static inline void init_media(struct space *s, const uint64_t *budgets, size_t count, size_t slow)
{
    struct space_config config = {.dir_count = count, .policy = EVICT_LRU};
    for (size_t i = 0; i < count; i++) {
        config.dirs[i].geometry.id = i + 1;
        config.dirs[i].media = i + slow < count ? CACHE_MEDIA_SSD : CACHE_MEDIA_HDD;
        assert_int_equal(cache_geometry_plan(budgets[i], &config.dirs[i].geometry), 0);
    }
    assert_int_equal(space_init(s, &config), 0);
    assert_int_equal(space_set_limit(s, 77, 4 << 20), 1);
    assert_int_equal(space_set_limit(s, 88, 0), 2);
}

static inline void init_space(struct space *s, const uint64_t *budgets, size_t count)
{
    init_media(s, budgets, count, 0);
}

static inline void open_space(struct space *s, uint64_t budget)
{
    init_space(s, (const uint64_t[]){budget}, 1);
    assert_int_equal(space_load_finish(s, &(struct space_load){0}), 0);
}

static inline struct digest name_of(uint64_t n)
{
    return digest_of(&n, sizeof n);
}

static inline struct space_request request_of(uint64_t n, uint32_t len, unsigned flags)
{
    return (struct space_request){
        .digest = name_of(n), .plain_len = len, .stored_len = len, .flags = (uint16_t)flags, .media = CACHE_MEDIA_ANY};
}

static inline int alloc(struct space *s, uint64_t n, uint32_t len, struct space_slot *slot)
{
    struct space_request request = request_of(n, len, 0);
    return space_alloc(s, &request, slot);
}

/* Put chunk n of len bytes; the slot's number. */
static inline uint32_t put_with(struct space *s, uint64_t n, uint32_t len, unsigned flags)
{
    struct space_request request = request_of(n, len, flags);
    struct space_slot slot;
    assert_int_equal(space_alloc(s, &request, &slot), 0);
    space_commit(s, slot.id);
    return slot.id;
}

static inline uint32_t put(struct space *s, uint64_t n, uint32_t len)
{
    return put_with(s, n, len, 0);
}

static inline bool has(struct space *s, uint64_t n)
{
    struct digest d = name_of(n);
    return space_find(s, &d) != SPACE_NONE;
}

#endif
