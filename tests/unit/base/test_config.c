/* What a configuration file may hold, what it is refused for, and which section a bucket gets. */
#include "base/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

/* A scratch directory and a file in it. */
struct place {
    char dir[SCRATCH_MAX];
    char file[SCRATCH_MAX + 32];
};

static void put(struct place *p, const void *text, size_t len)
{
    snprintf(p->file, sizeof p->file, "%s/granary.conf", p->dir);
    CLEANUP_FD int fd = open(p->file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, len), len);
}

static int read_as(struct place *p, const char *text, struct config *out)
{
    put(p, text, strlen(text));
    return config_read(p->file, true, out);
}

/* text is refused with a sentence that ends in `why`, after the file's name. */
static void refused(struct place *p, const char *text, const char *why)
{
    CLEANUP_CONFIG c = {0};
    assert_int_equal(read_as(p, text, &c), -EINVAL);
    assert_memory_equal(error_text(), p->file, strlen(p->file));
    assert_string_equal(error_text() + strlen(p->file), why);
}

static void test_config__lines_become_entries(void **state)
{
    struct place p;
    CLEANUP_CONFIG c = {0};
    scratch_make(p.dir);
    assert_int_equal(read_as(&p,
                             "# a comment\n\n[server]\ncache=/a:1G # why\n  cache =  /b b#c:2G \t\r\n"
                             "[ s3://data ]\nendpoint = http://h:1/?a=b",
                             &c),
                     0);
    static const struct config_entry expected[] = {{"server", "cache", "/a:1G", 4},
                                                   {"server", "cache", "/b b#c:2G", 5},
                                                   {"s3://data", "endpoint", "http://h:1/?a=b", 7}};
    assert_int_equal(c.entries.len, GR_ARRAY_SIZE(expected));
    for (size_t i = 0; i < c.entries.len; i++) {
        assert_string_equal(c.entries.items[i].section, expected[i].section);
        assert_string_equal(c.entries.items[i].key, expected[i].key);
        assert_string_equal(c.entries.items[i].value, expected[i].value);
        assert_int_equal(c.entries.items[i].line, expected[i].line);
    }
    scratch_remove(p.dir);
}

static void test_config__other_lines_are_refused(void **state)
{
    struct place p;
    scratch_make(p.dir);
    refused(&p, "[server]\n\ncache\n", ":3: a line is a comment (#), a [section], or KEY = VALUE");
    refused(&p, "cache = /a:1G\n", ":1: a [section] comes before the first KEY = VALUE");
    refused(&p, "[server\n", ":1: a section's name ends with ']'");
    refused(&p, "[]\n", ":1: there is no section []; there are [server], [mount], [s3://BUCKET] and [s3://]");
    refused(&p, "[sever]\n", ":1: there is no section [sever]; there are [server], [mount], [s3://BUCKET] and [s3://]");
    refused(&p, "[mount]\n= 3\n", ":2: a key and its value may not be empty");
    refused(&p, "[mount]\nfuse =\n", ":2: a key and its value may not be empty");
    refused(&p, "[mount]\nfuse = # yes\n", ":2: a key and its value may not be empty");
    refused(&p, "[s3://b]\nendpoint = host:9000\n", ":2: endpoint must look like https://HOST or http://HOST:PORT");
    refused(&p, "[s3://b]\nprofile = a\n[server]\nwarm = none\n[s3://b]\nprofile = b\n",
            ":6: line 2 sets 'profile' already");
    refused(&p, "[s3://b]\nsecret_key = x\n",
            ":2: 'secret_key' is not a bucket setting; there are endpoint and profile");
    CLEANUP_CONFIG c = {0};
    put(&p, "[server]\0x", 10);
    assert_int_equal(config_read(p.file, true, &c), -EINVAL);
    assert_non_null(strstr(error_text(), "is not UTF-8 text"));
    scratch_remove(p.dir);
}

