/* Listings as Ceph and AWS write them, cut anywhere, and as an enemy would. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "net/aws/aws_internal.h"

#define HEAD                                                                                                           \
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">"
#define TAIL "</ListBucketResult>"
#define ONE "<Contents><Key>a</Key><Size>1</Size></Contents>"

/* radosgw 16's answer, from the wire */
static const char ceph[] =
    HEAD "<EncodingType>url</EncodingType><Name>check</Name><Prefix>odd%2F</Prefix><MaxKeys>2</MaxKeys>"
         "<IsTruncated>true</IsTruncated>"
         "<Contents><Key>odd%2F%2541~%21%2A%27%28%29</Key><LastModified>2026-11-21T01:46:05.931Z</LastModified>"
         "<ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>0</Size><StorageClass>STANDARD</StorageClass>"
         "<Owner><ID>granary</ID><DisplayName>granary</DisplayName></Owner><Type>Normal</Type></Contents>"
         "<Contents><Key>odd%2Fsp%20ace%2Bplus%26amp</Key><LastModified>1969-12-31T23:59:59.000000001Z</LastModified>"
         "<ETag>&quot;0cc175b9c0f1b6a831c399e269772661-2&quot;</ETag><Size>5368709121</Size></Contents>"
         "<CommonPrefixes><Prefix>odd/dir/</Prefix></CommonPrefixes>"
         "<NextContinuationToken>odd/ünïcode</NextContinuationToken><KeyCount>2</KeyCount>" TAIL;

/* AWS: '+' for a space */
static const char aws[] = HEAD
    "<Name>lake</Name><Prefix></Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType>"
    "<IsTruncated>false</IsTruncated>"
    "<Contents><Key>a+b%2Bc/%E6%BC%A2</Key><LastModified>2026-11-20T23:01:02.000Z</LastModified>"
    "<ETag>\"0cc175b9c0f1b6a831c399e269772661\"</ETag><ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm>"
    "<ChecksumType>FULL_OBJECT</ChecksumType><Size>1</Size><StorageClass>STANDARD</StorageClass></Contents>\n"
    "<Contents><Key>nul%00in</Key><LastModified>2026-11-20T23:01:02.000Z</LastModified><ETag>\"x\"</ETag>"
    "<Size>2</Size></Contents>" TAIL;

static int decode(const char *xml, struct s3_list_page **out)
{
    *out = NULL;
    return s3_list_decode(xml, strlen(xml), out);
}

static void assert_refused(const char *xml, const char *sentence_part)
{
    struct s3_list_page *page;
    int rc = decode(xml, &page);
    if (rc != -EBADMSG || !strstr(error_text(), sentence_part))
        fail_msg("%.200s: %d, %s", xml, rc, rc ? error_text() : "");
    assert_null(page);
}

static void test_s3_list__ceph_page(void **state)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(decode(ceph, &page), 0);
    assert_int_equal(s3_list_page_count(page), 2);
    const struct s3_object *a = s3_list_page_object(page, 0), *b = s3_list_page_object(page, 1);
    assert_string_equal(a->key, "odd/%41~!*'()");
    assert_int_equal(a->key_len, 13);
    assert_string_equal(a->etag, "\"d41d8cd98f00b204e9800998ecf8427e\"");
    assert_int_equal(a->size, 0);
    assert_int_equal(a->mtime, 1795225565);
    assert_int_equal(a->mtime_nsec, 931000000);
    assert_string_equal(b->key, "odd/sp ace+plus&amp");
    assert_true(b->size == 5368709121ull);
    assert_int_equal(b->mtime, -1);
    assert_int_equal(b->mtime_nsec, 1);
    assert_string_equal(s3_list_page_token(page), "odd/ünïcode");
}

static void test_s3_list__aws_page(void **state)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(decode(aws, &page), 0);
    assert_int_equal(s3_list_page_count(page), 2);
    assert_string_equal(s3_list_page_object(page, 0)->key, "a b+c/漢");
    const struct s3_object *nul = s3_list_page_object(page, 1);
    assert_int_equal(nul->key_len, 6);
    assert_memory_equal(nul->key, "nul\0in", 6);
    assert_null(s3_list_page_token(page));
}

