/* The table of exports: what was put is found again, in the order of use, and no damage is believed. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>

#include "base/error.h"
#include "format/export_table.h"
#include "unit/mangle.h"

/* A reference to an image whose manifest is `text`. */
static struct image_ref ref_of(const char *reference, const char *text)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse(reference, &ref), 0);
    ref.by_digest = true;
    ref.digest = digest_of(text, strlen(text));
    return ref;
}

static void put_ref(struct export_table *t, const struct image_ref *ref, int64_t resolved, const char *text,
                    const char *signature)
{
    const struct export_entry e = {.ref = *ref,
                                   .resolved = resolved,
                                   .manifest = {.data = (uint8_t *)text, .len = strlen(text)},
                                   .signature = (char *)signature};
    assert_int_equal(export_table_put(t, &e), 0);
}

static void put(struct export_table *t, const char *reference, int64_t resolved, const char *text)
{
    struct image_ref ref = ref_of(reference, text);
    put_ref(t, &ref, resolved, text, NULL);
}

static void expect(const struct export_entry *e, const char *tag, int64_t resolved, const char *text)
{
    assert_non_null(e);
    assert_string_equal(e->ref.tag, tag);
    assert_int_equal(e->resolved, resolved);
    assert_int_equal(e->manifest.len, strlen(text));
    assert_memory_equal(e->manifest.data, text, strlen(text));
}

static void test_export_table__a_tag_has_one_entry_and_the_latest_use_is_in_front(void **state)
{
    CLEANUP_EXPORT_TABLE t = {0};
    put(&t, "s3://lake/faces:v1", 100, "{one}");
    put(&t, "s3://lake/faces:v2", 101, "{one}");
    put(&t, "s3://lake/cars:v1", 102, "{cars}");
    put(&t, "s3://lake/faces:v1", 103, "{two}");
    assert_int_equal(t.entries.len, 3);
    expect(&t.entries.items[0], "v1", 103, "{two}");
    expect(&t.entries.items[1], "v1", 102, "{cars}");
    expect(&t.entries.items[2], "v2", 101, "{one}");

    struct image_ref ref = ref_of("s3://lake/faces:v1", "{one}");
    expect(export_table_find_tag(&t, &ref), "v1", 103, "{two}");
    expect(export_table_find_image(&t, "s3://lake", &ref.digest), "v2", 101, "{one}");
    assert_null(export_table_find_image(&t, "s3://sea", &ref.digest));
    ref = ref_of("s3://lake/faces:v3", "{one}");
    assert_null(export_table_find_tag(&t, &ref));
    ref = ref_of("s3://sea/faces:v1", "{one}");
    assert_null(export_table_find_tag(&t, &ref));
}

/* A server that goes on serving it needs its signature at each start. */
static void test_export_table__a_signed_image_stays_when_its_tag_moves(void **state)
{
    CLEANUP_EXPORT_TABLE t = {0};
    struct image_ref one = ref_of("/srv/faces:v1", "{one}"), two = ref_of("/srv/faces:v1", "{two}");
    put_ref(&t, &one, 1, "{one}", "signed");
    put_ref(&t, &two, 2, "{two}", NULL);
    assert_int_equal(t.entries.len, 2);
    expect(export_table_find_tag(&t, &one), "v1", 2, "{two}");
    assert_string_equal(export_table_find_image(&t, one.store, &one.digest)->signature, "signed");
    put_ref(&t, &one, 3, "{one}", "signed"); /* this one has no signature, and goes */
    assert_int_equal(t.entries.len, 1);
    expect(export_table_find_tag(&t, &one), "v1", 3, "{one}");
}

static void test_export_table__without_a_tag_each_image_has_its_own_entry(void **state)
{
    CLEANUP_EXPORT_TABLE t = {0};
    struct image_ref ref = ref_of("s3://lake/faces", "{one}");
    for (int i = 0; i < 2; i++) {
        ref.tag[0] = '\0';
        ref.digest = digest_of("{one}", 5);
        put_ref(&t, &ref, 0, "{one}", NULL);
        ref.digest = digest_of("{two}", 5);
        put_ref(&t, &ref, 0, "{two}", NULL);
    }
    assert_int_equal(t.entries.len, 2);
    expect(&t.entries.items[0], "", 0, "{two}");
    assert_null(export_table_find_tag(&t, &ref));
}

static void test_export_table__what_is_written_is_read(void **state)
{
    CLEANUP_EXPORT_TABLE t = {.generation = 7}, back = {0};
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    size_t kept;
    put(&t, "file:///srv/a b/faces:v1", 100, "{\"quoted\":\"\xc3\xa9\\n\"}");
    put(&t, "http://host:81/p/cars:v2", 101, "{cars}");
    put(&t, "/srv/caf\xe9/\xc3\xa9/cars:v3", 102, "{cars}");
    assert_int_equal(export_table_encode(&t, &text, &kept), 0);
    assert_int_equal(kept, 3);
    assert_int_equal(export_table_decode(text.data, text.len, &back), 0);
    assert_int_equal(back.generation, 7);
    assert_int_equal(back.entries.len, 3);
    expect(&back.entries.items[0], "v3", 102, "{cars}");
    expect(&back.entries.items[1], "v2", 101, "{cars}");
    expect(&back.entries.items[2], "v1", 100, "{\"quoted\":\"\xc3\xa9\\n\"}");
    assert_string_equal(back.entries.items[2].ref.store, "file:///srv/a b");
    assert_string_equal(back.entries.items[0].ref.store, "file:///srv/caf\xe9/\xc3\xa9"); /* not all of it is UTF-8 */
}

