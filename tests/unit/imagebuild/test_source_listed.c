/* Lists of paths, and the subset of a source that one names. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "fake/source_fake.h"
#include "imagebuild/source/source_wrappers.h"

static const char file[] = "test_source_listed.list";

static void write_list(const void *text, size_t len)
{
    FILE *f = fopen(file, "w");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

static int teardown(void **state)
{
    unlink(file);
    return 0;
}

static struct path_list *list_of(const void *text, size_t len, bool nul, const char *web_base)
{
    struct path_list_config config = {.file = file, .nul = nul, .web_base = web_base};
    struct path_list *l;
    write_list(text, len);
    assert_int_equal(path_list_open(&config, &l), 0);
    return l;
}

#define LIST(text) list_of(text, sizeof(text) - 1, false, NULL)
#define LIST_NUL(text) list_of(text, sizeof(text) - 1, true, NULL)
#define LIST_WEB(text) list_of(text, sizeof(text) - 1, false, "http://host:80/base/")

static void assert_next(struct path_list *l, const char *path)
{
    struct source_ask ask;
    int rc = path_list_next(l, &ask);
    if (rc != (path != NULL))
        fail_msg("%d: %s", rc, error_text());
    if (path)
        assert_string_equal(ask.path, path);
}

static void assert_refused(struct path_list *l, const char *part)
{
    struct source_ask ask;
    assert_int_equal(path_list_next(l, &ask), -EINVAL);
    if (!strstr(error_text(), part))
        fail_msg("'%s' is not in: %s", part, error_text());
    path_list_close(l);
}

static void test_path_list__lines_are_paths(void **state)
{
    CLEANUP(cleanup_path_list)
    struct path_list *l = LIST("a\n./b//c/./d/\n\n# not a comment\n with blanks \ta\n.\nlast");
    assert_next(l, "a");
    assert_next(l, "b/c/d");
    assert_next(l, "# not a comment");
    assert_next(l, " with blanks \ta");
    assert_next(l, "");
    assert_next(l, "last");
    assert_next(l, NULL);
}

static void test_path_list__names_may_end_with_nul(void **state)
{
    CLEANUP(cleanup_path_list) struct path_list *l = LIST_NUL("a\nb\0c\0");
    assert_next(l, "a\nb");
    assert_next(l, "c");
    assert_next(l, NULL);
}

static void test_path_list__refuses_what_cannot_be(void **state)
{
    assert_refused(LIST("a/../b\n"), "test_source_listed.list:1: a path with '..'");
    assert_refused(LIST("a\0b\n"), "with -0");
    assert_refused(LIST_WEB("http://host:80/other/x\n"), "does not lie below http://host:80/base/");
    assert_refused(LIST_WEB("http://host:80/basement/x\n"), "does not lie below");
    assert_refused(LIST_WEB("http://host:80/base/x?y\n"), "'?'");
    assert_refused(LIST_WEB("http://host:80/base/%zz\n"), "percent");
    assert_refused(LIST_WEB("http://host:80/base/%00\n"), "percent");
    assert_refused(LIST_WEB("http://host:80/base/a/%2e%2E/b\n"), "'..'");
    assert_refused(LIST_WEB("x\tmany\n"), "no size");
    assert_refused(LIST_WEB("x\t5\tABC\n"), "no SHA-256");
    size_t len = 400000;
    char *line = malloc(len);
    memset(line, 'x', len);
    assert_refused(list_of(line, len, false, NULL), "without a newline");
    free(line);
}

static void test_path_list__absolute_and_relative_do_not_mix(void **state)
{
    struct path_list *l = LIST("/a\nb\n");
    bool absolute;
    assert_int_equal(path_list_absolute(l, &absolute), 0);
    assert_true(absolute);
    assert_next(l, "a");
    assert_refused(l, ":2: absolute and relative");
    l = LIST("\n");
    assert_int_equal(path_list_absolute(l, &absolute), -EINVAL);
    path_list_close(l);
}

static void test_path_list__a_web_list_has_sizes_and_digests(void **state)
{
    static const char sha[] = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    char text[300], hex[DIGEST_HEX_SIZE];
    struct source_ask ask;
    snprintf(text, sizeof text, "# comment\na b\t3\t%s\nhttp://host:80/base/%%C3%%BC/x%%09\n/c\t\t%s\nd\t7\n", sha,
             sha);
    CLEANUP(cleanup_path_list) struct path_list *l = list_of(text, strlen(text), false, "http://host:80/base/");
    assert_int_equal(path_list_next(l, &ask), 1);
    assert_string_equal(ask.path, "a b");
    assert_true(ask.have_size && ask.have_sha256);
    assert_int_equal(ask.size, 3);
    assert_string_equal(digest_hex(&ask.sha256, hex), sha);
    assert_next(l, "\xc3\xbc/x\t");
    assert_int_equal(path_list_next(l, &ask), 1);
    assert_true(!ask.have_size && ask.have_sha256);
    assert_int_equal(path_list_next(l, &ask), 1);
    assert_true(ask.have_size && !ask.have_sha256);
    assert_next(l, NULL);
}

/* ------------------------------------------------------------------ the subset */

