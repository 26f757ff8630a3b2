/* What serve and mount say to a server is what was given, all of it, in either form; every such option is a parameter
 * of the plugin. */
#include "unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/server_options.h"
#include "cli/verbs/verbs.h"

static void parse(const struct verb *verb, char **words, int count, struct invocation *out)
{
    if (options_parse(verb, count, words, out))
        fail_msg("%s", error_text());
}

static void test_server_options__all_that_is_given_is_said(void **state)
{
    char *words[] = {"--cache",
                     "/a:1G",
                     "--memory=16M",
                     "store/faces",
                     "--cache=/b:2G",
                     "--endpoint",
                     "http://h",
                     "--l2=http://p/x",
                     "--cache-compressed",
                     "--quota",
                     "faces:1G",
                     "dir",
                     "--eviction",
                     "lru",
                     "--watermark=90:80",
                     "--disk-timeout",
                     "5s",
                     "--metrics",
                     "localhost:9",
                     "--slow-read=0",
                     "--hedge=0",
                     "--readahead",
                     "2M",
                     "--store-connections=128",
                     "--fill",
                     "off",
                     "--index-memory=128M",
                     "--timeout",
                     "90s"};
    static const char *const nbdkit[] = {"cache=/a:1G",     "cache=/b:2G",       "cache-compressed=yes",
                                         "quota=faces:1G",  "memory=16M",        "watermark=90:80",
                                         "disk-timeout=5s", "eviction=lru",      "metrics=localhost:9",
                                         "l2=http://p/x",   "timeout=90s",       "slow-read=0",
                                         "readahead=2M",    "fill=off",          "hedge=0",
                                         "connections=128", "index-memory=128M", "endpoint=http://h"};
    struct invocation inv;
    CLEANUP_STRING_LIST plain = {0}, dashed = {0};
    parse(&verb_mount, words, (int)(sizeof words / sizeof *words), &inv);
    assert_int_equal(server_options_check(inv.values), 0);
    assert_int_equal(server_options_words(inv.values, SERVER_FOR_FRONT_END, &plain), 0);
    assert_int_equal(server_options_words(inv.values, SERVER_FOR_SERVE, &dashed), 0);
    assert_int_equal(plain.len, sizeof nbdkit / sizeof *nbdkit);
    assert_int_equal(dashed.len, plain.len);
    for (size_t i = 0; i < plain.len; i++) {
        assert_string_equal(plain.items[i], nbdkit[i]);
        assert_int_equal(strncmp(dashed.items[i], "--", 2), 0);
        if (!strcmp(plain.items[i], "connections=128"))
            assert_string_equal(dashed.items[i], "--store-connections=128");
        else
            assert_string_equal(dashed.items[i] + 2, plain.items[i]);
    }
    options_release(&inv);
}

/* An option of the plugin that the command line does not have would be one of its table without a name there. */
static void test_server_options__every_parameter_is_an_option(void **state)
{
#define OPTION_NAME(field, how, key, option, ...) {key, option},
    static const char *const names[][2] = {STACK_OPTIONS(OPTION_NAME, OPTION_NAME)};
    static const char *const of_plugin[] = {"image", "control", "exports", "follow", "poll", "keep-versions", "hook"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++) {
        bool own = false;
        for (size_t k = 0; k < GR_ARRAY_SIZE(of_plugin); k++)
            own |= !strcmp(names[i][0], of_plugin[k]);
        if (own == (options_known(&verb_serve, names[i][1]) && options_known(&verb_mount, names[i][1])))
            fail_msg("%s: --%s", names[i][0], names[i][1]);
    }
}

/* What a default says is what the table's own parser understands, and what help says. */
static void test_server_options__help_names_the_default(void **state)
{
    for (const struct option_row *row = verb_serve.options; row->kind; row++)
        if (row->name && !strcmp(row->name, "index-memory")) {
            assert_non_null(strstr(row->help, "(default 64M)"));
            return;
        }
    fail_msg("--index-memory is missing");
}

