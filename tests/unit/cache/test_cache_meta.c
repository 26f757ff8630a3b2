/* The bytes of a cache directory: layouts, and that nothing but a record in its own place is believed. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cache/disk/cache_meta.h"

static struct cache_geometry geometry(uint64_t budget)
{
    struct cache_geometry g = {.id = UINT64_C(0x1122334455667788)};
    assert_int_equal(cache_geometry_plan(budget, &g), 0);
    return g;
}

static uint8_t stored[4 << 20]; /* every block another */

static struct cache_record some_record(uint32_t plain_len)
{
    struct cache_record r = {
        .seq = 77, .plain_len = plain_len, .stored_len = plain_len, .flags = RECORD_META, .owner = 9};
    r.digest = digest_of("chunk", 5);
    for (uint32_t i = 0; i < sizeof stored; i++)
        stored[i] = (uint8_t)(i / CACHE_BLOCK * 7 + i);
    return r;
}

static void test_cache_meta__every_budget_is_kept(void **state)
{
    for (uint64_t budget = CACHE_BUDGET_MIN; budget < UINT64_C(1) << 46; budget += budget / 3 + 12345) {
        struct cache_geometry g = geometry(budget);
        uint64_t sum = cache_geometry_data_size(&g) + cache_geometry_record_file_size(&g);
        assert_true(sum + budget / 128 + (32 << 10) <= budget);
        assert_true(g.slab_count > 0);
        if (budget >= 1 << 30)
            assert_true(sum > budget / 100 * 97); /* and used: what is lost is small */
    }
}

static void test_cache_meta__too_small_is_refused_with_the_least(void **state)
{
    struct cache_geometry g;
    assert_int_equal(cache_geometry_plan(CACHE_BUDGET_MIN - 1, &g), -EINVAL);
    assert_non_null(strstr(error_text(), "16 MiB"));
    assert_int_equal(cache_geometry_plan(UINT64_C(1) << 60, &g), -EINVAL);
}

static void test_cache_meta__another_budget_keeps_the_slabs_as_long_as_that_is_sane(void **state)
{
    struct cache_geometry g = geometry(UINT64_C(100) << 30), kept;
    for (uint64_t budget = UINT64_C(3) << 30; budget <= UINT64_C(100) << 40; budget *= 2) {
        assert_true(cache_geometry_replan(budget, &g, &kept));
        assert_int_equal(kept.slab_size, g.slab_size);
        assert_int_equal(kept.id, g.id);
        uint64_t sum = cache_geometry_data_size(&kept) + cache_geometry_record_file_size(&kept);
        assert_true(sum + budget / 128 + (32 << 10) <= budget);
        assert_true(sum > budget / 100 * 95);
    }
    assert_false(cache_geometry_replan(1 << 30, &g, &kept)); /* 15 slabs of 64 MiB */
    g = geometry(64 << 20);
    assert_true(cache_geometry_replan(16 << 20, &g, &kept));
    assert_false(cache_geometry_replan(UINT64_C(20) << 40, &g, &kept)); /* 5 million slabs of 4 MiB */
}

static void test_cache_meta__slots_and_records_never_overlap(void **state)
{
    struct cache_geometry g = geometry(UINT64_C(1) << 30);
    for (unsigned class = 0; class < CACHE_CLASSES; class ++) {
        uint32_t slots = cache_class_slots(&g, class);
        struct cache_place last = {.slab = 3, .slot = slots - 1, .class = class}, next = {.slab = 4, .class = class};
        assert_true(slots >= 1 && slots <= CACHE_SLAB_SLOTS_MAX);
        assert_true(cache_place_data_offset(&g, &last) + cache_class_slot_size(class) <=
                    cache_place_data_offset(&g, &next));
        assert_true(cache_place_record_offset(&g, &last) + cache_class_record_size(class) <=
                    cache_place_record_offset(&g, &next));
        assert_true(cache_class_record_size(class) >= CACHE_META_RECORD_HEAD + 4 * cache_class_blocks(class));
        assert_true(cache_class_record_size(class) <= CACHE_RECORD_MAX);
        if (class >= 3) /* chunks of 32 KiB and more waste no slab space */
            assert_int_equal(slots, g.slab_size / cache_class_slot_size(class));
    }
    struct cache_place end = {.slab = g.slab_count};
    assert_int_equal(cache_place_record_offset(&g, &end), cache_slab_entry_offset(&g, 0));
    assert_int_equal(cache_place_record_offset(&g, &(struct cache_place){0}), CACHE_META_HEADER_SIZE);
    assert_true(cache_slab_entry_offset(&g, g.slab_count) <= cache_geometry_record_file_size(&g));
}

