/* granary cache fsck: what is damaged is found, named and, when asked, forgotten; nothing else is touched. */
#include "unit/cache_world.h"

#include "base/io.h"
#include "cache/cache_tools.h"

#define K 1024u
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7};
#define MIXED mixed_lens, GR_ARRAY_SIZE(mixed_lens)

struct found {
    unsigned count;
    struct digest digests[16];
    bool repaired[16];
    char why[16][80];
};

static void note(void *arg, const struct cache_fsck_bad *bad)
{
    struct found *f = arg;
    assert_in_range(f->count, 0, 15);
    f->digests[f->count] = *bad->digest;
    f->repaired[f->count] = bad->repaired;
    snprintf(f->why[f->count++], sizeof f->why[0], "%s", bad->why);
}

static struct cache_fsck_result fsck(struct world *w, bool repair, struct found *found)
{
    struct cache_fsck_result r;
    memset(found, 0, sizeof *found);
    const struct cache_fsck_options options = {.threads = 3, .repair = repair, .bad = note, .arg = found};
    if (cache_fsck(w->dir, &options, &r))
        fail_msg("cache_fsck: %s", error_text());
    assert_int_equal(r.slots, r.good + r.empty + r.stale + r.bad);
    assert_int_equal(r.bad, found->count);
    return r;
}

/* A closed cache that holds every chunk; where chunk `chunk` lies. */
static void fill(struct world *w, unsigned n)
{
    world_init(w, n, MIXED, 32 << 20);
    world_open(w);
    world_warm(w);
}

static void where(struct world *w, unsigned chunk, struct space_slot *out)
{
    SCOPED_LOCK(&w->cache->lock);
    uint32_t id = space_find(&w->cache->space, &w->refs[chunk].digest);
    assert_int_not_equal(id, SPACE_NONE);
    space_pin(&w->cache->space, id, out);
    space_unpin(out->pins);
}

static void flip(struct world *w, const char *file, uint64_t off)
{
    CLEANUP_FD int fd = world_open_file(w, file);
    uint8_t byte;
    assert_int_equal(io_pread_full(fd, &byte, 1, off), 1);
    byte ^= 0x40;
    assert_int_equal(io_pwrite_full(fd, &byte, 1, off), 0);
    assert_int_equal(fdatasync(fd), 0);
}

static struct digest digest_of_file(struct world *w, const char *name)
{
    char path[128];
    CLEANUP_BYTES all = BYTES_INIT(64 << 20);
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    assert_int_equal(io_read_file(path, &all), 0);
    return digest_of(all.data, all.len);
}

static void test_cache_fsck__a_whole_cache_is_sound(void **state)
{
    struct world w;
    struct found found;
    uint64_t bytes = 0;
    fill(&w, 40);
    for (unsigned i = 0; i < w.count; i++)
        bytes += w.refs[i].plain_len;
    world_close(&w);
    struct cache_fsck_result r = fsck(&w, false, &found);
    assert_int_equal(r.good, 40);
    assert_int_equal(r.bytes, bytes);
    assert_int_equal(r.bad + r.stale, 0);
    assert_true(r.bound > 0 && r.bound < r.slabs);
    world_release(&w);
}

static void test_cache_fsck__damage_is_named_and_left_until_repair(void **state)
{
    struct world w;
    struct found found;
    struct space_slot a, b;
    fill(&w, 40);
    const struct cache_geometry g = w.cache->dirs[0]->geometry;
    where(&w, 2, &a); /* 300 KiB */
    where(&w, 4, &b); /* one byte */
    world_close(&w);
    flip(&w, "data", cache_place_data_offset(&g, &a.place) + 300 * K - 1);
    flip(&w, "data", cache_place_data_offset(&g, &b.place));
    struct digest data = digest_of_file(&w, "data"), records = digest_of_file(&w, "records");
    for (int i = 0; i < 2; i++) {
        struct cache_fsck_result r = fsck(&w, false, &found);
        assert_int_equal(r.bad, 2);
        assert_int_equal(r.good, 38);
        assert_int_equal(r.repaired, 0);
        assert_true(digest_equal(&found.digests[0], &w.refs[2].digest) ||
                    digest_equal(&found.digests[0], &w.refs[4].digest));
        assert_non_null(strstr(found.why[0], "differs"));
        assert_false(found.repaired[0]);
    }
    struct digest data_after = digest_of_file(&w, "data"), records_after = digest_of_file(&w, "records");
    assert_true(digest_equal(&data, &data_after) && digest_equal(&records, &records_after));

    struct cache_fsck_result r = fsck(&w, true, &found);
    assert_int_equal(r.bad, 2);
    assert_int_equal(r.repaired, 2);
    assert_true(found.repaired[0] && found.repaired[1]);
    r = fsck(&w, false, &found);
    assert_int_equal(r.bad, 0);
    assert_int_equal(r.good, 38);
    world_open(&w);
    assert_false(cache_has(w.cache, &w.refs[2].digest));
    assert_false(cache_has(w.cache, &w.refs[4].digest));
    world_expect_all(&w);
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    world_release(&w);
}

static void test_cache_fsck__torn_records_are_stale_not_bad(void **state)
{
    struct world w;
    struct found found;
    struct space_slot slot;
    fill(&w, 16);
    const struct cache_geometry g = w.cache->dirs[0]->geometry;
    for (unsigned i = 0; i < 3; i++) {
        where(&w, i, &slot);
        uint32_t size = cache_class_record_size(slot.place.class);
        flip(&w, "records", cache_place_record_offset(&g, &slot.place) + (i == 0 ? 0 : i == 1 ? 61 : size - 1));
    }
    world_close(&w);
    struct cache_fsck_result r = fsck(&w, true, &found);
    assert_int_equal(r.stale, 3);
    assert_int_equal(r.good, 13);
    assert_int_equal(r.bad, 0);
    world_release(&w);
}

