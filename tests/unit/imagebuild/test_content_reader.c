/* Parallel reading of files that is handed on in order, whatever happens to the files meanwhile. */
#include "unit/cmocka_all.h"
#include "unit/counts.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "unit/content_world.h"

/* Everything that is handed on, as text: "path offset+len/size first last digest". */
static void record(struct setup *s, struct bytes *out)
{
    struct content_part p;
    int rc;
    char hex[DIGEST_HEX_SIZE];
    while ((rc = next(s, &p)) == 1) {
        struct digest d = digest_of(p.data ? p.data : (const uint8_t *)"", p.len);
        assert_int_equal(bytes_printf(out, "%s %llu+%zu/%llu %d%d%d %s\n", s->outcomes[p.rank].path,
                                      (unsigned long long)p.offset, p.len, (unsigned long long)p.size, p.first, p.last,
                                      p.vanished, digest_hex(&d, hex)),
                         0);
    }
    assert_int_equal(bytes_printf(out, "%d\n", rc), 0);
}

/* A mixture of sizes and of everything that can happen to a file. */
static struct source *mixture(void)
{
    struct source *s = source_fake_new();
    char path[64];
    for (unsigned i = 0; i < 300; i++) {
        snprintf(path, sizeof path, "d%u/f%03u", i % 7, i);
        source_fake_file(s, path, i % 11 ? i * 37 : 0, i);
    }
    source_fake_file(s, "big", 5u * PART + 17, 1000);
    source_fake_file(s, "even", 2u * PART, 1001);
    source_fake_file(s, "late", 4u * PART, 1002);
    source_fake_version(s, "late", 3u * PART + 5, 1003);
    source_fake_rule(s, "late", 2u * PART, FAKE_CHANGE, 0);
    source_fake_file(s, "lost", 3u * PART, 1004);
    source_fake_rule(s, "lost", 1u * PART, FAKE_VANISH, 0);
    source_fake_file(s, "small", 5000, 1005);
    source_fake_version(s, "small", 6000, 1006);
    source_fake_rule(s, "small", 0, FAKE_CHANGE, 0);
    source_fake_file(s, "gone", 5000, 1007);
    source_fake_rule(s, "gone", 0, FAKE_VANISH, 0);
    source_fake_file(s, "emptied", 2u * PART, 1008);
    source_fake_version(s, "emptied", 0, 0);
    source_fake_rule(s, "emptied", PART, FAKE_CHANGE, 0);
    return s;
}

static void test_content_reader__the_sequence_does_not_depend_on_jobs(void **state)
{
    /* a change in the middle is met by jobs=1 at that part; with many readers parts after it may
     * have been read before, but they are not handed on */
    static const struct {
        unsigned jobs;
        bool near;
    } cases[] = {{1, false}, {16, false}, {0, false}, {1, true}, {16, true}, {0, true}};
    CLEANUP_BYTES all = BYTES_INIT(1 << 20);
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i += full_or(1, 4)) {
        CLEANUP_BYTES one = BYTES_INIT(1 << 20);
        struct setup s = {.source = mixture()};
        s.source->near = cases[i].near;
        load(&s);
        start_with(&s, cases[i].jobs, MEMORY, false);
        record(&s, &one);
        assert_content(&s, "big", 1000, 5u * PART + 17);
        assert_content(&s, "even", 1001, 2u * PART);
        assert_content(&s, "late", 1003, 3u * PART + 5);
        assert_content(&s, "small", 1006, 6000);
        assert_content(&s, "d2/f100", 100, 3700);
        assert_true(of(&s, "emptied")->ended && !of(&s, "emptied")->size);
        assert_true(digest_is_zero(&of(&s, "emptied")->content));
        assert_true(of(&s, "gone")->vanished);
        assert_true(of(&s, "lost")->vanished);
        assert_true(of(&s, "small")->other_version);
        assert_false(of(&s, "big")->other_version);
        assert_int_equal(content_reader_counts(s.reader).changed, 3);
        assert_int_equal(content_reader_counts(s.reader).vanished, 2);
        end(&s);
        if (!i)
            assert_int_equal(bytes_append(&all, one.data, one.len), 0);
        assert_int_equal(one.len, all.len);
        assert_memory_equal(one.data, all.data, all.len);
    }
}

