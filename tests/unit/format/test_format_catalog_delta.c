/* Catalog pages that are deltas of others, and the pages above them, which name their bases. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "format/catalog.h"
#include "unit/catalog_pages.h"
#include "unit/mangle.h"

enum { DELTA_ENTRIES = 600 };

/* A page of entries; one in `changed` has another content (0: none). `writer` is that of level 0. */
static void delta_entries(struct catalog_page_writer *w, unsigned changed)
{
    bool full;
    for (unsigned i = 0; i < DELTA_ENTRIES; i++) {
        char path[32];
        size_t len = (size_t)snprintf(path, sizeof path, "d/%05u", i);
        struct catalog_entry e = file_entry(path, len);
        uint32_t version[2] = {i, changed && i % changed == 0};
        e.content = digest_of(version, sizeof version);
        if (catalog_page_add(w, &e, &full))
            fail_msg("%s", error_text());
    }
}

/* Finish such a page upon base (NULL: in full). */
static struct catalog_child delta_page(unsigned changed, const struct catalog_base *base, struct bytes *out)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(0);
    struct catalog_child child;
    delta_entries(w, changed);
    bytes_clear(out);
    assert_int_equal(base ? catalog_page_finish_upon(w, base, out, &child) : catalog_page_finish(w, out, &child), 0);
    if (out->len) /* else the page is that of base */
        assert_int_equal(child.len, out->len);
    child.first = NULL; /* it goes with the writer */
    return child;
}

static void assert_same_entries(const struct catalog_page *a, const struct catalog_page *b)
{
    assert_int_equal(catalog_page_count(a), catalog_page_count(b));
    for (uint32_t i = 0; i < catalog_page_count(a); i++)
        assert_same_entry(catalog_page_entry(a, i), catalog_page_entry(b, i));
}

/* A page with base's records is base's object: nothing is to be put. */
static void expect_the_base(const struct catalog_base *base, const struct bytes *object)
{
    CLEANUP_BYTES out = BYTES_INIT(CATALOG_OBJECT_MAX);
    const struct catalog_child child = delta_page(0, base, &out);
    assert_int_equal(out.len, 0);
    assert_true(digest_equal(&child.digest, &base->name) && digest_is_zero(&child.base));
    assert_int_equal(child.len, object->len);
    assert_int_equal(child.crc, crc32c(object->data, object->len));
    assert_int_equal(child.entries, DELTA_ENTRIES);
}

static void test_catalog__a_delta_says_the_same_in_few_bytes(void **state)
{
    CLEANUP_BYTES first = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP_BYTES second = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP_BYTES delta = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child = delta_page(0, NULL, &first);
    assert_true(digest_is_zero(&child.base));
    CLEANUP(cleanup_catalog_page) struct catalog_page *base_page = decoded_page(&first);
    const struct catalog_base base = catalog_page_base(base_page, &child.digest);
    assert_int_equal(base.object_len, first.len);

    delta_page(100, NULL, &second);
    child = delta_page(100, &base, &delta);
    assert_true(digest_equal(&child.base, &base.name));
    assert_true(delta.len < second.len / 20);
    CLEANUP(cleanup_catalog_page) struct catalog_page *plain = decoded_page(&second);
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    assert_int_equal(catalog_page_decode_upon(base_page, delta.data, delta.len, &page), 0);
    assert_same_entries(page, plain);

    /* the same page and base, the same object */
    struct catalog_child again = delta_page(100, &base, &second);
    assert_true(digest_equal(&again.digest, &child.digest) && digest_equal(&again.base, &child.base));
    /* what is as before is the base itself, also where another version of zstd had compressed it */
    expect_the_base(&base, &first);
    CLEANUP_BYTES records = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP_BYTES other = BYTES_INIT(CATALOG_OBJECT_MAX);
    assert_int_equal(bytes_append(&records, base.records, base.records_len), 0);
    repack(first.data, records.data, records.len, &other);
    assert_true(other.len != first.len);
    const struct digest other_name = digest_of(other.data, other.len);
    CLEANUP(cleanup_catalog_page) struct catalog_page *other_page = decoded_page(&other);
    const struct catalog_base other_base = catalog_page_base(other_page, &other_name);
    expect_the_base(&other_base, &other);
    /* what differs too much is written in full */
    again = delta_page(2, &base, &second);
    assert_true(digest_is_zero(&again.base));
    CLEANUP(cleanup_catalog_page) struct catalog_page *full = decoded_page(&second);
    assert_int_equal(catalog_page_count(full), DELTA_ENTRIES);
}

struct upon {
    const struct catalog_page *base;
};

static int decode_delta(void *arg, const void *data, size_t len)
{
    const struct upon *u = arg;
    CLEANUP(cleanup_catalog_page) struct catalog_page *page = NULL;
    return catalog_page_decode_upon(u->base, data, len, &page);
}

