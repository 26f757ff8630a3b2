/* Keys that were given: understood, used in place of those of the environment, replaced, wiped. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "fake/http_fake.h"
#include "net/aws/s3.h"
#include "net/aws/s3_keys.h"
#include "unit/http_world.h"

static struct s3_keys *keys_of(const char *text)
{
    struct s3_keys *k = NULL;
    assert_int_equal(s3_keys_parse(text, strlen(text), &k), 0);
    return k;
}

static void test_s3_keys__what_is_parsed_is_what_is_formatted(void **state)
{
    static const char text[] = "# of a volume\r\n\n AWS_SECRET_ACCESS_KEY = hidden/+= \nAWS_ACCESS_KEY_ID=AKONE\n"
                               "AWS_SESSION_TOKEN=token";
    struct bytes out CLEANUP(bytes_wipe) = BYTES_INIT(S3_KEYS_TEXT_MAX);
    struct s3_keys *k = keys_of(text);
    assert_int_equal(s3_keys_format(k, &out), 0);
    assert_string_equal(bytes_string(&out), "AWS_ACCESS_KEY_ID=AKONE\nAWS_SECRET_ACCESS_KEY=hidden/+=\n"
                                            "AWS_SESSION_TOKEN=token\n");
    s3_keys_wipe(k);
    bytes_clear(&out);
    assert_int_equal(s3_keys_format(k, &out), 0);
    assert_int_equal(out.len, 0);
    s3_keys_unref(k);
}

static void test_s3_keys__other_lines_are_refused_without_being_quoted(void **state)
{
    static const char *const wrong[] = {
        "",
        "AWS_ACCESS_KEY_ID=AK\n",
        "AWS_SECRET_ACCESS_KEY=hidden\n",
        "AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCESS_KEY=\n",
        "AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCESS_KEY=hidden hidden\n",
        "AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCESS_KEY=hidden\nAWS_SECRET_ACCESS_KEY=hidden\n",
        "AWS_ACCESS_KEY_ID=AK\nAWS_SECRET_ACCES_KEY=hidden\n",
        "AWS_ACCESS_KEY_ID=AK\nhidden\n",
    };
    struct s3_keys *k = NULL;
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        assert_int_equal(s3_keys_parse(wrong[i], strlen(wrong[i]), &k), -EINVAL);
        assert_null(strstr(error_text(), "hidden"));
    }
    assert_int_equal(s3_keys_parse("AWS_ACCESS_KEY_ID=A\0K\nAWS_SECRET_ACCESS_KEY=hidden", 49, &k), -EINVAL);
    CLEANUP_FREE char *large = calloc(1, S3_KEYS_TEXT_MAX);
    memset(large, '\n', S3_KEYS_TEXT_MAX);
    assert_int_equal(s3_keys_parse(large, S3_KEYS_TEXT_MAX, &k), -EINVAL);
    assert_null(k);
}

static struct s3 *client(const char *url, struct s3_keys *k)
{
    struct s3 *s = NULL;
    struct s3_config config = {.bucket = "bucket", .endpoint = url, .keys = k, .http = {HTTP_FAKE_TIMEOUTS}};
    assert_int_equal(s3_new(&config, &s), 0);
    return s;
}

static int read_with(struct s3 *s)
{
    CLEANUP_BYTES body = BYTES_INIT(100);
    return s3_get(s, "key", 3, &(struct http_part){0}, collect, &body, NULL);
}

static void test_s3_keys__requests_use_them_until_they_are_replaced_or_wiped(void **state)
{
    struct fixture *f = *state;
    struct s3_keys *k = keys_of("AWS_ACCESS_KEY_ID=AKONE\nAWS_SECRET_ACCESS_KEY=hidden\n"),
                   *next = keys_of("AWS_ACCESS_KEY_ID=AKTWO\nAWS_SECRET_ACCESS_KEY=hidden\n"), *copy;
    setenv("AWS_ACCESS_KEY_ID", "AKENV", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden", 1);
    setenv("AWS_NO_SIGN_REQUEST", "1", 1);
    struct s3 *s = client(http_fake_url(f->server), k);
    set_next(f, HTTP_FAKE_CLOSE);
    set_answer(f, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
    assert_int_equal(read_with(s), 0);
    assert_non_null(strstr(last_request(f), "Credential=AKONE/"));
    assert_int_equal(s3_keys_copy(k, &copy), 0);
    assert_int_equal(s3_keys_replace(k, next), 0);
    assert_int_equal(read_with(s), 0);
    assert_non_null(strstr(last_request(f), "Credential=AKTWO/"));
    s3_keys_wipe(k);
    assert_int_equal(read_with(s), -EACCES);
    assert_non_null(strstr(error_text(), "have been removed"));
    assert_int_equal(s3_keys_replace(next, k), -EACCES); /* and what they were is not lost by it */
    assert_int_equal(s3_keys_replace(k, copy), 0);
    assert_int_equal(read_with(s), 0);
    assert_non_null(strstr(last_request(f), "Credential=AKONE/"));
    s3_free(s);
    s3_keys_unref(k);
    s3_keys_unref(next);
    s3_keys_unref(copy);
    unsetenv("AWS_NO_SIGN_REQUEST");
}

/* The keys to replace, and by which, while a request is under way. */
struct rotation {
    struct s3_keys *k, *next;
};

static enum http_fake_next refuse_old(void *arg, const struct http_fake_request *r, int fd)
{
    static const char refusal[] = "<Error><Code>InvalidAccessKeyId</Code></Error>";
    const struct rotation *rotation = arg;
    if (strstr(r->head, "Credential=AKTWO/")) {
        http_fake_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx");
        return HTTP_FAKE_CLOSE;
    }
    if (rotation->next)
        assert_int_equal(s3_keys_replace(rotation->k, rotation->next), 0);
    http_fake_text(fd, "HTTP/1.1 403 X\r\nContent-Length: %zu\r\n\r\n%s", sizeof refusal - 1, refusal);
    return HTTP_FAKE_CLOSE;
}

static void test_s3_keys__a_request_whose_keys_are_replaced_meanwhile_is_sent_again(void **state)
{
    struct rotation rotation = {.k = keys_of("AWS_ACCESS_KEY_ID=AKONE\nAWS_SECRET_ACCESS_KEY=hidden\n")};
    struct http_fake *server = http_fake_start(refuse_old, &rotation);
    struct s3 *s = client(http_fake_url(server), rotation.k);
    assert_int_equal(read_with(s), -ENOKEY);
    rotation.next = keys_of("AWS_ACCESS_KEY_ID=AKTWO\nAWS_SECRET_ACCESS_KEY=hidden\n");
    assert_int_equal(read_with(s), 0);
    s3_free(s);
    http_fake_stop(server);
    s3_keys_unref(rotation.k);
    s3_keys_unref(rotation.next);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_s3_keys__what_is_parsed_is_what_is_formatted),
        cmocka_unit_test(test_s3_keys__other_lines_are_refused_without_being_quoted),
        TEST(s3_keys__requests_use_them_until_they_are_replaced_or_wiped),
        cmocka_unit_test(test_s3_keys__a_request_whose_keys_are_replaced_meanwhile_is_sent_again),
    };
    unset_proxies();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
