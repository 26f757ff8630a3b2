/* HDFS as a source over the small one in memory: what a listing tells, and that no byte of another version gets
 * through. tests/flow/hdfs.sh has the real one. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/vec.h"
#include "fake/hdfs_fake.h"
#include "imagebuild/source/rules.h"
#include "imagebuild/source/source.h"
#include "imagebuild/source/source_internal.h"

struct listed {
    char path[64], validator[SOURCE_VALIDATOR_MAX + 1];
    uint32_t mode, uid, gid;
    uint64_t size;
    int64_t mtime;
    uint32_t mtime_nsec;
};

struct world {
    struct hdfs_fake *f;
    struct source *source;
    VEC(struct listed) entries;
    int stop_after; /* entries; 0: never */
    /* what the hook does */
    atomic_int fail_lists; /* pages that fail first */
    const char *vanish;    /* a directory that goes when it is to be listed */
    const char *replace;   /* a file replaced once the DataNode is asked for it */
    atomic_int cut_reads;  /* answers that are cut in their middle */
    atomic_int datanode_seen;
};

static bool misbehave(void *arg, char node, const struct http_fake_request *r, int fd, enum http_fake_next *next)
{
    struct world *w = arg;
    if (node == 'n' && strstr(r->target, "op=LISTSTATUS_BATCH")) {
        if (atomic_fetch_sub(&w->fail_lists, 1) > 0) {
            hdfs_fake_refuse(fd, "403 Forbidden", "SafeModeException", "Name node is in safe mode");
            return true;
        }
        if (w->vanish && strstr(r->target, w->vanish)) {
            hdfs_fake_refuse(fd, "404 Not Found", "FileNotFoundException", "gone");
            return true;
        }
    }
    if (node == 'n')
        return false;
    atomic_fetch_add(&w->datanode_seen, 1);
    if (w->replace)
        hdfs_fake_put(w->f, w->replace, "NEWBYTES", 8, 2000);
    if (atomic_fetch_sub(&w->cut_reads, 1) <= 0)
        return false;
    http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nold");
    *next = HTTP_FAKE_CLOSE;
    return true;
}

static int collect(void *arg, const struct source_entry *e)
{
    struct world *w = arg;
    struct listed l = {
        .mode = e->mode, .uid = e->uid, .gid = e->gid, .size = e->size, .mtime = e->mtime, .mtime_nsec = e->mtime_nsec};
    snprintf(l.path, sizeof l.path, "%.*s", (int)e->path_len, e->path);
    snprintf(l.validator, sizeof l.validator, "%.*s", (int)e->validator_len, e->validator ? e->validator : "");
    assert_int_equal(vec_push(&w->entries, l), 0);
    return w->stop_after && w->entries.len == (size_t)w->stop_after ? 77 : 0;
}

static const struct listed *find(const struct world *w, const char *path)
{
    for (size_t i = 0; i < w->entries.len; i++)
        if (!strcmp(w->entries.items[i].path, path))
            return &w->entries.items[i];
    fail_msg("%s is not listed", path);
    return NULL;
}

static void list(struct world *w)
{
    w->entries.len = 0;
    if (source_list(w->source, collect, w))
        fail_msg("%s", error_text());
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    static const char *const users[] = {"root=7"}, *const groups[] = {"other=8"};
    char url[128];
    w->f = hdfs_fake_new();
    hdfs_fake_put(w->f, "/d/a/one", "oldbytes", 8, 1999);
    hdfs_fake_put(w->f, "/d/a/b/before", "x", 1, -1);
    hdfs_fake_put(w->f, "/d/sp ace %41\xc3\xa9", "y", 1, 0);
    hdfs_fake_set_hook(w->f, misbehave, w);
    snprintf(url, sizeof url, "hdfs://%s/d/", hdfs_fake_namenode(w->f));
    const struct source_options options = {
        .connections = 4,
        .timeout_ms = 60000,
        .hdfs = {.map_users = users, .map_user_count = 1, .map_groups = groups, .map_group_count = 1}};
    if (source_open(url, &options, &w->source))
        fail_msg("%s", error_text());
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    source_close(w->source);
    hdfs_fake_free(w->f);
    vec_release(&w->entries);
    free(w);
    return 0;
}

