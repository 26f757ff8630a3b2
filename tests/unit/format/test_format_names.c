/* Names and small documents: object keys, references, tags, leases, granary.json. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "format/image_ref.h"
#include "format/object.h"
#include "format/tag.h"
#include "unit/mangle.h"

#define HEX "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad" /* of "abc" */

static void test_object__keys_of_every_kind_and_back(void **state)
{
    const char *const keys[OBJECT_KINDS] = {"packs/ba/" HEX, "indexes/ba/" HEX, "catalogs/ba/" HEX, "manifests/" HEX};
    struct digest d = digest_of("abc", 3), back;
    for (int kind = 0; kind < OBJECT_KINDS; kind++) {
        char key[OBJECT_KEY_MAX];
        enum object_kind found;
        assert_string_equal(object_key((enum object_kind)kind, &d, key), keys[kind]);
        assert_int_equal(object_key_parse(key, &found, &back), 0);
        assert_int_equal(found, kind);
        assert_memory_equal(&d, &back, DIGEST_SIZE);
        assert_ptr_equal(strstr(key, object_kind_prefix((enum object_kind)kind)), key);
    }
}

static void test_object__other_keys_are_refused(void **state)
{
    const char *const keys[] = {
        "",
        "packs",
        "packs/",
        "packs/ba/",
        "packs/bb/" HEX,
        "packs/" HEX,
        "packs/ba/" HEX "0",
        "packs/ba/x" HEX,
        "manifests/ba/" HEX,
        "manifest/" HEX,
        HEX,
        "/packs/ba/" HEX,
        "packs/BA/BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD",
        "trash/" HEX,
        "images/a/latest",
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(keys); i++) {
        enum object_kind kind;
        struct digest d;
        assert_int_equal(object_key_parse(keys[i], &kind, &d), -EINVAL);
    }
}

static void test_image_ref__every_form(void **state)
{
    static const struct {
        const char *text, *store, *name, *tag;
    } rows[] = {
        {"s3://lake/images/faces:2026-11-20", "s3://lake/images", "faces", "2026-11-20"},
        {"s3://lake/faces", "s3://lake", "faces", "latest"},
        {"/srv/images/faces", "file:///srv/images", "faces", "latest"},
        {"/srv/ima ges//faces:v1.2_x", "file:///srv/ima ges", "faces", "v1.2_x"},
        {"file:///srv/images/f-a.c_es:v", "file:///srv/images", "f-a.c_es", "v"},
        {"http://cache:8080/lake/faces", "http://cache:8080/lake", "faces", "latest"},
        {"https://host/faces", "https://host", "faces", "latest"},
        {"hdfs://namenode:9870/data/faces", "hdfs://namenode:9870/data", "faces", "latest"},
        {"/a:b/c@d/faces", "file:///a:b/c@d", "faces", "latest"},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++) {
        struct image_ref ref;
        if (image_ref_parse(rows[i].text, &ref))
            fail_msg("%s", error_text());
        assert_string_equal(ref.store, rows[i].store);
        assert_string_equal(ref.name, rows[i].name);
        assert_string_equal(ref.tag, rows[i].tag);
        assert_false(ref.by_digest);
    }
    struct image_ref ref;
    struct digest d = digest_of("abc", 3);
    assert_int_equal(image_ref_parse("s3://lake/faces@sha256:" HEX, &ref), 0);
    assert_true(ref.by_digest);
    assert_string_equal(ref.tag, "");
    assert_memory_equal(&ref.digest, &d, DIGEST_SIZE);
    assert_int_equal(image_ref_parse("s3://lake/faces:v1@sha256:" HEX, &ref), 0);
    assert_true(ref.by_digest);
    assert_string_equal(ref.name, "faces");
    assert_string_equal(ref.tag, "v1");
    assert_memory_equal(&ref.digest, &d, DIGEST_SIZE);
}

static void test_image_ref__written_out_it_parses_to_the_same(void **state)
{
    const char *const texts[] = {"s3://lake/images/faces:v1", "file:///srv/faces@sha256:" HEX,
                                 "http://host:8080/p/faces:v1@sha256:" HEX};
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++) {
        struct image_ref ref;
        char text[IMAGE_REF_MAX];
        assert_int_equal(image_ref_parse(texts[i], &ref), 0);
        assert_string_equal(image_ref_text(&ref, text), texts[i]);
    }
}

