/* Slots, slabs and the index: the state table of space.h, by long random histories. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "cache/space.h"

/* The last `slow` directories are on the slower medium. */
static void init_media(struct space *s, const uint64_t *budgets, size_t count, size_t slow)
{
    struct space_config config = {.dir_count = count, .policy = EVICT_LRU};
    config.groups[0] = (struct space_quota){.owner = 77, .limit = 4 << 20};
    config.groups[1] = (struct space_quota){.owner = 88, .limit = 0};
    config.group_count = 2;
    for (size_t i = 0; i < count; i++) {
        config.dirs[i].geometry.id = i + 1;
        config.dirs[i].media = i + slow < count ? CACHE_MEDIA_SSD : CACHE_MEDIA_HDD;
        assert_int_equal(cache_geometry_plan(budgets[i], &config.dirs[i].geometry), 0);
    }
    assert_int_equal(space_init(s, &config), 0);
}

static void init_space(struct space *s, const uint64_t *budgets, size_t count)
{
    init_media(s, budgets, count, 0);
}

static void open_space(struct space *s, uint64_t budget)
{
    init_space(s, (const uint64_t[]){budget}, 1);
    assert_int_equal(space_load_finish(s, &(struct space_load){0}), 0);
}

static struct digest name_of(uint64_t n)
{
    return digest_of(&n, sizeof n);
}

static struct space_want want_of(uint64_t n, uint32_t len, unsigned flags)
{
    return (struct space_want){
        .digest = name_of(n), .plain_len = len, .stored_len = len, .flags = (uint16_t)flags, .media = CACHE_MEDIA_ANY};
}

static int alloc(struct space *s, uint64_t n, uint32_t len, struct space_slot *slot)
{
    struct space_want want = want_of(n, len, 0);
    return space_alloc(s, &want, slot);
}

/* Put chunk n of len bytes; the slot's number. */
static uint32_t put_with(struct space *s, uint64_t n, uint32_t len, unsigned flags)
{
    struct space_want want = want_of(n, len, flags);
    struct space_slot slot;
    assert_int_equal(space_alloc(s, &want, &slot), 0);
    space_commit(s, slot.id);
    return slot.id;
}

static uint32_t put(struct space *s, uint64_t n, uint32_t len)
{
    return put_with(s, n, len, 0);
}

static bool has(struct space *s, uint64_t n)
{
    struct digest d = name_of(n);
    return space_find(s, &d) != SPACE_NONE;
}

static void test_space__the_one_used_longest_ago_goes_first(void **state)
{
    struct space s;
    struct space_slot pin;
    open_space(&s, 16 << 20); /* 3 slabs of 4 MiB: 12 slots of 1 MiB */
    uint32_t first = put(&s, 0, 1 << 20);
    for (uint64_t i = 1; i < 12; i++)
        put(&s, i, 1 << 20);
    assert_int_equal(s.evictions, 0);
    space_pin(&s, first, &pin); /* read: used last now */
    space_unpin(pin.pins);
    put(&s, 12, 1 << 20);
    assert_true(has(&s, 0));
    assert_false(has(&s, 1));
    assert_int_equal(s.evictions, 1);
    space_check(&s);
    space_release(&s);
}

static void test_space__pinned_slots_stay_and_all_pinned_is_eagain(void **state)
{
    struct space s;
    struct space_slot pins[3], slot;
    open_space(&s, 16 << 20);
    for (uint64_t i = 0; i < 3; i++)
        space_pin(&s, put(&s, i, 4 << 20), &pins[i]);
    assert_int_equal(alloc(&s, 3, 4 << 20, &slot), -EAGAIN);
    assert_int_equal(alloc(&s, 3, 4096, &slot), -EAGAIN); /* no slab can be taken either */
    space_unpin(pins[1].pins);
    put(&s, 3, 4 << 20);
    assert_true(has(&s, 0) && has(&s, 2) && !has(&s, 1));
    space_check(&s);
    space_release(&s);
}

