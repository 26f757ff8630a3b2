/* Records in memory: the log alone, and hits of a cache whose records are there while its slots change under them. */
#include "unit/cache_world.h"

#define K 1024u

/* ---- the log ---- */

static struct digest name_of(uint32_t number)
{
    return digest_of(&number, sizeof number);
}

/* The record of a number: it says which it is in every word. */
static uint32_t fill_record(uint32_t number, uint8_t *out)
{
    uint32_t len = 80 + number % 5 * 48;
    for (uint32_t at = 0; at < len; at += 4)
        memcpy(out + at, &number, 4);
    return len;
}

static void put(struct record_memory *m, uint32_t number)
{
    uint8_t record[CACHE_RECORD_MAX];
    struct digest name = name_of(number);
    record_memory_put(m, &name, record, fill_record(number, record));
}

/* Is it there? Then it is right. */
static bool has(struct record_memory *m, uint32_t number)
{
    uint8_t record[CACHE_RECORD_MAX], got[CACHE_RECORD_MAX];
    struct digest name = name_of(number);
    uint32_t len = fill_record(number, record);
    if (!record_memory_get(m, &name, got, len))
        return false;
    assert_memory_equal(got, record, len);
    return true;
}

static void test_record_memory__has_what_was_put_until_it_is_forgotten(void **state)
{
    struct record_memory *m;
    uint8_t record[CACHE_RECORD_MAX];
    struct digest name = name_of(7);
    assert_int_equal(record_memory_new(0, &m), 0);
    assert_false(has(m, 7));
    put(m, 7);
    put(m, 8);
    assert_true(has(m, 7));
    uint32_t len = fill_record(7, record);
    assert_false(record_memory_get(m, &name, record, len + 16)); /* the chunk had another form then */
    memset(record, 1, sizeof record);
    record_memory_put(m, &name, record, len);
    uint8_t got[CACHE_RECORD_MAX];
    assert_true(record_memory_get(m, &name, got, len));
    assert_memory_equal(got, record, len);
    record_memory_put(m, &name, record, len + 16);
    assert_true(record_memory_get(m, &name, got, len + 16));
    record_memory_forget(m, &name);
    assert_false(record_memory_get(m, &name, got, len + 16));
    assert_true(has(m, 8));
    record_memory_free(m);
}

static void test_record_memory__keeps_the_newest_within_its_bound(void **state)
{
    enum { PUT = 5000, NEWEST = 300 };
    struct record_memory *m;
    unsigned there = 0;
    assert_int_equal(record_memory_new(0, &m), 0);
    for (uint32_t i = 0; i < PUT; i++) {
        put(m, i);
        assert_true(has(m, i));
    }
    assert_true(record_memory_used(m) <= RECORD_MEMORY_MIN);
    assert_true(record_memory_used(m) > RECORD_MEMORY_MIN * 9 / 10);
    for (uint32_t i = 0; i < PUT; i++)
        there += has(m, i);
    assert_true(there < PUT / 4); /* they could not all be there */
    there = 0;
    for (uint32_t i = PUT - NEWEST; i < PUT; i++)
        there += has(m, i);
    assert_true(there > NEWEST * 9 / 10); /* a set may have had more than its cells */
    record_memory_free(m);
}

static struct record_memory *shared;
static atomic_uint found;

/* The log has about 600 records. Some that are read are new, some near the place that is overwritten next. Each thread
 * begins elsewhere, so that they do not write the same bytes to the same place. */
static void *put_and_get(void *arg)
{
    for (uint32_t i = *(const uint32_t *)arg, end = i + 3000; i < end; i++) {
        put(shared, i);
        found += has(shared, i - i % 200);
        found += has(shared, i - i % 600);
    }
    return NULL;
}