static void test_config__a_missing_file_is_an_empty_one(void **state)
{
    struct place p;
    CLEANUP_CONFIG none = {0}, null = {0};
    scratch_make(p.dir);
    snprintf(p.file, sizeof p.file, "%s/none", p.dir);
    assert_int_equal(config_read(p.file, false, &none), 0);
    assert_int_equal(none.entries.len, 0);
    CLEANUP_CONFIG needed = {0};
    assert_int_equal(config_read(p.file, true, &needed), -ENOENT);
    assert_non_null(strstr(error_text(), p.file));
    assert_int_equal(config_read("/dev/null", true, &null), 0);
    assert_int_equal(null.entries.len, 0);
    CLEANUP_CONFIG directory = {0};
    assert_int_equal(config_read(p.dir, true, &directory), -EINVAL);
    scratch_remove(p.dir);
}

static void test_config__a_file_that_others_may_write_is_not_believed(void **state)
{
    static const mode_t modes[] = {0620, 0602, 0666};
    struct place p;
    scratch_make(p.dir);
    put(&p, "[server]\n", 9);
    for (size_t i = 0; i < GR_ARRAY_SIZE(modes); i++) {
        CLEANUP_CONFIG c = {0};
        assert_int_equal(chmod(p.file, modes[i]), 0);
        assert_int_equal(config_read(p.file, true, &c), -EPERM);
    }
    assert_int_equal(chmod(p.file, 0644), 0);
    CLEANUP_CONFIG mine = {0}, theirs = {0};
    assert_int_equal(config_read(p.file, true, &mine), 0);
    if (!geteuid()) {
        assert_int_equal(chown(p.file, 65534, 65534), 0);
        assert_int_equal(config_read(p.file, true, &theirs), -EPERM);
    }
    scratch_remove(p.dir);
}

static void test_config__a_bucket_has_its_own_settings_first(void **state)
{
    static const struct {
        const char *bucket, *endpoint, *profile;
    } cases[] = {{"data", "http://data", "all"},
                 {"other", "http://all", "all"},
                 {"dat", "http://all", "all"},
                 {"own", "http://all", "own"}};
    struct place p;
    CLEANUP_CONFIG c = {0};
    scratch_make(p.dir);
    assert_int_equal(read_as(&p,
                             "[s3://]\nendpoint = http://all\nprofile = all\n[s3://data]\nendpoint = http://data\n"
                             "[s3://own]\nprofile = own\n[server]\nendpoint = http://server\n",
                             &c),
                     0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        assert_string_equal(config_for_bucket(&c, cases[i].bucket, "endpoint")->value, cases[i].endpoint);
        assert_string_equal(config_for_bucket(&c, cases[i].bucket, "profile")->value, cases[i].profile);
    }
    CLEANUP_CONFIG without = {0};
    assert_int_equal(read_as(&p, "[s3://data]\nprofile = x\n", &without), 0);
    assert_null(config_for_bucket(&without, "other", "profile"));
    assert_null(config_for_bucket(&without, "data", "endpoint"));
    refused(&p, "[s3://data/x]\n", ":1: [s3://data/x]: settings hold for a whole bucket; write [s3://data]");
    scratch_remove(p.dir);
}

static void test_config__granary_config_names_another_file(void **state)
{
    unsetenv("GRANARY_CONFIG");
    assert_string_equal(config_path(), "/etc/granary.conf");
    setenv("GRANARY_CONFIG", "/x", 1);
    assert_string_equal(config_path(), "/x");
    setenv("GRANARY_CONFIG", "none", 1);
    assert_null(config_path());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_config__lines_become_entries),
        cmocka_unit_test(test_config__other_lines_are_refused),
        cmocka_unit_test(test_config__a_missing_file_is_an_empty_one),
        cmocka_unit_test(test_config__a_file_that_others_may_write_is_not_believed),
        cmocka_unit_test(test_config__a_bucket_has_its_own_settings_first),
        cmocka_unit_test(test_config__granary_config_names_another_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
