/* Who has room in the cache, and who makes room for whom: directories, metadata, pins, media, groups. */
#include "unit/space_world.h"

static uint64_t bytes_in(const struct space *s, unsigned dir)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < s->slab_count; i++)
        for (uint32_t k = 0; s->slabs[i].dir == dir && k < s->slabs[i].slot_count; k++)
            sum += s->slabs[i].slots[k].state == SLOT_READY ? cache_class_slot_size(s->slabs[i].class) : 0;
    return sum;
}

static void test_space_room__directories_fill_in_proportion(void **state)
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

static void test_space_room__a_directory_that_is_not_writable_is_passed_over(void **state)
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

static void test_space_room__metadata_never_makes_room_for_data(void **state)
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

static void test_space_room__metadata_beyond_a_quarter_makes_room_for_itself(void **state)
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

static void test_space_room__what_the_user_pins_stays(void **state)
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

static void test_space_room__three_quarters_can_be_pinned_and_the_rest_still_works(void **state)
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
static void test_space_room__the_one_slab_that_can_go_is_found_behind_many_that_are_kept(void **state)
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

static void test_space_room__where_all_is_kept_nothing_waits(void **state)
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

static void test_space_room__the_slower_medium_takes_what_the_faster_has_no_room_for(void **state)
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
    struct space_request request = request_of(30000, 128 << 10, 0);
    request.media = CACHE_MEDIA_SSD;
    assert_int_equal(space_alloc(&s, &request, &slot), 0);
    assert_int_equal(slot.dir, 0);
    space_abort(&s, slot.id);
    space_dir_writable(&s, 0, false);
    assert_int_equal(space_alloc(&s, &request, &slot), -ENODEV);
    put_with(&s, 40000, 128 << 10, RECORD_META);
    put(&s, 50000, 128 << 10);
    space_check(&s);
    space_release(&s);
}

static void test_space_room__a_chunk_moves_to_the_other_medium(void **state)
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

/* Put chunk n of len bytes, charged to the group. */
static int put_charged_len(struct space *s, uint64_t n, uint32_t len, unsigned group, unsigned flags)
{
    struct space_request request = request_of(n, len, flags);
    struct space_slot slot;
    request.group = (uint16_t)group;
    int rc = space_alloc(s, &request, &slot);
    if (!rc)
        space_commit(s, slot.id);
    return rc;
}

/* Put chunk n of 128 KiB, charged to the group. */
static int put_charged(struct space *s, uint64_t n, unsigned group, unsigned flags)
{
    return put_charged_len(s, n, 128 << 10, group, flags);
}

static void test_space_room__a_group_makes_room_among_its_own(void **state)
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

static void test_space_room__a_group_without_any_room_is_refused_but_for_metadata(void **state)
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

static void test_space_room__a_group_evicts_what_makes_room_or_nothing(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t i = 100; i < 131; i++) { /* all but 128 KiB is pinned */
        struct digest d = name_of(i);
        assert_int_equal(put_charged(&s, i, 1, 0), 0);
        assert_int_equal(space_set_pinned(&s, space_find(&s, &d), true), 0);
    }
    for (uint64_t i = 0; i < 32; i++)
        assert_int_equal(put_charged_len(&s, i, 4 << 10, 1, 0), 0);
    assert_int_equal(put_charged(&s, 200, 1, 0), -EDQUOT); /* 32 victims are more than one chunk may have */
    assert_int_equal(s.evictions, 0);
    assert_int_equal(put_charged_len(&s, 201, 16 << 10, 1, 0), 0);
    assert_int_equal(s.evictions, 4);
    assert_int_equal(s.groups[0].used, 4 << 20);
    space_check(&s);
    space_release(&s);
}

/* A limit that ends and comes back counts what was charged before; one below that evicts down to it. */
static void test_space_room__a_limit_comes_and_goes(void **state)
{
    enum { CHUNK_LEN = 128 << 10, N = 64 };
    struct space s;
    open_space(&s, 64 << 20);
    assert_int_equal(space_limited(&s, 99), 0);
    unsigned group = space_set_limit(&s, 99, 16 << 20);
    assert_int_equal(group, 3);
    assert_int_equal(space_limited(&s, 99), 3);
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(put_charged(&s, i, group, 0), 0);
    assert_int_equal(space_set_limit(&s, 99, SPACE_NO_LIMIT), 3);
    assert_int_equal(space_limited(&s, 99), 0);
    assert_int_equal(put_charged(&s, 100, group, 0), 0); /* it was fetched while there was a limit */
    assert_int_equal(s.evictions, 0);
    assert_int_equal(space_set_limit(&s, 99, 1 << 20), 3);
    assert_int_equal(s.groups[2].used, (N + 1) * CHUNK_LEN);
    int rc = -EDQUOT;
    for (uint64_t i = 200; rc == -EDQUOT && i < 216; i++)
        rc = put_charged(&s, i, group, 0);
    assert_int_equal(rc, 0);
    assert_in_range(s.groups[2].used, 1, 1 << 20);
    space_check(&s);
    space_release(&s);
}

