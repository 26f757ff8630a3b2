/* Every failure of a transfer is sorted into those that pass and those that last. */
#include "unit/cmocka_all.h"

#include <curl/curl.h>
#include <errno.h>
#include <string.h>

#include "base/compiler.h"
#include "net/http.h"

static int errno_of(int code, long os_errno, const char *text)
{
    const char *remedy = NULL;
    int rc = http_failure_errno(&(struct http_failure){code, os_errno, text}, &remedy);
    assert_non_null(remedy);
    return rc;
}

static void test_http_error__every_code_of_libcurl_is_in_the_table(void **state)
{
    for (int code = 1; code < (int)CURL_LAST; code++) {
        if (!http_failure_known(code))
            fail_msg("%d is not: %s", code, curl_easy_strerror((CURLcode)code));
        assert_true(errno_of(code, 0, "") < 0);
    }
    assert_false(http_failure_known(CURLE_OK));
    assert_false(http_failure_known(100000));
    assert_int_equal(errno_of(100000, 0, ""), -EIO);
}

static void test_http_error__what_is_no_answer_passes(void **state)
{
    static const int passing[] = {CURLE_COULDNT_RESOLVE_HOST,
                                  CURLE_COULDNT_CONNECT,
                                  CURLE_SEND_ERROR,
                                  CURLE_RECV_ERROR,
                                  CURLE_GOT_NOTHING,
                                  CURLE_PARTIAL_FILE,
                                  CURLE_HTTP2,
                                  CURLE_HTTP2_STREAM,
                                  CURLE_WEIRD_SERVER_REPLY,
                                  CURLE_UNSUPPORTED_PROTOCOL,
                                  CURLE_BAD_CONTENT_ENCODING};
    static const int lasting[] = {
        CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_CACERT_BADFILE, CURLE_URL_MALFORMAT, CURLE_OUT_OF_MEMORY,
        CURLE_SSL_CERTPROBLEM,          CURLE_SSL_CONNECT_ERROR};
    for (size_t i = 0; i < GR_ARRAY_SIZE(passing); i++)
        assert_int_equal(errno_of(passing[i], 0, ""), -EAGAIN);
    for (size_t i = 0; i < GR_ARRAY_SIZE(lasting); i++) {
        int rc = errno_of(lasting[i], 0, "");
        assert_true(rc != -EAGAIN && rc != -ETIMEDOUT);
    }
    assert_int_equal(errno_of(CURLE_UNSUPPORTED_PROTOCOL, 0, "Received HTTP/0.9 when not allowed"), -EAGAIN);
    assert_int_equal(errno_of(CURLE_UNSUPPORTED_PROTOCOL, 0, "Protocol \"https\" not supported or disabled in libcurl"),
                     -ENOTSUP);
    assert_int_equal(errno_of(CURLE_OPERATION_TIMEDOUT, 0, ""), -ETIMEDOUT);
    assert_int_equal(errno_of(CURLE_SSL_CONNECT_ERROR, ECONNRESET, ""), -EAGAIN);
    assert_int_equal(errno_of(CURLE_SSL_CONNECT_ERROR, 0, "OpenSSL SSL_connect: SSL_ERROR_SYSCALL"), -EAGAIN);
}

static void test_http_error__statuses_pass_or_last(void **state)
{
    static const int passing[] = {408, 421, 425, 429, 499, 500, 502, 503, 504, 509, 520, 529, 599};
    static const struct {
        int status, rc;
    } lasting[] = {{400, -EIO},    {401, -ENOKEY}, {403, -EACCES}, {407, -ENOKEY},  {404, -ENOENT},  {405, -EIO},
                   {410, -ENOENT}, {412, -ESTALE}, {413, -EFBIG},  {416, -EBADMSG}, {501, -ENOTSUP}, {505, -ENOTSUP},
                   {507, -ENOSPC}, {508, -EIO},    {511, -EACCES}, {302, -EIO},     {0, -EIO},       {700, -EIO}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(passing); i++)
        assert_int_equal(http_status_errno(passing[i]), -EAGAIN);
    for (size_t i = 0; i < GR_ARRAY_SIZE(lasting); i++)
        assert_int_equal(http_status_errno(lasting[i].status), lasting[i].rc);
    assert_int_equal(http_status_errno(200), 0);
    assert_int_equal(http_status_errno(206), 0);
    assert_non_null(strstr(http_status_meaning(507), "no space left"));
    assert_string_equal(http_status_meaning(200), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_http_error__every_code_of_libcurl_is_in_the_table),
        cmocka_unit_test(test_http_error__what_is_no_answer_passes),
        cmocka_unit_test(test_http_error__statuses_pass_or_last),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
