/* Files compared by digest while their bytes pass by: however they are cut, shared, missing. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "upkeep/upkeep_internal.h"

enum { IMAGE = 1 << 20 };

static uint8_t image[IMAGE];

static struct verify_files *new_files(void)
{
    struct verify_files *f;
    assert_int_equal(verify_files_new(&f), 0);
    return f;
}

static int fill(void **state)
{
    for (size_t i = 0; i < IMAGE; i++)
        image[i] = (uint8_t)(i * 2654435761u >> 13);
    memset(image + 500000, 0, 300000); /* given as zeros, without data */
    return 0;
}

/* A file at [offset, offset + len); `wrong`: its digest is another. */
struct file {
    uint64_t offset, len;
    bool wrong;
};

static int with_entry(struct verify_files *f, struct file file, bool ask)
{
    struct catalog_extent extent = {.offset = file.offset, .len = (file.len + 4095) & ~4095ull};
    struct catalog_entry e = {.path = "file",
                              .path_len = 4,
                              .mode = S_IFREG | 0644,
                              .size = file.len,
                              .content = digest_of(image + file.offset, file.len),
                              .extents = &extent,
                              .extent_count = 1};
    e.content.b[3] ^= file.wrong;
    return ask ? verify_files_is_bad(f, &e) : verify_files_add(f, &e);
}

static int add(struct verify_files *f, uint64_t offset, uint64_t len, bool wrong)
{
    return with_entry(f, (struct file){offset, len, wrong}, false);
}

/* All of the image in steps; [hole] as zeros, [bad_from, bad_to) as unreadable. */
static void pass_by(struct verify_files *f, uint64_t step, uint64_t bad_from, uint64_t bad_to)
{
    assert_int_equal(verify_files_begin(f), 0);
    for (uint64_t off = 0; off < IMAGE; off += step) {
        uint64_t n = GR_MIN(step, IMAGE - off);
        if (off < bad_to && off + n > bad_from)
            assert_int_equal(verify_files_skip(f, off, n), 0);
        else
            assert_int_equal(verify_files_feed(f, off, n, off >= 500000 && off + n <= 800000 ? NULL : image + off), 0);
    }
}

static void test_verify_files__every_cut_gives_the_same_judgement(void **state)
{
    static const uint64_t steps[] = {1000, 4096, 65536, 131072, IMAGE};
    static const struct file files[] = {
        {900000, 1, false},                                                        /* not in address order */
        {4096, 10, false},     {8192, 300000, false},     {400000, 450000, false}, /* over the zeros */
        {870000, 20000, true}, {IMAGE - 100, 100, false},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(steps); i++) {
        struct verify_files *f = new_files();
        for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
            assert_int_equal(with_entry(f, files[k], false), 0);
        pass_by(f, steps[i], 0, 0);
        assert_int_equal(verify_files_compared(f), 6);
        assert_int_equal(verify_files_bad(f), 1);
        for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
            assert_int_equal(with_entry(f, files[k], true), files[k].wrong);
        verify_files_free(f);
    }
}

static void test_verify_files__files_that_share_bytes_are_judged_each(void **state)
{
    struct verify_files *f = new_files();
    for (int i = 0; i < 200; i++) /* many names of one body, some lying */
        assert_int_equal(add(f, 8192, 200000, i % 10 == 0), 0);
    assert_int_equal(add(f, 8192, 100, false), 0); /* a part of the same bytes */
    pass_by(f, 65536, 0, 0);
    assert_int_equal(verify_files_compared(f), 201);
    assert_int_equal(verify_files_bad(f), 20);
    assert_true(with_entry(f, (struct file){8192, 200000, true}, true));
    assert_false(with_entry(f, (struct file){8192, 200000, false}, true));
    verify_files_free(f);
}

static void test_verify_files__files_over_missing_bytes_are_bad_others_not(void **state)
{
    struct verify_files *f = new_files();
    static const struct file files[] = {
        {0, 65536, false},
        {65536, 100, false},          /* inside the gap */
        {65536 + 4096, 65536, false}, /* reaches out of it */
        {150000, 1000, false},
        {12288, 80000, false}, /* reaches into it */
    };
    for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
        assert_int_equal(with_entry(f, files[k], false), 0);
    pass_by(f, 65536, 65536, 131072);
    assert_int_equal(verify_files_compared(f), 5);
    assert_int_equal(verify_files_bad(f), 3);
    static const bool bad[] = {false, true, true, false, true};
    for (size_t k = 0; k < GR_ARRAY_SIZE(files); k++)
        assert_int_equal(with_entry(f, files[k], true), bad[k]);
    verify_files_free(f);
}

static void test_verify_files__missing_bytes_are_not_taken_for_zeros(void **state)
{
    struct verify_files *f = new_files();
    assert_int_equal(add(f, 600000, 1000, false), 0); /* zeros, but nobody could read them */
    pass_by(f, 65536, 600000, 601000);
    assert_int_equal(verify_files_bad(f), 1);
    verify_files_free(f);
}

static void test_verify_files__what_cannot_be_is_refused(void **state)
{
    struct verify_files *f = new_files();
    struct catalog_extent extent = {.offset = UINT64_MAX - 10, .len = 100};
    struct catalog_entry e = {.path = "x", .path_len = 1, .mode = S_IFREG, .size = 50, .extents = &extent};
    assert_int_equal(verify_files_add(f, &e), -EBADMSG); /* bytes but no extent */
    e.extent_count = 1;
    assert_int_equal(verify_files_add(f, &e), -EBADMSG); /* beyond the end of everything */
    extent = (struct catalog_extent){.offset = 0, .len = 49};
    assert_int_equal(verify_files_add(f, &e), -EBADMSG); /* shorter than the file */
    e.size = 0;
    assert_int_equal(verify_files_add(f, &e), 0);
    e = (struct catalog_entry){.path = "d", .path_len = 1, .mode = S_IFDIR, .size = 50};
    assert_int_equal(verify_files_add(f, &e), 0);
    for (uint64_t i = 0; i < 65; i++) /* more different files over one byte than any image has */
        assert_int_equal(add(f, 4096 * i, 500000, false), 0);
    assert_int_equal(verify_files_begin(f), 0);
    assert_int_equal(verify_files_feed(f, 0, 400000, image), -EBADMSG);
    verify_files_free(f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_verify_files__every_cut_gives_the_same_judgement),
        cmocka_unit_test(test_verify_files__files_that_share_bytes_are_judged_each),
        cmocka_unit_test(test_verify_files__files_over_missing_bytes_are_bad_others_not),
        cmocka_unit_test(test_verify_files__missing_bytes_are_not_taken_for_zeros),
        cmocka_unit_test(test_verify_files__what_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
