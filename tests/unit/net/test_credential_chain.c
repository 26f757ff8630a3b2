/* Credentials of services, renewed: before they expire, while they are used, when a server says so. One fake server is
 * STS, container endpoint, instance metadata and S3. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread.h"
#include "fake/http_fake.h"
#include "net/aws/aws_internal.h"
#include "net/aws/s3.h"
#include "unit/scratch.h"

static struct service {
    struct http_fake *http;
    _Atomic int issued;     /* sets of keys so far: the last one's number */
    _Atomic int failures;   /* requests for keys that are answered with 503 first */
    _Atomic int lifetime_s; /* of what is issued */
    _Atomic int requests;   /* for keys */
    bool absent;            /* 404 to everything */
    int delay_us;
    _Atomic int expired;            /* sets of keys up to this number are refused by S3 */
    const char *_Atomic s3_refusal; /* once */
    char region[32], host[64];      /* of the last S3 request */
} service;

static char dir[SCRATCH_MAX];

static void text_answer(int fd, int status, const char *body)
{
    http_fake_text(fd, "HTTP/1.1 %d X\r\nContent-Length: %zu\r\n\r\n%s", status, strlen(body), body);
}

/* Keys number N in the given form. */
static void issue(int fd, const char *form)
{
    char body[1024], when[TEXT_TIME_MAX];
    atomic_fetch_add(&service.requests, 1);
    if (service.delay_us)
        usleep((useconds_t)service.delay_us);
    if (atomic_fetch_sub(&service.failures, 1) > 0) {
        text_answer(fd, 503, "");
        return;
    }
    int n = atomic_fetch_add(&service.issued, 1) + 1;
    text_format_time(time(NULL) + service.lifetime_s, when);
    snprintf(body, sizeof body, form, n, n, n, when);
    text_answer(fd, 200, body);
}

#define JSON_FORM                                                                                                      \
    "{\"Code\": \"Success\", \"AccessKeyId\": \"AK%d\", \"SecretAccessKey\": \"hidden/%d\", \"Token\": "               \
    "\"hiddent=%d\", "                                                                                                 \
    "\"Expiration\": \"%s\"}"
#define XML_FORM                                                                                                       \
    "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>AK%d</AccessKeyId>" \
    "<SecretAccessKey>hidden/%d</SecretAccessKey><SessionToken>hiddent=%d</SessionToken><Expiration>%s</Expiration>"   \
    "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"

static void serve_sts(const struct http_fake_request *r, int fd)
{
    static const char form[] = "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=arn%3Aaws%3Arole%2Fr"
                               "&RoleSessionName=granary&WebIdentityToken=hidden.jwt%2B";
    bool right = r->body_len == strlen(form) && !memcmp(r->body, form, r->body_len);
    if (right)
        issue(fd, XML_FORM);
    else
        text_answer(fd, 400, "<Error><Code>InvalidIdentityToken</Code><Message>hidden</Message></Error>");
}

static void serve_metadata(const struct http_fake_request *r, int fd)
{
    char token[64] = "";
    http_fake_header(r, "x-aws-ec2-metadata-token", token, sizeof token);
    if (!strcmp(r->target, "/latest/api/token") && !strcmp(r->method, "PUT"))
        text_answer(fd, 200, "hiddensession");
    else if (strcmp(token, "hiddensession"))
        text_answer(fd, 401, "");
    else if (!strcmp(r->target, "/latest/meta-data/iam/security-credentials/"))
        text_answer(fd, 200, "the role\n");
    else if (!strcmp(r->target, "/latest/meta-data/iam/security-credentials/the%20role"))
        issue(fd, JSON_FORM);
    else
        text_answer(fd, 404, "");
}

static void serve_container(const struct http_fake_request *r, int fd)
{
    char token[64] = "";
    http_fake_header(r, "authorization", token, sizeof token);
    if (strcmp(token, "hidden.pod"))
        text_answer(fd, 403, "");
    else
        issue(fd, JSON_FORM);
}

static void serve_s3(const struct http_fake_request *r, int fd)
{
    char token[64] = "", authorization[512] = "";
    int n = 0;
    http_fake_header(r, "x-amz-security-token", token, sizeof token);
    http_fake_header(r, "authorization", authorization, sizeof authorization);
    http_fake_header(r, "host", service.host, sizeof service.host);
    const char *slash = strchr(authorization, '/');
    slash = slash ? strchr(slash + 1, '/') : NULL;
    if (slash)
        snprintf(service.region, sizeof service.region, "%.*s", (int)strcspn(slash + 1, "/"), slash + 1);
    sscanf(token, "hiddent=%d", &n);
    const char *refusal = atomic_exchange(&service.s3_refusal, NULL);
    if (refusal) {
        http_fake_text(fd, "%s", refusal);
    } else if (n <= service.expired) {
        text_answer(fd, 400, strcmp(r->method, "HEAD") ? "<Error><Code>ExpiredToken</Code></Error>" : "");
    } else {
        http_fake_text(fd, "HTTP/1.1 200 X\r\nETag: \"e\"\r\nContent-Length: 4\r\n\r\n%s",
                       strcmp(r->method, "HEAD") ? "body" : "");
    }
}

