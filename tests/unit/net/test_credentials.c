/* Where credentials are found, and what is said when they are not. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "net/aws/aws_internal.h"

static char home[] = "/tmp/granary-test-XXXXXX";

static int clear(void **state)
{
    static const char *const names[] = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY",       "AWS_SESSION_TOKEN",
                                        "AWS_PROFILE",       "AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"};
    for (size_t i = 0; i < GR_ARRAY_SIZE(names); i++)
        unsetenv(names[i]);
    setenv("HOME", home, 1);
    return 0;
}

static void write_file(const char *text)
{
    CLEANUP_FREE char *path = NULL;
    assert_true(asprintf(&path, "%s/.aws/credentials", home) > 0);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
}

static void assert_loads(const char *access, const char *secret, const char *token)
{
    struct credentials c;
    int rc = credentials_load(NULL, &c);
    if (rc)
        fail_msg("%s", error_text());
    assert_string_equal(c.access_key, access);
    assert_string_equal(c.secret_key, secret);
    if (token)
        assert_string_equal(c.session_token, token);
    else
        assert_null(c.session_token);
    credentials_release(&c);
    assert_null(c.secret_key);
}

static void assert_fails(int rc, const char *part)
{
    struct credentials c;
    assert_int_equal(credentials_load(NULL, &c), rc);
    assert_non_null(strstr(error_text(), part));
    assert_null(strstr(error_text(), "hidden"));
    assert_null(c.access_key);
    assert_null(c.secret_key);
    assert_null(c.session_token);
}

static void test_credentials__environment_wins(void **state)
{
    write_file("[default]\naws_access_key_id = f\naws_secret_access_key = f\n");
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SK/+=", 1);
    assert_loads("AK", "SK/+=", NULL);
    setenv("AWS_SESSION_TOKEN", "tok", 1);
    assert_loads("AK", "SK/+=", "tok");
}

static void test_credentials__half_an_environment_is_an_error(void **state)
{
    setenv("AWS_SECRET_ACCESS_KEY", "hidden", 1);
    assert_fails(-EINVAL, "set both");
    setenv("AWS_ACCESS_KEY_ID", "", 1);
    assert_fails(-EINVAL, "set both");
    setenv("AWS_ACCESS_KEY_ID", "AK", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "hidden\nX-Evil: 1", 1);
    assert_fails(-EINVAL, "control character");
}

static void test_credentials__profiles_of_the_shared_file(void **state)
{
    write_file("# comment\n[default]\r\naws_access_key_id=D\r\naws_secret_access_key = d=1\r\nregion = x\n"
               "\n[ other ]\n; aws_access_key_id = wrong\n  aws_access_key_id = O\naws_secret_access_key\t=\to \n"
               "aws_session_token = t\nnonsense\n[empty]\n[half]\naws_secret_access_key = hidden\n");
    assert_loads("D", "d=1", NULL);
    setenv("AWS_PROFILE", "other", 1);
    assert_loads("O", "o", "t");
    setenv("AWS_PROFILE", "", 1);
    assert_loads("D", "d=1", NULL);
    setenv("AWS_PROFILE", "empty", 1);
    assert_fails(-ENOENT, "no profile 'empty'");
    setenv("AWS_PROFILE", "half", 1);
    assert_fails(-EINVAL, "only one");
}

static void test_credentials__the_configuration_is_a_profile_too(void **state)
{
    CLEANUP_FREE char *path = NULL;
    static const char config[] = "[default]\naws_access_key_id = wrong\nregion = r1\n"
                                 "[profile work]\naws_access_key_id = C\naws_secret_access_key = c\nregion = r2\n"
                                 "s3 =\n  addressing_style = virtual\n[work]\nregion=r3\n";
    write_file("[default]\naws_access_key_id=D\naws_secret_access_key=d\n");
    assert_true(asprintf(&path, "%s/config", home) > 0);
    assert_int_equal(io_write_file_atomic(path, config, strlen(config), false), 0);
    setenv("AWS_CONFIG_FILE", path, 1);
    assert_loads("D", "d", NULL); /* the credentials file wins */
    setenv("AWS_PROFILE", "work", 1);
    assert_loads("C", "c", NULL);
    struct aws_profile p;
    assert_int_equal(aws_profile_load(NULL, &p), 0);
    assert_string_equal(p.region, "r3"); /* the last line of a file wins */
    assert_string_equal(p.addressing_style, "virtual");
    assert_null(p.role_arn);
    assert_true(p.named);
    aws_profile_release(&p);
    /* the one that Granary's configuration file names yields to the environment's */
    assert_int_equal(aws_profile_load("other", &p), 0);
    assert_string_equal(p.name, "work");
    aws_profile_release(&p);
    unsetenv("AWS_PROFILE");
    assert_int_equal(aws_profile_load("work", &p), 0);
    assert_string_equal(p.name, "work");
    assert_string_equal(p.region, "r3");
    assert_true(p.named);
    aws_profile_release(&p);
    unsetenv("AWS_CONFIG_FILE");
}

static void test_credentials__absence_names_the_places(void **state)
{
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent/creds", 1);
    assert_fails(-ENOENT, "/nonexistent/creds has no profile 'default'");
    assert_fails(-ENOENT, "AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SHARED_CREDENTIALS_FILE");
    unsetenv("HOME");
    assert_fails(-ENOENT, "without HOME");
}

static void test_credentials__an_enormous_file_is_refused(void **state)
{
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/zero", 1);
    assert_fails(-EMSGSIZE, "larger");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_credentials__environment_wins, clear),
        cmocka_unit_test_setup(test_credentials__half_an_environment_is_an_error, clear),
        cmocka_unit_test_setup(test_credentials__profiles_of_the_shared_file, clear),
        cmocka_unit_test_setup(test_credentials__the_configuration_is_a_profile_too, clear),
        cmocka_unit_test_setup(test_credentials__absence_names_the_places, clear),
        cmocka_unit_test_setup(test_credentials__an_enormous_file_is_refused, clear),
    };
    CLEANUP_FREE char *aws = NULL, *command = NULL;
    if (!mkdtemp(home) || asprintf(&aws, "%s/.aws", home) < 0 || mkdir(aws, 0700))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (asprintf(&command, "rm -r %s", home) < 0 || system(command))
        return 1;
    return failed;
}