/* What mount says is what serve understands. */
static void test_server_options__serve_has_every_option_of_mount(void **state)
{
    for (const struct option_row *row = verb_mount.options; row->kind; row++) {
        if (row->offset >= sizeof(struct server_values))
            continue;
        const struct option_row *other = verb_serve.options;
        while (other->kind && strcmp(other->name, row->name) != 0)
            other++;
        assert_true(other->kind == row->kind && other->offset == row->offset);
    }
}

static void expect_refusal(char *word, const char *text)
{
    char *words[] = {"store/faces", "dir", word};
    struct invocation inv;
    parse(&verb_mount, words, 3, &inv);
    assert_int_equal(server_options_check(inv.values), CLI_USAGE);
    if (!strstr(error_text(), text))
        fail_msg("%s: %s", word, error_text());
    options_release(&inv);
}

static void test_server_options__what_the_plugin_would_refuse_is_refused(void **state)
{
    setenv("GRANARY_CACHE", "none", 1);
    expect_refusal("--quota=faces:1G", "--quota needs --cache");
    expect_refusal("--fence=warmed", "--fence needs --cache");
    unsetenv("GRANARY_CACHE");
    expect_refusal("--memory=1", "--memory");
    expect_refusal("--metrics=nowhere", "--metrics");
    expect_refusal("--l2=ftp://x", "--l2");
    expect_refusal("--readahead=33M", "--readahead 33M: write a size of at most 32M");
    expect_refusal("--index-memory=1K", "--index-memory 1K: write a size of at least 1M");
    expect_refusal("--slow-read=8d", "--slow-read 8d: write a time from 1s to 7d, or 0 for none");
    expect_refusal("--fill=on", "--fill on: write auto or off");
    expect_refusal("--hedge=51", "--hedge 51: write a number from 0 to 50");
    expect_refusal("--store-connections=0", "--store-connections 0: write a number from 1 to 256");
}

static void test_server_options__the_environment_s_cache_is_said_as_if_given(void **state)
{
    char *none[] = {"store/faces", "dir"}, *given[] = {"--cache=/a:1G", "store/faces", "dir"};
    struct invocation inv;
    CLEANUP_STRING_LIST words = {0}, own = {0};
    assert_int_equal(setenv("GRANARY_CACHE", "/e:2G", 1), 0);
    parse(&verb_mount, none, 2, &inv);
    assert_int_equal(server_options_take_environment(inv.values), 0);
    assert_int_equal(server_options_words(inv.values, SERVER_FOR_SERVE, &words), 0);
    assert_int_equal(words.len, 1);
    assert_string_equal(words.items[0], "--cache=/e:2G");
    options_release(&inv);
    parse(&verb_mount, given, 3, &inv);
    assert_int_equal(server_options_take_environment(inv.values), 0);
    assert_int_equal(server_options_words(inv.values, SERVER_FOR_SERVE, &own), 0);
    assert_int_equal(own.len, 1);
    assert_string_equal(own.items[0], "--cache=/a:1G");
    options_release(&inv);
    assert_int_equal(setenv("GRANARY_CACHE", "nonsense", 1), 0);
    parse(&verb_mount, none, 2, &inv);
    assert_int_equal(server_options_take_environment(inv.values), CLI_USAGE);
    assert_non_null(strstr(error_text(), "GRANARY_CACHE"));
    options_release(&inv);
    unsetenv("GRANARY_CACHE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_options__all_that_is_given_is_said),
        cmocka_unit_test(test_server_options__every_parameter_is_an_option),
        cmocka_unit_test(test_server_options__help_names_the_default),
        cmocka_unit_test(test_server_options__serve_has_every_option_of_mount),
        cmocka_unit_test(test_server_options__what_the_plugin_would_refuse_is_refused),
        cmocka_unit_test(test_server_options__the_environment_s_cache_is_said_as_if_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