static void test_record_memory__threads_never_see_half_a_record(void **state)
{
    pthread_t threads[4];
    const uint32_t starts[GR_ARRAY_SIZE(threads)] = {0, 50, 100, 150};
    assert_int_equal(record_memory_new(0, &shared), 0);
    found = 0;
    for (size_t i = 0; i < GR_ARRAY_SIZE(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, put_and_get, (void *)(uintptr_t)&starts[i]), 0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(threads); i++)
        pthread_join(threads[i], NULL);
    assert_true(found > 3000);
    record_memory_free(shared);
}

/* ---- in a cache ---- */

enum { LEN = 128 << 10, CHUNKS = 8, FIRST = 0, OTHER = 1 };

/* A cache that holds CHUNKS chunks, no record in memory yet. */
static void open_warm(struct world *w)
{
    static const uint32_t lens[] = {LEN};
    world_init(w, CHUNKS, lens, 1, 24 << 20);
    world_open(w);
    world_warm(w);
    assert_int_equal(count_of(w, "record_hits_total"), 0);
}

/* Where the chunk's slot is. */
static struct space_slot slot_of(struct world *w, unsigned chunk)
{
    struct space_slot slot;
    SCOPED_SPACE_LOCK(&w->cache->lock, &w->cache->space);
    space_pin(&w->cache->space, space_find(&w->cache->space, &w->refs[chunk].digest), &slot);
    space_unpin(slot.pins);
    return slot;
}

static const struct cache_geometry *geometry(const struct world *w)
{
    return &w->cache->dirs[0]->geometry;
}

/* Read the chunk's record from the file; return its length. */
static uint32_t read_record(struct world *w, unsigned chunk, uint8_t *out)
{
    struct space_slot slot = slot_of(w, chunk);
    uint32_t len = cache_class_record_size(slot.place.class);
    CLEANUP_FD int fd = world_open_file(w, "records");
    assert_int_equal(pread(fd, out, len, (off_t)cache_place_record_offset(geometry(w), &slot.place)), len);
    return len;
}

/* Bytes of another chunk land in the chunk's slot, as a late write does. */
static void overwrite_slot(struct world *w, unsigned chunk, unsigned with)
{
    struct space_slot slot = slot_of(w, chunk);
    CLEANUP_FD int fd = world_open_file(w, "data");
    assert_int_equal(pwrite(fd, w->plain[with], LEN, (off_t)cache_place_data_offset(geometry(w), &slot.place)), LEN);
    assert_int_equal(fsync(fd), 0); /* the cache reads around the page cache */
}

static uint64_t disk_reads(struct world *w)
{
    return count_of(w, "uring_reads_total") + count_of(w, "pread_reads_total");
}

static void test_record_memory__a_second_hit_reads_one_place(void **state)
{
    struct world w;
    open_warm(&w);
    uint64_t before = disk_reads(&w);
    world_expect(&w, FIRST);
    assert_int_equal(disk_reads(&w) - before, 2);
    before = disk_reads(&w);
    world_expect(&w, FIRST);
    assert_int_equal(disk_reads(&w) - before, 1);
    assert_int_equal(count_of(&w, "record_hits_total"), 1);
    assert_true(count_of(&w, "record_memory_bytes") > 0);
    world_release(&w);
}

static void test_record_memory__a_slot_that_was_overwritten_is_a_miss(void **state)
{
    struct world w;
    open_warm(&w);
    world_expect(&w, FIRST);
    overwrite_slot(&w, FIRST, OTHER);
    int before = gets(&w);
    world_expect(&w, FIRST);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_int_equal(gets(&w) - before, 1);
    world_settle(&w);
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    world_release(&w);
}

