/* Where an image came from: no secret gets into it, it is carried as it is, and no hostile one hides a tag. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "format/provenance.h"
#include "format/tag.h"

static struct provenance example(void)
{
    struct provenance p = {
        .files = 12, .bytes = 34567, .built = 1795000000, .parent = digest_of("p", 1), .tool = "granary 0.1.0"};
    provenance_add_source(&p, "s3://lake/raw/faces");
    return p;
}

/* A tag's document with this value, as JSON, for its provenance. */
static int decode_with(const char *value, struct tag *out)
{
    char text[TAG_DOC_MAX], hex[DIGEST_HEX_SIZE];
    struct digest d = digest_of("abc", 3);
    digest_hex(&d, hex);
    int len =
        snprintf(text, sizeof text,
                 "{\"format\":\"granary-tag\",\"version\":1,\"digest\":\"%s\",\"content_root\":\"%s\",\"created\":1,"
                 "\"nonce\":\"n\",\"provenance\":%s}",
                 hex, hex, value);
    assert_true(len > 0 && (size_t)len < sizeof text);
    return tag_decode(text, (size_t)len, out);
}

static void noted_as(const char *address, const char *noted)
{
    struct provenance p = {.listed = 0};
    provenance_add_source(&p, address);
    assert_int_equal(p.listed, 1);
    assert_string_equal(p.sources[0], noted);
}

static void test_provenance__addresses_lose_credentials_and_query(void **state)
{
    noted_as("s3://lake/raw/faces", "s3://lake/raw/faces");
    noted_as("s3://lake/what?is#this@", "s3://lake/what?is#this@");
    noted_as("s3://key:secret@lake/raw", "s3://lake/raw");
    noted_as("https://host/faces?X-Amz-Signature=secret", "https://host/faces");
    noted_as("http://host?secret", "http://host");
    noted_as("https://user:se@cret@host:8080/a@b#secret", "https://host:8080/a@b");
    noted_as("tar:https://user:secret@host/shards?secret", "tar:https://host/shards");
    noted_as("hdfs://user@nn1:9870,nn2:9870/data", "hdfs://nn1:9870,nn2:9870/data");
    noted_as("/srv/user@host?name", "/srv/user@host?name");
    noted_as("file:///srv/a://b@c", "file:///srv/a://b@c");
    noted_as("tar:/srv/a://b@c", "tar:/srv/a://b@c");
    noted_as("-", "-");
}

static void test_provenance__what_is_encoded_comes_back(void **state)
{
    char text[PROVENANCE_TEXT_MAX];
    struct provenance p = example(), back;
    provenance_add_source(&p, "/srv/\xff");
    assert_int_equal(provenance_encode(&p, text), 0);
    assert_int_equal(provenance_decode(text, &back), 0);
    assert_int_equal(back.listed, 2);
    assert_int_equal(back.source_count, 2);
    assert_string_equal(back.sources[0], "s3://lake/raw/faces");
    assert_string_equal(back.sources[1], "/srv/\xef\xbf\xbd"); /* JSON is UTF-8 */
    assert_int_equal(back.files, 12);
    assert_int_equal(back.bytes, 34567);
    assert_int_equal(back.built, 1795000000);
    assert_true(digest_equal(&back.parent, &p.parent));
    assert_int_equal(back.parents, 1);
    assert_int_equal(back.part_count, 0);
    assert_string_equal(back.tool, "granary 0.1.0");
    /* a part, and an image joined from parts */
    p.part = 0;
    p.part_count = 8;
    p.parent = (struct digest){0};
    p.parents = 3;
    assert_int_equal(provenance_encode(&p, text), 0);
    assert_int_equal(provenance_decode(text, &back), 0);
    assert_int_equal(back.part, 0);
    assert_int_equal(back.part_count, 8);
    assert_int_equal(back.parents, 3);
    assert_true(digest_is_zero(&back.parent));
}

static void test_provenance__sources_without_room_are_counted(void **state)
{
    char text[PROVENANCE_TEXT_MAX], address[PROVENANCE_TEXT_MAX];
    struct provenance p = example(), back;
    for (unsigned i = 0; i < 20; i++)
        provenance_add_source(&p, "/srv");
    assert_int_equal(provenance_encode(&p, text), 0);
    assert_int_equal(provenance_decode(text, &back), 0);
    assert_int_equal(back.listed, PROVENANCE_SOURCES_MAX);
    assert_int_equal(back.source_count, 21);

    p = (struct provenance){.listed = 0};
    memset(address, '\x01', sizeof address); /* six bytes each in JSON */
    address[sizeof address - 1] = '\0';
    provenance_add_source(&p, address);
    assert_int_equal(provenance_encode(&p, text), 0);
    assert_int_equal(provenance_decode(text, &back), 0);
    assert_int_equal(back.listed, 0);
    assert_int_equal(back.source_count, 1);
}