static void test_space_room__a_group_without_chunks_or_a_limit_becomes_anothers(void **state)
{
    struct space s;
    open_space(&s, 64 << 20);
    for (uint64_t owner = 1000; s.group_count < SPACE_GROUPS_MAX; owner++)
        assert_true(space_set_limit(&s, owner, 1 << 20) != 0);
    assert_int_equal(space_set_limit(&s, 5, 1 << 20), 0);
    assert_int_equal(put_charged(&s, 1, 3, 0), 0);
    assert_int_equal(space_set_limit(&s, 1000, SPACE_NO_LIMIT), 3); /* it has a chunk */
    assert_int_equal(space_set_limit(&s, 5, 1 << 20), 0);
    assert_int_equal(space_set_limit(&s, 1001, SPACE_NO_LIMIT), 4);
    assert_int_equal(space_set_limit(&s, 5, 1 << 20), 4);
    assert_int_equal(space_limited(&s, 5), 4);
    assert_int_equal(space_limited(&s, 1001), 0);
    space_check(&s);
    space_release(&s);
}

static void test_space_room__a_loaded_slot_is_charged_to_its_owner(void **state)
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
    assert_int_equal(space_limited(&s, 99), 0);
    assert_int_equal(s.groups[space_set_limit(&s, 99, 4 << 20) - 1].used, 1 << 20); /* a limit that comes later */
    space_check(&s);
    space_release(&s);
}

/* What is left over is charged to nobody, and there are places for limits. */
static void test_space_room__more_owners_are_loaded_than_there_are_groups(void **state)
{
    enum { SLOTS = SPACE_GROUPS_MAX };
    struct space s;
    struct space_load load = {0};
    init_space(&s, (const uint64_t[]){64 << 20}, 1);
    struct cache_place place = {.epoch = 5, .class = cache_class_of(4 << 10)};
    for (uint64_t i = 0; i < SLOTS; i++, place.slot++) {
        if (!i || place.slot == s.slabs[place.slab].slot_count) {
            place.slab += i > 0;
            place.slot = 0;
            assert_int_equal(space_load_slab(&s, 0, &place), 0);
        }
        struct cache_record r = {
            .digest = name_of(i), .seq = i, .plain_len = 4 << 10, .stored_len = 4 << 10, .owner = 1000 + i / 2};
        assert_int_equal(space_load_slot(&s, &load, 0, &place, &r), 0);
    }
    assert_int_equal(space_load_finish(&s, &load), 0);
    assert_int_equal(s.group_count, SPACE_GROUPS_MAX / 2);
    assert_int_equal(s.entries, SLOTS);
    assert_int_equal(s.groups[2].used, 2 * (4 << 10));
    unsigned group = space_set_limit(&s, 1000 + SLOTS / 2 - 1, 1 << 20);
    assert_int_equal(group, SPACE_GROUPS_MAX / 2 + 1);
    assert_int_equal(s.groups[group - 1].used, 0);
    space_check(&s);
    space_release(&s);
}

static void test_space_room__a_chunk_that_moves_stays_its_owners(void **state)
{
    struct space s;
    struct space_slot slot;
    init_media(&s, (const uint64_t[]){16 << 20, 64 << 20}, 2, 1);
    assert_int_equal(space_load_finish(&s, &(struct space_load){0}), 0);
    unsigned group = space_set_limit(&s, 99, 64 << 20);
    assert_int_equal(put_charged(&s, 1, group, 0), 0);
    struct digest d = name_of(1);
    uint32_t old = space_find(&s, &d);
    assert_int_equal(space_alloc_move(&s, old, CACHE_MEDIA_HDD, &slot), 0);
    assert_int_equal(slot.owner, 99);
    assert_int_equal(s.groups[group - 1].used, 256 << 10);
    assert_int_equal(space_set_limit(&s, 99, SPACE_NO_LIMIT), group);
    assert_true(space_commit_move(&s, old, slot.id));
    space_abort(&s, old);
    assert_int_equal(s.groups[group - 1].used, 128 << 10);
    space_check(&s);
    space_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_space_room__directories_fill_in_proportion),
        cmocka_unit_test(test_space_room__a_directory_that_is_not_writable_is_passed_over),
        cmocka_unit_test(test_space_room__metadata_never_makes_room_for_data),
        cmocka_unit_test(test_space_room__metadata_beyond_a_quarter_makes_room_for_itself),
        cmocka_unit_test(test_space_room__what_the_user_pins_stays),
        cmocka_unit_test(test_space_room__three_quarters_can_be_pinned_and_the_rest_still_works),
        cmocka_unit_test(test_space_room__the_one_slab_that_can_go_is_found_behind_many_that_are_kept),
        cmocka_unit_test(test_space_room__where_all_is_kept_nothing_waits),
        cmocka_unit_test(test_space_room__the_slower_medium_takes_what_the_faster_has_no_room_for),
        cmocka_unit_test(test_space_room__a_chunk_moves_to_the_other_medium),
        cmocka_unit_test(test_space_room__a_group_makes_room_among_its_own),
        cmocka_unit_test(test_space_room__a_group_without_any_room_is_refused_but_for_metadata),
        cmocka_unit_test(test_space_room__a_group_evicts_what_makes_room_or_nothing),
        cmocka_unit_test(test_space_room__a_limit_comes_and_goes),
        cmocka_unit_test(test_space_room__a_group_without_chunks_or_a_limit_becomes_anothers),
        cmocka_unit_test(test_space_room__a_loaded_slot_is_charged_to_its_owner),
        cmocka_unit_test(test_space_room__more_owners_are_loaded_than_there_are_groups),
        cmocka_unit_test(test_space_room__a_chunk_that_moves_stays_its_owners),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
