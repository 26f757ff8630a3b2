/* Addresses of new bodies among what is kept of a parent. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "imagebuild/content/content_internal.h"

#define CHUNK UINT64_C(65536)

static struct alloc_config config_of(const struct live_map *live)
{
    return (struct alloc_config){
        .live = live, .chunk_size = CHUNK, .data_begin = CHUNK, .data_max = 1000 * CHUNK, .limit = "the limit"};
}

static void expect(struct alloc *a, uint64_t size, enum sink_section section, uint64_t address)
{
    enum sink_section got_section;
    uint64_t got;
    assert_int_equal(alloc_data(a, size, &got_section, &got), 0);
    assert_int_equal(got_section, section);
    assert_int_equal(got, address);
}

static void test_alloc__without_a_parent_bodies_follow_each_other(void **state)
{
    struct alloc_config c = config_of(NULL);
    struct alloc a;
    alloc_init(&a, &c);
    assert_int_equal(alloc_end(&a), CHUNK);
    expect(&a, 1, SINK_DATA, CHUNK);
    expect(&a, 4096, SINK_DATA, CHUNK + 4096);
    expect(&a, 3 * CHUNK + 1, SINK_DATA, CHUNK + 8192);
    expect(&a, 5, SINK_DATA, 4 * CHUNK + 12288);
    assert_int_equal(alloc_end(&a), 4 * CHUNK + 16384);
}

/* Chunks 1, 4 and 9 are kept: 2-3 and 5-8 are free. */
static struct live_map *some_live(void)
{
    struct live_map *l = NULL;
    assert_int_equal(live_map_new(20 * CHUNK, CHUNK, &l), 0);
    live_map_add(l, CHUNK + 4096, 100);
    live_map_add(l, 4 * CHUNK, CHUNK);
    live_map_add(l, 9 * CHUNK, 4096);
    return l;
}

static void test_alloc__free_chunks_are_filled_first(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = some_live();
    struct alloc_config c = config_of(l);
    struct alloc a;
    alloc_init(&a, &c);
    assert_int_equal(alloc_end(&a), 10 * CHUNK);
    expect(&a, CHUNK, SINK_HOLES, 2 * CHUNK);
    expect(&a, 4096, SINK_HOLES, 3 * CHUNK);
    /* 60 KiB are left: as much as that may be given up for this one */
    expect(&a, 2 * CHUNK, SINK_HOLES, 5 * CHUNK);
    expect(&a, 2 * CHUNK, SINK_HOLES, 7 * CHUNK);
    expect(&a, 1, SINK_DATA, 10 * CHUNK);
    expect(&a, 1, SINK_DATA, 10 * CHUNK + 4096);
}

static void test_alloc__free_chunks_may_be_written_already(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = some_live();
    struct alloc_config c = config_of(l);
    struct alloc a;
    c.written_end = 10 * CHUNK + 8192;
    alloc_init(&a, &c);
    expect(&a, CHUNK, SINK_DATA, 10 * CHUNK + 8192);
}

static void test_alloc__no_more_is_given_up_than_placed(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = NULL;
    struct alloc a;
    assert_int_equal(live_map_new(1000 * CHUNK, CHUNK, &l), 0);
    live_map_add(l, 100 * CHUNK, 1); /* 1-99 free */
    live_map_add(l, 300 * CHUNK, 1); /* 101-299 */
    struct alloc_config c = config_of(l);
    alloc_init(&a, &c);
    expect(&a, 10 * CHUNK, SINK_HOLES, CHUNK);
    expect(&a, 99 * CHUNK, SINK_HOLES, 101 * CHUNK); /* 89 are passed over, 109 placed */
    alloc_init(&a, &c);
    expect(&a, 90 * CHUNK, SINK_HOLES, CHUNK);
    expect(&a, 500 * CHUNK, SINK_DATA, 301 * CHUNK); /* fits nowhere */
    expect(&a, CHUNK, SINK_DATA, 801 * CHUNK);       /* 9 + 199 were given up for it, 590 placed */
    live_map_remove(l, 100 * CHUNK, 1);
    live_map_remove(l, 300 * CHUNK, 1);
    for (uint64_t at = 11; at <= 33; at += 11)
        live_map_add(l, at * CHUNK, 1); /* 1-10, 12-21 and 23-32 are free */
    alloc_init(&a, &c);
    expect(&a, 11 * CHUNK, SINK_DATA, 34 * CHUNK); /* the first run is given up for it, not the second too */
    expect(&a, 10 * CHUNK, SINK_HOLES, 12 * CHUNK);
    expect(&a, CHUNK, SINK_HOLES, 23 * CHUNK);
}

