/* Slots, slabs and the index: the state table of space.h, by long random histories. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "cache/space.h"

static void open_space(struct space *s, uint64_t budget)
{
    struct cache_geometry g = {.id = 1};
    assert_int_equal(cache_geometry_plan(budget, &g), 0);
    assert_int_equal(space_init(s, &g, 1), 0);
    space_load_finish(s, &(struct space_load){0});
}

static struct digest name_of(uint64_t n)
{
    return digest_of(&n, sizeof n);
}

/* Put chunk n of len bytes; the slot's number. */
static uint32_t put(struct space *s, uint64_t n, uint32_t len)
{
    struct digest d = name_of(n);
    struct space_slot slot;
    assert_int_equal(space_alloc(s, &d, len, &slot), 0);
    space_commit(s, slot.id);
    return slot.id;
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
    struct digest d = name_of(3);
    assert_int_equal(space_alloc(&s, &d, 4 << 20, &slot), -EAGAIN);
    assert_int_equal(space_alloc(&s, &d, 4096, &slot), -EAGAIN); /* no slab can be taken either */
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
    struct digest d = name_of(3);
    assert_int_equal(space_alloc(&s, &d, 4096, &slot), 0);
    assert_true(slot.slab_bound);
    assert_false(slot.recorded); /* what the old binding left needs no blanking */
    assert_int_equal(slot.place.epoch, epoch + 1);
    space_abort(&s, slot.id);
    assert_int_equal(space_alloc(&s, &d, 4096, &slot), 0);
    assert_true(slot.slab_bound); /* the first announcement may have failed */
    space_commit(&s, slot.id);
    space_check(&s);
    space_release(&s);
}

static void test_space__newer_of_two_records_counts_and_order_is_kept(void **state)
{
    struct space s;
    struct cache_geometry g = {.id = 1};
    struct space_load load = {0};
    assert_int_equal(cache_geometry_plan(16 << 20, &g), 0);
    assert_int_equal(space_init(&s, &g, 1), 0);
    struct cache_place place = {.slab = 1, .epoch = 5, .class = cache_class_of(1 << 20)};
    assert_int_equal(space_load_slab(&s, 0, &place), 0);
    const uint64_t names[] = {7, 8, 7, 9}, seqs[] = {40, 10, 41, 30};
    for (place.slot = 0; place.slot < 4; place.slot++) {
        struct cache_record r = {.digest = name_of(names[place.slot]), .seq = seqs[place.slot], .plain_len = 1 << 20};
        assert_int_equal(space_load_slot(&s, &load, 0, &place, &r), 0);
    }
    space_load_finish(&s, &load);
    space_check(&s);
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

static void test_space__directories_fill_in_proportion(void **state)
{
    struct space s;
    struct cache_geometry g[2] = {{.id = 1}, {.id = 2}};
    assert_int_equal(cache_geometry_plan(128 << 20, &g[0]), 0);
    assert_int_equal(cache_geometry_plan(512 << 20, &g[1]), 0);
    assert_int_equal(space_init(&s, g, 2), 0);
    space_load_finish(&s, &(struct space_load){0});
    for (uint64_t i = 0; i < 64; i++)
        put(&s, i, 4 << 20);
    size_t bound0 = g[0].slab_count - s.dirs[0].unbound.len, bound1 = g[1].slab_count - s.dirs[1].unbound.len;
    assert_int_equal(bound0 + bound1, 64);
    assert_in_range(bound1, bound0 * 7 / 2, bound0 * 9 / 2);
    space_release(&s);
}

static uint64_t next_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static void test_space__invariants_hold_through_any_history(void **state)
{
    struct space s;
    uint64_t seed = 88172645463325252u;
    struct space_slot pinned[8];
    size_t pins = 0;
    open_space(&s, 24 << 20);
    for (int step = 0; step < 20000; step++) {
        uint64_t r = next_random(&seed), n = r >> 8 & 1023;
        uint32_t len = 1 + (uint32_t)(n * 2654435761u) % (n % 3 ? 256 << 10 : 3 << 20);
        struct digest d = name_of(n);
        uint32_t id = space_find(&s, &d);
        struct space_slot slot;
        if (id == SPACE_NONE) {
            if (space_alloc(&s, &d, len, &slot) == 0)
                (r & 15) ? space_commit(&s, slot.id) : space_abort(&s, slot.id);
        } else if ((r & 31) == 0) {
            space_drop(&s, id);
        } else if (pins < 8) {
            space_pin(&s, id, &pinned[pins++]);
        } else {
            while (pins)
                space_unpin(pinned[--pins].pins);
        }
        if (step % 64 == 0)
            space_check(&s);
    }
    assert_true(s.evictions > 1000);
    space_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_space__the_one_used_longest_ago_goes_first),
        cmocka_unit_test(test_space__pinned_slots_stay_and_all_pinned_is_eagain),
        cmocka_unit_test(test_space__dropped_while_pinned_is_gone_but_not_reused),
        cmocka_unit_test(test_space__a_class_without_a_slab_takes_the_coldest),
        cmocka_unit_test(test_space__space_follows_a_workload_to_another_chunk_size),
        cmocka_unit_test(test_space__a_slab_bound_anew_has_another_epoch),
        cmocka_unit_test(test_space__newer_of_two_records_counts_and_order_is_kept),
        cmocka_unit_test(test_space__directories_fill_in_proportion),
        cmocka_unit_test(test_space__invariants_hold_through_any_history),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