static void test_image_ref__wrong_forms_are_explained(void **state)
{
    const char *const texts[] = {
        "",
        "faces",
        "dir/faces",
        "./faces",
        "/faces",
        "file:///faces",
        "file://host/p/faces",
        "s3://faces",
        "s3:///p/faces",
        "ftp://host/faces",
        "s3:/lake/faces",
        "s3://lake/",
        "s3://lake/faces:",
        "s3://lake/faces:a:b",
        "s3://lake/faces:-a",
        "s3://lake/.faces",
        "s3://lake/fa ces",
        "s3://lake/fa\xc3\xa7",
        "s3://lake/faces@sha256:abc",
        "s3://lake/faces@md5:" HEX,
        "s3://lake/faces:@sha256:" HEX,
        "s3://lake/faces:v1@sha256:" HEX ":v1",
        "s3://lake/:v1@sha256:" HEX,
        "s3://la\nke/faces",
        "http://host/p?x=1/faces",
        "http://host/p#x/faces",
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++) {
        struct image_ref ref;
        if (image_ref_parse(texts[i], &ref) != -EINVAL)
            fail_msg("\"%s\" was taken", texts[i]);
        assert_true(strlen(error_text()) > 20);
    }
}

static void test_image_ref__a_password_is_refused_and_not_repeated(void **state)
{
    const char *const texts[] = {"http://user:hidden@host/p/faces", "s3://user:hidden@bucket/p/fa ces",
                                 "ftp://user:hidden@host/p/faces", "https://hidden@host/faces"};
    struct image_ref ref;
    for (size_t i = 0; i < GR_ARRAY_SIZE(texts); i++) {
        assert_int_equal(image_ref_parse(texts[i], &ref), -EINVAL);
        assert_null(strstr(error_text(), "hidden"));
        assert_int_equal(image_ref_parse_store(texts[i], &ref), -EINVAL);
        assert_null(strstr(error_text(), "hidden"));
    }
}

static void test_image_ref__lengths(void **state)
{
    char text[3000], name[IMAGE_NAME_MAX + 2];
    struct image_ref ref;
    memset(name, 'n', sizeof name);
    name[IMAGE_NAME_MAX] = 0;
    snprintf(text, sizeof text, "s3://b/%s:%s", name, name);
    assert_int_equal(image_ref_parse(text, &ref), 0);
    assert_string_equal(ref.name, name);
    assert_string_equal(ref.tag, name);
    name[IMAGE_NAME_MAX] = 'n';
    name[IMAGE_NAME_MAX + 1] = 0;
    snprintf(text, sizeof text, "s3://b/%s", name);
    assert_int_equal(image_ref_parse(text, &ref), -EINVAL);
    snprintf(text, sizeof text, "s3://b/a:%s", name);
    assert_int_equal(image_ref_parse(text, &ref), -EINVAL);
    for (size_t len = IMAGE_STORE_MAX - 10; len < IMAGE_STORE_MAX + 10; len++) {
        memset(text, 'd', len);
        memcpy(text, "s3://", 5);
        strcpy(text + len, "/faces");
        assert_int_equal(image_ref_parse(text, &ref), len < IMAGE_STORE_MAX ? 0 : -EINVAL);
        text[0] = '/';
        assert_int_equal(image_ref_parse(text, &ref), len + 7 < IMAGE_STORE_MAX ? 0 : -EINVAL);
    }
}

static void test_image_ref__a_store_alone(void **state)
{
    struct image_ref ref;
    assert_int_equal(image_ref_parse_store("s3://lake/images/", &ref), 0);
    assert_string_equal(ref.store, "s3://lake/images");
    assert_string_equal(ref.name, "");
    assert_int_equal(image_ref_parse_store("/srv", &ref), 0);
    assert_string_equal(ref.store, "file:///srv");
    assert_int_equal(image_ref_parse_store("/", &ref), -EINVAL);
    assert_int_equal(image_ref_parse_store("srv", &ref), -EINVAL);
}

static struct tag example_tag(void)
{
    return (struct tag){.digest = digest_of("abc", 3),
                        .content_root = digest_of("c", 1),
                        .created = 1795000000,
                        .parent = digest_of("p", 1),
                        .nonce = "0123456789abcdef"};
}

static int decode_tag(void *arg, const void *data, size_t len)
{
    struct tag t;
    return tag_decode(data, len, &t);
}

static int decode_lease(void *arg, const void *data, size_t len)
{
    struct lease l;
    return lease_decode(data, len, &l);
}

static int decode_store_doc(void *arg, const void *data, size_t len)
{
    char id[STORE_ID_MAX];
    return store_doc_decode(data, len, id);
}

static void test_tag__golden_bytes_and_round_trip(void **state)
{
    CLEANUP_BYTES golden = BYTES_INIT(TAG_DOC_MAX);
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = example_tag(), back;
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-tag.json", &golden), 0);
    assert_int_equal(tag_encode(&t, &text), 0);
    assert_int_equal(text.len, golden.len);
    assert_memory_equal(text.data, golden.data, text.len);
    assert_int_equal(tag_decode(text.data, text.len, &back), 0);
    assert_memory_equal(&t, &back, sizeof t);
    mangle_truncate(decode_tag, NULL, text.data, text.len, -EBADMSG);
    assert_true(mangle_flip(decode_tag, NULL, text.data, text.len, 1, -EBADMSG) > text.len);

    memset(&t.parent, 0, sizeof t.parent);
    snprintf(t.store, sizeof t.store, "0123abcd");
    bytes_clear(&text);
    assert_int_equal(tag_encode(&t, &text), 0);
    assert_null(strstr(bytes_string(&text), "parent"));
    assert_int_equal(tag_decode(text.data, text.len, &back), 0);
    assert_memory_equal(&t, &back, sizeof t);
}

