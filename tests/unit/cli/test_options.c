/* The command line: tables in, values out; every refusal has a sentence that names the option. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/output.h"

struct values {
    bool fast, zero;
    const char *name;
    struct option_list caches;
    uint64_t size, jobs, grace_s;
    unsigned compress;
    enum option_switch calm;
};

static const struct values defaults = {.jobs = 16, .size = 7};

static const struct option_row rows[] = {
    {OPTION_FLAG, 'f', "fast", NULL, offsetof(struct values, fast), 0, 0, "be fast"},
    {OPTION_FLAG, '0', NULL, NULL, offsetof(struct values, zero), 0, 0, "end with NUL"},
    {OPTION_TEXT, 'n', "name", "NAME", offsetof(struct values, name), 0, 0, "a name"},
    {OPTION_LIST, 0, "cache", "DIR:SIZE", offsetof(struct values, caches), 0, 0, "a cache"},
    {OPTION_SIZE, 0, "size", "N", offsetof(struct values, size), 4096, 1 << 20, "a size"},
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct values, jobs), 1, 64, "a number"},
    {OPTION_DURATION, 0, "grace", "DURATION", offsetof(struct values, grace_s), 0, 0, "a time"},
    {OPTION_CHOICE, 0, "compress", "zstd|none", offsetof(struct values, compress), 0, 0, "a choice"},
    {OPTION_SWITCH, 0, "calm", NULL, offsetof(struct values, calm), 0, 0, "be calm"},
    {0},
};

static const struct verb verb = {
    .name = "try",
    .operands = "SOURCE [IMAGE]",
    .min_operands = 1,
    .max_operands = 2,
    .summary = "Try",
    .options = rows,
    .values_size = sizeof(struct values),
    .defaults = &defaults,
};

/* Parse words (ended by NULL) after the verb. */
static int parse(struct invocation *inv, ...)
{
    char *argv[16];
    int argc = 0;
    va_list list;
    va_start(list, inv);
    for (char *word; (word = va_arg(list, char *)) && argc < 16;)
        argv[argc++] = word;
    va_end(list);
    return options_parse(&verb, argc, argv, inv);
}

static void test_options__both_ways_of_writing_a_value_are_equal(void **state)
{
    struct invocation a, b;
    assert_int_equal(parse(&a, "--jobs=3", "src", "--size=128K", "--compress=none", "--grace=2h", NULL), 0);
    assert_int_equal(parse(&b, "--jobs", "3", "src", "--size", "128K", "--compress", "none", "--grace", "2h", NULL), 0);
    const struct values *x = a.values, *y = b.values;
    assert_int_equal(x->jobs, 3);
    assert_int_equal(x->size, 128 << 10);
    assert_int_equal(x->compress, 1);
    assert_int_equal(x->grace_s, 7200);
    assert_memory_equal(x, y, sizeof *x);
    options_release(&a);
    options_release(&b);
}

static void test_options__defaults_stand_until_replaced(void **state)
{
    struct invocation inv;
    assert_int_equal(parse(&inv, "src", NULL), 0);
    const struct values *v = inv.values;
    assert_int_equal(v->jobs, 16);
    assert_int_equal(v->size, 7);
    assert_false(v->fast);
    assert_null(v->name);
    options_release(&inv);
}

static void test_options__letters_may_be_joined(void **state)
{
    struct invocation inv;
    assert_int_equal(parse(&inv, "-f0j5", "src", "-n", "me", NULL), 0);
    const struct values *v = inv.values;
    assert_true(v->fast && v->zero);
    assert_int_equal(v->jobs, 5);
    assert_string_equal(v->name, "me");
    options_release(&inv);
}

static void test_options__lists_keep_every_value_in_order(void **state)
{
    struct invocation inv;
    assert_int_equal(parse(&inv, "--cache", "/a:1G", "src", "--cache=/b:2G", NULL), 0);
    const struct values *v = inv.values;
    assert_int_equal(v->caches.count, 2);
    assert_string_equal(v->caches.items[0], "/a:1G");
    assert_string_equal(v->caches.items[1], "/b:2G");
    options_release(&inv);
}