static enum http_fake_next serve(void *arg, const struct http_fake_request *r, int fd)
{
    if (service.absent)
        text_answer(fd, 404, "");
    else if (!strcmp(r->method, "POST"))
        serve_sts(r, fd);
    else if (!strncmp(r->target, "/latest/", 8))
        serve_metadata(r, fd);
    else if (!strncmp(r->target, "/pod", 4))
        serve_container(r, fd);
    else
        serve_s3(r, fd);
    return HTTP_FAKE_CLOSE;
}

/* ------------------------------------------------------------------ settings */

static void write_file(const char *name, const char *text, char path[256])
{
    snprintf(path, 256, "%s/%s", dir, name);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
}

static void use_web_identity(void)
{
    char path[256];
    write_file("token", "hidden.jwt+\n", path);
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    setenv("AWS_ROLE_ARN", "arn:aws:role/r", 1);
    setenv("AWS_ENDPOINT_URL_STS", http_fake_url(service.http), 1);
}

static void use_container(void)
{
    char url[128], path[256];
    write_file("pod-token", "hidden.pod", path);
    snprintf(url, sizeof url, "%s/pod", http_fake_url(service.http));
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
}

static void use_instance(void)
{
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", http_fake_url(service.http), 1);
}

static int set_up(void **state)
{
    extern char **environ;
    char *names[32];
    unsigned count = 0;
    for (char **e = environ; *e; e++)
        if (!strncmp(*e, "AWS_", 4) && count < 32)
            names[count++] = strndup(*e, strcspn(*e, "="));
    while (count) {
        unsetenv(names[--count]);
        free(names[count]);
    }
    unsetenv("http_proxy");
    scratch_make(dir);
    setenv("HOME", dir, 1);
    log_to(NULL, LOG_LEVEL_ERROR);
    service = (struct service){.lifetime_s = 3600};
    service.http = http_fake_start(serve, NULL);
    return 0;
}

static int tear_down(void **state)
{
    http_fake_stop(service.http);
    log_to(NULL, LOG_LEVEL_INFO);
    scratch_remove(dir);
    return 0;
}

static struct credential_chain *make(void)
{
    struct credential_chain_config config = {.between_ms = 1, .silence_s = HTTP_FAKE_TIMEOUT_S};
    struct credential_chain *c = NULL;
    if (credential_chain_new(&config, &c))
        fail_msg("%s", error_text());
    return c;
}

static void assert_gives(struct credential_chain *c, int number)
{
    const struct lent_credentials *lent;
    char expected[64];
    if (credential_chain_get(c, &lent))
        fail_msg("%s", error_text());
    snprintf(expected, sizeof expected, "AK%d", number);
    assert_string_equal(lent->keys.access_key, expected);
    snprintf(expected, sizeof expected, "hidden/%d", number);
    assert_string_equal(lent->keys.secret_key, expected);
    snprintf(expected, sizeof expected, "hiddent=%d", number);
    assert_string_equal(lent->keys.session_token, expected);
    credential_chain_put(c, lent);
}

static void assert_refused(int rc, const char *part)
{
    struct credential_chain *c = NULL;
    assert_int_equal(credential_chain_new(&(struct credential_chain_config){.silence_s = HTTP_FAKE_TIMEOUT_S}, &c), rc);
    if (!strstr(error_text(), part) || strstr(error_text(), "hidden"))
        fail_msg("'%s' has not '%s', or a secret", error_text(), part);
}

/* ------------------------------------------------------------------ places */

/* What s3_credentials_source says has `part` in it, and no secret. */
static void assert_named(const char *part)
{
    char source[S3_SOURCE_MAX];
    if (s3_credentials_source("bucket", source))
        fail_msg("%s", error_text());
    if (!strstr(source, part) || strstr(source, "hidden"))
        fail_msg("'%s' has not '%s', or a secret", source, part);
}