static void test_cache_meta__class_is_the_smallest_that_holds(void **state)
{
    assert_int_equal(cache_class_of(1), 0);
    assert_int_equal(cache_class_of(4096), 0);
    assert_int_equal(cache_class_of(4097), 1);
    assert_int_equal(cache_class_of(128 << 10), 5);
    assert_int_equal(cache_class_of(4 << 20), CACHE_CLASSES - 1);
}

static void test_cache_meta__header_survives_and_no_flipped_bit_does(void **state)
{
    struct cache_geometry g = geometry(100 << 20), back;
    uint8_t bytes[CACHE_META_HEADER_SIZE];
    cache_meta_header_encode(&g, bytes);
    assert_int_equal(cache_meta_header_decode(bytes, sizeof bytes, &back), 0);
    assert_true(cache_geometry_same(&g, &back));
    assert_int_equal(back.id, g.id);
    for (int bit = 0; bit < 44 * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(cache_meta_header_decode(bytes, sizeof bytes, &back), -EBADMSG);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    assert_int_equal(cache_meta_header_decode(bytes, 100, &back), -EBADMSG);
}

static void test_cache_meta__record_survives_in_every_class(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    for (unsigned class = 0; class < CACHE_CLASSES; class ++) {
        uint32_t lens[] = {cache_class_slot_size(class), class ? cache_class_slot_size(class) / 2 + 1 : 1};
        for (int i = 0; i < 2; i++) {
            struct cache_place p = {.slab = 1, .slot = 0, .epoch = 9, .class = class};
            struct cache_record r = some_record(lens[i]), back;
            uint8_t bytes[CACHE_RECORD_MAX];
            cache_meta_record_encode(&g, &p, &r, stored, bytes);
            assert_true(cache_meta_record_decode(&g, &p, bytes, &back));
            assert_true(digest_equal(&r.digest, &back.digest));
            assert_int_equal(back.seq, r.seq);
            assert_int_equal(back.plain_len, r.plain_len);
            assert_int_equal(back.stored_len, r.stored_len);
            assert_int_equal(back.flags, RECORD_META);
            assert_int_equal(back.owner, 9);
            assert_true(cache_meta_blocks_hold(bytes, 0, stored, lens[i]));
        }
    }
}

static void test_cache_meta__record_counts_only_in_its_own_place_and_life(void **state)
{
    struct cache_geometry g = geometry(100 << 20), other = g;
    struct cache_place p = {.slab = 1, .slot = 2, .epoch = 9, .class = 5};
    struct cache_record r = some_record(128 << 10), back;
    uint8_t bytes[CACHE_RECORD_MAX];
    cache_meta_record_encode(&g, &p, &r, stored, bytes);
    struct cache_place slab = p, slot = p, epoch = p, class = p;
    slab.slab++;
    slot.slot++;
    epoch.epoch++;
    class.class = 4;
    other.id++;
    assert_false(cache_meta_record_decode(&g, &slab, bytes, &back));
    assert_false(cache_meta_record_decode(&g, &slot, bytes, &back));
    assert_false(cache_meta_record_decode(&g, &epoch, bytes, &back));
    assert_false(cache_meta_record_decode(&g, &class, bytes, &back));
    assert_false(cache_meta_record_decode(&other, &p, bytes, &back));
    for (uint32_t bit = 0; bit < cache_class_record_size(5) * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        bool pin = bit / 8 == CACHE_META_RECORD_FLAGS && 1 << bit % 8 == RECORD_PINNED;
        assert_int_equal(cache_meta_record_decode(&g, &p, bytes, &back), pin);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(bytes, 0, sizeof bytes);
    assert_false(cache_meta_record_decode(&g, &p, bytes, &back));
}

static void test_cache_meta__a_record_speaks_of_each_block_by_itself(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    struct cache_place p = {.slab = 1, .slot = 2, .epoch = 9, .class = 5};
    uint32_t len = 100000; /* 24 blocks and 1696 bytes */
    struct cache_record r = some_record(len);
    uint8_t bytes[CACHE_RECORD_MAX];
    cache_meta_record_encode(&g, &p, &r, stored, bytes);
    for (uint32_t bad = 0; bad < len; bad += 997) {
        stored[bad] ^= 0x10;
        for (uint32_t off = 0; off < len; off += CACHE_BLOCK)
            assert_true(cache_meta_blocks_hold(bytes, off, stored + off, GR_MIN(len - off, (uint32_t)CACHE_BLOCK)) ==
                        (bad / CACHE_BLOCK != off / CACHE_BLOCK));
        stored[bad] ^= 0x10;
    }
    assert_true(cache_meta_blocks_hold(bytes, 8192, stored + 8192, len - 8192));
    assert_false(cache_meta_blocks_hold(bytes, 8192, stored + 4096, 4096)); /* right bytes, wrong place */
}

static void test_cache_meta__a_record_sealed_again_keeps_its_blocks(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    struct cache_place p = {.slab = 1, .slot = 2, .epoch = 9, .class = 5};
    struct cache_record r = some_record(100000), back;
    uint8_t bytes[CACHE_RECORD_MAX], straight[CACHE_RECORD_MAX];
    cache_meta_record_encode(&g, &p, &r, stored, bytes);
    r.flags |= RECORD_PINNED;
    r.seq++;
    cache_meta_record_seal(&g, &p, &r, bytes);
    assert_true(cache_meta_record_decode(&g, &p, bytes, &back));
    assert_int_equal(back.flags, RECORD_META | RECORD_PINNED);
    cache_meta_record_encode(&g, &p, &r, stored, straight);
    assert_memory_equal(bytes, straight, cache_class_record_size(5));
}

static void test_cache_meta__one_byte_pins_a_record(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    struct cache_place p = {.slab = 1, .slot = 2, .epoch = 9, .class = 5};
    struct cache_record r = some_record(100000), back;
    uint8_t bytes[CACHE_RECORD_MAX];
    cache_meta_record_encode(&g, &p, &r, stored, bytes);
    for (int i = 0; i < 2; i++) {
        bytes[CACHE_META_RECORD_FLAGS] ^= RECORD_PINNED;
        assert_true(cache_meta_record_decode(&g, &p, bytes, &back));
        assert_int_equal(back.flags, r.flags ^ (i ? 0 : RECORD_PINNED));
    }
    bytes[CACHE_META_RECORD_FLAGS] ^= RECORD_META;
    assert_false(cache_meta_record_decode(&g, &p, bytes, &back));
}

static void test_cache_meta__lengths_and_flags_must_agree(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    struct cache_place p = {.slab = 1, .slot = 2, .epoch = 9, .class = 5};
    const struct {
        uint32_t plain_len, stored_len;
        uint16_t flags;
        bool good;
    } cases[] = {
        {128 << 10, 128 << 10, 0, true},
        {128 << 10, 128 << 10, RECORD_PINNED, true},
        {256 << 10, 128 << 10, RECORD_ZSTD, true},
        {4 << 20, 65 << 10, RECORD_ZSTD | RECORD_META, true},
        {256 << 10, 128 << 10, 0, false},
        {128 << 10, 128 << 10, RECORD_ZSTD, false},
        {64 << 10, 128 << 10, RECORD_ZSTD, false},
        {5 << 20, 128 << 10, RECORD_ZSTD, false},
        {64 << 10, 64 << 10, 0, false}, /* another class */
        {128 << 10, 128 << 10, 8, false},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct cache_record r = some_record(cases[i].plain_len), back;
        uint8_t bytes[CACHE_RECORD_MAX];
        r.stored_len = cases[i].stored_len;
        r.flags = cases[i].flags;
        cache_meta_record_encode(&g, &p, &r, stored, bytes);
        if (cache_meta_record_decode(&g, &p, bytes, &back) != cases[i].good)
            fail_msg("case %zu", i);
    }
}

static void test_cache_meta__slab_entry_is_believed_only_whole(void **state)
{
    struct cache_geometry g = geometry(100 << 20);
    struct cache_place p = {.slab = 7, .epoch = 3, .class = 6}, back = {.slab = 7};
    uint8_t bytes[CACHE_META_SLAB_SIZE];
    cache_meta_slab_encode(&g, &p, bytes);
    assert_true(cache_meta_slab_decode(&g, bytes, &back));
    assert_int_equal(back.epoch, 3);
    assert_int_equal(back.class, 6);
    back.slab = 8;
    assert_false(cache_meta_slab_decode(&g, bytes, &back));
    back.slab = 7;
    for (unsigned bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(cache_meta_slab_decode(&g, bytes, &back));
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(bytes, 0, sizeof bytes);
    assert_false(cache_meta_slab_decode(&g, bytes, &back));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_meta__every_budget_is_kept),
        cmocka_unit_test(test_cache_meta__too_small_is_refused_with_the_least),
        cmocka_unit_test(test_cache_meta__another_budget_keeps_the_slabs_as_long_as_that_is_sane),
        cmocka_unit_test(test_cache_meta__slots_and_records_never_overlap),
        cmocka_unit_test(test_cache_meta__class_is_the_smallest_that_holds),
        cmocka_unit_test(test_cache_meta__header_survives_and_no_flipped_bit_does),
        cmocka_unit_test(test_cache_meta__record_survives_in_every_class),
        cmocka_unit_test(test_cache_meta__record_counts_only_in_its_own_place_and_life),
        cmocka_unit_test(test_cache_meta__a_record_speaks_of_each_block_by_itself),
        cmocka_unit_test(test_cache_meta__a_record_sealed_again_keeps_its_blocks),
        cmocka_unit_test(test_cache_meta__one_byte_pins_a_record),
        cmocka_unit_test(test_cache_meta__lengths_and_flags_must_agree),
        cmocka_unit_test(test_cache_meta__slab_entry_is_believed_only_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
