/* Patterns and rules: what git's ignore files mean, case by case (each was compared with `git check-ignore`). */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "imagebuild/source/rules.h"

/* ------------------------------------------------------------------ one component */

static void test_glob__matches_as_a_shell_does(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool match;
    } cases[] = {
        {"a", "a", true},
        {"a", "b", false},
        {"a", "", false},
        {"a", "aa", false},
        {"*", "", true},
        {"*", "anything", true},
        {"*", ".hidden", true},
        {"**", "x", true},
        {"a*", "a", true},
        {"*.jpg", "a.jpg", true},
        {"*.jpg", "a.jpg.txt", false},
        {"*.jpg", ".jpg", true},
        {"*a*b*", "xxaxxbxx", true},
        {"*a*b*", "xxbxxaxx", false},
        {"*aab", "aaab", true},
        {"?", "a", true},
        {"?", "", false},
        {"??", "\xc3\xbc", true},
        {"a?c", "abc", true},
        {"[abc]", "b", true},
        {"[abc]", "d", false},
        {"[a-c]x", "bx", true},
        {"[a-c]", "d", false},
        {"[!a-c]", "d", true},
        {"[^a-c]", "b", false},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[]-]", "-", true},
        {"[a-]", "-", true},
        {"[-a]", "-", true},
        {"[\\]]", "]", true},
        {"[\\a-\\c]", "b", true},
        {"[[:digit:]]", "7", true},
        {"[[:digit:]]", "a", false},
        {"[[:alpha:]_]", "_", true},
        {"[![:space:]]", " ", false},
        {"[[:upper:]]", "\xc3", false},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"a\\b", "ab", true},
        {"shard-[0-9][0-9].tar", "shard-07.tar", true},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        const char *p = cases[i].pattern, *t = cases[i].text;
        assert_null(glob_fault(p, strlen(p)));
        if (glob_match(p, strlen(p), t, strlen(t)) != cases[i].match)
            fail_msg("'%s' %s '%s'", p, cases[i].match ? "does not match" : "matches", t);
    }
}

static void test_glob__says_what_is_broken(void **state)
{
    static const char *const broken[] = {"[", "[a", "[]", "[!]", "a\\", "[\\", "[a-", "[[:digit:]"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(broken); i++)
        if (!glob_fault(broken[i], strlen(broken[i])))
            fail_msg("'%s' was taken", broken[i]);
}

static void test_glob__does_not_blow_up(void **state)
{
    char pattern[200] = "", text[4000];
    for (int i = 0; i < 60; i++)
        strcat(pattern, "*a");
    strcat(pattern, "b");
    memset(text, 'a', sizeof text);
    assert_false(glob_match(pattern, strlen(pattern), text, sizeof text));
}

/* ------------------------------------------------------------------ rules */

/* Rules as words: "-pattern" excludes, "+pattern" includes. */
static struct rules *rules_of(const char *words)
{
    struct rules *r;
    char copy[512], *save, *word;
    snprintf(copy, sizeof copy, "%s", words);
    assert_int_equal(rules_new(&r), 0);
    for (word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save))
        if (rules_add(r, *word == '+', word + 1))
            fail_msg("%s: %s", word, error_text());
    return r;
}