struct counted {
    uint64_t entries, bytes;
    int rc;
};

static int count(void *arg, const struct source_entry *e)
{
    struct counted *c = arg;
    c->entries++;
    c->bytes += e->size;
    return c->rc;
}

static int list_subset(struct source *fake, struct path_list *list, bool ignore_missing, struct counted *out)
{
    struct source_listed_config config = {.threads = 4, .ignore_missing = ignore_missing};
    struct source *s;
    assert_int_equal(source_listed_open(fake, list, &config, &s), 0);
    int rc = source_list(s, count, out);
    source_close(s);
    return rc;
}

static struct source *files(size_t n)
{
    struct source *fake = source_fake_new();
    char path[32];
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "f%zu", i);
        source_fake_file(fake, path, i, 1);
    }
    return fake;
}

static void test_source_listed__hands_on_what_the_list_names(void **state)
{
    struct counted c = {0};
    char text[20000] = "";
    size_t len = 0;
    for (size_t i = 1; i < 2000; i += 2)
        len += (size_t)snprintf(text + len, sizeof text - len, "f%zu\n", i);
    assert_int_equal(list_subset(files(2000), list_of(text, len, false, NULL), false, &c), 0);
    assert_int_equal(c.entries, 1000);
    assert_int_equal(c.bytes, 1000 * 1000);
}

static void test_source_listed__missing_paths_fail_or_are_left_out(void **state)
{
    struct counted c = {0};
    assert_int_equal(list_subset(files(2), LIST("f0\nno\nf1\nnone\n"), false, &c), -ENOENT);
    assert_non_null(strstr(error_text(), "2 of the paths"));
    assert_non_null(strstr(error_text(), "--ignore-missing"));
    c = (struct counted){0};
    assert_int_equal(list_subset(files(2), LIST("f0\nno\nf1\nnone\n"), true, &c), 0);
    assert_int_equal(c.entries, 2);
}

static void test_source_listed__is_listed_again(void **state)
{
    struct source_listed_config config = {.ignore_missing = true};
    struct path_list *list = LIST("/f0\n/f1\n/none\n");
    struct source *s;
    bool absolute;
    assert_int_equal(path_list_absolute(list, &absolute), 0); /* has read the first line */
    assert_int_equal(source_listed_open(files(2), list, &config, &s), 0);
    for (int i = 0; i < 3; i++) {
        struct counted c = {0};
        assert_int_equal(source_list(s, count, &c), 0);
        assert_int_equal(c.entries, 2);
    }
    source_close(s);
}

/* A list with digests is believed, and the files are not looked at before they are read. */
static void test_source_listed__a_file_of_known_digest_that_is_missing(void **state)
{
    uint8_t byte;
    struct source_read read = {.path = "no", .path_len = 2, .len = 1, .dst = &byte};
    for (int i = 0; i < 4; i++) {
        struct source_listed_config config = {.ignore_missing = i & 1};
        struct source *s;
        assert_int_equal(source_listed_open(files(2), LIST("no\n"), &config, &s), 0);
        read.validator = i & 2 ? "sha256:1234" : "v0-1";
        read.validator_len = strlen(read.validator);
        assert_int_equal(source_read(s, &read), i == 2 ? -EBADMSG : -ENOENT);
        source_close(s);
    }
}

static void test_source_listed__the_first_failure_ends_it(void **state)
{
    struct counted c = {.rc = -ENOSPC};
    assert_int_equal(list_subset(files(500), LIST("f0\nf1\nf2\nf3\nf4\nf5\n"), false, &c), -ENOSPC);
    assert_int_equal(c.entries, 1);
    c = (struct counted){0};
    assert_int_equal(list_subset(files(2), LIST("f0\n../f1\n"), false, &c), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_path_list__lines_are_paths),
        cmocka_unit_test(test_path_list__names_may_end_with_nul),
        cmocka_unit_test(test_path_list__refuses_what_cannot_be),
        cmocka_unit_test(test_path_list__absolute_and_relative_do_not_mix),
        cmocka_unit_test(test_path_list__a_web_list_has_sizes_and_digests),
        cmocka_unit_test(test_source_listed__hands_on_what_the_list_names),
        cmocka_unit_test(test_source_listed__missing_paths_fail_or_are_left_out),
        cmocka_unit_test(test_source_listed__is_listed_again),
        cmocka_unit_test(test_source_listed__a_file_of_known_digest_that_is_missing),
        cmocka_unit_test(test_source_listed__the_first_failure_ends_it),
    };
    return cmocka_run_group_tests(tests, NULL, teardown);
}
