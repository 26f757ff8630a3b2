/* Exports with keys of their own: a store for each, which the next one gets; and what is kept for the process after. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "format/export_table.h"
#include "server/server_internal.h"
#include "unit/stack_world.h"

static struct s3_keys *keys_of(const char *name)
{
    char text[100];
    struct s3_keys *k = NULL;
    snprintf(text, sizeof text, "AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=secret%s\n", name, name);
    assert_int_equal(s3_keys_parse(text, strlen(text), &k), 0);
    return k;
}

/* Are these the keys of that name? */
static void expect_keys(struct s3_keys *k, const char *name)
{
    char expected[100] = "";
    CLEANUP_BYTES text = BYTES_INIT(S3_KEYS_TEXT_MAX);
    if (name)
        snprintf(expected, sizeof expected, "AWS_ACCESS_KEY_ID=%s\nAWS_SECRET_ACCESS_KEY=secret%s\n", name, name);
    assert_int_equal(s3_keys_format(k, &text), 0);
    assert_string_equal(bytes_string(&text), expected);
}

/* The image faces as if in a bucket; a table that shows it, since there is no server; and two pairs of keys. */
struct bucket {
    struct world w;
    char ref[256];
    struct bytes proof;
    struct s3_keys *one, *two;
};

static void bucket_init(struct bucket *b)
{
    CLEANUP_BYTES manifest = BYTES_INIT(MANIFEST_MAX);
    CLEANUP_EXPORT_TABLE t = {0};
    struct export_entry e = {.resolved = 0};
    char hex[DIGEST_HEX_SIZE];
    size_t kept;
    *b = (struct bucket){.proof = BYTES_INIT(EXPORT_TABLE_MAX), .one = keys_of("one"), .two = keys_of("two")};
    world_init(&b->w);
    snprintf(b->ref, sizeof b->ref, "s3://lake/faces@sha256:%s", digest_hex(&b->w.faces.digest, hex));
    assert_int_equal(image_ref_parse(b->ref, &e.ref), 0);
    assert_int_equal(manifest_encode(&b->w.faces.manifest, &manifest), 0);
    e.manifest = manifest;
    assert_int_equal(export_table_put(&t, &e), 0);
    assert_int_equal(export_table_encode(&t, &b->proof, &kept), 0);
}

static void bucket_release(struct bucket *b)
{
    bytes_release(&b->proof);
    s3_keys_unref(b->one);
    s3_keys_unref(b->two);
    world_release(&b->w);
}

static struct stack_export *add(struct stack *s, const char *ref, const char *name, struct s3_keys *k,
                                const struct bytes *proof, bool expect_added)
{
    struct stack_export *e = NULL;
    bool added;
    const struct stack_image image = {.ref = ref, .export_name = name, .keys = k, .proof = proof};
    if (stack_add(s, &image, NULL, &e, &added))
        fail_msg("%s", error_text());
    assert_int_equal(added, expect_added);
    return e;
}