static void test_options__a_switch_can_be_turned_off(void **state)
{
    static const struct {
        char *word;
        enum option_switch is;
    } expected[] = {
        {"src", SWITCH_UNSET}, {"--calm", SWITCH_YES}, {"--calm=yes", SWITCH_YES}, {"--calm=no", SWITCH_NO}};
    struct invocation inv;
    for (size_t i = 0; i < GR_ARRAY_SIZE(expected); i++) {
        assert_int_equal(parse(&inv, expected[i].word, "no", NULL), 0);
        assert_int_equal(((const struct values *)inv.values)->calm, expected[i].is);
        options_release(&inv);
    }
    assert_int_equal(parse(&inv, "--calm=maybe", "src", NULL), -EINVAL);
    assert_string_equal(error_text(), "--calm: 'maybe' is neither yes nor no");
    options_release(&inv);
}

static void test_options__two_dashes_end_the_options(void **state)
{
    struct invocation inv;
    assert_int_equal(parse(&inv, "--", "--fast", "-n", NULL), 0);
    assert_int_equal(inv.operand_count, 2);
    assert_string_equal(inv.operands[0], "--fast");
    assert_false(((struct values *)inv.values)->fast);
    options_release(&inv);
    assert_int_equal(parse(&inv, "-", NULL), 0); /* one dash is an operand */
    assert_string_equal(inv.operands[0], "-");
    options_release(&inv);
}

static void test_options__help_wins_over_missing_operands(void **state)
{
    struct invocation inv;
    assert_int_equal(parse(&inv, "--help", "--nonsense", NULL), 0);
    assert_true(inv.help);
    options_release(&inv);
    assert_int_equal(parse(&inv, "-h", NULL), 0);
    assert_true(inv.help);
    options_release(&inv);
}

static void test_options__refusals_name_the_option(void **state)
{
    static const struct {
        char *words[4];
        const char *says;
    } cases[] = {
        {{"--nonsense", "src"}, "--nonsense"},
        {{"-x", "src"}, "-x"},
        {{"--fas", "src"}, "--fas"},
        {{"--fast=1", "src"}, "--fast"},
        {{"src", "--jobs"}, "--jobs"},
        {{"src", "-j"}, "--jobs"},
        {{"src", "--jobs=0"}, "--jobs"},
        {{"src", "--jobs=65"}, "--jobs"},
        {{"src", "--jobs=3x"}, "--jobs"},
        {{"src", "--jobs=-3"}, "--jobs"},
        {{"src", "--size=4095"}, "--size"},
        {{"src", "--size=2M"}, "--size"},
        {{"src", "--size=big"}, "--size"},
        {{"src", "--grace=5w"}, "--grace"},
        {{"src", "--compress=lz4"}, "zstd|none"},
        {{"src", "--compress=zst"}, "zstd|none"},
        {{"src", "--compress=zstd|none"}, "zstd|none"},
        {{"src", "--name="}, "--name"},
        {{"--fast"}, "SOURCE"},
        {{"a", "b", "c"}, "'c'"},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct invocation inv;
        char *const *w = cases[i].words;
        assert_int_equal(parse(&inv, w[0], w[1], w[2], w[3], NULL), -EINVAL);
        if (!strstr(error_text(), cases[i].says))
            fail_msg("case %zu: '%s' does not name %s", i, error_text(), cases[i].says);
        options_release(&inv);
    }
}

static char *captured(void (*print)(const struct verb *, FILE *))
{
    char *text = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);
    assert_non_null(f);
    print(&verb, f);
    fclose(f);
    return text;
}