static void test_provenance__wrong_members_are_named(void **state)
{
    static const struct {
        const char *text, *why;
    } wrong[] = {
        {"[]", "not a JSON object"},
        {"{", "not valid JSON"},
        {"{}", "\"sources\""},
        {"{\"sources\":[1]}", "a source is no text"},
        {"{\"sources\":[0,0,0,0,0,0,0,0,0]}", "at most 8"},
        {"{\"sources\":[],\"source_count\":-1}", "\"source_count\""},
        {"{\"sources\":[],\"source_count\":0,\"files\":\"many\"}", "\"files\""},
        {"{\"sources\":[],\"source_count\":0,\"files\":1,\"bytes\":1,\"built\":1}", "\"tool\""},
    };
    struct provenance p;
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        assert_int_equal(provenance_decode(wrong[i].text, &p), -EBADMSG);
        if (!strstr(error_text(), wrong[i].why))
            fail_msg("%s: %s", wrong[i].text, error_text());
    }
}

static void test_tag__golden_bytes_with_a_provenance(void **state)
{
    CLEANUP_BYTES golden = BYTES_INIT(TAG_DOC_MAX);
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct provenance p = example();
    struct tag t = {.digest = digest_of("abc", 3),
                    .content_root = digest_of("c", 1),
                    .created = 1795000000,
                    .parent = digest_of("p", 1),
                    .nonce = "0123456789abcdef",
                    .name = "faces",
                    .tag = "v1"};
    struct tag back;
    assert_int_equal(provenance_encode(&p, t.provenance), 0);
    assert_int_equal(tag_encode(&t, &doc), 0);
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-tag-provenance.json", &golden), 0);
    assert_int_equal(doc.len, golden.len);
    assert_memory_equal(doc.data, golden.data, doc.len);
    assert_int_equal(tag_decode(golden.data, golden.len, &back), 0);
    assert_string_equal(back.provenance, t.provenance);
}

/* What a later version adds must survive a copy by this one. */
static void test_tag__unknown_members_of_a_provenance_are_carried(void **state)
{
    static const char later[] = "{\"a\":[1.5,null,{\"b\":\"\xc3\xa4\"}],\"z\":true}";
    CLEANUP_BYTES doc = BYTES_INIT(TAG_DOC_MAX);
    struct tag t, back;
    assert_int_equal(decode_with(later, &t), 0);
    assert_string_equal(t.provenance, later);
    assert_int_equal(tag_encode(&t, &doc), 0);
    assert_int_equal(tag_decode(doc.data, doc.len, &back), 0);
    assert_string_equal(back.provenance, later);
}

/* Tags of earlier builds have none; a hostile one must not make a tag unreadable. */
static void test_tag__without_a_provenance_that_can_be_kept_it_reads(void **state)
{
    CLEANUP_BYTES old = BYTES_INIT(TAG_DOC_MAX);
    char large[PROVENANCE_TEXT_MAX + 1];
    static const char *const others[] = {"null", "[]", "\"text\"", "1"};
    struct tag t;
    assert_int_equal(io_read_file(GRANARY_GOLDEN_DIR "/ok-tag.json", &old), 0);
    assert_int_equal(tag_decode(old.data, old.len, &t), 0);
    assert_string_equal(t.provenance, "");
    for (size_t i = 0; i < GR_ARRAY_SIZE(others); i++) {
        assert_int_equal(decode_with(others[i], &t), 0);
        assert_string_equal(t.provenance, "");
    }
    snprintf(large, sizeof large, "{\"a\":\"%0*d\"}", PROVENANCE_TEXT_MAX - 8, 0);
    assert_int_equal(strlen(large), PROVENANCE_TEXT_MAX); /* one byte too many */
    assert_int_equal(decode_with(large, &t), 0);
    assert_string_equal(t.provenance, "");
    snprintf(large, sizeof large, "{\"a\":\"%0*d\"}", PROVENANCE_TEXT_MAX - 9, 0);
    assert_int_equal(decode_with(large, &t), 0);
    assert_string_equal(t.provenance, large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_provenance__addresses_lose_credentials_and_query),
        cmocka_unit_test(test_provenance__what_is_encoded_comes_back),
        cmocka_unit_test(test_provenance__sources_without_room_are_counted),
        cmocka_unit_test(test_provenance__wrong_members_are_named),
        cmocka_unit_test(test_tag__golden_bytes_with_a_provenance),
        cmocka_unit_test(test_tag__unknown_members_of_a_provenance_are_carried),
        cmocka_unit_test(test_tag__without_a_provenance_that_can_be_kept_it_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