static void test_tag__limits(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    struct tag t = example_tag(), back;
    memset(t.nonce, 'n', TAG_NONCE_MAX - 1);
    assert_int_equal(tag_encode(&t, &text), 0);
    assert_int_equal(tag_decode(text.data, text.len, &back), 0);
    char *s = bytes_string(&text), *nonce = strstr(s, "nnnn");
    char longer[2048];
    snprintf(longer, sizeof longer, "%.*sn%s", (int)(nonce - s), s, nonce);
    assert_int_equal(tag_decode(longer, strlen(longer), &back), -EBADMSG);
    memset(&t.digest, 0, sizeof t.digest);
    bytes_clear(&text);
    assert_int_equal(tag_encode(&t, &text), 0);
    assert_int_equal(tag_decode(text.data, text.len, &back), -EBADMSG);
}

static void test_lease__round_trip_and_names_that_are_no_text(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    struct lease l = {.started = 5, .renewed = -7, .pid = 123, .host = "h\xc3\xb6st", .image = "file:///\xff/x:y"},
                 back;
    assert_int_equal(lease_encode(&l, &text), 0);
    assert_int_equal(lease_decode(text.data, text.len, &back), 0);
    assert_int_equal(back.started, 5);
    assert_int_equal(back.renewed, -7);
    assert_int_equal(back.pid, 123);
    assert_string_equal(back.host, l.host);
    assert_string_equal(back.image, "file:///?/x:y");
    mangle_truncate(decode_lease, NULL, text.data, text.len, -EBADMSG);
    (void)mangle_flip(decode_lease, NULL, text.data, text.len, 1, -EBADMSG);
    memset(l.image, 'i', sizeof l.image - 1);
    memset(l.host, 'h', sizeof l.host - 1);
    bytes_clear(&text);
    assert_int_equal(lease_encode(&l, &text), 0);
    assert_int_equal(lease_decode(text.data, text.len, &back), 0);
    assert_string_equal(back.image, l.image);
}

static void test_store_doc__is_exact_and_newer_ones_are_refused(void **state)
{
    CLEANUP_BYTES text = BYTES_INIT(TAG_DOC_MAX);
    char id[STORE_ID_MAX];
    assert_int_equal(store_doc_encode("0123abcd", &text), 0);
    assert_string_equal(bytes_string(&text), "{\"format\":\"granary-store\",\"id\":\"0123abcd\",\"version\":1}");
    assert_int_equal(store_doc_decode(text.data, text.len, id), 0);
    assert_string_equal(id, "0123abcd");
    mangle_truncate(decode_store_doc, NULL, text.data, text.len, -EBADMSG);
    const char newer[] = "{\"format\":\"granary-store\",\"version\":2}";
    assert_int_equal(store_doc_decode(newer, strlen(newer), id), -EBADMSG);
    assert_non_null(strstr(error_text(), "newer"));
    assert_string_equal(id, "0123abcd");
    const char other[] = "{\"format\":\"granary-tag\",\"version\":1}";
    assert_int_equal(store_doc_decode(other, strlen(other), id), -EBADMSG);
    const char old[] = "{\"format\":\"granary-store\",\"version\":1}";
    assert_int_equal(store_doc_decode(old, strlen(old), id), 0);
    assert_string_equal(id, "");
    const char strange[] = "{\"format\":\"granary-store\",\"id\":7,\"version\":1}";
    assert_int_equal(store_doc_decode(strange, strlen(strange), id), -EBADMSG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_object__keys_of_every_kind_and_back),
        cmocka_unit_test(test_object__other_keys_are_refused),
        cmocka_unit_test(test_image_ref__every_form),
        cmocka_unit_test(test_image_ref__written_out_it_parses_to_the_same),
        cmocka_unit_test(test_image_ref__wrong_forms_are_explained),
        cmocka_unit_test(test_image_ref__a_password_is_refused_and_not_repeated),
        cmocka_unit_test(test_image_ref__lengths),
        cmocka_unit_test(test_image_ref__a_store_alone),
        cmocka_unit_test(test_tag__golden_bytes_and_round_trip),
        cmocka_unit_test(test_tag__limits),
        cmocka_unit_test(test_lease__round_trip_and_names_that_are_no_text),
        cmocka_unit_test(test_store_doc__is_exact_and_newer_ones_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
