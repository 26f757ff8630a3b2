/* Files that change or vanish between the listing and the read, or while they are read: what the image has of them,
 * what is counted and said, and what --strict refuses.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/log.h"
#include "imagebuild/content/content.h"
#include "unit/build_world.h"

static void test_build_changes__what_changed_is_taken_as_it_is_now(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    source_fake_version(source, "big", 12345, 8);
    source_fake_rule(source, "big", 1000, FAKE_CHANGE, 0);
    source_fake_version(source, "d2/f9", 0, 0); /* to nothing */
    source_fake_rule(source, "d2/f9", 0, FAKE_CHANGE, 0);
    source_fake_version(source, "d3/f10", CONTENT_PART + 1, 11); /* to more than a part */
    source_fake_rule(source, "d3/f10", 0, FAKE_CHANGE, 0);
    source_fake_vanish(source, "same1");
    source_fake_counts(source,
                       &(struct source_counts){.vanished = 2, .first_vanished = "d9/early", .owners_unknown = 3});
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_changed, 3);
    assert_int_equal(r.files_vanished, 1);
    assert_int_equal(r.listing_vanished, 2);
    assert_int_equal(r.owners_unknown, 3);
    struct check c = check_image(store, &r);
    assert_null(strstr(c.seen, "same1;"));
    assert_non_null(strstr(c.seen, "same2;"));
    assert_int_equal(c.files, 60);
    source_close(source);
}

/* Each name of the file says the same. */
static int check_linked(void *arg, const struct catalog_entry *e)
{
    unsigned *names = arg;
    if (!S_ISREG(e->mode) || (e->path_len == 1 && *e->path == 'd'))
        return 0;
    ++*names;
    assert_int_equal(e->size, 77000);
    assert_int_equal(e->extent_count, 1);
    assert_int_equal(e->extents[0].offset, CHUNK);
    assert_memory_equal(e->validator, "v1", 2);
    assert_int_equal(e->hard_link, *e->path != 'a');
    if (e->hard_link) {
        assert_int_equal(e->target_len, 7);
        assert_memory_equal(e->target, "a/first", 7);
    }
    return 0;
}

/* As the first name does while it is read. */
static void change_further(struct source *s)
{
    static const char *const names[] = {"b", "c/last"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        source_fake_version(s, names[i], 77000, 3);
        source_fake_change(s, names[i]);
    }
}

static void test_build_changes__names_of_one_file_change_and_leave_together(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct build_options o = options();
    struct build_result r;
    struct source *source = source_fake_new();
    source_fake_linked(source);
    unsigned names = 0;
    source_fake_version(source, "a/first", 77000, 3);
    source_fake_rule(source, "a/first", 0, FAKE_CHANGE, 0);
    change_further(source);
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_changed, 1);
    assert_int_equal(r.manifest.counts.files, 2);
    assert_int_equal(r.manifest.counts.hard_links, 2);
    assert_int_equal(r.manifest.counts.bytes, 77010);
    assert_int_equal(catalog_walk(store_fake_store(store), &r.manifest, NULL, 0, check_linked, &names), 0);
    assert_int_equal(names, 3);
    source_close(source);
    source = source_fake_new();
    source_fake_linked(source);
    o.no_parent = true;
    source_fake_rule(source, "a/first", 0, FAKE_VANISH, 0);
    source_fake_vanish(source, "b");
    source_fake_vanish(source, "c/last");
    assert_int_equal(run(source, store, &o, &r), 0);
    assert_int_equal(r.files_vanished, 1);
    struct check c = check_image(store, &r);
    assert_string_equal(c.seen, ";a;c;d;");
    source_close(source);
}

static struct {
    unsigned count;
    char last[2048];
} vanished_lines;

static void take_vanished(enum log_level level, const char *line)
{
    if (level != LOG_LEVEL_WARNING || !strstr(line, "not there when it is read"))
        return;
    vanished_lines.count++;
    snprintf(vanished_lines.last, sizeof vanished_lines.last, "%s", line);
}

