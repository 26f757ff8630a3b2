/* Catalog pages for tests: entries of every kind, a page of them and back, and pages with other bytes inside. */
#ifndef GRANARY_TESTS_UNIT_CATALOG_PAGES_H
#define GRANARY_TESTS_UNIT_CATALOG_PAGES_H

#include "unit/cmocka_all.h"

#include <string.h>
#include <sys/stat.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/le.h"
#include "format/catalog.h"

static inline struct catalog_entry file_entry(const char *path, size_t len)
{
    return (struct catalog_entry){.path = path, .path_len = len, .mode = S_IFREG | 0644, .mtime = 1};
}

static inline void assert_same_entry(const struct catalog_entry *a, const struct catalog_entry *b)
{
    assert_int_equal(a->path_len, b->path_len);
    assert_memory_equal(a->path, b->path, a->path_len);
    assert_int_equal(a->mode, b->mode);
    assert_int_equal(a->uid, b->uid);
    assert_int_equal(a->gid, b->gid);
    assert_true(a->size == b->size && a->mtime == b->mtime);
    assert_int_equal(a->mtime_nsec, b->mtime_nsec);
    assert_int_equal(a->validator_len, b->validator_len);
    assert_memory_equal(a->validator, b->validator, a->validator_len);
    assert_memory_equal(&a->content, &b->content, DIGEST_SIZE);
    assert_int_equal(a->target_len, b->target_len);
    assert_memory_equal(a->target, b->target, a->target_len);
    assert_int_equal(a->hard_link, b->hard_link);
    assert_int_equal(a->extent_count, b->extent_count);
    for (uint32_t i = 0; i < a->extent_count; i++)
        assert_memory_equal(&a->extents[i], &b->extents[i], sizeof a->extents[i]);
}

static inline struct catalog_page *decoded_page(const struct bytes *b)
{
    struct catalog_page *page = NULL;
    if (catalog_page_decode(b->data, b->len, &page))
        fail_msg("%s", error_text());
    return page;
}

/* All entries into one page (whatever `full` says), and back. */
static inline void page_round_trip(const struct catalog_entry *entries, uint32_t n, struct bytes *out)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    struct catalog_child child;
    bool full;
    for (uint32_t i = 0; i < n; i++)
        if (catalog_page_add(w, &entries[i], &full))
            fail_msg("%s", error_text());
    assert_int_equal(catalog_page_finish(w, out, &child), 0);
    assert_int_equal(child.entries, n);
    assert_int_equal(child.len, out->len);
    assert_int_equal(child.crc, crc32c(out->data, out->len));
    struct digest d = digest_of(out->data, out->len);
    assert_memory_equal(&d, &child.digest, DIGEST_SIZE);
    assert_int_equal(child.first_len, entries[0].path_len);
    assert_memory_equal(child.first, entries[0].path, child.first_len);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = decoded_page(out);
    assert_int_equal(catalog_page_level(page), 0);
    assert_int_equal(catalog_page_count(page), n);
    for (uint32_t i = 0; i < n; i++)
        assert_same_entry(&entries[i], catalog_page_entry(page, i));
}

static const struct catalog_extent two_extents[] = {{4096, 100}, {UINT64_C(1) << 43, 1 << 30}};

static inline uint32_t varied_entries(struct catalog_entry *e)
{
    uint32_t n = 0;
    e[n++] = (struct catalog_entry){.path = "", .mode = S_IFDIR | 0755, .mtime = INT64_MIN};
    e[n++] = (struct catalog_entry){.path = "a", .path_len = 1, .mode = S_IFDIR | 01777, .mtime = -1};
    e[n++] = (struct catalog_entry){.path = "a-b", .path_len = 3, .mode = S_IFREG, .size = 0, .mtime_nsec = 999999999};
    e[n++] = (struct catalog_entry){
        .path = "a/link", .path_len = 6, .mode = S_IFLNK | 0777, .size = 5, .target = "../\xfe/", .target_len = 5};
    e[n++] = (struct catalog_entry){
        .path = "a/\xff\n x",
        .path_len = 6,
        .mode = S_IFREG | 0600,
        .uid = UINT32_MAX,
        .gid = 70000,
        .size = UINT64_MAX,
        .mtime = INT64_MAX,
        .mtime_nsec = 1,
        .validator = "\"etag\"",
        .validator_len = 6,
        .content = digest_of("x", 1),
        .extents = two_extents,
        .extent_count = 2,
    };
    e[n++] = (struct catalog_entry){
        .path = "b", .path_len = 1, .mode = S_IFREG, .target = "a-b", .target_len = 3, .hard_link = true};
    return n;
}

static inline int decode_page(void *arg, const void *data, size_t len)
{
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    return catalog_page_decode(data, len, &page);
}

/* The page again with other plain bytes inside. */
static inline void repack(const uint8_t *header, const uint8_t *plain, size_t len, struct bytes *out)
{
    uint8_t *p;
    bytes_clear(out);
    assert_int_equal(bytes_append(out, header, 32), 0);
    le32_put(out->data + 12, (uint32_t)len);
    assert_int_equal(bytes_extend(out, ZSTD_compressBound(len), &p), 0);
    out->len = 32 + ZSTD_compress(p, ZSTD_compressBound(len), plain, len, 1);
}

#endif