static void test_content_reader__any_budget_gives_the_same_bytes(void **state)
{
    CLEANUP_BYTES all = BYTES_INIT(1 << 20);
    static const size_t budgets[] = {0, 1, 5000, PART, 3u * PART + 1, 64u << 20};
    for (size_t i = 0; i < 2 * GR_ARRAY_SIZE(budgets); i += full_or(1, 5)) {
        const size_t budget = budgets[i / 2];
        CLEANUP_BYTES one = BYTES_INIT(1 << 20);
        struct setup s = {.source = mixture()};
        s.source->near = i % 2;
        load(&s);
        start_with(&s, 8, budget, false);
        record(&s, &one);
        /* one part more while a file is read again */
        assert_true(source_fake_stats(s.source).bytes_in_reads_max <= GR_MAX(budget, (size_t)PART) + PART);
        end(&s);
        if (!i)
            assert_int_equal(bytes_append(&all, one.data, one.len), 0);
        assert_int_equal(one.len, all.len);
        assert_memory_equal(one.data, all.data, all.len);
    }
}

/* Readers run ahead until the budget is full and no further: what was asked for of the source minus
 * what was handed on is what is held. */
static void stay_within_the_budget(bool near, uint64_t size, unsigned jobs, size_t memory)
{
    enum { FILES = 60 };
    const size_t budget = near ? GR_MIN(memory, (size_t)jobs * CONTENT_NEAR_BUDGET) : memory;
    struct setup s = {.source = source_fake_new()};
    char path[16];
    s.source->near = near;
    for (int i = 0; i < FILES; i++) {
        snprintf(path, sizeof path, "f%02d", i);
        source_fake_file(s.source, path, size, (unsigned)i);
    }
    load(&s);
    start_with(&s, jobs, memory, false);
    struct content_part p;
    uint64_t handed = 0;
    for (int i = 0; i < FILES; i++) {
        assert_int_equal(next(&s, &p), 1);
        for (int spin = 0; spin < 100; spin++) {
            uint64_t asked = source_fake_stats(s.source).bytes_asked;
            assert_true(asked - handed <= budget);
            sched_yield();
        }
        handed += p.len;
        assert_int_equal(p.data[17], source_fake_byte((unsigned)i, 17));
    }
    assert_int_equal(next(&s, &p), 0);
    assert_int_equal(next(&s, &p), 0);
    assert_int_equal(content_reader_counts(s.reader).read_bytes, FILES * size);
    end(&s);
}

static void test_content_reader__readers_stay_within_the_budget(void **state)
{
    stay_within_the_budget(false, PART / 4, 16, 3u * PART);
    stay_within_the_budget(true, PART / 4, 16, 3u * PART);
    stay_within_the_budget(true, 10000, 16, 100000); /* a run of files is longer than that */
    stay_within_the_budget(true, PART / 2, 1, 64u * PART);
}

/* A file that is one part over a network is one part if it is near, so that the same files are compared with others. */
static void test_content_reader__only_files_of_several_parts_have_short_ones_if_they_are_near(void **state)
{
    enum { LONG = 3 * CONTENT_NEAR_PART };
    for (int near = 0; near < 2; near++) {
        struct setup s = {.source = source_fake_new()};
        struct content_part p;
        s.source->near = near;
        source_fake_file(s.source, "long", LONG + 5, 1);
        source_fake_file(s.source, "whole", LONG, 2);
        load(&s);
        const struct content_reader_config config = {
            .source = s.source, .nodes = s.nodes, .jobs = 2, .memory = 64u * PART, .part = LONG};
        assert_int_equal(content_reader_start(&config, &s.reader), 0);
        for (uint64_t done = 0; done < LONG + 5; done += p.len) {
            assert_int_equal(next(&s, &p), 1);
            assert_int_equal(p.len, GR_MIN(LONG + 5 - done, (uint64_t)(near ? CONTENT_NEAR_PART : LONG)));
        }
        assert_int_equal(next(&s, &p), 1);
        assert_true(p.first && p.last);
        assert_int_equal(p.len, LONG);
        assert_int_equal(next(&s, &p), 0);
        assert_content(&s, "long", 1, LONG + 5);
        end(&s);
    }
}