/* Slot and memory agree on another chunk: only the digest and the place in the record tell. */
static void test_record_memory__a_record_of_another_chunk_is_not_believed(void **state)
{
    struct world w;
    uint8_t record[CACHE_RECORD_MAX];
    open_warm(&w);
    overwrite_slot(&w, FIRST, OTHER);
    uint32_t len = read_record(&w, OTHER, record);
    record_memory_put(w.cache->records, &w.refs[FIRST].digest, record, len);
    world_expect(&w, FIRST);
    world_settle(&w);

    struct cache_record decoded;
    struct space_slot first = slot_of(&w, FIRST), other = slot_of(&w, OTHER);
    read_record(&w, OTHER, record);
    assert_true(cache_meta_record_decode(geometry(&w), &other.place, record, &decoded));
    cache_meta_record_seal(geometry(&w), &first.place, &decoded, record); /* in its place, too: the digest is left */
    overwrite_slot(&w, FIRST, OTHER);
    record_memory_put(w.cache->records, &w.refs[FIRST].digest, record, len);
    world_expect(&w, FIRST);
    world_release(&w);
}

/* The chunk has moved: its record in memory is that of its old slot, with the right checksums. */
static void test_record_memory__a_record_of_another_place_is_read_again(void **state)
{
    struct world w;
    struct cache_record decoded;
    uint8_t record[CACHE_RECORD_MAX];
    open_warm(&w);
    struct space_slot slot = slot_of(&w, FIRST);
    uint32_t len = read_record(&w, FIRST, record);
    assert_true(cache_meta_record_decode(geometry(&w), &slot.place, record, &decoded));
    slot.place.epoch++;
    cache_meta_record_seal(geometry(&w), &slot.place, &decoded, record);
    record_memory_put(w.cache->records, &w.refs[FIRST].digest, record, len);
    uint64_t before = disk_reads(&w);
    world_expect(&w, FIRST);
    assert_int_equal(disk_reads(&w) - before, 2);
    assert_int_equal(count_of(&w, "record_hits_total"), 0);
    before = disk_reads(&w);
    world_expect(&w, FIRST);
    assert_int_equal(disk_reads(&w) - before, 1);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_release(&w);
}

/* Bits that turned over in memory: a record that does not hold is read again; one that does, with other checksums,
 * costs one fetch and no more. */
static void test_record_memory__bad_memory_costs_a_read_or_a_fetch(void **state)
{
    struct world w;
    struct cache_record decoded;
    uint8_t record[CACHE_RECORD_MAX];
    open_warm(&w);
    struct space_slot slot = slot_of(&w, FIRST);
    uint32_t len = read_record(&w, FIRST, record);
    record[len / 2] ^= 1;
    record_memory_put(w.cache->records, &w.refs[FIRST].digest, record, len);
    world_expect(&w, FIRST);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);

    read_record(&w, FIRST, record);
    assert_true(cache_meta_record_decode(geometry(&w), &slot.place, record, &decoded));
    record[len - 16 * 4] ^= 1;
    cache_meta_record_seal(geometry(&w), &slot.place, &decoded, record);
    record_memory_put(w.cache->records, &w.refs[FIRST].digest, record, len);
    world_expect(&w, FIRST);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_false(record_memory_get(w.cache->records, &w.refs[FIRST].digest, record, len));
    world_settle(&w);
    int before = gets(&w);
    world_expect(&w, FIRST);
    assert_int_equal(count_of(&w, "crc_errors_total"), 1);
    assert_int_equal(gets(&w), before);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_record_memory__has_what_was_put_until_it_is_forgotten),
        cmocka_unit_test(test_record_memory__keeps_the_newest_within_its_bound),
        cmocka_unit_test(test_record_memory__threads_never_see_half_a_record),
        cmocka_unit_test(test_record_memory__a_second_hit_reads_one_place),
        cmocka_unit_test(test_record_memory__a_slot_that_was_overwritten_is_a_miss),
        cmocka_unit_test(test_record_memory__a_record_of_another_chunk_is_not_believed),
        cmocka_unit_test(test_record_memory__a_record_of_another_place_is_read_again),
        cmocka_unit_test(test_record_memory__bad_memory_costs_a_read_or_a_fetch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