/* Records of an earlier binding of a slab, and of an earlier life of the directory, claim nothing. */
static void test_cache_fsck__stale_bindings_and_lives_are_stale(void **state)
{
    struct world w;
    struct found found;
    struct space_slot slot;
    fill(&w, 1);
    const struct cache_geometry g = w.cache->dirs[0]->geometry;
    where(&w, 0, &slot);
    world_close(&w);
    uint8_t entry[CACHE_META_SLAB_SIZE];
    slot.place.epoch++;
    cache_meta_slab_encode(&g, &slot.place, entry);
    CLEANUP_FD int fd = world_open_file(&w, "records");
    assert_int_equal(io_pwrite_full(fd, entry, sizeof entry, cache_slab_entry_offset(&g, slot.place.slab)), 0);
    struct cache_fsck_result r = fsck(&w, false, &found);
    assert_int_equal(r.stale, 1);
    assert_int_equal(r.good + r.bad, 0);

    struct cache_geometry other = g;
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    other.id++;
    cache_meta_header_encode(&other, header);
    assert_int_equal(io_pwrite_full(fd, header, CACHE_META_HEADER_SIZE, 0), 0);
    r = fsck(&w, false, &found);
    assert_int_equal(r.bound, 0);
    assert_int_equal(r.slots, 0);
    world_release(&w);
}

/* A record that holds, over other bytes whose checksums it carries: only the SHA-256 tells. */
static void test_cache_fsck__the_digest_is_checked_beside_the_checksums(void **state)
{
    struct world w;
    struct found found;
    struct space_slot slot;
    static struct cache_record record;
    uint8_t bytes[CACHE_RECORD_MAX];
    fill(&w, 3);
    const struct cache_geometry g = w.cache->dirs[0]->geometry;
    where(&w, 0, &slot);
    world_close(&w);
    CLEANUP_FD int fd = world_open_file(&w, "records");
    uint64_t at = cache_place_record_offset(&g, &slot.place);
    assert_true(io_pread_full(fd, bytes, cache_class_record_size(slot.place.class), at) > 0);
    assert_true(cache_meta_record_decode(&g, &slot.place, bytes, &record));
    record.digest.b[5] ^= 1;
    cache_meta_record_encode(&g, &slot.place, &record, w.plain[0], bytes);
    assert_int_equal(io_pwrite_full(fd, bytes, cache_class_record_size(slot.place.class), at), 0);
    struct cache_fsck_result r = fsck(&w, true, &found);
    assert_int_equal(r.bad, 1);
    assert_non_null(strstr(found.why[0], "not the chunk"));
    world_release(&w);
}

static void test_cache_fsck__a_cut_data_file_is_bad_slots(void **state)
{
    struct world w;
    struct found found;
    fill(&w, 8);
    world_close(&w);
    CLEANUP_FD int fd = world_open_file(&w, "data");
    assert_int_equal(ftruncate(fd, 4096), 0);
    struct cache_fsck_result r = fsck(&w, false, &found);
    assert_in_range(r.bad, 7, 8);
    assert_non_null(strstr(found.why[0], "ends before"));
    world_release(&w);
}

static int refused(const char *dir)
{
    struct cache_fsck_result r;
    const struct cache_fsck_options options = {0};
    return cache_fsck(dir, &options, &r);
}

static void test_cache_fsck__what_cannot_be_checked_is_refused_with_the_reason(void **state)
{
    struct world w;
    char pid[32];
    fill(&w, 1);
    assert_int_equal(refused(w.dir), -EBUSY);
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    assert_non_null(strstr(error_text(), pid));
    world_close(&w);
    assert_int_equal(refused("no-such-directory"), -ENOENT);
    flip(&w, "records", 12);
    assert_int_equal(refused(w.dir), -EBADMSG);
    assert_non_null(strstr(error_text(), "header"));
    flip(&w, "records", 12);
    assert_int_equal(refused(w.dir), 0);
    CLEANUP_FD int fd = world_open_file(&w, "records");
    assert_int_equal(ftruncate(fd, CACHE_META_HEADER_SIZE), 0);
    assert_int_equal(refused(w.dir), -EIO);
    assert_non_null(strstr(error_text(), "slab table"));
    world_release(&w);
}

static void test_cache_fsck__an_interrupt_ends_it(void **state)
{
    struct world w;
    struct cache_fsck_result r;
    static const volatile int cancel = 1;
    const struct cache_fsck_options options = {.cancel = &cancel};
    fill(&w, 8);
    world_close(&w);
    int rc = cache_fsck(w.dir, &options, &r);
    assert_true(rc == -ECANCELED || rc == 0); /* it may be done already */
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_fsck__a_whole_cache_is_sound),
        cmocka_unit_test(test_cache_fsck__damage_is_named_and_left_until_repair),
        cmocka_unit_test(test_cache_fsck__torn_records_are_stale_not_bad),
        cmocka_unit_test(test_cache_fsck__stale_bindings_and_lives_are_stale),
        cmocka_unit_test(test_cache_fsck__the_digest_is_checked_beside_the_checksums),
        cmocka_unit_test(test_cache_fsck__a_cut_data_file_is_bad_slots),
        cmocka_unit_test(test_cache_fsck__what_cannot_be_checked_is_refused_with_the_reason),
        cmocka_unit_test(test_cache_fsck__an_interrupt_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