static void test_alloc__the_filesystems_limit_is_named(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = some_live();
    struct alloc_config c = config_of(l);
    struct alloc a;
    enum sink_section section;
    uint64_t address;
    c.data_max = 12 * CHUNK;
    alloc_init(&a, &c);
    expect(&a, CHUNK, SINK_HOLES, 2 * CHUNK);
    assert_int_equal(alloc_data(&a, 5 * CHUNK, &section, &address), -EFBIG);
    assert_non_null(strstr(error_text(), "the limit"));
    assert_int_equal(alloc_data(&a, UINT64_MAX, &section, &address), -EFBIG);
    expect(&a, 2 * CHUNK, SINK_DATA, 10 * CHUNK);
    assert_int_equal(alloc_data(&a, 1, &section, &address), -EFBIG);
}

static uint64_t touched(uint64_t address, uint64_t size)
{
    return (address + size - 1) / CHUNK - address / CHUNK + 1;
}

static void test_alloc__a_file_begins_at_the_next_chunk_if_it_touches_fewer_then(void **state)
{
    struct alloc_config c = config_of(NULL);
    struct alloc a;
    c.gaps = true;
    alloc_init(&a, &c);
    expect(&a, 40000, SINK_DATA, CHUNK);
    expect(&a, 24576, SINK_DATA, CHUNK + 40960);           /* to the last byte of the chunk */
    expect(&a, CHUNK + 4096, SINK_DATA, 2 * CHUNK);        /* two chunks */
    expect(&a, CHUNK + 8192, SINK_DATA, 3 * CHUNK + 4096); /* two again, wherever in the first it begins */
    expect(&a, CHUNK, SINK_DATA, 5 * CHUNK);
    assert_int_equal(alloc_end(&a), 6 * CHUNK);
    c.gaps = false;
    alloc_init(&a, &c);
    expect(&a, 40000, SINK_DATA, CHUNK);
    expect(&a, CHUNK, SINK_DATA, CHUNK + 40960);
}

static void test_alloc__gaps_take_an_eighth_and_a_chunk(void **state)
{
    /* of files of 36 KiB, one fits into a chunk: the others would leave 28 KiB each */
    enum { SIZE = 36864, FILES = 1000 };
    struct alloc_config c = config_of(NULL);
    struct alloc a;
    uint64_t address, few = 0;
    enum sink_section section;
    c.gaps = true;
    alloc_init(&a, &c);
    for (unsigned i = 0; i < FILES; i++) {
        assert_int_equal(alloc_data(&a, SIZE, &section, &address), 0);
        few += touched(address, SIZE) == 1;
        assert_true(alloc_end(&a) - CHUNK <= (i + 1) * SIZE + (i + 1) * SIZE / 8 + CHUNK);
    }
    assert_true(alloc_end(&a) - CHUNK > FILES * SIZE + FILES * SIZE / 8 - CHUNK);
    assert_in_range(few, FILES * 60 / 100, FILES * 70 / 100); /* 50 in 100 without gaps */
    /* what follows a checkpoint is placed as from the beginning */
    uint64_t end = GR_ALIGN_UP(alloc_end(&a), CHUNK);
    alloc_go_on(&a, end);
    expect(&a, SIZE, SINK_DATA, end);
    expect(&a, SIZE, SINK_DATA, end + CHUNK);
    expect(&a, SIZE, SINK_DATA, end + 2 * CHUNK);
}