static void test_space__dropped_while_pinned_is_gone_but_not_reused(void **state)
{
    struct space s;
    struct space_slot pin;
    open_space(&s, 16 << 20);
    uint32_t id = put(&s, 0, 4 << 20);
    space_pin(&s, id, &pin);
    space_drop(&s, id);
    assert_false(has(&s, 0));
    for (uint64_t i = 1; i < 9; i++)
        assert_int_not_equal(put(&s, i, 4 << 20), id);
    space_unpin(pin.pins);
    assert_int_equal(put(&s, 9, 4 << 20), id);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_class_without_a_slab_takes_the_coldest(void **state)
{
    struct space s;
    struct space_slot pin;
    open_space(&s, 16 << 20);
    uint32_t ids[3];
    for (uint64_t i = 0; i < 3; i++)
        ids[i] = put(&s, i, 4 << 20);
    space_pin(&s, ids[0], &pin);
    space_unpin(pin.pins);
    put(&s, 3, 4096);
    assert_true(has(&s, 0) && has(&s, 2) && has(&s, 3));
    assert_false(has(&s, 1));
    space_check(&s);
    space_release(&s);
}

static void test_space__space_follows_a_workload_to_another_chunk_size(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t i = 0; i < 2000; i++)
        put(&s, i, 128 << 10);
    for (uint64_t i = 10000; i < 12000; i++)
        put(&s, i, 64 << 10);
    uint32_t small = 0;
    for (uint32_t i = 0; i < s.slab_count; i++)
        small += s.slabs[i].class == cache_class_of(64 << 10);
    assert_true(small >= s.slab_count - 1);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_slab_bound_anew_has_another_epoch(void **state)
{
    struct space s;
    struct space_slot slot;
    open_space(&s, 16 << 20);
    uint32_t epoch = s.slabs[put(&s, 0, 4 << 20) >> SPACE_SLOT_BITS].epoch;
    put(&s, 1, 4 << 20);
    put(&s, 2, 4 << 20);
    assert_int_equal(alloc(&s, 3, 4096, &slot), 0);
    assert_true(slot.slab_bound);
    assert_false(slot.recorded); /* what the old binding left needs no blanking */
    assert_int_equal(slot.place.epoch, epoch + 1);
    space_abort(&s, slot.id);
    assert_int_equal(alloc(&s, 3, 4096, &slot), 0);
    assert_true(slot.slab_bound); /* the first announcement may have failed */
    space_commit(&s, slot.id);
    space_check(&s);
    space_release(&s);
}

/* A slab of 1 MiB slots whose records are names[i], filled at seqs[i]. */
static void load_four(struct space *s, const uint64_t names[4], const uint64_t seqs[4])
{
    struct space_load load = {0};
    init_space(s, (const uint64_t[]){16 << 20}, 1);
    struct cache_place place = {.slab = 1, .epoch = 5, .class = cache_class_of(1 << 20)};
    assert_int_equal(space_load_slab(s, 0, &place), 0);
    for (place.slot = 0; place.slot < 4; place.slot++) {
        struct cache_record r = {
            .digest = name_of(names[place.slot]), .seq = seqs[place.slot], .plain_len = 1 << 20, .stored_len = 1 << 20};
        if (names[place.slot])
            assert_int_equal(space_load_slot(s, &load, 0, &place, &r), 0);
    }
    assert_int_equal(space_load_finish(s, &load), 0);
    space_check(s);
}

static void test_space__newer_of_two_records_counts_and_order_is_kept(void **state)
{
    struct space s;
    load_four(&s, (const uint64_t[]){7, 8, 7, 9}, (const uint64_t[]){40, 10, 41, 30});
    assert_int_equal(s.entries, 3);
    struct digest seven = name_of(7);
    assert_int_equal(space_find(&s, &seven) & 3, 2);
    for (uint64_t i = 100; i < 109; i++) /* the loser's slot and the two other slabs */
        put(&s, i, 1 << 20);
    assert_int_equal(s.evictions, 0);
    assert_int_equal(s.clock, 41 + 9);
    put(&s, 200, 1 << 20);
    assert_true(!has(&s, 8) && has(&s, 9) && has(&s, 7));
    space_release(&s);
}

static void test_space__order_is_kept_where_32_bits_of_fills_end(void **state)
{
    struct space s;
    load_four(&s, (const uint64_t[]){1, 2, 3, 4},
              (const uint64_t[]){UINT64_C(0x300000007), UINT64_C(0x2fffffff0), UINT64_C(0x300000002), 0x2fffff000});
    const uint64_t order[] = {4, 2, 3, 1};
    for (uint64_t i = 100; i < 108; i++)
        put(&s, i, 1 << 20);
    for (uint64_t i = 0; i < 4; i++) {
        put(&s, 200 + i, 1 << 20);
        for (uint64_t k = 0; k < 4; k++)
            assert_int_equal(has(&s, order[k]), k > i);
    }
    space_release(&s);
}

static void test_space__slots_without_a_record_are_free_after_loading(void **state)
{
    struct space s;
    load_four(&s, (const uint64_t[]){0, 5, 0, 6}, (const uint64_t[]){0, 1, 0, 2});
    for (uint64_t i = 100; i < 110; i++)
        put(&s, i, 1 << 20);
    assert_int_equal(s.evictions, 0);
    assert_int_equal(s.entries, 12);
    space_check(&s);
    space_release(&s);
}

static uint64_t bytes_in(const struct space *s, unsigned dir)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->slab_count; i++)
        for (uint32_t k = 0; s->slabs[i].dir == dir && k < s->slabs[i].slot_count; k++)
            sum += s->slabs[i].slots[k].state == SLOT_READY ? cache_class_slot_size(s->slabs[i].class) : 0;
    return sum;
}