/* What a listing named and a read did not find: the first few by name, all of them counted. */
static void test_build_changes__what_vanished_is_named(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = source_fake_new();
    struct build_options o = options();
    struct build_result r;
    char path[16];
    for (unsigned i = 0; i < 20; i++) {
        snprintf(path, sizeof path, "f%02u", i);
        source_fake_file(source, path, 5000, i);
        if (i >= 3 && i < 15)
            source_fake_rule(source, path, 0, FAKE_VANISH, 0);
    }
    vanished_lines.count = 0;
    log_to(take_vanished, LOG_LEVEL_INFO);
    int rc = run(source, store, &o, &r);
    log_to(NULL, LOG_LEVEL_INFO);
    assert_int_equal(rc, 0);
    assert_int_equal(r.files_vanished, 12);
    assert_int_equal(vanished_lines.count, SOURCE_VANISHED_NAMED);
    assert_non_null(strstr(vanished_lines.last, "'f10'"));
    source_close(source);
}

static void test_build_changes__strict_refuses_what_vanished_from_the_listing(void **state)
{
    CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
    struct source *source = some_source();
    struct build_options o = options();
    struct build_result r;
    o.strict = true;
    source_fake_counts(source, &(struct source_counts){.owners_unknown = 3}); /* no reason to fail */
    assert_int_equal(run(source, store, &o, &r), 0);
    source_close(source);
    source = some_source();
    CLEANUP(cleanup_store_fake) struct store_fake *other = store_fake_new();
    source_fake_counts(source, &(struct source_counts){.vanished = 1, .first_vanished = "d9/early"});
    assert_int_equal(run(source, other, &o, &r), -ENOENT);
    assert_non_null(strstr(error_text(), "fake://source: 'd9/early' vanished while it was listed"));
    assert_nothing_published(other);
    source_close(source);
}

/* The first name was given to another file, or removed, while the others stay what they were. */
static void test_build_changes__names_of_one_file_that_part_are_not_mixed_up(void **state)
{
    for (int gone = 0; gone < 2; gone++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct build_options o = options();
        struct build_result r;
        struct source *source = source_fake_new();
        source_fake_linked(source);
        source_fake_version(source, "a/first", 77000, 3);
        source_fake_rule(source, "a/first", 0, gone ? FAKE_VANISH : FAKE_CHANGE, 0);
        assert_int_equal(run(source, store, &o, &r), -ESTALE);
        assert_non_null(strstr(error_text(), "'b' and 'a/first' were names of one file"));
        assert_nothing_published(store);
        source_close(source);
    }
}

static void test_build_changes__strict_refuses_what_changed(void **state)
{
    static const enum fake_action actions[] = {FAKE_CHANGE, FAKE_VANISH};
    for (size_t i = 0; i < 2; i++) {
        CLEANUP(cleanup_store_fake) struct store_fake *store = store_fake_new();
        struct source *source = some_source();
        struct build_options o = options();
        struct build_result r;
        o.strict = true;
        source_fake_version(source, "big", 12345, 8);
        source_fake_rule(source, "big", 1000, actions[i], 0);
        assert_true(run(source, store, &o, &r) < 0);
        assert_non_null(strstr(error_text(), "big"));
        assert_nothing_published(store);
        source_close(source);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build_changes__what_changed_is_taken_as_it_is_now),
        cmocka_unit_test(test_build_changes__names_of_one_file_change_and_leave_together),
        cmocka_unit_test(test_build_changes__what_vanished_is_named),
        cmocka_unit_test(test_build_changes__strict_refuses_what_vanished_from_the_listing),
        cmocka_unit_test(test_build_changes__names_of_one_file_that_part_are_not_mixed_up),
        cmocka_unit_test(test_build_changes__strict_refuses_what_changed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
