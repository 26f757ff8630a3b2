/* Checks of granary doctor whose answers cannot be arranged on a real node. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "cli/doctor/doctor.h"
#include "unit/scratch.h"

static void put(const char *root, const char *path, const char *text)
{
    char file[SCRATCH_MAX + 128], dir[SCRATCH_MAX + 128];
    snprintf(file, sizeof file, "%s%s", root, path);
    snprintf(dir, sizeof dir, "%.*s", (int)(strrchr(file, '/') - file), file);
    assert_int_equal(io_mkdirs(dir), 0);
    assert_int_equal(io_write_file_atomic(file, text, strlen(text), false), 0);
}

/* "LEVEL TEXT" of the finding about threads under a root with these files. */
static const char *threads_of(const char *cgroups, const char *path, const char *most)
{
    static char said[512];
    char root[SCRATCH_MAX];
    size_t i;
    json_t *finding;
    struct doctor_report r = {.findings = json_array(), .quiet = true};
    scratch_make(root);
    put(root, "/proc/self/cgroup", cgroups);
    if (path)
        put(root, path, most);
    doctor_check_limits(&r, root);
    scratch_remove(root);
    *said = 0;
    json_array_foreach(r.findings, i, finding)
    {
        if (!strcmp(json_string_value(json_object_get(finding, "check")), "threads"))
            snprintf(said, sizeof said, "%s %s", json_string_value(json_object_get(finding, "level")),
                     json_string_value(json_object_get(finding, "text")));
    }
    json_decref(r.findings);
    return said;
}

static void test_threads__the_limit_of_any_cgroup_above_counts(void **state)
{
    static const char few[] = "WARN there may be 100 threads here; a server has some 400";
    assert_memory_equal(threads_of("0::/a.slice/b.scope\n", "/sys/fs/cgroup/a.slice/b.scope/pids.max", "100\n"), few,
                        strlen(few));
    assert_memory_equal(threads_of("0::/a.slice/b.scope\n", "/sys/fs/cgroup/a.slice/pids.max", "100\n"), few,
                        strlen(few));
    assert_memory_equal(threads_of("0::/\n", "/sys/fs/cgroup/pids.max", "100\n"), few, strlen(few));
    assert_memory_equal(threads_of("9:cpu:/x\n8:pids:/a\n", "/sys/fs/cgroup/pids/a/pids.max", "100\n"), few,
                        strlen(few));
}

static void test_threads__enough_or_no_limit_is_no_warning(void **state)
{
    assert_memory_equal(threads_of("0::/a\n", "/sys/fs/cgroup/a/pids.max", "max\n"), "OK ", 3);
    assert_memory_equal(threads_of("0::/a\n", "/sys/fs/cgroup/a/pids.max", "1024\n"), "OK ", 3);
    assert_memory_equal(threads_of("0::/a\n", "/sys/fs/cgroup/other/pids.max", "100\n"), "OK ", 3);
    assert_memory_equal(threads_of("nonsense\n0:\n\n", NULL, NULL), "OK ", 3);
}

/* ---- checks in a child ---- */

static int two_findings(struct doctor_report *r, const void *arg)
{
    doctor_add(r, DOCTOR_WARN, "one", "a remedy", "%s", (const char *)arg);
    doctor_add(r, DOCTOR_OK, "two", NULL, "fine");
    return -ENOTDIR;
}

static int hangs(struct doctor_report *r, const void *arg)
{
    doctor_add(r, DOCTOR_OK, "one", NULL, "fine so far");
    pause();
    return 0;
}

static void test_within__findings_and_result_of_the_child_are_taken_over(void **state)
{
    struct doctor_report r = {.findings = json_array(), .quiet = true};
    assert_int_equal(doctor_within(&r, two_findings, "100 % of \"it\"", 10000), -ENOTDIR);
    json_t *first = json_array_get(r.findings, 0), *second = json_array_get(r.findings, 1);
    assert_int_equal(json_array_size(r.findings), 2);
    assert_int_equal(r.counts[DOCTOR_WARN], 1);
    assert_int_equal(r.counts[DOCTOR_OK], 1);
    assert_string_equal(json_string_value(json_object_get(first, "text")), "100 % of \"it\"");
    assert_string_equal(json_string_value(json_object_get(first, "remedy")), "a remedy");
    assert_true(json_is_null(json_object_get(second, "remedy")));
    json_decref(r.findings);
}

static void test_within__a_check_that_hangs_is_left_alone(void **state)
{
    struct doctor_report r = {.findings = json_array(), .quiet = true};
    assert_int_equal(doctor_within(&r, hangs, NULL, 100), -ETIMEDOUT);
    assert_int_equal(json_array_size(r.findings), 0);
    json_decref(r.findings);
}

/* ---- secrets ---- */

struct redact_case {
    const char *line, *expected; /* expected: NULL: the line itself */
};