static void test_s3_list__without_encoding_keys_are_taken_as_they_are(void **state)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(decode(HEAD "<Contents><Key>a%20+&#x41;<![CDATA[<&]]></Key><Size>1</Size></Contents>" TAIL, &page),
                     0);
    assert_string_equal(s3_list_page_object(page, 0)->key, "a%20+A<&");
    assert_string_equal(s3_list_page_object(page, 0)->etag, "");
}

static void test_s3_list__encoding_may_be_said_last(void **state)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(
        decode(HEAD "<Contents><Key>a%20+</Key><Size>1</Size></Contents><EncodingType>url</EncodingType>" TAIL, &page),
        0);
    assert_string_equal(s3_list_page_object(page, 0)->key, "a  ");
}

static void test_s3_list__empty_page(void **state)
{
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(decode(HEAD "<IsTruncated>false</IsTruncated>" TAIL, &page), 0);
    assert_int_equal(s3_list_page_count(page), 0);
    assert_null(s3_list_page_token(page));
}

static void test_s3_list__cut_anywhere_is_refused(void **state)
{
    for (size_t len = 0; len < sizeof ceph - 1; len++) {
        char *cut = malloc(len + 1); /* of exactly this size, so that a sanitizer sees a read past it */
        memcpy(cut, ceph, len);
        struct s3_list_page *page = NULL;
        assert_int_equal(s3_list_decode(cut, len, &page), len ? -EAGAIN : -EBADMSG);
        assert_null(page);
        free(cut);
    }
}

static void test_s3_list__entities_are_refused(void **state)
{
    assert_refused("<?xml version=\"1.0\"?><!DOCTYPE l [<!ENTITY a \"x\"><!ENTITY b \"&a;&a;&a;\">]>"
                   "<ListBucketResult><Contents><Key>&b;</Key><Size>1</Size></Contents></ListBucketResult>",
                   "document type");
    assert_refused("<!DOCTYPE l SYSTEM \"file:///etc/passwd\"><ListBucketResult></ListBucketResult>", "document type");
    assert_refused(HEAD "<Contents><Key>&undeclared;</Key><Size>1</Size></Contents>" TAIL, "undefined entity");
}

static void test_s3_list__contradictions_are_refused(void **state)
{
    assert_refused("<html><body>hello</body></html>", "not a ListBucketResult");
    assert_refused("<Error><Code>NoSuchBucket</Code></Error>", "not a ListBucketResult");
    assert_refused("not xml", "check that the endpoint is an S3 server");
    assert_refused(HEAD ONE TAIL "<again/>", "junk");
    assert_refused(HEAD "<Contents><Key>a</Key><Key>b</Key><Size>1</Size></Contents>" TAIL, "twice");
    assert_refused(HEAD "<Contents><Key>a</Key><Size>1</Size><Size>1</Size></Contents>" TAIL, "twice");
    assert_refused(HEAD "<IsTruncated>false</IsTruncated><IsTruncated>true</IsTruncated>" TAIL, "twice");
    assert_refused(HEAD "<NextContinuationToken>a</NextContinuationToken><NextContinuationToken/>" TAIL, "twice");
    assert_refused(HEAD "<Contents><Size>1</Size></Contents>" TAIL, "no key");
    assert_refused(HEAD "<Contents><Key></Key><Size>1</Size></Contents>" TAIL, "no key");
    assert_refused(HEAD "<Contents><Key>a</Key></Contents>" TAIL, "no size");
    assert_refused(HEAD "<Contents><Key>a<b/></Key><Size>1</Size></Contents>" TAIL, "holds elements");
    assert_refused(HEAD "<IsTruncated>true</IsTruncated>" ONE TAIL, "not where");
    assert_refused(HEAD "<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken>" TAIL,
                   "not where");
    assert_refused(HEAD "<EncodingType>url</EncodingType><Contents><Key>%4</Key><Size>1</Size></Contents>" TAIL,
                   "escaped");
    assert_refused(HEAD "<EncodingType>url</EncodingType><Contents><Key>%zz</Key><Size>1</Size></Contents>" TAIL,
                   "escaped");
    assert_refused(HEAD "<Contents><Key>a</Key><Size>1</Size><ETag>x&#13;&#10;Evil: 1</ETag></Contents>" TAIL, "ETag");
}