/* A run of small files is handed on when all of it is read. */
static void test_content_reader__a_reader_takes_a_run_of_small_files_that_are_near(void **state)
{
    enum { MANY = 3 * CONTENT_RUN, LARGE = CONTENT_RUN_BYTES - 1000 };
    struct setup s = {.source = source_fake_new()};
    struct content_part p;
    char path[16];
    s.source->near = true;
    for (int i = 0; i < MANY; i++) {
        snprintf(path, sizeof path, "f%03d", i);
        source_fake_file(s.source, path, 100, (unsigned)i);
    }
    source_fake_file(s.source, "e", LARGE, 1000);
    load(&s);
    start_with(&s, 1, MEMORY, false);
    assert_int_equal(next(&s, &p), 1);
    /* the large one, and what fits beside it */
    assert_true(source_fake_stats(s.source).reads >= 11);
    for (int i = 0; i < 10; i++)
        assert_int_equal(next(&s, &p), 1);
    assert_int_equal(next(&s, &p), 1);
    assert_true(source_fake_stats(s.source).reads >= 11 + CONTENT_RUN);
    while (next(&s, &p) == 1)
        ;
    assert_int_equal(source_fake_stats(s.source).reads, 1 + MANY);
    assert_content(&s, "f050", 50, 100);
    assert_content(&s, "e", 1000, LARGE);
    end(&s);
}

static void test_content_reader__slow_files_do_not_change_the_order(void **state)
{
    struct setup s = {.source = source_fake_new()};
    char path[16];
    for (unsigned i = 0; i < 40; i++) {
        snprintf(path, sizeof path, "f%02u", i);
        source_fake_file(s.source, path, 100, i);
        if (i % 8 == 0)
            source_fake_rule(s.source, path, 0, FAKE_SLOW, 20);
    }
    source_fake_order(s.source, 99);
    load(&s);
    start_with(&s, 8, MEMORY, false);
    struct content_part p;
    for (unsigned i = 0; i < 40; i++) {
        assert_int_equal(next(&s, &p), 1);
        assert_int_equal(p.data[50], source_fake_byte(i, 50));
    }
    assert_int_equal(next(&s, &p), 0);
    end(&s);
}

static void test_content_reader__the_first_error_in_order_is_told_with_its_sentence(void **state)
{
    for (unsigned jobs = 1; jobs <= 16; jobs += 15) {
        struct setup s = {.source = source_fake_new()};
        source_fake_file(s.source, "a", 10, 1);
        source_fake_file(s.source, "b", 2u * PART, 2);
        source_fake_rule(s.source, "b", PART, FAKE_READ_FAIL, -EACCES);
        source_fake_file(s.source, "c", 10, 3);
        source_fake_rule(s.source, "c", 0, FAKE_READ_FAIL, -EIO);
        load(&s);
        start_with(&s, jobs, MEMORY, false);
        unsigned parts;
        assert_int_equal(drain(&s, &parts), -EACCES);
        assert_int_equal(parts, 2);
        assert_string_equal(error_text(), "fake: read of 'b' fails");
        (void)error_set(-EIO, "something else");
        assert_int_equal(drain(&s, &parts), -EACCES); /* and again */
        assert_string_equal(error_text(), "fake: read of 'b' fails");
        end(&s);
    }
}

static void test_content_reader__strict_refuses_what_changes_or_vanishes(void **state)
{
    static const enum fake_action actions[] = {FAKE_CHANGE, FAKE_VANISH};
    for (int i = 0; i < 2; i++) {
        struct setup s = {.source = source_fake_new()};
        source_fake_file(s.source, "dir/a", 3u * PART, 1);
        source_fake_version(s.source, "dir/a", 10, 2);
        source_fake_rule(s.source, "dir/a", PART, actions[i], 0);
        load(&s);
        start_with(&s, 4, MEMORY, true);
        unsigned parts;
        assert_int_equal(drain(&s, &parts), i ? -ENOENT : -ESTALE);
        assert_non_null(strstr(error_text(), i ? "'dir/a' vanished" : "'dir/a' changed"));
        end(&s);
    }
}

static void test_content_reader__a_file_that_never_rests_fails_the_build(void **state)
{
    struct setup s = {.source = source_fake_new()};
    source_fake_file(s.source, "log", 100, 0);
    for (unsigned i = 1; i <= CONTENT_TRIES; i++) {
        source_fake_version(s.source, "log", 100 + i, i);
        source_fake_rule(s.source, "log", 0, FAKE_CHANGE, 0);
    }
    load(&s);
    start_with(&s, 2, MEMORY, false);
    unsigned parts;
    assert_int_equal(drain(&s, &parts), -ESTALE);
    assert_non_null(strstr(error_text(), "'log' changed 5 times"));
    end(&s);
    /* one change less is no trouble */
    s.source = source_fake_new();
    source_fake_file(s.source, "log", 100, 0);
    for (unsigned i = 1; i < CONTENT_TRIES; i++) {
        source_fake_version(s.source, "log", 100 + i, i);
        source_fake_rule(s.source, "log", 0, FAKE_CHANGE, 0);
    }
    load(&s);
    start_with(&s, 2, MEMORY, false);
    assert_int_equal(drain(&s, &parts), 0);
    assert_int_equal(content_reader_counts(s.reader).changed, 1);
    assert_content(&s, "log", CONTENT_TRIES - 1, 100 + CONTENT_TRIES - 1);
    end(&s);
}

