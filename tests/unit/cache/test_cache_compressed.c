/* Chunks kept compressed: what fits, what a read of any part gives, what a fault does. */
#include "cache/cache_tools.h"
#include "unit/cache_world.h"
#include "unit/reader.h"

enum { CHUNKS = 64, LEN = 256 << 10, BUDGET = 32 << 20 };

static void packed_world(struct world *w, int level)
{
    const uint32_t len = LEN;
    world_init_level(w, CHUNKS, &len, 1, BUDGET, level);
    w->config.compressed = true;
    world_open(w);
    world_warm(w);
}

static void expect_part(struct world *w, unsigned chunk, uint32_t off, uint32_t len)
{
    CLEANUP_FREE uint8_t *got = malloc(len);
    struct cache_piece p = world_piece(w, chunk, off, len, got);
    assert_int_equal(cache_read(w->cache, &p, 1, NULL, 0, PRIORITY_DEMAND), 0);
    assert_int_equal(memcmp(got, w->plain[chunk] + off, len), 0);
}

static void test_cache_compressed__takes_a_smaller_slot_and_reads_back_in_any_part(void **state)
{
    struct world w;
    packed_world(&w, 3);
    assert_int_equal(count_of(&w, "entries"), CHUNKS);
    assert_true(count_of(&w, "used_bytes") <= (uint64_t)CHUNKS * LEN / 2);
    int fetched = gets(&w);
    world_expect_all(&w);
    for (unsigned i = 0; i < CHUNKS; i++) {
        expect_part(&w, i, 0, 1);
        expect_part(&w, i, LEN - 1, 1);
        expect_part(&w, i, LEN / 4 - 5, 4097);
    }
    assert_int_equal(gets(&w), fetched);
    world_check(&w);
    world_release(&w);
}

static void test_cache_compressed__what_does_not_compress_is_kept_plain(void **state)
{
    struct world w;
    packed_world(&w, 0);
    assert_int_equal(count_of(&w, "used_bytes"), (uint64_t)CHUNKS * LEN);
    int fetched = gets(&w);
    world_expect_all(&w);
    assert_int_equal(gets(&w), fetched);
    world_release(&w);
}

static void test_cache_compressed__survives_a_restart_whatever_the_option(void **state)
{
    struct world w;
    packed_world(&w, 3);
    world_close(&w);
    w.config.compressed = false;
    world_open(&w);
    int fetched = gets(&w);
    world_expect_all(&w);
    assert_int_equal(gets(&w), fetched);
    world_release(&w);
}

/* Of groups that are read together, none is read in part, again and again: not one with a compressed chunk, nor one
 * with a chunk that is not there. */
static void test_cache_compressed__groups_are_read_whole_or_not_at_all(void **state)
{
    enum { PIECES = 7, PART = 4096, GROUPS = 4 };
    static const size_t sizes[GROUPS] = {2, 1, 2, 2};
    static const bool expected[GROUPS] = {false, true, true, false};
    static uint8_t got[PIECES][PART];
    const uint32_t len = LEN;
    struct cache_served served = {0};
    struct cache_group groups[GROUPS] = {0}, *all[GROUPS];
    struct cache_reader *reader;
    struct world w;
    world_init_level(&w, PIECES, &len, 1, BUDGET, 3);
    w.config.compressed = true;
    world_open(&w);
    world_expect(&w, 0);
    world_settle(&w);
    world_close(&w);
    w.config.compressed = false;
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    w.config.memory = 16 << 20; /* it is empty */
    world_open(&w);
    assert_int_equal(cache_evict(w.cache, &w.refs[PIECES - 1].digest, true), 0);
    world_expect(&w, 3); /* memory has it now */
    uint64_t hits = count_of(&w, "hits_total");
    for (unsigned g = 0, i = 0; g < GROUPS; g++) {
        all[g] = &groups[g];
        for (; groups[g].count < sizes[g]; i++) {
            struct cache_piece *p = &groups[g].pieces[groups[g].count++];
            *p = world_piece(&w, i, i, PART, got[i]);
            p->served = &served;
        }
    }
    assert_int_equal(cache_reader_new(w.cache, &reader), 0);
    cache_reader_start(reader, all, GROUPS);
    reader_take(reader, GROUPS);
    cache_reader_free(reader);
    for (unsigned g = 0; g < GROUPS; g++)
        assert_int_equal(groups[g].got, expected[g]);
    for (unsigned i = 2; i < 5; i++)
        assert_memory_equal(got[i], w.plain[i] + i, PART);
    assert_int_equal(served.pieces[CACHE_FROM_DISK], 2);
    assert_int_equal(served.pieces[CACHE_FROM_MEMORY], 1);
    assert_int_equal(count_of(&w, "hits_total"), hits + 3);
    world_release(&w);
}

static void test_cache_compressed__damage_is_fetched_again(void **state)
{
    struct world w;
    packed_world(&w, 3);
    CLEANUP_FD int fd = world_open_file(&w, "data");
    struct stat st;
    assert_int_equal(fstat(fd, &st), 0);
    for (off_t off = 0; off < st.st_size; off += 4096) /* a byte of every block */
        assert_int_equal(pwrite(fd, "\xA5", 1, off + 100), 1);
    world_expect_all(&w);
    assert_true(count_of(&w, "crc_errors_total") > 0);
    world_settle(&w);
    int fetched = gets(&w);
    world_expect_all(&w); /* healed */
    assert_int_equal(gets(&w), fetched);
    world_release(&w);
}

static void test_cache_compressed__fsck_knows_them(void **state)
{
    struct world w;
    packed_world(&w, 3);
    world_close(&w);
    struct cache_fsck_result found;
    assert_int_equal(cache_fsck(w.dir, &(struct cache_fsck_options){.threads = 2}, &found), 0);
    assert_int_equal(found.good, CHUNKS);
    assert_int_equal(found.bad, 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_compressed__takes_a_smaller_slot_and_reads_back_in_any_part),
        cmocka_unit_test(test_cache_compressed__what_does_not_compress_is_kept_plain),
        cmocka_unit_test(test_cache_compressed__survives_a_restart_whatever_the_option),
        cmocka_unit_test(test_cache_compressed__groups_are_read_whole_or_not_at_all),
        cmocka_unit_test(test_cache_compressed__damage_is_fetched_again),
        cmocka_unit_test(test_cache_compressed__fsck_knows_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
