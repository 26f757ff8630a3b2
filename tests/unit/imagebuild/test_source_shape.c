/* Sources around sources: what is left out, moved, given other attributes, joined. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/bytes.h"
#include "base/error.h"
#include "fake/source_fake.h"
#include "imagebuild/source/source_wrappers.h"

static int note(void *arg, const struct source_entry *e)
{
    char kind = S_ISDIR(e->mode) ? '/' : ' ';
    return bytes_printf(arg, "%.*s%c", (int)e->path_len, e->path, kind) ? -ENOMEM : 0;
}

/* The paths as listed: "a b/ b/c". */
static void assert_listing(struct source *s, const char *expected)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 20);
    int rc = source_list(s, note, &text);
    if (rc)
        fail_msg("%s", error_text());
    assert_string_equal(bytes_string(&text), expected);
}

static int no_note(void *arg, const struct source_entry *e)
{
    return 0;
}

static void assert_refused(struct source *s, const char *part)
{
    assert_int_equal(source_list(s, no_note, NULL), -EINVAL);
    if (!strstr(error_text(), part))
        fail_msg("'%s' is not in: %s", part, error_text());
}

static void directory(struct source *s, const char *path)
{
    struct source_entry e = {.path = path, .path_len = strlen(path), .mode = S_IFDIR | 0700, .uid = 1, .gid = 2};
    source_fake_entry(s, &e);
}

static struct source *shaped(struct source *inner, const struct source_shape *shape)
{
    struct source *s;
    assert_int_equal(source_shape_open(inner, shape, &s), 0);
    return s;
}

/* The file's first byte is that of seed. */
static void assert_reads(struct source *s, const char *path, unsigned seed)
{
    struct source_version v;
    uint8_t byte;
    if (source_stat(s, path, strlen(path), &v))
        fail_msg("%s: %s", path, error_text());
    struct source_read r = {.path = path,
                            .path_len = strlen(path),
                            .validator = v.validator,
                            .validator_len = v.validator_len,
                            .len = 1,
                            .dst = &byte};
    if (source_read(s, &r))
        fail_msg("%s: %s", path, error_text());
    assert_int_equal(byte, source_fake_byte(seed, 0));
}

static void test_source_shape__rules_choose(void **state)
{
    CLEANUP(cleanup_rules) struct rules *rules = NULL;
    struct source *fake = source_fake_new();
    assert_int_equal(rules_new(&rules), 0);
    assert_int_equal(rules_add(rules, false, "*.tmp"), 0);
    assert_int_equal(rules_add(rules, false, "/b/"), 0);
    directory(fake, "");
    source_fake_file(fake, "a.tmp", 1, 1);
    directory(fake, "b");
    source_fake_file(fake, "b/x", 1, 1);
    source_fake_file(fake, "c/b/x", 1, 1);
    source_fake_file(fake, "c/b/x.tmp", 1, 1);
    source_fake_file(fake, "b/y", 1, 1);
    source_fake_file(fake, "d", 1, 1);
    struct source *s = shaped(fake, &(struct source_shape){.rules = rules});
    assert_listing(s, "/c/b/x d ");
    source_close(s);
}

static void test_source_shape__strips_whole_components(void **state)
{
    struct source *fake = source_fake_new();
    directory(fake, "");
    directory(fake, "a");
    directory(fake, "a/b");
    source_fake_file(fake, "a/b/x", 10, 7);
    source_fake_file(fake, "a/b/c/y", 10, 8);
    struct source *s = shaped(fake, &(struct source_shape){.strip = "/a/b/"});
    assert_listing(s, "/x c/y ");
    assert_reads(s, "x", 7);
    assert_reads(s, "c/y", 8);
    source_fake_file(fake, "a/bc", 1, 1);
    assert_refused(s, "'a/bc' does not lie below 'a/b'");
    source_close(s);
}

static int first_of(void *arg, const struct source_entry *e)
{
    struct source_entry *out = arg;
    if (!e->path_len == !out->path_len)
        *out = *e;
    return 0;
}