static const struct {
    const char *rules, *path; /* a slash at its end: a directory */
    bool taken;
} rule_cases[] = {
    {"", "a", true},
    {"-a", "a", false},
    {"-a", "b/a", false},
    {"-a", "b/a/", false},
    {"-a", "a/b/c", false},
    {"-a", "ab", true},
    {"-/a", "a", false},
    {"-/a", "b/a", true},
    {"-a/b", "a/b", false},
    {"-a/b", "x/a/b", true},
    {"-a/b", "a/b/c", false},
    {"-a/", "a", true},
    {"-a/", "a/", false},
    {"-a/", "x/a/", false},
    {"-a/", "x/a/f", false},
    {"-a/b/", "a/b", true},
    {"-a/b/", "a/b/", false},
    {"-*.log", "deep/down/x.log", false},
    {"-/*.log", "deep/x.log", true},
    {"-/*.log", "x.log", false},
    {"-a/*.log", "a/x.log", false},
    {"-a/*.log", "a/b/x.log", true},
    {"-a/*", "a/", true},
    {"-a/?", "a/b/c", false},
    {"-**/a", "a", false},
    {"-**/a", "x/y/a", false},
    {"-**/a/b", "x/a/b", false},
    {"-**/a/b", "x/a/c/b", true},
    {"-a/**", "a/", true},
    {"-a/**", "a/b", false},
    {"-a/**", "a/b/c", false},
    {"-a/**", "x/a/b", true},
    {"-a/**/b", "a/b", false},
    {"-a/**/b", "a/x/b", false},
    {"-a/**/b", "a/x/y/b", false},
    {"-a/**/b", "a/x/y/c", true},
    {"-a/**/b/*/c", "a/b/b/x/c", false},
    {"-a/**/**/b", "a/b", false},
    {"-a**b/c", "axb/c", false},
    {"-a**b/c", "ax/b/c", true},
    {"-**", "any/thing", false},
    {"-/**", "any/thing", false},
    {"-**/x/**/y/**", "1/x/2/y/3", false},
    {"-**/x/**/y/**", "1/x/2/y", true},
    /* the last one that matches decides; nothing comes back from below what is left out */
    {"-*.log +keep.log", "keep.log", true},
    {"-*.log +keep.log", "a/other.log", false},
    {"+keep.log -*.log", "keep.log", false},
    {"-a/ +a/b", "a/b", false},
    {"-a/* +a/b", "a/b", true},
    {"-a/* +a/b", "a/c", false},
    {"-/* +/a -/a/* +/a/b", "a/b", true},
    {"-/* +/a -/a/* +/a/b", "a/c", false},
    {"-/* +/a -/a/* +/a/b", "c/d", false},
    /* the first one includes: what matches none is left out, but for directories */
    {"+*.jpg", "a.jpg", true},
    {"+*.jpg", "d/a.jpg", true},
    {"+*.jpg", "d/a.txt", false},
    {"+*.jpg", "d/", true},
    {"+/train/", "train/x/y", true},
    {"+/train/", "test/x", false},
    {"+/train/ -*.tmp", "train/a.tmp", false},
    {"+/train/ -*.tmp", "train/a.jpg", true},
    {"+*.jpg -/private/", "private/a.jpg", false},
    /* bytes */
    {"-\xff*", "\xff\xfe", false},
    {"-*", "new\nline", false},
    {"-a//b", NULL, false},
    {"-/", NULL, false},
    {"-//a", NULL, false},
    {"-[", NULL, false},
    {"-a[/]b", NULL, false},
};

static void test_rules__mean_what_git_means(void **state)
{
    for (size_t i = 0; i < GR_ARRAY_SIZE(rule_cases); i++) {
        if (!rule_cases[i].path) {
            CLEANUP(cleanup_rules) struct rules *refuses = rules_of("");
            assert_int_equal(rules_add(refuses, false, rule_cases[i].rules + 1), -EINVAL);
            assert_non_null(strstr(error_text(), rule_cases[i].rules + 1));
            continue;
        }
        CLEANUP(cleanup_rules) struct rules *r = rules_of(rule_cases[i].rules);
        size_t len = strlen(rule_cases[i].path);
        bool directory = rule_cases[i].path[len - 1] == '/';
        if (rules_take(r, rule_cases[i].path, len - directory, directory) != rule_cases[i].taken)
            fail_msg("'%s': %s is %s", rule_cases[i].rules, rule_cases[i].path,
                     rule_cases[i].taken ? "left out" : "taken");
    }
}

static void test_rules__no_rules_and_the_root_are_taken(void **state)
{
    CLEANUP(cleanup_rules) struct rules *r = rules_of("-*");
    assert_true(rules_take(NULL, "a/b", 3, false));
    assert_true(rules_take(r, "", 0, true));
}

static void write_file(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static void test_rules__a_file_is_read_as_git_reads_it(void **state)
{
    static const char path[] = "test_rules.ignore";
    CLEANUP(cleanup_rules) struct rules *r = rules_of("");
    write_file(path, "# a comment\n\n*.log  \n!keep.log\n\\#hash\n\\!bang\nblank\\ \nlast");
    assert_int_equal(rules_add_file(r, path), 0);
    assert_false(rules_take(r, "x.log", 5, false));
    assert_true(rules_take(r, "keep.log", 8, false));
    assert_false(rules_take(r, "#hash", 5, false));
    assert_false(rules_take(r, "!bang", 5, false));
    assert_false(rules_take(r, "blank ", 6, false));
    assert_true(rules_take(r, "blank", 5, false));
    assert_false(rules_take(r, "last", 4, false));
    assert_true(rules_take(r, "# a comment", 11, false));

    write_file(path, "fine\n[broken\n");
    assert_int_equal(rules_add_file(r, path), -EINVAL);
    assert_non_null(strstr(error_text(), "test_rules.ignore:2"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rules_add_file(r, path), -ENOENT);
    assert_non_null(strstr(error_text(), path));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_glob__matches_as_a_shell_does),
        cmocka_unit_test(test_glob__says_what_is_broken),
        cmocka_unit_test(test_glob__does_not_blow_up),
        cmocka_unit_test(test_rules__mean_what_git_means),
        cmocka_unit_test(test_rules__no_rules_and_the_root_are_taken),
        cmocka_unit_test(test_rules__a_file_is_read_as_git_reads_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