static void test_source_hdfs__lists_what_is_there(void **state)
{
    struct world *w = *state;
    list(w);
    assert_int_equal(w->entries.len, 6);
    assert_int_equal(find(w, "")->mode, S_IFDIR | 0755);
    assert_int_equal(find(w, "a/b")->mode, S_IFDIR | 0755);
    assert_string_equal(find(w, "a/b")->validator, "");
    const struct listed *one = find(w, "a/one"), *before = find(w, "a/b/before");
    assert_int_equal(one->mode, S_IFREG | 0640);
    assert_int_equal(one->size, 8);
    assert_int_equal(one->uid, 7);
    assert_int_equal(one->gid, 0); /* nobody knows this group */
    assert_int_equal(one->mtime, 1);
    assert_int_equal(one->mtime_nsec, 999000000);
    assert_memory_equal(one->validator, "1999-8-", 7);
    assert_int_equal(before->mtime, -1);
    assert_int_equal(before->mtime_nsec, 999000000);
    find(w, "sp ace %41\xc3\xa9");
}

static void test_source_hdfs__lists_wide_and_deep_in_pages(void **state)
{
    struct world *w = *state;
    char path[64];
    for (int i = 0; i < 200; i++) {
        snprintf(path, sizeof path, "/d/w%02d/%03d", i % 20, i);
        hdfs_fake_put(w->f, path, "", 0, i);
    }
    for (int i = 0; i < 10; i++) {
        snprintf(path, sizeof path, "/d/deep%.*s/x", 2 * i, "/1/2/3/4/5/6/7/8/9");
        hdfs_fake_put(w->f, path, "", 0, i);
    }
    atomic_store(&w->fail_lists, 3);
    list(w);
    assert_int_equal(w->entries.len, 6 + 200 + 20 + 10 + 10);
    for (size_t i = 0; i < w->entries.len; i++)
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(w->entries.items[i].path, w->entries.items[k].path);
}

static void test_source_hdfs__a_listing_ends_as_it_should(void **state)
{
    struct world *w = *state;
    w->stop_after = 3; /* the visitor's value comes back */
    assert_int_equal(source_list(w->source, collect, w), 77);
    assert_int_equal(w->entries.len, 3);
    w->stop_after = 0;
    w->vanish = "/d/a/b"; /* gone meanwhile: empty */
    list(w);
    assert_int_equal(w->entries.len, 5);
    struct source_counts counts = {0};
    source_ask_counts(w->source, &counts);
    assert_int_equal(counts.vanished, 1);
    assert_string_equal(counts.first_vanished, "a/b");
    assert_int_equal(counts.owners_unknown, 1); /* the group; root was given */
    w->vanish = "/d?";
    w->entries.len = 0;
    assert_int_equal(source_list(w->source, collect, w), -ENOENT);
    w->vanish = NULL;
    source_cancel(w->source);
    atomic_store(&w->fail_lists, 1000);
    assert_int_equal(source_list(w->source, collect, w), -ECANCELED);
}

static void test_source_hdfs__looks_at_single_paths(void **state)
{
    struct world *w = *state;
    static const struct {
        const char *path;
        int rc;
        uint32_t mode;
    } cases[] = {{"a/one", 0, S_IFREG | 0640}, {"a/b", 0, S_IFDIR | 0755}, {"a/none", -ENOENT, 0}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        const struct source_ask ask = {.path = cases[i].path, .path_len = strlen(cases[i].path)};
        w->entries.len = 0;
        assert_int_equal(source_look(w->source, &ask, collect, w), cases[i].rc);
        assert_int_equal(w->entries.len, cases[i].rc == 0);
        if (!cases[i].rc)
            assert_int_equal(find(w, cases[i].path)->mode, cases[i].mode);
    }
    list(w); /* the same version either way */
    char validator[SOURCE_VALIDATOR_MAX + 1];
    snprintf(validator, sizeof validator, "%s", find(w, "a/one")->validator);
    w->entries.len = 0;
    assert_int_equal(source_look(w->source, &(struct source_ask){.path = "a/one", .path_len = 5}, collect, w), 0);
    assert_string_equal(find(w, "a/one")->validator, validator);
}

static void test_source_hdfs__does_not_list_what_rules_leave_out(void **state)
{
    struct world *w = *state;
    CLEANUP(cleanup_rules) struct rules *rules = NULL;
    char url[128];
    assert_int_equal(rules_new(&rules), 0);
    assert_int_equal(rules_add(rules, false, "b/"), 0);
    source_close(w->source);
    snprintf(url, sizeof url, "hdfs://%s/d", hdfs_fake_namenode(w->f));
    assert_int_equal(source_open(url, &(struct source_options){.connections = 2, .rules = rules}, &w->source), 0);
    list(w);
    assert_int_equal(w->entries.len, 5); /* b itself is judged by source_shape */
    find(w, "a/b");
}

static int read_one(struct world *w, const char *path, const char *validator, char *out, size_t len)
{
    const struct source_read r = {.path = path,
                                  .path_len = strlen(path),
                                  .validator = validator,
                                  .validator_len = strlen(validator),
                                  .len = len,
                                  .dst = (uint8_t *)out};
    return source_read(w->source, &r);
}