static void test_space__directories_fill_in_proportion(void **state)
{
    struct space s;
    init_space(&s, (const uint64_t[]){128 << 20, 512 << 20}, 2);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    for (uint64_t i = 0; i < 2000; i++)
        put(&s, i, 128 << 10);
    uint64_t first = bytes_in(&s, 0), second = bytes_in(&s, 1);
    assert_int_equal(first + second, 2000 * (128 << 10));
    assert_in_range(second, first * 7 / 2, first * 9 / 2);
    for (uint64_t i = 2000; i < 4400; i++) /* what does not fit at home goes where there is room */
        put(&s, i, 128 << 10);
    assert_int_equal(s.evictions, 0);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_directory_that_is_not_writable_is_passed_over(void **state)
{
    struct space s;
    struct space_slot slot;
    init_space(&s, (const uint64_t[]){64 << 20, 64 << 20}, 2);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    for (uint64_t i = 0; i < 100; i++)
        put(&s, i, 128 << 10);
    uint64_t first = bytes_in(&s, 0);
    assert_true(first > 0 && bytes_in(&s, 1) > 0);
    space_dir_writable(&s, 0, false);
    for (uint64_t i = 100; i < 1000; i++) /* more than the other has room for */
        put(&s, i, 128 << 10);
    assert_int_equal(bytes_in(&s, 0), first);
    assert_true(s.evictions > 0);
    space_dir_writable(&s, 1, false);
    assert_int_equal(alloc(&s, 5000, 4096, &slot), -ENODEV);
    space_dir_writable(&s, 0, true);
    for (uint64_t i = 1000; i < 1100; i++)
        put(&s, i, 128 << 10);
    assert_int_equal(bytes_in(&s, 0), first + 100 * (128 << 10));
    space_check(&s);
    space_release(&s);
}

static void test_space__metadata_never_makes_room_for_data(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t i = 0; i < 30; i++)
        put_with(&s, i, i % 2 ? 64 << 10 : 128 << 10, RECORD_META);
    assert_int_equal(s.meta_bytes, 15 * (192 << 10));
    for (uint64_t i = 100; i < 3000; i++)
        put(&s, i, i % 3 ? 128 << 10 : 1 << 20);
    for (uint64_t i = 0; i < 30; i++)
        assert_true(has(&s, i));
    assert_true(s.evictions > 1000);
    space_check(&s);
    space_release(&s);
}

static void test_space__metadata_beyond_a_quarter_makes_room_for_itself(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t i = 0; i < 400; i++)
        put(&s, i, 128 << 10);
    for (uint64_t i = 1000; i < 1400; i++)
        put_with(&s, i, 128 << 10, RECORD_META);
    assert_true(s.meta_bytes <= s.capacity / 4);
    assert_true(s.meta_bytes > s.capacity / 5);
    assert_true(has(&s, 1399) && !has(&s, 1000));
    assert_true(has(&s, 399) && !has(&s, 0));
    space_check(&s);
    space_release(&s);
}

