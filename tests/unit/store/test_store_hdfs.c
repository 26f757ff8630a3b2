/* What the HDFS store does when something comes between its steps; test_store_conformance.c has what every store does.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/vec.h"
#include "fake/hdfs_fake.h"
#include "net/hdfs/webhdfs.h"
#include "store/store.h"

struct world {
    struct hdfs_fake *f;
    struct store *plain, *patient; /* as it is, and as store_open wraps it */
    struct webhdfs *client;
    atomic_int rivals;       /* times that somebody else puts /store/k while our bytes are written */
    atomic_int lost_renames; /* renames that are done, and whose answer is lost */
    atomic_int short_writes; /* writes that keep only their first half */
    atomic_int lost_pages;   /* pages of listings that fail, every second one */
    atomic_int pages;
};

static bool take(atomic_int *count)
{
    return atomic_fetch_sub(count, 1) > 0;
}

static void path_of(const struct http_fake_request *r, char out[512])
{
    snprintf(out, 512, "%.*s", (int)GR_MIN(strcspn(r->target + 11, "?"), (size_t)500), r->target + 11);
}

static bool interfere(void *arg, char node, const struct http_fake_request *r, int fd, enum http_fake_next *next)
{
    struct world *w = arg;
    char path[512];
    path_of(r, path);
    if (node == 'd' && strstr(r->target, "op=CREATE")) {
        if (take(&w->rivals))
            hdfs_fake_put(w->f, "/store/k", "rival", 5, 1000);
        if (!take(&w->short_writes))
            return false;
        hdfs_fake_put(w->f, path, r->body, r->body_len / 2, 1000);
        http_fake_text(fd, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
        return true;
    }
    if (strstr(r->target, "op=RENAME") && take(&w->lost_renames)) {
        CLEANUP_FREE char *to = hdfs_fake_parameter(r, "destination");
        hdfs_fake_put(w->f, to, "bytes", 5, 1000);
        hdfs_fake_remove(w->f, path);
        *next = HTTP_FAKE_RESET;
        return true;
    }
    if (strstr(r->target, "op=LISTSTATUS_BATCH") && atomic_fetch_add(&w->pages, 1) % 2 && take(&w->lost_pages)) {
        hdfs_fake_refuse(fd, "403 Forbidden", "RetriableException", "not now");
        return true;
    }
    return false;
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    char url[128];
    w->f = hdfs_fake_new();
    hdfs_fake_set_hook(w->f, interfere, w);
    snprintf(url, sizeof url, "hdfs://%s/store", hdfs_fake_namenode(w->f));
    const struct store_options options = {.timeout_ms = 120000, .request_s = HTTP_FAKE_TIMEOUT_S};
    if (store_hdfs_open(url, &options, &w->plain) || store_open(url, &options, &w->patient) ||
        webhdfs_new(url, &(struct webhdfs_config){.http = {HTTP_FAKE_TIMEOUTS}}, &w->client))
        fail_msg("%s", error_text());
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    store_close(w->plain);
    store_close(w->patient);
    webhdfs_free(w->client);
    hdfs_fake_free(w->f);
    free(w);
    return 0;
}

static int put(struct store *s, const char *key, enum store_put_mode mode)
{
    return store_put(s, &(struct store_put){.key = key, .data = "bytes", .len = 5, .mode = mode});
}

static void assert_holds(struct store *s, const char *key, const char *text)
{
    CLEANUP_BYTES b = BYTES_INIT(100);
    if (store_get_small(s, key, &b, NULL))
        fail_msg("%s", error_text());
    assert_string_equal(bytes_string(&b), text);
}

static size_t temporaries(struct world *w)
{
    static const char dir[] = "/store/.granary-tmp";
    CLEANUP(cleanup_webhdfs_page) struct webhdfs_page *page = NULL;
    assert_int_equal(webhdfs_list(w->client, dir, strlen(dir), NULL, &page), 0);
    return webhdfs_page_count(page);
}

static void test_store_hdfs__a_rival_between_look_and_rename_wins(void **state)
{
    struct world *w = *state;
    atomic_store(&w->rivals, 1);
    assert_int_equal(put(w->plain, "k", STORE_PUT_IF_ABSENT), -EEXIST);
    assert_holds(w->plain, "k", "rival");
    assert_int_equal(temporaries(w), 0);
    atomic_store(&w->rivals, 1);
    assert_int_equal(put(w->plain, "k", STORE_PUT_ALWAYS), 0);
    assert_holds(w->plain, "k", "bytes");
}

static void test_store_hdfs__a_rename_whose_answer_is_lost_is_done(void **state)
{
    struct world *w = *state;
    assert_int_equal(put(w->patient, "other", STORE_PUT_ALWAYS), 0);
    atomic_store(&w->lost_renames, 1);
    assert_int_equal(put(w->plain, "k", STORE_PUT_IF_ABSENT), -EAGAIN);
    hdfs_fake_remove(w->f, "/store/k");
    atomic_store(&w->lost_renames, 1);
    assert_int_equal(put(w->patient, "k", STORE_PUT_IF_ABSENT), 0); /* it finds its own bytes there */
    atomic_store(&w->lost_renames, 1);
    assert_int_equal(put(w->patient, "k", STORE_PUT_ALWAYS), 0);
    assert_holds(w->patient, "k", "bytes");
    assert_int_equal(temporaries(w), 0);
}

static void test_store_hdfs__what_is_cut_short_is_not_moved_into_place(void **state)
{
    struct world *w = *state;
    struct store_item item;
    atomic_store(&w->short_writes, 1);
    assert_int_equal(put(w->plain, "k", STORE_PUT_ALWAYS), -EAGAIN);
    assert_non_null(strstr(error_text(), "2 of the 5 bytes"));
    assert_int_equal(store_stat(w->plain, "k", &item), -ENOENT);
    atomic_store(&w->short_writes, 2);
    assert_int_equal(put(w->patient, "k", STORE_PUT_ALWAYS), 0);
    assert_holds(w->patient, "k", "bytes");
    assert_int_equal(temporaries(w), 0);
}

static void test_store_hdfs__sweeps_what_killed_writers_left(void **state)
{
    struct world *w = *state;
    hdfs_fake_put(w->f, "/store/.granary-tmp/put-old", "x", 1, 1000);
    hdfs_fake_put(w->f, "/store/.granary-tmp/put-new", "x", 1, (long long)time(NULL) * 1000);
    assert_int_equal(put(w->plain, "k", STORE_PUT_ALWAYS), 0);
    assert_int_equal(temporaries(w), 1);
    assert_int_equal(put(w->plain, ".granary-tmp/put-new", STORE_PUT_ALWAYS), -EINVAL);
}

struct seen {
    VEC(char *) keys;
};

static int see(void *arg, const struct store_item *item)
{
    struct seen *s = arg;
    return vec_push(&s->keys, strdup(item->key));
}

static void test_store_hdfs__lists_in_the_order_of_keys_and_goes_on(void **state)
{
    static const char *const keys[] = {"a", "a-b", "a/x", "a/y/1", "a/y/2", "a0", "b/c/d/e"};
    struct world *w = *state;
    char path[64];
    for (size_t i = 1; i < GR_ARRAY_SIZE(keys); i++) {
        snprintf(path, sizeof path, "/store/%s", keys[i]);
        hdfs_fake_put(w->f, path, "x", 1, 1000);
    }
    for (size_t from = 0; from < GR_ARRAY_SIZE(keys); from++) { /* after each of them */
        struct seen s = {0};
        assert_int_equal(store_list_after(w->plain, "", keys[from], see, &s), 0);
        assert_int_equal(s.keys.len, GR_ARRAY_SIZE(keys) - 1 - from);
        for (size_t i = 0; i < s.keys.len; i++) {
            assert_string_equal(s.keys.items[i], keys[from + 1 + i]);
            free(s.keys.items[i]);
        }
        vec_release(&s.keys);
    }
    struct seen s = {0};
    atomic_store(&w->lost_pages, 4);
    assert_int_equal(store_list(w->patient, "", see, &s), 0);
    assert_int_equal(s.keys.len, GR_ARRAY_SIZE(keys) - 1);
    for (size_t i = 0; i < s.keys.len; i++)
        free(s.keys.items[i]);
    vec_release(&s.keys);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(test_store_hdfs__a_rival_between_look_and_rename_wins),
        TEST(test_store_hdfs__a_rename_whose_answer_is_lost_is_done),
        TEST(test_store_hdfs__what_is_cut_short_is_not_moved_into_place),
        TEST(test_store_hdfs__sweeps_what_killed_writers_left),
        TEST(test_store_hdfs__lists_in_the_order_of_keys_and_goes_on),
    };
    unsetenv("http_proxy");
    unsetenv("HADOOP_TOKEN_FILE_LOCATION");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