static void test_source_hdfs__reads_one_version(void **state)
{
    struct world *w = *state;
    char out[16] = "";
    struct source_version v;
    list(w);
    const char *old = find(w, "a/one")->validator;
    assert_int_equal(read_one(w, "a/one", old, out, 8), 0);
    assert_string_equal(out, "oldbytes");
    assert_int_equal(source_stat(w->source, "a/one", 5, &v), 0);
    assert_string_equal(v.validator, old);
    assert_true(v.have_owner);
    assert_int_equal(v.mode, S_IFREG | 0640);
    assert_int_equal(v.uid, 7);
    w->replace = "/d/a/one"; /* behind the NameNode's answer: the bytes are new, and of the same length */
    assert_int_equal(read_one(w, "a/one", old, out, 8), -ESTALE);
    w->replace = NULL;
    assert_int_equal(source_stat(w->source, "a/one", 5, &v), 0);
    assert_string_not_equal(v.validator, old);
    assert_int_equal(read_one(w, "a/one", v.validator, out, 8), 0);
    assert_memory_equal(out, "NEWBYTES", 8);
    hdfs_fake_put(w->f, "/d/a/one", "short", 5, 3000);
    assert_int_equal(read_one(w, "a/one", v.validator, out, 8), -ESTALE);
    hdfs_fake_remove(w->f, "/d/a/one");
    assert_int_equal(read_one(w, "a/one", v.validator, out, 8), -ENOENT);
    assert_int_equal(source_stat(w->source, "a", 1, &v), -ENOENT); /* no file */
}

static void test_source_hdfs__goes_on_behind_what_came(void **state)
{
    struct world *w = *state;
    char out[16] = "";
    list(w);
    atomic_store(&w->cut_reads, 1);
    assert_int_equal(read_one(w, "a/one", find(w, "a/one")->validator, out, 8), 0);
    assert_string_equal(out, "oldbytes");
    assert_int_equal(w->datanode_seen, 2);
}

static void test_source_hdfs__a_root_must_be_a_directory(void **state)
{
    struct world *w = *state;
    static const char *const paths[] = {"/d/a/one", "/none"};
    static const int expected[] = {-ENOTDIR, -ENOENT};
    for (size_t i = 0; i < GR_ARRAY_SIZE(paths); i++) {
        char url[128];
        struct source *s = NULL;
        snprintf(url, sizeof url, "hdfs://%s%s", hdfs_fake_namenode(w->f), paths[i]);
        assert_int_equal(source_open(url, &(struct source_options){.connections = 1}, &s), 0);
        assert_int_equal(source_list(s, collect, w), expected[i]);
        assert_non_null(strstr(error_text(), paths[i]));
        source_close(s);
    }
}

static void test_owner_map__given_then_hosts_then_none(void **state)
{
    static const char *const users[] = {"alice=1000", "a=b=3", "zoe=4294967294", "alice=9"}, *const groups[] = {
                                                                                                 "staff=20"};
    struct owner_map *m = NULL;
    struct passwd *self = getpwuid(0);
    assert_int_equal(owner_map_new(users, 4, groups, 1, &m), 0);
    assert_int_equal(owner_map_user(m, "alice"), 1000); /* the first counts */
    assert_int_equal(owner_map_user(m, "a=b"), 3);
    assert_int_equal(owner_map_user(m, "zoe"), 4294967294);
    assert_int_equal(owner_map_group(m, "staff"), 20);
    assert_int_equal(owner_map_group(m, "alice-is-no-group"), 0);
    if (self)
        assert_int_equal(owner_map_user(m, self->pw_name), 0);
    owner_map_report(m, "test");
    owner_map_free(m);
    static const char *const bad[] = {"alice", "=3", "alice=", "alice=-1", "alice=x", "alice=4294967295"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++) {
        assert_int_equal(owner_map_new(NULL, 0, &bad[i], 1, &m), -EINVAL);
        assert_non_null(strstr(error_text(), "--map-group"));
    }
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_source_hdfs__lists_what_is_there),
        TEST(test_source_hdfs__lists_wide_and_deep_in_pages),
        TEST(test_source_hdfs__a_listing_ends_as_it_should),
        TEST(test_source_hdfs__looks_at_single_paths),
        TEST(test_source_hdfs__does_not_list_what_rules_leave_out),
        TEST(test_source_hdfs__reads_one_version),
        TEST(test_source_hdfs__goes_on_behind_what_came),
        TEST(test_source_hdfs__a_root_must_be_a_directory),
        cmocka_unit_test(test_owner_map__given_then_hosts_then_none),
    };
    unsetenv("http_proxy");
    unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