static void test_source_shape__gives_other_attributes(void **state)
{
    struct source *fake = source_fake_new();
    struct source_entry file = {.path_len = 1}, dir = {0};
    struct source_entry special = {.path = "s", .path_len = 1, .mode = S_IFREG | 04711, .mtime = 5, .mtime_nsec = 6};
    directory(fake, "");
    source_fake_entry(fake, &special);
    struct source_shape shape = {.override = {.have_uid = true,
                                              .have_gid = true,
                                              .have_file_mode = true,
                                              .have_directory_mode = true,
                                              .have_mtime = true,
                                              .uid = 1000,
                                              .gid = 0,
                                              .file_mode = 0640,
                                              .directory_mode = 0750,
                                              .mtime = -1}};
    struct source *s = shaped(fake, &shape);
    assert_int_equal(source_list(s, first_of, &file), 0);
    assert_int_equal(source_list(s, first_of, &dir), 0);
    assert_int_equal(file.mode, S_IFREG | 0640);
    assert_int_equal(dir.mode, S_IFDIR | 0750);
    assert_int_equal(file.uid, 1000);
    assert_int_equal(dir.gid, 0);
    assert_int_equal(file.mtime, -1);
    assert_int_equal(file.mtime_nsec, 0);
    source_close(s);
}

/* A version taken later bears them too. */
static void test_source_shape__a_changed_file_keeps_the_given_time(void **state)
{
    struct source *fake = source_fake_new();
    struct source_version v;
    source_fake_file(fake, "a", 10, 1);
    struct source *s = shaped(fake, &(struct source_shape){.override = {.have_mtime = true, .mtime = 77}});
    assert_int_equal(source_stat(s, "a", 1, &v), 0);
    assert_int_equal(v.mtime, 77);
    source_close(s);
}

static struct source *joined(const struct source_part *parts, size_t count)
{
    struct source *s = NULL;
    if (source_join_open(parts, count, &s))
        fail_msg("%s", error_text());
    return s;
}

static void test_source_join__each_part_has_its_directory(void **state)
{
    struct source *root = source_fake_new(), *one = source_fake_new(), *two = source_fake_new();
    source_fake_file(root, "x", 10, 1);
    directory(one, "");
    source_fake_file(one, "x", 10, 2);
    source_fake_file(two, "d/x", 10, 3);
    const struct source_part parts[] = {{"", root}, {"/one/", one}, {"one-more/two", two}};
    struct source *s = joined(parts, 3);
    assert_listing(s, "x one/one/x one-more/two/d/x ");
    assert_reads(s, "x", 1);
    assert_reads(s, "one/x", 2);
    assert_reads(s, "one-more/two/d/x", 3);
    source_cancel(s);
    assert_int_equal(source_fake_stats(two).cancels, 1);
    source_close(s);
}

static void test_source_join__what_the_parts_met_is_added_up(void **state)
{
    struct source *root = source_fake_new(), *part = source_fake_new();
    source_fake_counts(root, &(struct source_counts){.owners_unknown = 1});
    source_fake_counts(part, &(struct source_counts){.vanished = 2, .first_vanished = "x", .owners_unknown = 3});
    const struct source_part parts[] = {{"", root}, {"data", shaped(part, &(struct source_shape){.strip = "y"})}};
    struct source *s = joined(parts, 2);
    struct source_counts counts = {0};
    source_ask_counts(s, &counts);
    assert_int_equal(counts.vanished, 2);
    assert_string_equal(counts.first_vanished, "x");
    assert_int_equal(counts.owners_unknown, 4);
    source_close(s);
}

static void test_source_join__nobody_lists_what_belongs_to_another(void **state)
{
    struct source *root = source_fake_new(), *part = source_fake_new();
    directory(root, "data");
    source_fake_file(part, "x", 1, 1);
    const struct source_part parts[] = {{"", root}, {"data", part}};
    struct source *s = joined(parts, 2);
    assert_listing(s, "data/x "); /* the root's own directory is passed over */
    source_fake_file(root, "data/y", 1, 1);
    assert_refused(s, "lists 'data/y', where --add puts");
    source_close(s);
}

static void test_source_join__refuses_directories_that_cannot_be(void **state)
{
    static const char *const wrong[] = {"a/../b", "..", "a//b", "."};
    struct source *s;
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        const struct source_part parts[] = {{"", source_fake_new()}, {wrong[i], source_fake_new()}};
        assert_int_equal(source_join_open(parts, 2, &s), -EINVAL);
    }
    const struct source_part same[] = {{"", source_fake_new()}, {"a", source_fake_new()}, {"/a", source_fake_new()}};
    assert_int_equal(source_join_open(same, 3, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "'/a'"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_source_shape__rules_choose),
        cmocka_unit_test(test_source_shape__strips_whole_components),
        cmocka_unit_test(test_source_shape__gives_other_attributes),
        cmocka_unit_test(test_source_shape__a_changed_file_keeps_the_given_time),
        cmocka_unit_test(test_source_join__each_part_has_its_directory),
        cmocka_unit_test(test_source_join__what_the_parts_met_is_added_up),
        cmocka_unit_test(test_source_join__nobody_lists_what_belongs_to_another),
        cmocka_unit_test(test_source_join__refuses_directories_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
