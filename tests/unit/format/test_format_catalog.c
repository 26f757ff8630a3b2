/* Catalog pages: entries come back, borders stay where they are, nothing decodes to more than the
 * limits. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "base/vec.h"
#include "format/catalog.h"
#include "unit/catalog_pages.h"
#include "unit/mangle.h"

static void test_catalog__entries_of_every_kind_round_trip(void **state)
{
    struct catalog_entry entries[8];
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    page_round_trip(entries, varied_entries(entries), &object);
}

static void test_catalog__limits_of_an_entry(void **state)
{
    static char path[CATALOG_PATH_MAX + 1], target[CATALOG_PATH_MAX + 1], validator[CATALOG_VALIDATOR_MAX + 1];
    static struct catalog_extent extents[CATALOG_EXTENTS_MAX + 1];
    memset(path, 'p', sizeof path);
    memset(target, 't', sizeof target);
    memset(validator, 'v', sizeof validator);
    for (size_t i = 0; i < GR_ARRAY_SIZE(extents); i++)
        extents[i] = (struct catalog_extent){.offset = UINT64_MAX - 10 - i, .len = 1};
    const struct catalog_entry largest = {
        .path = path,
        .path_len = CATALOG_PATH_MAX,
        .mode = S_IFLNK,
        .target = target,
        .target_len = CATALOG_PATH_MAX,
        .validator = validator,
        .validator_len = CATALOG_VALIDATOR_MAX,
        .extents = extents,
        .extent_count = CATALOG_EXTENTS_MAX,
    };
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    page_round_trip(&largest, 1, &object);

    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    bool full;
    struct catalog_entry bad;
#define REFUSED(change)                                                                                                \
    bad = largest;                                                                                                     \
    change;                                                                                                            \
    assert_int_equal(catalog_page_add(w, &bad, &full), -EINVAL)
    REFUSED(bad.path_len++);
    REFUSED(bad.target_len++);
    REFUSED(bad.validator_len++);
    REFUSED(bad.extent_count++);
    REFUSED(bad.mtime_nsec = 1000000000);
    REFUSED(bad.hard_link = true; bad.target_len = 0);
    extents[0].len = 0;
    REFUSED(bad.extent_count = 1);
    extents[0] = (struct catalog_extent){.offset = UINT64_MAX, .len = 1};
    REFUSED(bad.extent_count = 1);
#undef REFUSED
    struct catalog_child child;
    assert_int_equal(catalog_page_finish(w, &object, &child), -EINVAL);
}

static void test_catalog__order_is_that_of_the_full_path(void **state)
{
    assert_true(catalog_path_compare("a-b", 3, "a/b", 3) < 0);
    assert_true(catalog_path_compare("a", 1, "a-b", 3) < 0);
    assert_true(catalog_path_compare("", 0, "a", 1) < 0);
    assert_true(catalog_path_compare("\xff", 1, "a", 1) > 0);
    assert_true(catalog_path_compare("ab", 2, "ab", 2) == 0);

    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child;
    bool full;
    struct catalog_entry b = file_entry("b", 1), a = file_entry("a", 1), c = file_entry("c", 1);
    assert_int_equal(catalog_page_add(w, &b, &full), 0);
    assert_int_equal(catalog_page_add(w, &a, &full), -EINVAL);
    assert_int_equal(catalog_page_add(w, &b, &full), -EINVAL);
    /* across pages too */
    assert_int_equal(catalog_page_finish(w, &object, &child), 0);
    assert_int_equal(catalog_page_add(w, &a, &full), -EINVAL);
    assert_int_equal(catalog_page_add(w, &b, &full), -EINVAL);
    assert_int_equal(catalog_page_add(w, &c, &full), 0);
}

typedef VEC(struct digest) digests;

/* Build the whole catalog of paths "%08u" for every number that keep() lets through; out[level] gets the page names.
 */