static void test_catalog__a_delta_needs_its_own_base(void **state)
{
    CLEANUP_BYTES first = BYTES_INIT(CATALOG_OBJECT_MAX);
    CLEANUP_BYTES delta = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_entry entries[8];
    CLEANUP_BYTES other = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child child = delta_page(0, NULL, &first);
    CLEANUP(cleanup_catalog_page) struct catalog_page *base_page = decoded_page(&first);
    const struct catalog_base base = catalog_page_base(base_page, &child.digest);
    delta_page(100, &base, &delta);
    page_round_trip(entries, varied_entries(entries), &other);
    CLEANUP(cleanup_catalog_page) struct catalog_page *other_page = decoded_page(&other);

    assert_int_equal(decode_delta(&(struct upon){NULL}, delta.data, delta.len), -EBADMSG);
    assert_non_null(strstr(error_text(), "delta"));
    assert_int_equal(decode_delta(&(struct upon){other_page}, delta.data, delta.len), -EBADMSG);
    assert_int_equal(decode_delta(&(struct upon){base_page}, first.data, first.len), -EBADMSG);
    /* an older program says that it is too old */
    assert_int_equal(delta.data[4], 2);
    assert_int_equal(first.data[4], 1);
    mangle_truncate(decode_delta, &(struct upon){base_page}, delta.data, delta.len, -EBADMSG);
    mangle_flip(decode_delta, &(struct upon){base_page}, delta.data, delta.len, 1, -EBADMSG);
    /* after all that, a page without base is read as ever */
    assert_int_equal(decode_delta(&(struct upon){NULL}, first.data, first.len), 0);
}

static void test_catalog__parents_name_the_bases(void **state)
{
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *w = catalog_page_writer_new(1);
    CLEANUP(cleanup_catalog_page_writer) struct catalog_page_writer *top = catalog_page_writer_new(2);
    CLEANUP_BYTES object = BYTES_INIT(CATALOG_OBJECT_MAX);
    struct catalog_child children[] = {
        {.first = "", .digest = digest_of("1", 1), .len = 1, .entries = 1},
        {.first = "a", .first_len = 1, .digest = digest_of("2", 1), .len = 2, .entries = 1, .base = digest_of("b", 1)},
        {.first = "b", .first_len = 1, .digest = digest_of("3", 1), .len = 3, .entries = 1},
    };
    struct catalog_child above;
    bool full;
    for (int round = 0; round < 2; round++) {
        bytes_clear(&object);
        for (int i = 0; i < 3; i++) {
            struct catalog_child c = children[i];
            char first[4];
            c.first_len = (size_t)snprintf(first, sizeof first, "%d%d", round, i); /* one writer: all ascend */
            c.first = first;
            if (round)
                c.base = (struct digest){0};
            assert_int_equal(catalog_page_add_child(w, &c, &full), 0);
        }
        assert_int_equal(catalog_page_finish(w, &object, &above), 0);
        assert_int_equal(object.data[4], round ? 1 : 2); /* without bases it is what it always was */
        CLEANUP(cleanup_catalog_page) struct catalog_page *page = decoded_page(&object);
        for (uint32_t i = 0; i < 3; i++) {
            const struct catalog_child *c = catalog_page_child(page, i);
            assert_true(digest_equal(&c->digest, &children[i].digest));
            assert_true(round ? digest_is_zero(&c->base) : digest_equal(&c->base, &children[i].base));
        }
        mangle_truncate(decode_page, NULL, object.data, object.len, -EBADMSG);
    }
    /* only pages of entries are deltas, and none of itself */
    assert_int_equal(catalog_page_add_child(top, &children[1], &full), -EINVAL);
    children[1].base = children[1].digest;
    children[1].first = "c";
    assert_int_equal(catalog_page_add_child(w, &children[1], &full), -EINVAL);
    /* pages that claim the version with bases, but have none */
    CLEANUP_BYTES other = BYTES_INIT(CATALOG_OBJECT_MAX);
    uint8_t plain[512] = {0};
    size_t len = ZSTD_decompress(plain, sizeof plain, object.data + 32, object.len - 32);
    assert_true(len < sizeof plain - 3);
    repack(object.data, plain, len, &other);
    assert_int_equal(decode_page(NULL, other.data, other.len), 0);
    object.data[4] = 2;
    assert_int_equal(decode_page(NULL, object.data, object.len), -EBADMSG);
    repack(object.data, plain, len + 3, &other);
    assert_int_equal(decode_page(NULL, other.data, other.len), -EBADMSG);
    /* or that have them at a level where none can be */
    plain[len] = 1;
    memset(plain + len + 1, 7, DIGEST_SIZE);
    repack(object.data, plain, len + DIGEST_SIZE + 3, &other);
    assert_int_equal(decode_page(NULL, other.data, other.len), 0);
    other.data[5] = 2;
    assert_int_equal(decode_page(NULL, other.data, other.len), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_catalog__a_delta_says_the_same_in_few_bytes),
        cmocka_unit_test(test_catalog__a_delta_needs_its_own_base),
        cmocka_unit_test(test_catalog__parents_name_the_bases),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