/* The exports whose own keys stores use, in a row. */
static void expect_stores(struct stack *s, const char *expected)
{
    char of[STACK_EXPORT_NAME_MAX + 1], all[200] = "";
    struct store_health health;
    for (size_t i = 0; stack_store_health(s, i, of, &health); i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%.20s,", of);
    assert_string_equal(all, expected);
}

/* Shared cache proxies serve one store; other keys for it are no second one. */
static void test_kept_keys__are_replaced_with_proxies_too(void **state)
{
    struct bucket b;
    bucket_init(&b);
    const struct stack_config config = {.store = {.timeout_ms = 1}, .l2 = {"http://127.0.0.1:1"}, .l2_count = 1};
    struct stack *s = NULL;
    assert_int_equal(stack_open(&config, &s), 0);
    assert_int_equal(stack_start_threads(s), 0);
    struct stack_export *a = add(s, b.ref, "a", b.one, &b.proof, true);
    stack_put(add(s, b.ref, "a", b.two, &b.proof, false));
    expect_keys(stack_export_keys(a), "two");
    stack_put(a);
    stack_close(s);
    bucket_release(&b);
}

static void test_kept_keys__an_export_with_keys_has_a_store_which_the_next_one_gets(void **state)
{
    struct bucket b;
    bucket_init(&b);
    const struct stack_image images[] = {{.ref = b.w.faces_ref}};
    struct stack *s = start(&b.w, images, 1, true);
    struct stack_export *a = add(s, b.ref, "a", b.one, &b.proof, true),
                        *other = add(s, b.ref, "b", b.one, &b.proof, true);
    expect_stores(s, ",a,b,");
    struct stack_export *first = stack_get(s, "faces");
    assert_null(stack_export_keys(first));
    stack_put(first);

    stack_put(add(s, b.ref, "a", b.two, &b.proof, false)); /* the same image: its keys are replaced, and no other's */
    expect_keys(stack_export_keys(a), "two");
    expect_keys(stack_export_keys(other), "one");
    expect_keys(b.one, "one");
    struct stack_export *e;
    bool added;
    assert_int_equal(stack_add(s, &(struct stack_image){.ref = b.w.faces_ref, .keys = b.one}, NULL, &e, &added),
                     -EINVAL);
    assert_non_null(strstr(error_text(), "for s3://"));

    assert_int_equal(stack_remove(s, "a"), 0);
    expect_keys(stack_export_keys(a), NULL); /* at once, though a reference is held */
    stack_put(a);
    expect_stores(s, ",b,");
    struct stack_export *c = add(s, b.ref, "c", b.two, &b.proof, true);
    expect_stores(s, ",c,b,");
    expect_keys(stack_export_keys(c), "two");
    expect_keys(stack_export_keys(other), "one");
    stack_put(other);
    stack_put(c);
    stack_close(s);
    bucket_release(&b);
}

static void test_kept_keys__what_tables_know_proves_nothing_for_keys(void **state)
{
    struct bucket b;
    struct stack_export *e = NULL;
    bool added;
    bucket_init(&b);
    const struct stack_image images[] = {{.ref = b.w.faces_ref}};
    struct stack *s = start(&b.w, images, 1, true);
    CLEANUP_FREE char *table = NULL;
    assert_true(asprintf(&table, "%s/exports", b.w.cache) > 0);
    assert_int_equal(io_write_file_owned(table, b.proof.data, b.proof.len), 0);
    setenv("AWS_ACCESS_KEY_ID", "server", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    stack_put(add(s, b.ref, "by-table", NULL, NULL, true)); /* the server's keys: the table stands in for the store */
    assert_int_not_equal(
        stack_add(s, &(struct stack_image){.ref = b.ref, .export_name = "other", .keys = b.one}, NULL, &e, &added), 0);
    assert_non_null(strstr(error_text(), "127.0.0.1"));
    /* And the table gets nothing that keys of an export's own have read. */
    assert_int_equal(stack_remove(s, "by-table"), 0);
    assert_int_equal(unlink(table), 0);
    stack_put(add(s, b.ref, "own", b.one, &b.proof, true));
    stack_put(add(s, b.w.cars_ref, "cars", NULL, NULL, true));
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    assert_int_equal(io_read_file(table, &text), 0);
    assert_null(strstr(bytes_string(&text), "s3://lake"));
    stack_close(s);
    bucket_release(&b);
}

static void test_kept_keys__what_is_written_is_found_unless_it_is_torn(void **state)
{
    struct bucket b;
    struct bytes kept CLEANUP(bytes_wipe) = BYTES_INIT(1 << 20), again CLEANUP(bytes_wipe) = BYTES_INIT(1 << 20), found;
    struct s3_keys *k = NULL;
    CLEANUP_FD int fd = memfd_create("keys", MFD_CLOEXEC);
    bucket_init(&b);
    const struct stack_image images[] = {{.ref = b.w.faces_ref}};
    struct stack *s = start(&b.w, images, 1, true);
    struct stack_export *a = add(s, b.ref, "a", b.one, &b.proof, true),
                        *other = add(s, b.ref, "b", b.two, &b.proof, true);
    assert_int_equal(kept_keys_read(fd, &again), 0); /* of a first start */
    assert_int_equal(kept_keys_find(&again, "a", &k, &found), -ENOENT);
    assert_int_equal(kept_keys_add(&kept, a), 0);
    assert_int_equal(kept_keys_add(&kept, other), 0);
    assert_true(kept.len <= kept_keys_size(a) + kept_keys_size(other));
    assert_int_equal(kept_keys_write(fd, &kept), 0);
    assert_int_equal(kept_keys_read(fd, &again), 0);
    assert_int_equal(kept_keys_find(&again, "c", &k, &found), -ENOENT);
    assert_int_equal(kept_keys_find(&again, "b", &k, &found), 0);
    expect_keys(k, "two");
    s3_keys_unref(k);
    stack_put(a);
    stack_put(other);
    assert_int_equal(stack_remove(s, "b"), 0);
    k = keys_of("two");
    stack_put(add(s, b.ref, "b", k, &found, true)); /* what is found is a proof */
    s3_keys_unref(k);

    bytes_clear(&again);
    assert_int_equal(pwrite(fd, "x", 1, 100), 1);
    assert_int_equal(kept_keys_read(fd, &again), -EBADMSG);
    assert_int_equal(again.len, 0);
    kept.len = 0;
    assert_int_equal(kept_keys_write(fd, &kept), 0);
    assert_int_equal(kept_keys_read(fd, &again), 0);
    assert_int_equal(again.len, 0);
    stack_close(s);
    bucket_release(&b);
}

static void test_kept_keys__an_export_without_them_waits_and_the_server_is_failing(void **state)
{
    static const char listed[] = "granary added exports 1\n" /* for whom, name, image */
                                 "mounts-keys\0faces@1\0s3://lake/faces@sha256:"
                                 "0123456789012345678901234567890123456789012345678901234567890123";
    struct world w;
    struct added_exports *a;
    char name[STACK_EXPORT_NAME_MAX + 1], image[IMAGE_REF_MAX], why[SERVER_HEALTH_WHY_MAX], file[300];
    bool removed;
    world_init(&w);
    snprintf(file, sizeof file, "%s/list", w.dir);
    assert_int_equal(io_write_file_owned(file, listed, sizeof listed), 0);
    struct stack *s = start(&w, NULL, 0, true); /* no image is needed */
    assert_int_equal(added_exports_open(s, file, -1, &a), 0);
    assert_true(added_exports_waiting(a, 0, name, image));
    assert_string_equal(name, "faces@1");
    assert_non_null(strstr(image, "s3://lake/faces@sha256:0123"));
    assert_false(added_exports_waiting(a, 1, name, image));
    assert_int_equal(server_health(s, a, why), SERVER_FAILING);
    assert_non_null(strstr(why, "'faces@1' waits for its keys"));
    assert_int_equal(added_exports_remove(a, "faces@1", ADDED_FOR_MOUNTS, &removed), 0);
    assert_true(removed);
    assert_int_equal(server_health(s, a, why), SERVER_HEALTHY);
    added_exports_close(a);
    stack_close(s);
    world_release(&w);
}

/* It would wait for ever: keys cannot be given to an export that was given at the start. */
static void test_kept_keys__an_export_whose_name_was_given_at_the_start_does_not_wait(void **state)
{
    static const char listed[] = "granary added exports 1\n"
                                 "user-keys\0faces\0s3://lake/faces@sha256:"
                                 "0123456789012345678901234567890123456789012345678901234567890123";
    struct world w;
    struct added_exports *a;
    char name[STACK_EXPORT_NAME_MAX + 1], image[IMAGE_REF_MAX], file[300];
    world_init(&w);
    snprintf(file, sizeof file, "%s/list", w.dir);
    assert_int_equal(io_write_file_owned(file, listed, sizeof listed), 0);
    const struct stack_image images[] = {{.ref = w.faces_ref}};
    struct stack *s = start(&w, images, 1, true);
    assert_int_equal(added_exports_open(s, file, -1, &a), 0);
    assert_false(added_exports_waiting(a, 0, name, image));
    added_exports_close(a);
    stack_close(s);
    world_release(&w);
}

/* What an export brought beside its keys comes back with these; a quota only where it can be had. */
static void test_kept_keys__a_quota_is_no_reason_to_wait_for_ever(void **state)
{
    static const char listed[] = "granary added exports 1\n"
                                 "unwarmed quota=16777216\0faces@1\0\0mounts-keys\0faces@1";
    struct bucket b;
    char name[STACK_EXPORT_NAME_MAX + 1], image[IMAGE_REF_MAX], file[300];
    bucket_init(&b);
    snprintf(file, sizeof file, "%s/list", b.w.dir);
    const struct stack_image wanted = {.ref = b.ref, .export_name = "faces@1", .keys = b.one, .proof = &b.proof};
    for (int keeps = 0; keeps < 2; keeps++) {
        CLEANUP_BYTES text = BYTES_INIT(1000);
        struct added_exports *a;
        struct stack_export *e = NULL;
        assert_int_equal(bytes_append(&text, listed, sizeof listed), 0);
        assert_int_equal(bytes_append(&text, b.ref, strlen(b.ref) + 1), 0);
        assert_int_equal(io_write_file_owned(file, text.data, text.len), 0);
        struct stack *s = start(&b.w, NULL, 0, keeps);
        assert_int_equal(added_exports_open(s, file, -1, &a), 0);
        assert_true(added_exports_waiting(a, 0, name, image));
        if (added_exports_put(a, &wanted, ADDED_FOR_MOUNTS, NULL, &e))
            fail_msg("%s", error_text());
        assert_int_equal(stack_export_quota(e), keeps ? 16 << 20 : 0);
        assert_true(stack_export_unwarmed(e));
        stack_put(e);
        added_exports_close(a);
        stack_close(s);
    }
    bucket_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kept_keys__an_export_with_keys_has_a_store_which_the_next_one_gets),
        cmocka_unit_test(test_kept_keys__are_replaced_with_proxies_too),
        cmocka_unit_test(test_kept_keys__what_tables_know_proves_nothing_for_keys),
        cmocka_unit_test(test_kept_keys__what_is_written_is_found_unless_it_is_torn),
        cmocka_unit_test(test_kept_keys__an_export_without_them_waits_and_the_server_is_failing),
        cmocka_unit_test(test_kept_keys__an_export_whose_name_was_given_at_the_start_does_not_wait),
        cmocka_unit_test(test_kept_keys__a_quota_is_no_reason_to_wait_for_ever),
    };
    setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9", 1);
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    unsetenv("http_proxy");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