struct builder {
    struct catalog_page_writer *writers[CATALOG_LEVELS_MAX];
    digests pages[CATALOG_LEVELS_MAX];
    uint64_t most; /* entries of the fullest page */
};

static void builder_finish(struct builder *b, unsigned level);

static void builder_child(struct builder *b, unsigned level, const struct catalog_child *child)
{
    bool full;
    if (!b->writers[level])
        b->writers[level] = catalog_page_writer_new(level);
    assert_int_equal(catalog_page_add_child(b->writers[level], child, &full), 0);
    if (full)
        builder_finish(b, level);
}

static void builder_finish(struct builder *b, unsigned level)
{
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child;
    assert_int_equal(catalog_page_finish(b->writers[level], &object, &child), 0);
    assert_int_equal(vec_push(&b->pages[level], child.digest), 0);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = decoded_page(&object);
    assert_int_equal(catalog_page_level(page), level);
    b->most = GR_MAX(b->most, catalog_page_count(page));
    builder_child(b, level + 1, &child);
}

static void build(struct builder *b, const char *format, unsigned count, unsigned extra)
{
    bool full = true;
    memset(b, 0, sizeof *b);
    b->writers[0] = catalog_page_writer_new(0);
    for (unsigned i = 0; i < count; i++)
        for (int twice = 0; twice <= (i == extra); twice++) {
            char path[64];
            int len = snprintf(path, sizeof path, format, i);
            if (twice)
                path[len++] = '+';
            struct catalog_entry e = file_entry(path, (size_t)len);
            assert_int_equal(catalog_page_add(b->writers[0], &e, &full), 0);
            if (full)
                builder_finish(b, 0);
        }
    if (!full)
        builder_finish(b, 0);
}

static void builder_release(struct builder *b)
{
    for (unsigned level = 0; level < CATALOG_LEVELS_MAX; level++) {
        catalog_page_writer_free(b->writers[level]);
        vec_release(&b->pages[level]);
    }
}

static size_t missing_from(const digests *a, const digests *b)
{
    size_t n = 0;
    for (size_t i = 0; i < a->len; i++) {
        bool found = false;
        for (size_t k = 0; k < b->len && !found; k++)
            found = digest_equal(&a->items[i], &b->items[k]);
        n += !found;
    }
    return n;
}

static void test_catalog__one_new_path_changes_one_page(void **state)
{
    enum { COUNT = 60000 };
    struct builder before;
    build(&before, "dir/%08u.jpg", COUNT, UINT32_MAX);
    assert_in_range(before.pages[0].len, COUNT / CATALOG_PAGE_ENTRIES / 2, COUNT / CATALOG_PAGE_ENTRIES * 2);
    size_t split = 0;
    for (unsigned extra = 17; extra < COUNT; extra += COUNT / 5) {
        struct builder after;
        build(&after, "dir/%08u.jpg", COUNT, extra);
        size_t gone = missing_from(&before.pages[0], &after.pages[0]);
        size_t fresh = missing_from(&after.pages[0], &before.pages[0]);
        assert_int_equal(gone, 1);
        assert_in_range(fresh, 1, 2); /* two when the new path is itself a border */
        split += fresh - 1;
        builder_release(&after);
    }
    assert_true(split <= 1);
    builder_release(&before);
}

static void test_catalog__borders_are_spread_for_any_naming(void **state)
{
    const char *const formats[] = {"%08u", "train/n%08u/img.JPEG", "%08x", "part-%05u-of-99999.parquet"};
    for (size_t i = 0; i < 4; i++) {
        struct builder b;
        build(&b, formats[i], 30000, UINT32_MAX);
        assert_in_range(b.pages[0].len, 10, 90);
        assert_true(b.most < CATALOG_PAGE_ENTRIES_MAX);
        builder_release(&b);
    }
}