static void test_options__help_and_list_name_every_option(void **state)
{
    char *help = captured(options_help), *list = captured(options_list);
    for (const struct option_row *row = rows; row->kind != OPTION_END; row++) {
        char want[64];
        snprintf(want, sizeof want, row->name ? "--%s" : "-0", row->name);
        assert_non_null(strstr(help, want));
        assert_non_null(strstr(list, want));
        assert_non_null(strstr(help, row->help));
    }
    assert_non_null(strstr(list, "try --compress zstd|none\n"));
    assert_non_null(strstr(list, "try -0\n"));
    free(help);
    free(list);
}

static void test_duration__units_and_refusals(void **state)
{
    static const struct {
        const char *text;
        uint64_t seconds;
    } good[] = {{"0", 0}, {"90", 90}, {"90s", 90}, {"30m", 1800}, {"12h", 43200}, {"14d", 1209600}};
    uint64_t s;
    for (size_t i = 0; i < GR_ARRAY_SIZE(good); i++) {
        assert_int_equal(text_parse_duration("t", good[i].text, &s), 0);
        assert_int_equal(s, good[i].seconds);
    }
    static const char *const bad[] = {
        "", "d", "-1d", " 1", "1.5h", "1h30m", "99999999999999999999", "99999999999999999d"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++)
        assert_int_equal(text_parse_duration("t", bad[i], &s), -EINVAL);
}

static char *printed_name(const char *name, size_t len, bool escape)
{
    char *text = NULL;
    size_t text_len = 0;
    FILE *f = open_memstream(&text, &text_len);
    assert_non_null(f);
    print_name(f, name, len, escape);
    fclose(f);
    return text;
}

static void test_print_name__nothing_reaches_a_terminal_that_it_obeys(void **state)
{
    static const struct {
        const char *name, *shown;
    } cases[] = {
        {"plain name", "plain name"},
        {"a\nb\tc\\d", "a\\nb\\tc\\\\d"},
        {"\x1b[31m", "\\x1b[31m"},
        {"\x7f", "\\x7f"},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"\xff\xfe", "\\xff\\xfe"},
        {"\xc2\x9b"
         "31m",
         "\\xc2\\x9b31m"},                   /* C1: a second spelling of ESC [ */
        {"\xc0\xaf", "\\xc0\\xaf"},          /* overlong '/' */
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"}, /* a surrogate */
        {"\xe2\x82", "\\xe2\\x82"},          /* cut short */
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        char *shown = printed_name(cases[i].name, strlen(cases[i].name), true);
        assert_string_equal(shown, cases[i].shown);
        free(shown);
    }
    char *raw = printed_name("a\n\xff", 3, false);
    assert_string_equal(raw, "a\n\xff");
    free(raw);
}

static void test_options__a_verb_has_commands_by_their_last_word(void **state)
{
    static const struct verb one = {.name = "try one", .operands = "A", .summary = "First", .options = rows};
    static const struct verb two = {.name = "try two", .operands = "", .summary = "Second", .options = rows + 9};
    static const struct verb *const commands[] = {&one, &two, NULL};
    const struct verb parent = {
        .name = "try", .operands = "COMMAND", .summary = "Try", .options = rows + 9, .commands = commands};
    assert_ptr_equal(options_command(&parent, "one"), &one);
    assert_ptr_equal(options_command(&parent, "two"), &two);
    assert_null(options_command(&parent, "try one"));
    assert_null(options_command(&parent, "on"));
    assert_null(options_command(&parent, ""));
    assert_null(options_command(&verb, "one"));
    char *text = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&text, &len);
    options_help(&parent, to);
    options_list(&parent, to);
    fclose(to);
    assert_non_null(strstr(text, "usage: granary try COMMAND\n"));
    assert_non_null(strstr(text, "\n  one                        First\n"));
    assert_non_null(strstr(text, "\ntry one --jobs N\n"));
    assert_null(strstr(text, "\ntry --jobs"));
    free(text);
}