/* The version read again may grow to many parts, shrink, or change and vanish half way. */
static void test_content_reader__what_is_read_again_may_do_anything(void **state)
{
    struct setup s = {.source = source_fake_new()};
    source_fake_file(s.source, "grows", 100, 1);
    source_fake_version(s.source, "grows", 3u * PART + 1, 2);
    source_fake_rule(s.source, "grows", 0, FAKE_CHANGE, 0);
    source_fake_file(s.source, "leaves", 100, 3);
    source_fake_version(s.source, "leaves", 3u * PART, 4);
    source_fake_rule(s.source, "leaves", 0, FAKE_CHANGE, 0);
    source_fake_rule(s.source, "leaves", 2u * PART, FAKE_VANISH, 0);
    source_fake_file(s.source, "turns", 100, 5);
    source_fake_version(s.source, "turns", 3u * PART, 6);
    source_fake_version(s.source, "turns", PART + 1, 7);
    source_fake_rule(s.source, "turns", 0, FAKE_CHANGE, 0);
    source_fake_rule(s.source, "turns", 2u * PART, FAKE_CHANGE, 0);
    source_fake_file(s.source, "zz", 5, 8);
    load(&s);
    start_with(&s, 4, MEMORY, false);
    unsigned parts;
    assert_int_equal(drain(&s, &parts), 0);
    assert_int_equal(parts, 4 + 2 + (2 + 2) + 1);
    assert_content(&s, "grows", 2, 3u * PART + 1);
    assert_content(&s, "turns", 7, PART + 1);
    assert_content(&s, "zz", 8, 5);
    assert_true(of(&s, "leaves")->vanished);
    end(&s);
}

static void test_content_reader__hard_links_are_read_once(void **state)
{
    struct setup s = {.source = source_fake_new()};
    source_fake_linked(s.source);
    load(&s);
    start_with(&s, 4, MEMORY, false);
    unsigned parts;
    assert_int_equal(drain(&s, &parts), 0);
    assert_int_equal(parts, 2);
    assert_int_equal(source_fake_stats(s.source).reads, 2);
    assert_true(of(&s, "a/first")->ended && of(&s, "d")->ended);
    assert_false(of(&s, "b")->ended || of(&s, "c/last")->ended);
    end(&s);
}

static void test_content_reader__free_stops_readers_at_any_moment(void **state)
{
    for (unsigned parts = 0; parts < 12; parts += full_or(1, 3)) {
        struct setup s = {.source = mixture()};
        load(&s);
        start_with(&s, 8, MEMORY, false);
        struct content_part p;
        for (unsigned i = 0; i < parts; i++)
            assert_int_equal(next(&s, &p), 1);
        if (parts % 2)
            source_fake_hold(s.source); /* readers hang in the source */
        end(&s);
    }
}

static void test_content_reader__nothing_to_read(void **state)
{
    struct setup s = {.source = source_fake_new()};
    source_fake_file(s.source, "empty", 0, 0);
    load(&s);
    start_with(&s, 3, MEMORY, true);
    unsigned parts;
    assert_int_equal(drain(&s, &parts), 0);
    assert_int_equal(parts, 0);
    assert_int_equal(source_fake_stats(s.source).reads, 0);
    end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_reader__the_sequence_does_not_depend_on_jobs),
        cmocka_unit_test(test_content_reader__any_budget_gives_the_same_bytes),
        cmocka_unit_test(test_content_reader__readers_stay_within_the_budget),
        cmocka_unit_test(test_content_reader__only_files_of_several_parts_have_short_ones_if_they_are_near),
        cmocka_unit_test(test_content_reader__a_reader_takes_a_run_of_small_files_that_are_near),
        cmocka_unit_test(test_content_reader__slow_files_do_not_change_the_order),
        cmocka_unit_test(test_content_reader__the_first_error_in_order_is_told_with_its_sentence),
        cmocka_unit_test(test_content_reader__strict_refuses_what_changes_or_vanishes),
        cmocka_unit_test(test_content_reader__a_file_that_never_rests_fails_the_build),
        cmocka_unit_test(test_content_reader__what_is_read_again_may_do_anything),
        cmocka_unit_test(test_content_reader__hard_links_are_read_once),
        cmocka_unit_test(test_content_reader__free_stops_readers_at_any_moment),
        cmocka_unit_test(test_content_reader__nothing_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