static void test_export_table__beyond_its_size_the_oldest_are_left_out(void **state)
{
    CLEANUP_EXPORT_TABLE t = {0}, back = {0};
    CLEANUP_BYTES text = BYTES_INIT(2000);
    char reference[64];
    size_t kept;
    for (int i = 0; i < 50; i++) {
        snprintf(reference, sizeof reference, "s3://lake/faces:v%d", i);
        put(&t, reference, i, "{one}");
    }
    assert_int_equal(export_table_encode(&t, &text, &kept), 0);
    assert_true(kept > 5 && kept < 50 && text.len <= 2000);
    assert_int_equal(export_table_decode(text.data, text.len, &back), 0);
    assert_int_equal(back.entries.len, kept);
    expect(&back.entries.items[kept - 1], t.entries.items[kept - 1].ref.tag, (int64_t)(50 - kept), "{one}");
}

static int decode(void *arg, const void *data, size_t len)
{
    CLEANUP_EXPORT_TABLE t = {0};
    return export_table_decode(data, len, &t);
}

static void test_export_table__no_damage_is_believed(void **state)
{
    CLEANUP_EXPORT_TABLE t = {0};
    CLEANUP_BYTES text = BYTES_INIT(EXPORT_TABLE_MAX);
    size_t kept;
    put(&t, "s3://lake/faces:v1", 100, "{one}");
    assert_int_equal(export_table_encode(&t, &text, &kept), 0);
    mangle_truncate(decode, NULL, text.data, text.len, -EBADMSG);
    assert_int_equal(mangle_flip(decode, NULL, text.data, text.len, 1, -EBADMSG), text.len * 8);
}

#define ENTRY(store, name, tag, digest, rest)                                                                          \
    "{\"store\":\"" store "\",\"name\":\"" name "\",\"tag\":\"" tag "\",\"digest\":\"" digest "\"," rest "}"
#define TABLE(version, entries)                                                                                        \
    "{\"format\":\"granary-exports\",\"version\":" version ",\"generation\":1,\"exports\":" entries "}"
#define STORE_HEX(hex) "\"store_hex\":\"" hex "\",\"resolved\":1,\"manifest\":\"abc\""
#define ABC "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* SHA-256 of "abc" */

static void test_export_table__contents_that_no_server_writes_are_refused(void **state)
{
    const char *const good =
        TABLE("1", "[" ENTRY("s3://lake", "faces", "v1", ABC, "\"resolved\":1,\"manifest\":\"abc\"") "]");
    const char *const bodies[] = {
        "",
        "[]",
        TABLE("2", "[]"),
        TABLE("1", "{}"),
        TABLE("1", "[1]"),
        TABLE("1", "[" ENTRY("lake", "faces", "v1", ABC, "\"resolved\":1,\"manifest\":\"abc\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake/", "faces", "v1", ABC, "\"resolved\":1,\"manifest\":\"abc\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake", "p/faces", "v1", ABC, "\"resolved\":1,\"manifest\":\"abc\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake", "faces", "v 1", ABC, "\"resolved\":1,\"manifest\":\"abc\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake", "faces", "v1", ABC, "\"resolved\":-1,\"manifest\":\"abc\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake", "faces", "v1", ABC, "\"resolved\":1,\"manifest\":\"abd\"") "]"),
        TABLE("1", "[" ENTRY("s3://lake", "faces", "v1", ABC, "\"resolved\":1") "]"),
        TABLE("1", "[" ENTRY("", "faces", "v1", ABC, STORE_HEX("73333a2f2f6x")) "]"),
        TABLE("1", "[" ENTRY("", "faces", "v1", ABC, STORE_HEX("73333a2f2f6")) "]"),
        TABLE("1", "[" ENTRY("", "faces", "v1", ABC, STORE_HEX("73333a2f2f6100")) "]"),
    };
    for (size_t i = 0; i <= GR_ARRAY_SIZE(bodies); i++) {
        const char *body = i ? bodies[i - 1] : good;
        char hex[DIGEST_HEX_SIZE], text[2048];
        struct digest d = digest_of(body, strlen(body));
        int len = snprintf(text, sizeof text, "sha256:%s\n%s", digest_hex(&d, hex), body);
        if (decode(NULL, text, (size_t)len) != (i ? -EBADMSG : 0))
            fail_msg("%s: %s", text, error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_export_table__a_tag_has_one_entry_and_the_latest_use_is_in_front),
        cmocka_unit_test(test_export_table__a_signed_image_stays_when_its_tag_moves),
        cmocka_unit_test(test_export_table__without_a_tag_each_image_has_its_own_entry),
        cmocka_unit_test(test_export_table__what_is_written_is_read),
        cmocka_unit_test(test_export_table__beyond_its_size_the_oldest_are_left_out),
        cmocka_unit_test(test_export_table__no_damage_is_believed),
        cmocka_unit_test(test_export_table__contents_that_no_server_writes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