static void test_space__what_the_user_pins_stays(void **state)
{
    struct space s;
    struct space_slot pin;
    open_space(&s, 64 << 20);
    for (uint64_t i = 0; i < 20; i++)
        assert_int_equal(space_set_pinned(&s, put(&s, i, 128 << 10), true), 0);
    assert_int_equal(s.pinned_bytes, 20 * (128 << 10));
    for (uint64_t i = 100; i < 3000; i++)
        put(&s, i, i % 3 ? 128 << 10 : 64 << 10);
    space_check(&s);
    for (uint64_t i = 0; i < 20; i++) {
        struct digest d = name_of(i);
        uint32_t id = space_find(&s, &d);
        assert_int_not_equal(id, SPACE_NONE);
        space_pin(&s, id, &pin);
        assert_true(pin.flags & RECORD_PINNED);
        space_unpin(pin.pins);
        assert_int_equal(space_set_pinned(&s, id, false), 0);
        assert_int_equal(space_set_pinned(&s, id, false), 0); /* again is nothing */
    }
    assert_int_equal(s.pinned_bytes, 0);
    for (uint64_t i = 3000; i < 6000; i++)
        put(&s, i, 128 << 10);
    for (uint64_t i = 0; i < 20; i++)
        assert_false(has(&s, i));
    space_check(&s);
    space_release(&s);
}

static void test_space__three_quarters_can_be_pinned_and_the_rest_still_works(void **state)
{
    struct space s;
    struct space_slot slot;
    open_space(&s, 64 << 20);
    uint64_t n = 0;
    while (space_set_pinned(&s, put(&s, n, 1 << 20), true) == 0)
        n++;
    assert_int_equal(n, s.capacity / 4 * 3 >> 20);
    assert_int_equal(space_set_pinned(&s, put(&s, 1000, 4096), true), -EDQUOT);
    for (uint64_t i = 2000; i < 2200; i++)
        put(&s, i, 1 << 20);
    assert_int_equal(alloc(&s, 3000, 2 << 20, &slot), 0); /* a slab that holds none of them */
    space_abort(&s, slot.id);
    for (uint64_t i = 0; i < n; i++)
        assert_true(has(&s, i));
    space_check(&s);
    space_release(&s);
}

/* Who waits for room would wait for somebody to change something, and nobody does. */
static void test_space__the_one_slab_that_can_go_is_found_behind_many_that_are_kept(void **state)
{
    struct space s;
    struct space_slot slot;
    open_space(&s, 512 << 20);
    uint64_t n = 0, slabs = s.slab_count;
    for (; n < slabs; n++)
        put(&s, n, 4 << 20);
    for (uint64_t i = 0; i < slabs / 4 * 3; i++) {
        struct digest d = name_of(i);
        assert_int_equal(space_set_pinned(&s, space_find(&s, &d), true), 0);
    }
    assert_int_equal(alloc(&s, n, 4096, &slot), 0);
    space_commit(&s, slot.id);
    space_check(&s);
    space_release(&s);
}

static void test_space__where_all_is_kept_nothing_waits(void **state)
{
    struct space s;
    struct space_slot slot;
    open_space(&s, 16 << 20); /* 3 slabs */
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(space_set_pinned(&s, put(&s, i, 4 << 20), true), 0);
    put_with(&s, 2, 4096, RECORD_META);
    assert_int_equal(alloc(&s, 3, 4 << 20, &slot), -EDQUOT);
    assert_int_equal(alloc(&s, 3, 4096, &slot), 0);
    space_abort(&s, slot.id);
    space_check(&s);
    space_release(&s);
}