static void test_catalog__a_page_without_borders_ends_at_the_limit(void **state)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child;
    static char path[60000];
    unsigned added = 0, pages = 0;
    memset(path, 'x', sizeof path);
    for (unsigned i = 0; i < 500; i++) {
        bool full;
        snprintf(path + sizeof path - 9, 9, "%08u", i);
        struct catalog_entry e = file_entry(path, sizeof path - 1);
        assert_int_equal(catalog_page_add(w, &e, &full), 0);
        added++;
        if (!full)
            continue;
        bytes_clear(&object);
        assert_int_equal(catalog_page_finish(w, &object, &child), 0);
        CLEANUP(cleanup_catalog_page) struct catalog_page *page = decoded_page(&object);
        assert_int_equal(catalog_page_count(page), added);
        /* paths in full are counted although they shrink to nothing */
        assert_true((uint64_t)added * sizeof path <= CATALOG_PAGE_MAX);
        added = 0;
        pages++;
    }
    assert_true(pages >= 6);
}

static void test_catalog__an_unfinished_full_page_takes_no_more(void **state)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    bool full;
    int rc = 0;
    unsigned i = 0;
    for (; i <= CATALOG_PAGE_ENTRIES_MAX && !rc; i++) {
        char path[32];
        struct catalog_entry e = file_entry(path, (size_t)snprintf(path, sizeof path, "%08u", i));
        rc = catalog_page_add(w, &e, &full);
    }
    assert_int_equal(rc, -EINVAL);
    assert_int_equal(i, CATALOG_PAGE_ENTRIES_MAX + 1);
}

static void test_catalog__children_round_trip(void **state)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(3);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    const struct catalog_child children[] = {
        {.first = "", .first_len = 0, .digest = digest_of("1", 1), .len = 1, .crc = 0, .entries = 1},
        {.first = "a/b",
         .first_len = 3,
         .digest = digest_of("2", 1),
         .len = CATALOG_OBJECT_MAX,
         .crc = ~0u,
         .entries = 7},
        {.first = "a/c", .first_len = 3, .digest = digest_of("3", 1), .len = 9, .crc = 5, .entries = UINT64_C(1) << 60},
    };
    struct catalog_child above;
    bool full;
    for (int i = 0; i < 3; i++)
        assert_int_equal(catalog_page_add_child(w, &children[i], &full), 0);
    struct catalog_child bad = {.first = "z", .first_len = 1, .digest = digest_of("4", 1), .len = 1};
    assert_int_equal(catalog_page_add_child(w, &bad, &full), -EINVAL);
    bad.entries = 1;
    bad.len = CATALOG_OBJECT_MAX + 1;
    assert_int_equal(catalog_page_add_child(w, &bad, &full), -EINVAL);
    assert_int_equal(catalog_page_finish(w, &object, &above), 0);
    assert_true(above.entries == (UINT64_C(1) << 60) + 8);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = decoded_page(&object);
    assert_int_equal(catalog_page_level(page), 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct catalog_child *c = catalog_page_child(page, i);
        assert_int_equal(c->first_len, children[i].first_len);
        assert_memory_equal(c->first, children[i].first, c->first_len);
        assert_memory_equal(&c->digest, &children[i].digest, DIGEST_SIZE);
        assert_int_equal(c->len, children[i].len);
        assert_int_equal(c->crc, children[i].crc);
        assert_true(c->entries == children[i].entries);
    }
}