static void check_redact(const struct redact_case *lines, size_t count)
{
    CLEANUP_BYTES all = BYTES_INIT(16 << 10), wanted = BYTES_INIT(16 << 10);
    for (size_t i = 0; i < count; i++) {
        CLEANUP_BYTES text = BYTES_INIT(4096);
        const char *expected = lines[i].expected ? lines[i].expected : lines[i].line;
        assert_int_equal(bytes_printf(&text, "%s", lines[i].line), 0); /* without a newline */
        doctor_redact(&text);
        assert_string_equal(bytes_string(&text), expected);
        assert_int_equal(bytes_printf(&all, "%s\n", lines[i].line), 0);
        assert_int_equal(bytes_printf(&wanted, "%s\n", expected), 0);
    }
    doctor_redact(&all);
    assert_string_equal(bytes_string(&all), bytes_string(&wanted));
}

static void test_redact__what_may_be_a_secret_is_not_in_the_bundle(void **state)
{
    static const struct redact_case lines[] = {
        {"GET https://me:hidden@host/a failed", "GET https://* failed"},
        {"GET http://host/a?X-Amz-Token=hidden: 403", "GET http://* 403"},
        {"two: s3://bucket/x and ftp://hidden@host", "two: s3://bucket/x and ftp://*"},
        {"http_proxy=me:hidden@proxy:3128 is set", "http_proxy=me:* is set"},
        {"AWS_ACCESS_KEY_ID=AK AWS_SECRET_ACCESS_KEY=hidden x", "AWS_ACCESS_KEY_ID=AK AWS_SECRET_ACCESS_KEY=*"},
        {"aws_session_token = hidden", "aws_session_token =*"},
        {"DB_PASS=hidden", "DB_PASS=*"},
        {"passphrase=hidden and more", "passphrase=*"},
        {"{\"SecretAccessKey\": \"hidden\"}", "{\"SecretAccessKey\":*"},
        {"{\"credentials\": \"hidden\"}", "{\"credentials\":*"},
        {"{'a/token': 'hidden'}", "{'a/token':*"},
        {"authorization: Bearer hidden", "authorization:*"},
        {"with Bearer hidden.of.three for it", "with Bearer * for it"},
        {"Cookie: a=hidden; b=hidden", "Cookie:*"},
        {"X-Api-Key: hidden", "X-Api-Key:*"},
        {"apikey:hidden", "apikey:*"},
        {"user/password: hidden", "user/password:*"},
        {"credential: hidden", "credential:*"},
        {"passwd : hidden hidden", "passwd :*"},
        {"curl --password hidden --token 'hidden \\' hidden' -v", "curl --password * --token * -v"},
        {"curl --password --token hidden", "curl --password --token *"},
        {"--token=hidden", "--token=*"},
        {"GET /webhdfs/v1/x?op=OPEN&delegation=hidden failed", "GET /webhdfs/v1/x?op=OPEN&delegation=* failed"},
        {"GET /b/x?se=1&sig=hidden HTTP/1.1", "GET /b/x?se=1&sig=* HTTP/1.1"},
        {"the last: secret=hidden", "the last: secret=*"},
    };
    CLEANUP_BYTES empty = BYTES_INIT(4096);
    doctor_redact(&empty);
    assert_int_equal(empty.len, 0);
    check_redact(lines, GR_ARRAY_SIZE(lines));
}

static void test_redact__sentences_that_a_report_needs_stay_whole(void **state)
{
    static const struct redact_case lines[] = {
        {"read https://store/a/b in 3 ms", NULL},
        {"2026-11-28T12:00:00+0000 host granary[7]: s3://b/faces:v1@sha256:00ff is served", NULL},
        {"S3 credentials: /var/run/secrets/eks.amazonaws.com/token: No such file or directory", NULL},
        {"no S3 credentials: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are not set, and", NULL},
        {"--http-token-file: the token cannot be read from F: Permission denied", NULL},
        {"--http-token-file: F holds no token: one line of printable characters, without blanks", NULL},
        {"--password: write it into a file", NULL},
        {"AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/x", NULL},
        {"store /s: faces.minisig is no signature: it is not UTF-8 text", NULL},
        {"the secret key has a password: sign what it prints by minisign", NULL},
        {"cannot read '/etc/keys/secret': Permission denied", NULL},
        {"cannot read s3://bucket/a/tokens: access is denied", NULL},
        {"granary-serve@tokens.service: Main process exited, code=exited", NULL},
        {"granary-serve@a.service: Failed to set up credentials: No such file or directory", NULL},
        {"export 'tokens': 4096 bytes", NULL},
        {"check AWS_SECRET_ACCESS_KEY (SignatureDoesNotMatch from http://h)", NULL},
        {"3 blocks passed: all", NULL},
        {"cannot read the bearer token of the pod", NULL},
        {"Password:", NULL},
        {"--token", NULL},
        {"Bearer ", NULL},
        {"", NULL},
        {"://", NULL},
        {":@sha256:", NULL},
    };
    check_redact(lines, GR_ARRAY_SIZE(lines));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_threads__the_limit_of_any_cgroup_above_counts),
        cmocka_unit_test(test_threads__enough_or_no_limit_is_no_warning),
        cmocka_unit_test(test_within__findings_and_result_of_the_child_are_taken_over),
        cmocka_unit_test(test_within__a_check_that_hangs_is_left_alone),
        cmocka_unit_test(test_redact__what_may_be_a_secret_is_not_in_the_bundle),
        cmocka_unit_test(test_redact__sentences_that_a_report_needs_stay_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