static void test_space__the_slower_medium_takes_what_the_faster_has_no_room_for(void **state)
{
    struct space s;
    init_media(&s, (const uint64_t[]){32 << 20, 64 << 20}, 2, 1);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    uint64_t fast = cache_geometry_data_size(&s.dirs[0].geometry), all = s.capacity;
    for (uint64_t i = 0; i < fast >> 17; i++)
        put(&s, i, 128 << 10);
    assert_int_equal(bytes_in(&s, 0), fast);
    assert_int_equal(bytes_in(&s, 1), 0);
    for (uint64_t i = fast >> 17; i < all >> 17; i++)
        put(&s, i, 128 << 10);
    assert_int_equal(bytes_in(&s, 1), all - fast);
    assert_int_equal(s.evictions, 0);
    put(&s, 10000, 128 << 10); /* room is made on the slower one */
    assert_true(has(&s, 0) && !has(&s, fast >> 17));
    put_with(&s, 20000, 128 << 10, RECORD_META); /* for metadata on the faster one */
    assert_false(has(&s, 0));
    struct space_slot slot;
    struct space_want want = want_of(30000, 128 << 10, 0);
    want.media = CACHE_MEDIA_SSD;
    assert_int_equal(space_alloc(&s, &want, &slot), 0);
    assert_int_equal(slot.dir, 0);
    space_abort(&s, slot.id);
    space_dir_writable(&s, 0, false);
    assert_int_equal(space_alloc(&s, &want, &slot), -ENODEV);
    put_with(&s, 40000, 128 << 10, RECORD_META);
    put(&s, 50000, 128 << 10);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_chunk_moves_to_the_other_medium(void **state)
{
    struct space s;
    struct space_slot slot, pin;
    init_media(&s, (const uint64_t[]){16 << 20, 64 << 20}, 2, 1);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    for (uint64_t i = 0; i < 100; i++)
        put(&s, i, 128 << 10);
    struct digest d = name_of(99);
    uint32_t old = space_find(&s, &d);
    assert_int_equal(space_dir_of(&s, old), 1);
    space_pin(&s, old, &pin); /* its mover reads it */
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_SSD, &slot), 0);
    assert_int_equal(slot.dir, 0);
    assert_true(slot.seq > 100);
    assert_int_equal(space_find(&s, &d), old); /* readable where it was */
    space_check(&s);
    assert_true(space_commit_move(&s, old, slot.id));
    space_unpin(pin.pins);
    assert_int_equal(space_find(&s, &d), slot.id);
    assert_int_equal(space_slot_at(&s, old)->state, SLOT_MOVING); /* its record is the mover's to blank */
    space_check(&s);
    space_abort(&s, old);
    space_check(&s);
    /* Dropped meanwhile; filled anew meanwhile; pinned meanwhile; failed. */
    old = slot.id;
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_HDD, &slot), 0);
    space_drop(&s, old);
    assert_false(space_commit_move(&s, old, slot.id));
    space_abort(&s, slot.id);
    assert_false(has(&s, 99));
    old = put(&s, 99, 128 << 10);
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_HDD, &slot), 0);
    space_drop(&s, old);
    put(&s, 200, 128 << 10);
    put(&s, 99, 128 << 10);
    assert_false(space_commit_move(&s, old, slot.id));
    space_abort(&s, slot.id);
    assert_true(has(&s, 99));
    old = space_find(&s, &d);
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_HDD, &slot), 0);
    assert_int_equal(space_set_pinned(&s, old, true), 0);
    assert_false(space_commit_move(&s, old, slot.id));
    space_abort(&s, slot.id);
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_HDD, &slot), 0);
    space_abort(&s, slot.id);
    assert_int_equal(space_find(&s, &d), old);
    space_check(&s);
    space_release(&s);
}

/* Put chunk n of 128 KiB, charged to the group. */
static int put_charged(struct space *s, uint64_t n, unsigned group, unsigned flags)
{
    struct space_want want = want_of(n, 128 << 10, flags);
    struct space_slot slot;
    want.group = (uint8_t)group;
    want.owner = group ? s->groups[group - 1].quota.owner : 0;
    int rc = space_alloc(s, &want, &slot);
    if (!rc)
        space_commit(s, slot.id);
    return rc;
}

static void test_space__a_group_makes_room_among_its_own(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t i = 0; i < 64; i++)
        assert_int_equal(put_charged(&s, i, 0, 0), 0);
    for (uint64_t i = 100; i < 132; i++) {
        assert_int_equal(put_charged(&s, i, 1, 0), 0);
        assert_int_equal(s.groups[0].used, (i - 99) * (128 << 10));
    }
    assert_int_equal(s.evictions, 0);
    for (uint64_t i = 132; i < 164; i++) {
        assert_int_equal(put_charged(&s, i, 1, 0), 0);
        assert_int_equal(s.groups[0].used, 4 << 20);
    }
    assert_int_equal(s.evictions, 32);
    for (uint64_t i = 0; i < 64; i++)
        assert_true(has(&s, i));
    assert_true(has(&s, 163) && !has(&s, 100));
    assert_int_equal(s.quota_refusals, 0);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_group_without_any_room_is_refused_but_for_metadata(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    assert_int_equal(put_charged(&s, 1, 2, 0), -EDQUOT);
    assert_int_equal(s.quota_refusals, 1);
    assert_int_equal(put_charged(&s, 1, 2, RECORD_META), 0);
    for (uint64_t i = 100; i < 132; i++) {
        struct digest d = name_of(i);
        assert_int_equal(put_charged(&s, i, 1, 0), 0);
        assert_int_equal(space_set_pinned(&s, space_find(&s, &d), true), 0);
    }
    assert_int_equal(put_charged(&s, 200, 1, 0), -EDQUOT); /* all of it is pinned */
    assert_int_equal(put_charged(&s, 200, 0, 0), 0);
    assert_int_equal(s.evictions, 0);
    space_check(&s);
    space_release(&s);
}