static void test_catalog__damage_is_refused_or_harmless(void **state)
{
    struct catalog_entry entries[8];
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP_BYTES mangled = BYTES_INIT(CATALOG_OBJECT_MAX);
    page_round_trip(entries, varied_entries(entries), &object);
    mangle_truncate(decode_page, NULL, object.data, object.len, -EBADMSG);
    assert_true(mangle_flip(decode_page, NULL, object.data, object.len, 1, -EBADMSG) >= 24 * 8);
    assert_int_equal(bytes_append(&object, "", 1), 0);
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);

    /* damage below the compression: the records themselves */
    uint8_t plain[2048];
    size_t len = ZSTD_decompress(plain, sizeof plain, object.data + 32, object.len - 33);
    assert_false(ZSTD_isError(len));
    size_t refused = 0;
    for (size_t i = 0; i < len; i++)
        for (int bit = 0; bit < 8; bit++) {
            plain[i] ^= (uint8_t)(1u << bit);
            repack(object.data, plain, len, &mangled);
            int rc = decode_page(NULL, mangled.data, mangled.len);
            assert_true(rc == 0 || rc == -EBADMSG);
            refused += rc != 0;
            plain[i] ^= (uint8_t)(1u << bit);
        }
    assert_true(refused > 100);
    for (size_t n = 0; n < len; n++) {
        repack(object.data, plain, n, &mangled);
        assert_int_equal(decode_page(NULL, mangled.data, mangled.len), -EBADMSG);
    }
    repack(object.data, plain, len, &mangled);
    assert_int_equal(decode_page(NULL, mangled.data, mangled.len), 0);
}

static void test_catalog__nothing_decodes_to_more_than_the_limits(void **state)
{
    /* A page of long paths that shrink to a few bytes each: 8192 * 60 KiB would be 480 MiB. */
    CLEANUP_BYTES plain = BYTES_INIT(CATALOG_PAGE_MAX);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    static char path[60000];
    const uint8_t tail[] = {0, 0, 0, 0, 0, 0, 0, 0}; /* numbers and an empty validator */
    const uint8_t first[] = {0, 0xe0, 0xd4, 3};      /* shares nothing; 60000 bytes follow */
    const uint8_t next[] = {0xe0, 0xd4, 3, 1, 'y'};  /* shares 60000, one more */
    const uint8_t longer[] = {0xe0, 0xd4, 3, 2, 'z', 'a'};
    memset(path, 'x', sizeof path);
    assert_int_equal(bytes_append(&plain, first, sizeof first), 0);
    assert_int_equal(bytes_append(&plain, path, sizeof path), 0);
    assert_int_equal(bytes_append(&plain, tail, sizeof tail), 0);
    assert_int_equal(bytes_append(&plain, next, sizeof next), 0);
    assert_int_equal(bytes_append(&plain, tail, sizeof tail), 0);
    assert_int_equal(bytes_append(&plain, longer, sizeof longer), 0);
    assert_int_equal(bytes_append(&plain, tail, sizeof tail), 0);
    uint8_t header[32] = "GRCT\1";
    le32_put(header + 8, 3);
    le32_put(header + 16, 60000 + 60001 + 60002);
    repack(header, plain.data, plain.len, &object);
    assert_int_equal(decode_page(NULL, object.data, object.len), 0);
    le32_put(header + 16, 60000 + 60001 + 60001);
    repack(header, plain.data, plain.len, &object);
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);
    le32_put(header + 16, CATALOG_PAGE_MAX + 1);
    repack(header, plain.data, plain.len, &object);
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);
    le32_put(header + 16, 60000 + 60001 + 60002);
    le32_put(header + 8, CATALOG_PAGE_ENTRIES_MAX + 1);
    repack(header, plain.data, plain.len, &object);
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);
    le32_put(header + 8, 3);
    repack(header, plain.data, plain.len, &object);
    le32_put(object.data + 12, CATALOG_PAGE_MAX + 1);
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog__entries_of_every_kind_round_trip),
        cmocka_unit_test(test_catalog__limits_of_an_entry),
        cmocka_unit_test(test_catalog__order_is_that_of_the_full_path),
        cmocka_unit_test(test_catalog__one_new_path_changes_one_page),
        cmocka_unit_test(test_catalog__borders_are_spread_for_any_naming),
        cmocka_unit_test(test_catalog__a_page_without_borders_ends_at_the_limit),
        cmocka_unit_test(test_catalog__an_unfinished_full_page_takes_no_more),
        cmocka_unit_test(test_catalog__children_round_trip),
        cmocka_unit_test(test_catalog__damage_is_refused_or_harmless),
        cmocka_unit_test(test_catalog__nothing_decodes_to_more_than_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