static void test_alloc__gaps_stay_within_a_free_run(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = some_live();
    struct alloc_config c = config_of(l);
    struct alloc a;
    c.gaps = true;
    alloc_init(&a, &c);
    expect(&a, 8192, SINK_HOLES, 2 * CHUNK);
    expect(&a, CHUNK, SINK_HOLES, 3 * CHUNK); /* ends the run */
    expect(&a, 8192, SINK_HOLES, 5 * CHUNK);
    expect(&a, 3 * CHUNK + 4096, SINK_HOLES, 5 * CHUNK + 8192); /* four chunks: no more than it has to */
    expect(&a, 1, SINK_HOLES, 8 * CHUNK + 12288);
    expect(&a, 1, SINK_HOLES, 8 * CHUNK + 16384);
    alloc_init(&a, &c);
    expect(&a, CHUNK, SINK_HOLES, 2 * CHUNK);
    expect(&a, 4096, SINK_HOLES, 3 * CHUNK);
    expect(&a, 4 * CHUNK - 4096, SINK_HOLES, 5 * CHUNK);
    expect(&a, 4096, SINK_HOLES, 9 * CHUNK - 4096);
    alloc_init(&a, &c);
    expect(&a, 8192, SINK_HOLES, 2 * CHUNK);
    expect(&a, 2 * CHUNK - 8192, SINK_HOLES, 2 * CHUNK + 8192); /* with a gap it would not fit */
    c.data_max = 11 * CHUNK + 8192;
    live_map_add(l, 2 * CHUNK, 2 * CHUNK);
    live_map_add(l, 5 * CHUNK, 4 * CHUNK);
    alloc_init(&a, &c);
    expect(&a, 8192, SINK_DATA, 10 * CHUNK);
    expect(&a, CHUNK, SINK_DATA, 10 * CHUNK + 8192); /* as far as the filesystem goes */
}

/* Whatever comes, with gaps and without: addresses ascend within a section, nothing overlaps, nothing that is kept is
 * touched. */
static void test_alloc__bodies_never_overlap(void **state)
{
    for (unsigned seed = 1; seed <= 20; seed++) {
        CLEANUP(cleanup_live_map) struct live_map *l = NULL;
        enum { BLOCKS = 16 * 300 };
        static bool used[BLOCKS * 4];
        uint64_t ends[SINK_SECTIONS] = {0};
        struct alloc a;
        memset(used, 0, sizeof used);
        srand(seed);
        assert_int_equal(live_map_new(300 * CHUNK, CHUNK, &l), 0);
        for (unsigned i = 0; i < 80; i++)
            live_map_add(l, CHUNK + (uint64_t)(rand() % (BLOCKS - 32)) * 4096, 4096);
        for (uint64_t b = 0; b < BLOCKS; b++)
            used[b] = live_map_blocks(l, b / 16) > 0;
        struct alloc_config c = config_of(l);
        c.gaps = seed % 2;
        alloc_init(&a, &c);
        for (unsigned i = 0; i < 200; i++) {
            uint64_t size = 1 + (uint64_t)rand() % (rand() % 3 ? 40000 : 400000), address;
            enum sink_section section;
            assert_int_equal(alloc_data(&a, size, &section, &address), 0);
            assert_true(address >= ends[section]);
            ends[section] = address + size;
            for (uint64_t b = address / 4096; b * 4096 < address + size; b++) {
                assert_false(used[b]);
                used[b] = true;
            }
        }
        assert_true(ends[SINK_HOLES] <= live_map_chunk_end(l) * CHUNK);
        assert_true(ends[SINK_HOLES] > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alloc__without_a_parent_bodies_follow_each_other),
        cmocka_unit_test(test_alloc__free_chunks_are_filled_first),
        cmocka_unit_test(test_alloc__free_chunks_may_be_written_already),
        cmocka_unit_test(test_alloc__no_more_is_given_up_than_placed),
        cmocka_unit_test(test_alloc__the_filesystems_limit_is_named),
        cmocka_unit_test(test_alloc__a_file_begins_at_the_next_chunk_if_it_touches_fewer_then),
        cmocka_unit_test(test_alloc__gaps_take_an_eighth_and_a_chunk),
        cmocka_unit_test(test_alloc__gaps_stay_within_a_free_run),
        cmocka_unit_test(test_alloc__bodies_never_overlap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