static void test_space__a_loaded_slot_is_charged_to_its_owner(void **state)
{
    struct space s;
    struct space_load load = {0};
    init_space(&s, (const uint64_t[]){16 << 20}, 1);
    struct cache_place place = {.slab = 1, .epoch = 5, .class = cache_class_of(1 << 20)};
    assert_int_equal(space_load_slab(&s, 0, &place), 0);
    for (; place.slot < 3; place.slot++) {
        struct cache_record r = {.digest = name_of(place.slot),
                                 .seq = place.slot,
                                 .plain_len = 1 << 20,
                                 .stored_len = 1 << 20,
                                 .owner = (uint16_t[]){77, 99, 77}[place.slot]};
        assert_int_equal(space_load_slot(&s, &load, 0, &place, &r), 0);
    }
    assert_int_equal(space_load_finish(&s, &load), 0);
    assert_int_equal(s.groups[0].used, 2 << 20);
    space_check(&s);
    space_release(&s);
}

/* What may follow for a damaged slot; true: its chunk is back. */
static bool go_on_with_damaged(struct space *s, uint32_t id, const struct space_want *want, uint64_t r)
{
    struct space_slot slot;
    if (r & 4 && space_refill(s, id, want, &slot) == 0) {
        (r & 8) ? space_commit(s, slot.id) : space_abort(s, slot.id);
        return r & 8;
    }
    if ((r & 7) == 1)
        space_give_up(s, id);
    if ((r & 7) == 2) {
        space_retake(s, id, &slot);
        space_abort(s, id);
    }
    return false;
}

static void test_space__invariants_hold_through_any_history(void **state)
{
    struct space s;
    uint64_t seed = 88172645463325252u;
    struct space_slot pinned[8];
    size_t pins = 0, refills = 0;
    init_media(&s, (const uint64_t[]){24 << 20, 16 << 20, 16 << 20}, 3, 1);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    for (int step = 0; step < 60000; step++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        uint64_t r = seed, n = r >> 8 & 1023;
        uint32_t len = 1 + (uint32_t)(n * 2654435761u) % (n % 3 ? 256 << 10 : 3 << 20);
        struct digest d = name_of(n);
        uint32_t id = space_find(&s, &d);
        struct space_slot slot;
        if (id == SPACE_NONE) {
            struct space_want want = want_of(n, len, n % 16 ? 0 : RECORD_META);
            want.group = n % 5 == 0;
            if (space_alloc(&s, &want, &slot) == 0)
                (r & 15) ? space_commit(&s, slot.id) : space_abort(&s, slot.id);
        } else if (space_slot_at(&s, id)->state == SLOT_DAMAGED) {
            struct space_want want = want_of(n, r & 32 ? len : len / 4 + 1, n % 16 ? 0 : RECORD_META);
            refills += go_on_with_damaged(&s, id, &want, r);
        } else if ((r & 31) == 0) {
            space_drop(&s, id);
        } else if ((r & 31) == 1) {
            (void)!space_set_pinned(&s, id, r & 32);
        } else if ((r & 31) == 2) {
            if (space_alloc_move(&s, id, r & 32 ? CACHE_MEDIA_SSD : CACHE_MEDIA_HDD, &slot) == 0)
                space_abort(&s, r & 64 && space_commit_move(&s, id, slot.id) ? id : slot.id);
        } else if (pins < 8) {
            space_pin(&s, id, &pinned[pins++]);
        } else {
            while (pins)
                space_unpin(pinned[--pins].pins);
        }
        if (step % 64 == 0)
            space_check(&s);
        if (step % 1000 == 0)
            space_dir_writable(&s, step / 1000 % 3, step / 3000 % 2);
    }
    assert_true(s.evictions > 1000);
    assert_true(refills > 0);
    space_release(&s);
}