static void test_credential_chain__the_source_is_named_without_asking_it(void **state)
{
    char path[256];
    setenv("GRANARY_CONFIG", "none", 1);
    use_instance();
    assert_named("the instance metadata service");
    use_container();
    assert_named("the container's endpoint");
    write_file("credentials", "[default]\naws_access_key_id = AK\naws_secret_access_key = hidden\n", path);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    assert_named("the profile 'default' of ");
    assert_named(path);
    use_web_identity();
    assert_named("a web identity (");
    setenv("AWS_SECRET_ACCESS_KEY", "hidden", 1);
    assert_named("the environment (AWS_ACCESS_KEY_ID)");
    setenv("AWS_NO_SIGN_REQUEST", "true", 1);
    assert_named("requests are not signed");
    assert_int_equal(service.requests, 0);
}

static void test_credential_chain__every_service_is_understood(void **state)
{
    void (*const uses[])(void) = {use_instance, use_container, use_web_identity}; /* each wins over those before */
    setenv("http_proxy", "http://127.0.0.1:1", 1); /* not for the services of this machine */
    for (int i = 0; i < 3; i++) {
        if (i == 2)
            unsetenv("http_proxy");
        uses[i]();
        struct credential_chain *c = make();
        assert_gives(c, i + 1);
        assert_gives(c, i + 1); /* good for an hour */
        credential_chain_free(c);
    }
    setenv("AWS_ACCESS_KEY_ID", "AK9", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden/9", 1);
    setenv("AWS_SESSION_TOKEN", "hiddent=9", 1);
    struct credential_chain *c = make();
    assert_gives(c, 9);
    credential_chain_free(c);
    assert_int_equal(service.requests, 3);
}

static void test_credential_chain__a_profile_names_a_role(void **state)
{
    char token[256], config[256], text[512];
    write_file("token", "hidden.jwt+", token);
    snprintf(text, sizeof text,
             "[profile work]\nrole_arn = arn:aws:role/r\nweb_identity_token_file = %s\n[default]\nregion = x\n", token);
    write_file("config", text, config);
    setenv("AWS_CONFIG_FILE", config, 1);
    setenv("AWS_PROFILE", "work", 1);
    setenv("AWS_ENDPOINT_URL", http_fake_url(service.http), 1);
    struct credential_chain *c = make();
    assert_gives(c, 1);
    credential_chain_free(c);
    setenv("AWS_PROFILE", "other", 1); /* and no other place is asked */
    use_instance();
    assert_refused(-ENOENT, "no profile 'other'");
}

static void test_credential_chain__refusals_name_the_service(void **state)
{
    use_instance();
    service.absent = true;
    assert_refused(-ENOENT, "instance metadata");
    assert_refused(-ENOENT, "no S3 credentials: AWS_ACCESS_KEY_ID");
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
    assert_refused(-ENOENT, "AWS_EC2_METADATA_DISABLED");
    service.absent = false;
    use_container();
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", "/nonexistent/token", 1);
    assert_refused(-ENOKEY, "/nonexistent/token");
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "hidden.wrong", 1);
    assert_refused(-ENOKEY, "status 403");
    static const char *const elsewhere[] = {"http://127.0.0.1.evil.example/x",
                                            "http://localhost:x@evil.example/",
                                            "http://localhost@evil.example/",
                                            "http://127.0.0.1\\@evil.example/",
                                            "ftp://localhost/x",
                                            "localhost/x"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(elsewhere); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", elsewhere[i], 1);
        assert_refused(-EINVAL, "of this machine");
    }
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://localhost:/x", 1);
    assert_refused(-EINVAL, "no port");
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", ":80@evil.example/", 1);
    assert_refused(-EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    unsetenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    use_web_identity();
    setenv("AWS_ROLE_ARN", "arn:other", 1);
    assert_refused(-ENOKEY, "STS");
}

static void test_credential_chain__keys_of_the_past_are_refused(void **state)
{
    use_web_identity();
    service.lifetime_s = -10;
    struct credential_chain *c = make();
    const struct lent_credentials *lent;
    assert_int_equal(credential_chain_get(c, &lent), -ENOKEY);
    assert_non_null(strstr(error_text(), "clock"));
    credential_chain_free(c);
}

/* ------------------------------------------------------------------ renewing */

static void test_credential_chain__renews_ahead_and_keeps_the_old_ones(void **state)
{
    use_instance();
    service.lifetime_s = 200; /* less than the 300 s ahead */
    struct credential_chain *c = make();
    usleep(2000); /* between_ms */
    service.failures = 2;
    assert_gives(c, 1); /* renewing fails: these are good still */
    usleep(2000);
    assert_gives(c, 1);
    usleep(2000);
    service.lifetime_s = 3600;
    assert_gives(c, 2);
    assert_gives(c, 2);
    assert_int_equal(service.requests, 4);
    credential_chain_free(c);
}

static void *get_once(void *arg)
{
    const struct lent_credentials *lent;
    int rc = credential_chain_get(arg, &lent);
    if (!rc)
        credential_chain_put(arg, lent);
    return (void *)(intptr_t)rc;
}

static void get_by_many(struct credential_chain *c, int expected)
{
    pthread_t threads[8];
    for (int i = 0; i < 8; i++)
        assert_int_equal(thread_start(&threads[i], get_once, c), 0);
    for (int i = 0; i < 8; i++) {
        void *rc;
        pthread_join(threads[i], &rc);
        assert_int_equal((intptr_t)rc, expected);
    }
}

static void test_credential_chain__one_thread_renews(void **state)
{
    use_web_identity();
    service.failures = 1; /* named, but late: asked again by the first request */
    struct credential_chain *c = make();
    service.delay_us = 50000;
    get_by_many(c, 0);
    assert_int_equal(service.requests, 2);
    assert_int_equal(service.issued, 1);
    credential_chain_free(c);
    service.failures = 1000;
    c = make();
    get_by_many(c, -EAGAIN);
    credential_chain_free(c);
}

static int append(void *arg, const void *data, size_t len)
{
    return bytes_append(arg, data, len);
}

static struct s3 *new_s3(const char *endpoint)
{
    struct s3 *s = NULL;
    struct s3_config config = {.bucket = "bucket", .endpoint = endpoint, .http = {HTTP_FAKE_TIMEOUTS}};
    if (s3_new(&config, &s))
        fail_msg("%s", error_text());
    return s;
}

static int read_object(struct s3 *s)
{
    CLEANUP_BYTES body = BYTES_INIT(100);
    int rc = s3_get(s, "k", 1, &(struct http_part){0}, append, &body, NULL);
    if (!rc)
        assert_memory_equal(body.data, "body", 4);
    return rc;
}

static void test_credential_chain__expired_tokens_are_renewed_once(void **state)
{
    use_web_identity();
    struct s3 *s = new_s3(http_fake_url(service.http));
    assert_int_equal(read_object(s), 0);
    service.expired = 1;
    assert_int_equal(read_object(s), 0);
    service.expired = 2;
    struct s3_meta meta;
    assert_int_equal(s3_head(s, "k", 1, &meta), 0); /* whose refusal has no words */
    service.expired = 3;
    assert_int_equal(s3_put(s, "k", "x", 1, NULL, NULL, NULL), 0);
    assert_int_equal(service.issued, 4);
    service.expired = 1000;
    assert_int_equal(read_object(s), -ENOKEY);
    assert_non_null(strstr(error_text(), "expired"));
    assert_int_equal(service.issued, 5);
    s3_free(s);
}

/* ------------------------------------------------------------------ regions and addresses */

static void test_credential_chain__the_region_a_server_names_is_used(void **state)
{
    use_web_identity();
    struct s3 *s = new_s3(http_fake_url(service.http));
    assert_int_equal(read_object(s), 0);
    assert_string_equal(service.region, "us-east-1");
    service.s3_refusal = "HTTP/1.1 400 X\r\n\r\n<Error><Code>AuthorizationHeaderMalformed</Code>"
                         "<Region>eu-west-3</Region></Error>";
    assert_int_equal(read_object(s), 0);
    assert_string_equal(service.region, "eu-west-3");
    assert_int_equal(read_object(s), 0); /* from then on */
    assert_string_equal(service.region, "eu-west-3");
    s3_free(s);
    char config[256];
    write_file("config", "[default]\nregion = ap-south-9\ns3 =\n  addressing_style = virtual\n", config);
    setenv("AWS_CONFIG_FILE", config, 1);
    char endpoint[128];
    snprintf(endpoint, sizeof endpoint, "http://localhost%s", strrchr(http_fake_url(service.http), ':'));
    s = new_s3(endpoint);
    assert_int_equal(read_object(s), 0);
    assert_string_equal(service.region, "ap-south-9");
    assert_int_equal(strncmp(service.host, "bucket.localhost:", 17), 0);
    s3_free(s);
    setenv("AWS_S3_ADDRESSING_STYLE", "path", 1);
    s = new_s3(endpoint);
    assert_int_equal(read_object(s), 0);
    assert_int_equal(strncmp(service.host, "localhost:", 10), 0);
    s3_free(s);
    setenv("AWS_S3_ADDRESSING_STYLE", "sideways", 1);
    assert_int_equal(s3_new(&(struct s3_config){.bucket = "b"}, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "sideways"));
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(test_credential_chain__##name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_source_is_named_without_asking_it),
        TEST(every_service_is_understood),
        TEST(a_profile_names_a_role),
        TEST(refusals_name_the_service),
        TEST(keys_of_the_past_are_refused),
        TEST(renews_ahead_and_keeps_the_old_ones),
        TEST(one_thread_renews),
        TEST(expired_tokens_are_renewed_once),
        TEST(the_region_a_server_names_is_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
