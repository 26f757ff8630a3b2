/* Slots, slabs and the index: the state table of space.h, by long random histories. Who has to make room for whom:
 * test_space_room.c.
 */
#include "unit/space_world.h"

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

/* What may follow for a damaged slot; true: its chunk is back. */
static bool go_on_with_damaged(struct space *s, uint32_t id, const struct space_request *request, uint64_t r)
{
    struct space_slot slot;
    if (r & 4 && space_refill(s, id, request, &slot) == 0) {
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
            struct space_request request = request_of(n, len, n % 16 ? 0 : RECORD_META);
            request.group = n % 5 == 0;
            if (space_alloc(&s, &request, &slot) == 0)
                (r & 15) ? space_commit(&s, slot.id) : space_abort(&s, slot.id);
        } else if (space_slot_at(&s, id)->state == SLOT_DAMAGED) {
            struct space_request request = request_of(n, r & 32 ? len : len / 4 + 1, n % 16 ? 0 : RECORD_META);
            refills += go_on_with_damaged(&s, id, &request, r);
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

/* The chunk was compressed when it was pinned, and is not now: the pin outlives that there is no room at first. */
static void test_space__a_damaged_pin_of_another_length_waits_for_room(void **state)
{
    struct space s;
    struct space_slot readers[2], slot;
    const struct space_request request = request_of(0, 100 << 10, 0);
    open_space(&s, 16 << 20); /* 3 slabs of 4 slots */
    for (uint64_t i = 0; i < 12; i++)
        put(&s, i, 1 << 20);
    uint32_t id = space_find(&s, &request.digest);
    assert_int_equal(space_set_pinned(&s, id, true), 0);
    space_drop(&s, id);
    for (uint64_t i = 0, n = 0; n < 2; i++) { /* somebody reads in each of the other slabs */
        struct digest d = name_of(i);
        uint32_t other = space_find(&s, &d);
        if (other >> SPACE_SLOT_BITS == id >> SPACE_SLOT_BITS ||
            (n && other >> SPACE_SLOT_BITS == readers[0].id >> SPACE_SLOT_BITS))
            continue;
        space_pin(&s, other, &readers[n++]);
    }
    assert_int_equal(space_refill(&s, id, &request, &slot), -EAGAIN);
    assert_int_equal(space_find(&s, &request.digest), id);
    assert_int_equal(space_slot_at(&s, id)->state, SLOT_DAMAGED);
    assert_true(space_slot_at(&s, id)->flags & RECORD_PINNED);
    space_check(&s);
    space_unpin(readers[0].pins);
    space_unpin(readers[1].pins);
    assert_int_equal(space_refill(&s, id, &request, &slot), 0);
    space_commit(&s, slot.id);
    assert_int_not_equal(slot.id, id);
    assert_int_equal(space_find(&s, &request.digest), slot.id);
    assert_true(space_slot_at(&s, slot.id)->flags & RECORD_PINNED);
    space_check(&s);
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
        cmocka_unit_test(test_space__the_one_used_longest_ago_goes_first),
        cmocka_unit_test(test_space__pinned_slots_stay_and_all_pinned_is_eagain),
        cmocka_unit_test(test_space__dropped_while_pinned_is_gone_but_not_reused),
        cmocka_unit_test(test_space__a_class_without_a_slab_takes_the_coldest),
        cmocka_unit_test(test_space__space_follows_a_workload_to_another_chunk_size),
        cmocka_unit_test(test_space__a_slab_bound_anew_has_another_epoch),
        cmocka_unit_test(test_space__newer_of_two_records_counts_and_order_is_kept),
        cmocka_unit_test(test_space__order_is_kept_where_32_bits_of_fills_end),
        cmocka_unit_test(test_space__slots_without_a_record_are_free_after_loading),
        cmocka_unit_test(test_space__invariants_hold_through_any_history),
        cmocka_unit_test(test_space__a_damaged_pin_of_another_length_waits_for_room),
        cmocka_unit_test(test_space__a_slab_that_is_yielded_is_empty_and_out_of_service),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