static void test_json_name__is_utf8_whatever_the_bytes(void **state)
{
    json_t *object = json_object();
    json_name_set(object, "path",
                  "a\xff"
                  "b",
                  3);
    assert_string_equal(json_string_value(json_object_get(object, "path")), "a\xef\xbf\xbd"
                                                                            "b");
    assert_string_equal(json_string_value(json_object_get(object, "path_hex")), "61ff62");
    json_name_set(object, "target", "\xc3\xa4", 2);
    assert_string_equal(json_string_value(json_object_get(object, "target")), "\xc3\xa4");
    assert_null(json_object_get(object, "target_hex"));
    char back[4];
    assert_true(json_name_get(object, "path", back, sizeof back));
    assert_string_equal(back, "a\xff"
                              "b");
    assert_true(json_name_get(object, "target", back, 3));
    assert_string_equal(back, "\xc3\xa4");
    assert_false(json_name_get(object, "path", back, 3));
    assert_false(json_name_get(object, "target", back, 2));
    assert_false(json_name_get(object, "none", back, sizeof back));
    json_decref(object);
}

static void test_progress__says_what_is_known(void **state)
{
    char line[PROGRESS_LINE_MAX];
    struct progress_state s = {.bytes_done = 1 << 20, .bytes_total = 3 << 20, .files_done = 5, .files_total = 10};
    assert_string_equal(progress_format(&s, 1000, 0, 0, line),
                        "1.0 MiB of 3.0 MiB, 5 of 10 files, 1.0 MiB/s, 0:02 left");
    assert_string_equal(progress_format(&s, 100, 0, 0, line), "1.0 MiB of 3.0 MiB, 5 of 10 files");
    s.failed = 7;
    s.failed_bytes = 1 << 20; /* nobody waits for these */
    assert_string_equal(progress_format(&s, 1000, 0, 0, line),
                        "1.0 MiB of 3.0 MiB, 5 of 10 files, 7 failed, 1.0 MiB/s, 0:01 left");
    s = (struct progress_state){.files_done = 300};
    assert_string_equal(progress_format(&s, 2000, 0, 100, line), "300 files, 100 files/s");
    s = (struct progress_state){0};
    assert_string_equal(progress_format(&s, 2000, 0, 0, line), "");
}

static void test_progress__as_json(void **state)
{
    char line[PROGRESS_JSON_MAX];
    struct progress_state s = {
        .phase = "warming", .bytes_done = 1 << 20, .bytes_total = 3 << 20, .files_done = 5, .files_total = 10};
    assert_string_equal(progress_json(&s, 1000, 0, 0, line),
                        "{\"progress\": {\"phase\": \"warming\", \"bytes_done\": 1048576, \"bytes_total\": 3145728, "
                        "\"files_done\": 5, \"files_total\": 10, \"failed_chunks\": 0, \"bytes_per_s\": 1048576, "
                        "\"seconds_left\": 2}}");
    memset(&s, 0xff, sizeof s);
    s.phase = "reading the catalog";
    assert_non_null(strstr(progress_json(&s, 100, 0, 0, line), "\"bytes_per_s\": 0, \"seconds_left\": null}}"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__both_ways_of_writing_a_value_are_equal),
        cmocka_unit_test(test_options__defaults_stand_until_replaced),
        cmocka_unit_test(test_options__letters_may_be_joined),
        cmocka_unit_test(test_options__lists_keep_every_value_in_order),
        cmocka_unit_test(test_options__a_switch_can_be_turned_off),
        cmocka_unit_test(test_options__two_dashes_end_the_options),
        cmocka_unit_test(test_options__help_wins_over_missing_operands),
        cmocka_unit_test(test_options__refusals_name_the_option),
        cmocka_unit_test(test_options__help_and_list_name_every_option),
        cmocka_unit_test(test_duration__units_and_refusals),
        cmocka_unit_test(test_print_name__nothing_reaches_a_terminal_that_it_obeys),
        cmocka_unit_test(test_options__a_verb_has_commands_by_their_last_word),
        cmocka_unit_test(test_json_name__is_utf8_whatever_the_bytes),
        cmocka_unit_test(test_progress__says_what_is_known),
        cmocka_unit_test(test_progress__as_json),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
