/* S3 against a server that misbehaves: what each refusal becomes, with no secret in any sentence. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "net/aws/s3.h"
#include "unit/http_world.h"

static struct s3 *new_s3(struct fixture *f)
{
    struct s3 *s = NULL;
    setenv("AWS_ACCESS_KEY_ID", "AKTEST", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hiddensecret", 1);
    setenv("AWS_SESSION_TOKEN", "hiddentoken", 1);
    unsetenv("AWS_REGION");
    unsetenv("AWS_DEFAULT_REGION");
    unsetenv("AWS_NO_SIGN_REQUEST");
    struct s3_config config = {.bucket = "bucket", .endpoint = http_fake_url(f->server), .http = {HTTP_FAKE_TIMEOUTS}};
    assert_int_equal(s3_new(&config, &s), 0);
    return s;
}

static void test_s3__refusals_become_sentences(void **state)
{
#define ERR(status, code)                                                                                              \
    "HTTP/1.1 " status " X\r\n\r\n<?xml version=\"1.0\"?><Error><Code>" code "</Code><Message>m</Message>"
    static const struct {
        const char *answer;
        int rc;
        const char *sentence;
    } cases[] = {
        {ERR("403", "SignatureDoesNotMatch") "</Error>", -ENOKEY, "check AWS_SECRET_ACCESS_KEY"},
        {ERR("403", "InvalidAccessKeyId") "</Error>", -ENOKEY, "check AWS_ACCESS_KEY_ID"},
        {ERR("403", "RequestTimeTooSkewed") "</Error>", -ENOKEY, "set the clock"},
        {ERR("400", "ExpiredToken") "</Error>", -ENOKEY, "get new credentials"},
        {ERR("403", "AccessDenied") "</Error>", -EACCES, "refuses these credentials to read"},
        {ERR("403", "InvalidObjectState") "</Error>", -EACCES, "restore it"},
        {ERR("404", "NoSuchBucket") "</Error>", -EIO, "the bucket does not exist"},
        {ERR("404", "NoSuchKey") "</Error>", -ENOENT, "it is not there"},
        {"HTTP/1.1 404 X\r\n\r\n<html>nginx</html>", -EIO, "check that the endpoint is an S3 server"},
        {"HTTP/1.1 405 X\r\n\r\n", -EIO, "check that the endpoint is an S3 server"},
        {ERR("301", "PermanentRedirect") "<Region>eu-west-1</Region></Error>", -EINVAL, "set AWS_REGION=eu-west-1"},
        {"HTTP/1.1 301 X\r\nx-amz-bucket-region: eu-west-2\r\n\r\n", -EINVAL, "set AWS_REGION=eu-west-2"},
        {"HTTP/1.1 307 X\r\nLocation: http://evil.example/\r\n\r\n", -EINVAL, "redirects elsewhere"},
        {ERR("400", "AuthorizationHeaderMalformed") "<Region>eu-west-1</Region></Error>", -EINVAL,
         "AWS_REGION=eu-west-1"},
        {ERR("503", "SlowDown") "</Error>", -EAGAIN, "slow down"},
        {"HTTP/1.1 500 X\r\n\r\n", -EAGAIN, "status 500"},
        {"HTTP/1.1 429 X\r\n\r\n", -EAGAIN, "busy"},
        {ERR("400", "RequestTimeout") "</Error>", -EAGAIN, "waited too long"},
        {"HTTP/1.1 507 X\r\n\r\n", -ENOSPC, "no space left; free some"},
        {ERR("507", "XMinioStorageFull") "</Error>", -ENOSPC, "XMinioStorageFull"},
        {"HTTP/1.1 413 X\r\n\r\n", -EFBIG, "client_max_body_size"},
        {"HTTP/1.1 501 X\r\n\r\n", -ENOTSUP, "does not support"},
        {"HTTP/1.1 505 X\r\n\r\n", -ENOTSUP, "version of HTTP"},
        {"HTTP/1.1 511 X\r\n\r\n", -EACCES, "login"},
        {ERR("501", "NotImplemented") "</Error>", -ENOTSUP, "does not support"},
        {ERR("412", "PreconditionFailed") "</Error>", -ESTALE, "another version"},
        {ERR("403", "QuotaExceeded") "</Error>", -ENOSPC, "quota"},
        {ERR("403", "<script>") "</Error>", -EACCES, "(status 403)"},
        {"HTTP/1.1 416 X\r\n\r\n", -EBADMSG, "shorter"},
    };
    struct fixture *f = *state;
    struct s3 *s = new_s3(f);
    CLEANUP_BYTES body = BYTES_INIT(100);
    set_next(f, HTTP_FAKE_CLOSE);
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        set_answer(f, cases[i].answer);
        int rc = s3_get(s, "k", 1, &(struct http_part){0}, collect, &body, NULL);
        if (rc != cases[i].rc || !strstr(error_text(), cases[i].sentence))
            fail_msg("case %zu: %d %s", i, rc, error_text());
        assert_int_equal(strncmp(error_text(), "s3://bucket/k: ", 15), 0);
        assert_null(strstr(error_text(), "hidden"));
    }
    set_answer(f, ERR("412", "PreconditionFailed") "</Error>");
    assert_int_equal(s3_put(s, "k", "x", 1, NULL, "If-None-Match: *", NULL), -EEXIST);
    set_answer(f, "HTTP/1.1 416 X\r\n\r\n");
    assert_int_equal(s3_get(s, "k", 1, &(struct http_part){.off = 5, .len = 5}, collect, &body, NULL), -EBADMSG);
    s3_free(s);
}

static void test_s3__requests_are_strictly_escaped_and_signed(void **state)
{
    struct fixture *f = *state;
    struct s3 *s = new_s3(f);
    set_next(f, HTTP_FAKE_CLOSE);
    set_answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_int_equal(s3_put(s, "/a b//../+%é!", "x", 1, NULL, NULL, NULL), 0);
    assert_non_null(strstr(last_request(f), "PUT /bucket//a%20b//../%2B%25%C3%A9%21 HTTP/1.1\r\n"));
    assert_non_null(strstr(last_request(f), "Authorization: AWS4-HMAC-SHA256 Credential=AKTEST/"));
    assert_non_null(strstr(last_request(f), "x-amz-security-token: hiddentoken"));
    assert_non_null(strstr(last_request(f),
                           "x-amz-content-sha256: 2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"));
    assert_null(strstr(last_request(f), "hiddensecret"));
    assert_int_equal(s3_put(s, "", "x", 1, NULL, NULL, NULL), -EINVAL);
    s3_free(s);
    setenv("AWS_NO_SIGN_REQUEST", "1", 1);
    assert_int_equal(s3_new(&(struct s3_config){.bucket = "b", .endpoint = http_fake_url(f->server)}, &s), 0);
    assert_int_equal(s3_delete(s, "k"), 0);
    assert_null(strstr(last_request(f), "Authorization"));
    set_answer(f, "HTTP/1.1 403 X\r\n\r\n");
    assert_int_equal(s3_delete(s, "k"), -EACCES);
    assert_non_null(strstr(error_text(), "unset AWS_NO_SIGN_REQUEST"));
    unsetenv("AWS_NO_SIGN_REQUEST");
    s3_free(s);
}

static int never(void *arg, const struct s3_object *object)
{
    return 0;
}

static void test_s3__listings_that_do_not_end_are_refused(void **state)
{
#define LIST(inner) "HTTP/1.1 200 OK\r\n\r\n<ListBucketResult>" inner "</ListBucketResult>"
    struct fixture *f = *state;
    struct s3 *s = new_s3(f);
    set_next(f, HTTP_FAKE_CLOSE);
    set_answer(f, LIST("<IsTruncated>true</IsTruncated><NextContinuationToken>t/=</NextContinuationToken>"
                       "<Contents><Key>a</Key><Size>1</Size></Contents>"));
    assert_int_equal(s3_list(s, "p/", "after", never, NULL), -EIO);
    assert_non_null(strstr(error_text(), "does not end"));
    assert_non_null(strstr(last_request(f), "GET /bucket/?continuation-token=t%2F%3D&encoding-type=url&list-type=2"
                                            "&max-keys=1000&prefix=p%2F HTTP/1.1"));
    set_answer(f, LIST(""));
    assert_int_equal(s3_list(s, NULL, "after/1", never, NULL), 0);
    assert_non_null(
        strstr(last_request(f), "?encoding-type=url&list-type=2&max-keys=1000&prefix=&start-after=after%2F1 "));
    set_answer(f, "HTTP/1.1 200 OK\r\n\r\n<html>");
    assert_int_equal(s3_list(s, NULL, NULL, never, NULL), -EBADMSG);
    assert_int_equal(strncmp(error_text(), "s3://bucket at http://127.0.0.1:", 32), 0);
    s3_free(s);
}

static void test_s3__bad_configuration_is_refused(void **state)
{
    static const struct {
        const char *bucket, *endpoint, *region, *sentence;
    } cases[] = {
        {"", NULL, NULL, "bucket name"},
        {"a/b", NULL, NULL, "bucket name"},
        {"..", NULL, NULL, "bucket name"},
        {"b", "host:80", NULL, "must look like"},
        {"b", "ftp://host", NULL, "must look like"},
        {"b", "http://", NULL, "must look like"},
        {"b", "http://127.0.0.1:", NULL, "http://127.0.0.1:': it must look like"},
        {"b", "https://[::1]:/path", NULL, "must look like"},
        {"b", "http://ak:hidden@host", NULL, "neither credentials"},
        {"b", "ak:hidden@host", NULL, "must look like"},
        {"b", "http://host/?x", NULL, "neither"},
        {"b", NULL, "eu west", "no region"},
        {"b", NULL, "eu:x", "no region"},
    };
    struct s3 *s = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct s3_config c = {.bucket = cases[i].bucket, .endpoint = cases[i].endpoint, .region = cases[i].region};
        if (s3_new(&c, &s) != -EINVAL || !strstr(error_text(), cases[i].sentence) || strstr(error_text(), "hidden"))
            fail_msg("case %zu: %s", i, error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(s3__refusals_become_sentences),
        TEST(s3__requests_are_strictly_escaped_and_signed),
        TEST(s3__listings_that_do_not_end_are_refused),
        cmocka_unit_test(test_s3__bad_configuration_is_refused),
    };
    unset_proxies();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