static void test_space__a_slab_that_is_yielded_is_empty_and_out_of_service(void **state)
{
    struct space s;
    struct space_slot pin, slot;
    open_space(&s, 16 << 20); /* 3 slabs of 4 slots */
    assert_int_equal(space_yielded(&s, 0), SPACE_NONE);
    put_with(&s, 0, 1 << 20, RECORD_META);
    uint32_t unbound = space_yield(&s, 0); /* what holds nothing goes first */
    assert_int_equal(s.entries, 1);
    assert_int_equal(space_yielded(&s, 0), unbound);
    for (uint64_t i = 1; i < 4; i++)
        put(&s, i, 1 << 20);
    uint32_t busy = put(&s, 4, 1 << 20);
    space_pin(&s, busy, &pin);
    assert_int_equal(space_yield(&s, 0), SPACE_NONE); /* one is being read, in the other stands metadata */
    space_check(&s);
    space_unpin(pin.pins);
    assert_int_not_equal(space_yield(&s, 0), SPACE_NONE);
    assert_false(has(&s, 4));
    assert_true(has(&s, 0) && has(&s, 3));
    assert_int_equal(space_yield(&s, 0), SPACE_NONE);
    put(&s, 5, 1 << 20); /* what is left makes room as ever */
    assert_true(has(&s, 0));
    assert_int_equal(s.entries, 4);
    space_check(&s);

    space_regain(&s, 0, unbound);
    for (uint64_t i = 6; i < 10; i++)
        put(&s, i, 1 << 20);
    assert_int_equal(s.entries, 8);
    space_check(&s);
    space_release(&s);

    open_space(&s, 16 << 20);
    for (int i = 0; i < 3; i++)
        assert_int_not_equal(space_yield(&s, 0), SPACE_NONE);
    assert_int_equal(alloc(&s, 1, 1 << 20, &slot), -EDQUOT); /* no use in waiting for a slot */
    space_check(&s);
    space_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_space__a_slab_that_is_yielded_is_empty_and_out_of_service),
        cmocka_unit_test(test_space__the_one_used_longest_ago_goes_first),
        cmocka_unit_test(test_space__pinned_slots_stay_and_all_pinned_is_eagain),
        cmocka_unit_test(test_space__dropped_while_pinned_is_gone_but_not_reused),
        cmocka_unit_test(test_space__a_class_without_a_slab_takes_the_coldest),
        cmocka_unit_test(test_space__space_follows_a_workload_to_another_chunk_size),
        cmocka_unit_test(test_space__a_slab_bound_anew_has_another_epoch),
        cmocka_unit_test(test_space__newer_of_two_records_counts_and_order_is_kept),
        cmocka_unit_test(test_space__order_is_kept_where_32_bits_of_fills_end),
        cmocka_unit_test(test_space__slots_without_a_record_are_free_after_loading),
        cmocka_unit_test(test_space__directories_fill_in_proportion),
        cmocka_unit_test(test_space__a_directory_that_is_not_writable_is_passed_over),
        cmocka_unit_test(test_space__metadata_never_makes_room_for_data),
        cmocka_unit_test(test_space__metadata_beyond_a_quarter_makes_room_for_itself),
        cmocka_unit_test(test_space__what_the_user_pins_stays),
        cmocka_unit_test(test_space__three_quarters_can_be_pinned_and_the_rest_still_works),
        cmocka_unit_test(test_space__the_one_slab_that_can_go_is_found_behind_many_that_are_kept),
        cmocka_unit_test(test_space__where_all_is_kept_nothing_waits),
        cmocka_unit_test(test_space__the_slower_medium_takes_what_the_faster_has_no_room_for),
        cmocka_unit_test(test_space__a_chunk_moves_to_the_other_medium),
        cmocka_unit_test(test_space__a_group_makes_room_among_its_own),
        cmocka_unit_test(test_space__a_group_without_any_room_is_refused_but_for_metadata),
        cmocka_unit_test(test_space__a_loaded_slot_is_charged_to_its_owner),
        cmocka_unit_test(test_space__invariants_hold_through_any_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