static void test_s3_list__numbers_and_times_are_checked(void **state)
{
    static const char *const sizes[] = {
        "", "-1", "+1", " 1", "1 ", "0x10", "1e3", "9223372036854775808", "99999999999999999999"};
    static const char *const times[] = {"",
                                        "yesterday",
                                        "2026-11-20",
                                        "2026-11-20T23:01:02",
                                        "2026-11-20T23:01:02.5",
                                        "2026-11-20T23:01:02.5+01:00",
                                        "2026-13-20T23:01:02.000Z"};
    char xml[1024];
    for (size_t i = 0; i < GR_ARRAY_SIZE(sizes); i++) {
        snprintf(xml, sizeof xml, HEAD "<Contents><Key>a</Key><Size>%s</Size></Contents>" TAIL, sizes[i]);
        assert_refused(xml, "size");
    }
    for (size_t i = 0; i < GR_ARRAY_SIZE(times); i++) {
        snprintf(xml, sizeof xml,
                 HEAD "<Contents><Key>a</Key><Size>1</Size><LastModified>%s</LastModified></Contents>" TAIL, times[i]);
        assert_refused(xml, "time");
    }
}

static char *repeat(const char *begin, const char *unit, size_t n, const char *end)
{
    CLEANUP_BYTES b = BYTES_INIT(64 << 20);
    assert_int_equal(bytes_printf(&b, "%s", begin), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(bytes_append(&b, unit, strlen(unit)), 0);
    assert_int_equal(bytes_printf(&b, "%s", end), 0);
    return strdup(bytes_string(&b));
}

static void test_s3_list__sizes_are_bounded(void **state)
{
    CLEANUP_FREE char *many = repeat(HEAD, ONE, 10001, TAIL);
    assert_refused(many, "too many objects");
    CLEANUP_FREE char *enough = repeat(HEAD, ONE, 10000, TAIL);
    CLEANUP(cleanup_s3_list_page) struct s3_list_page *page = NULL;
    assert_int_equal(decode(enough, &page), 0);
    assert_int_equal(s3_list_page_count(page), 10000);
    assert_string_equal(s3_list_page_object(page, 9999)->key, "a");
    CLEANUP_FREE char *long_key =
        repeat(HEAD "<Contents><Key>", "0123456789abcdef", 1025, "</Key><Size>1</Size></Contents>" TAIL);
    assert_refused(long_key, "too long");
    CLEANUP_FREE char *deep = repeat(HEAD, "<x>", 1000, "");
    assert_refused(deep, "too deeply");
}

static void test_escape__strict_and_back(void **state)
{
    CLEANUP_BYTES b = BYTES_INIT(4096);
    char all[256];
    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)i;
    assert_int_equal(http_percent_encode(&b, "/a b+%~-._é/(!*')", 18, true), 0);
    assert_string_equal(bytes_string(&b), "/a%20b%2B%25~-._%C3%A9/%28%21%2A%27%29");
    bytes_clear(&b);
    assert_int_equal(http_percent_encode(&b, "a/b", 3, false), 0);
    assert_string_equal(bytes_string(&b), "a%2Fb");
    bytes_clear(&b);
    assert_int_equal(http_percent_encode(&b, all, sizeof all, false), 0);
    assert_int_equal(http_percent_decode((char *)b.data, b.len), 256);
    assert_memory_equal(b.data, all, 256);
    char small[] = "%e2%Aa+", bad[] = "%g0", cut[] = "a%2";
    assert_int_equal(http_percent_decode(small, 7), 3);
    assert_memory_equal(small, "\xe2\xaa+", 3);
    assert_int_equal(http_percent_decode(bad, 3), -EBADMSG);
    assert_int_equal(http_percent_decode(cut, 3), -EBADMSG);
    CLEANUP_BYTES tight = BYTES_INIT(4);
    assert_int_equal(http_percent_encode(&tight, "ab  ", 4, false), -EMSGSIZE);
    assert_int_equal(tight.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s3_list__ceph_page),
        cmocka_unit_test(test_s3_list__aws_page),
        cmocka_unit_test(test_s3_list__without_encoding_keys_are_taken_as_they_are),
        cmocka_unit_test(test_s3_list__encoding_may_be_said_last),
        cmocka_unit_test(test_s3_list__empty_page),
        cmocka_unit_test(test_s3_list__cut_anywhere_is_refused),
        cmocka_unit_test(test_s3_list__entities_are_refused),
        cmocka_unit_test(test_s3_list__contradictions_are_refused),
        cmocka_unit_test(test_s3_list__numbers_and_times_are_checked),
        cmocka_unit_test(test_s3_list__sizes_are_bounded),
        cmocka_unit_test(test_escape__strict_and_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
