/* The log of long-lived processes: time and level, a file that stays, is bounded and no link to another. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach/server/service.h"
#include "attach/state.h"
#include "base/error.h"
#include "base/log.h"
#include "unit/scratch.h"

static char dir[SCRATCH_MAX], logs[SCRATCH_MAX + 8], run_dir[SCRATCH_MAX + 16], file[SCRATCH_MAX + 40];
static int terminal; /* the tests' own standard error */

static int set_up(void **state)
{
    scratch_make(dir);
    snprintf(logs, sizeof logs, "%s/log", dir);
    snprintf(run_dir, sizeof run_dir, "%s/run-7", dir);
    snprintf(file, sizeof file, "%s/serve-run-7.log", logs);
    unsetenv("JOURNAL_STREAM");
    assert_int_equal(setenv("LOGS_DIRECTORY", logs, 1), 0);
    assert_int_equal(mkdir(run_dir, 0700), 0);
    terminal = dup(STDERR_FILENO);
    return 0;
}

static int tear_down(void **state)
{
    log_to(NULL, LOG_LEVEL_INFO);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    scratch_remove(dir);
    return 0;
}

/* Standard error becomes the log. */
static void begin_in(const char *of)
{
    int fd = service_log_open(of, "serve.log");
    assert_true(fd >= 0);
    assert_int_equal(dup2(fd, STDERR_FILENO), STDERR_FILENO);
    close(fd);
    service_log_begin();
}

static void begin(void)
{
    begin_in(run_dir);
}

static off_t size_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) ? -1 : st.st_size;
}

/* The last line. */
static void read_line(const char *path, char out[256])
{
    FILE *f = fopen(path, "r");
    *out = 0;
    assert_non_null(f);
    while (fgets(out, 256, f))
        continue;
    fclose(f);
    assert_int_not_equal(*out, 0);
}

static void test_service_log__a_line_has_time_and_level(void **state)
{
    char line[256], where[PATH_MAX], link[SCRATCH_MAX + 32];
    int year, month, day, hour, minute, second, end = 0;
    begin();
    assert_string_equal(service_log_where(where), file);
    log_warning("the disk is slow");
    read_line(file, line);
    sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2dZ %n", &year, &month, &day, &hour, &minute, &second, &end);
    assert_int_equal(end, 21);
    assert_string_equal(line + end, "warning granary: the disk is slow\n");
    snprintf(link, sizeof link, "%s/serve.log", run_dir); /* its old place leads there */
    read_line(link, line);
    assert_string_equal(line + end, "warning granary: the disk is slow\n");
}

static void test_service_log__the_level_of_a_program_s_line_is_read_from_it(void **state)
{
    char line[256];
    begin();
    service_log_line("nbdkit: granary[1]: error: warning: slow read");
    read_line(file, line);
    assert_string_equal(line + 21, "warning nbdkit: granary[1]: error: warning: slow read\n");
    service_log_line("granary: warning: a read failed, error: slow");
    read_line(file, line);
    assert_string_equal(line + 21, "warning granary: a read failed, error: slow\n");
    service_log_line("granary: debug: connected");
    read_line(file, line);
    assert_string_equal(line + 21, "debug granary: connected\n");
}

static void test_service_log__a_full_file_is_rotated(void **state)
{
    char before[SCRATCH_MAX + 48], line[256];
    snprintf(before, sizeof before, "%s.1", file);
    begin();
    for (int round = 0; round < 2; round++) {
        log_info("first");
        assert_int_equal(ftruncate(STDERR_FILENO, SERVICE_LOG_MAX), 0);
        log_info("second");
        assert_int_equal(size_of(before), SERVICE_LOG_MAX);
        assert_true(size_of(file) > 0 && size_of(file) < 256);
    }
    read_line(file, line);
    assert_non_null(strstr(line, "second"));
}

static void test_service_log__a_directory_behind_a_link_is_rotated_too(void **state)
{
    char link[SCRATCH_MAX + 8], before[SCRATCH_MAX + 48];
    snprintf(link, sizeof link, "%s/link", dir);
    snprintf(before, sizeof before, "%s.1", file);
    assert_int_equal(mkdir(logs, 0700), 0);
    assert_int_equal(symlink(logs, link), 0);
    assert_int_equal(setenv("LOGS_DIRECTORY", link, 1), 0);
    begin();
    assert_int_equal(ftruncate(STDERR_FILENO, SERVICE_LOG_MAX), 0);
    log_info("second");
    assert_int_equal(size_of(before), SERVICE_LOG_MAX);
    assert_true(size_of(file) > 0 && size_of(file) < 256);
}

/* NAME in the log directory, written last `days` ago. */
static void make_old(const char *name, int days)
{
    char path[SCRATCH_MAX + 64];
    time_t then = time(NULL) - (time_t)days * 24 * 3600;
    snprintf(path, sizeof path, "%s/%s", logs, name);
    close(open(path, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[2]){{.tv_sec = then}, {.tv_sec = then}}, 0), 0);
}

static bool is_there(const char *name)
{
    char path[SCRATCH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", logs, name);
    return !access(path, F_OK);
}

static void test_service_log__old_ones_of_mounts_that_are_gone_are_removed(void **state)
{
    static const char *const kept[] = {"serve-run-8.log", "serve-run-4.log", "keep-run-9.log",   "serve-run-9.log.2",
                                       "serve-.log",      "other-run-9.log", "serve-run-9.log~", "serve.log"};
    char mounted[SCRATCH_MAX + 16];
    snprintf(mounted, sizeof mounted, "%s/run-8", dir);
    assert_int_equal(mkdir(mounted, 0700), 0);
    assert_int_equal(mkdir(logs, 0700), 0);
    make_old("serve-run-9.log", 31);
    make_old("serve-run-9.log.1", 31);
    make_old("serve-run-4.log", 29);
    for (size_t i = 0; i < GR_ARRAY_SIZE(kept); i++)
        if (strcmp(kept[i], "serve-run-4.log"))
            make_old(kept[i], 31);
    begin();
    assert_false(is_there("serve-run-9.log") || is_there("serve-run-9.log.1"));
    for (size_t i = 0; i < GR_ARRAY_SIZE(kept); i++)
        if (!is_there(kept[i]))
            fail_msg("%s is gone", kept[i]);
}

/* Its run directory is not beside ours, or its ID was cut: by its name it would be of a mount that is gone. */
static void test_service_log__a_quiet_one_of_a_living_process_stays(void **state)
{
    char container[SCRATCH_MAX + 16], quiet[SCRATCH_MAX + 32];
    snprintf(container, sizeof container, "%s/container", dir);
    snprintf(quiet, sizeof quiet, "%s/run-9", container);
    assert_int_equal(mkdir(container, 0700), 0);
    assert_int_equal(mkdir(quiet, 0700), 0);
    begin_in(quiet);
    assert_int_equal(ftruncate(STDERR_FILENO, SERVICE_LOG_MAX), 0);
    log_info("the first line of a new file");
    int alive = dup(STDERR_FILENO); /* as the process has it */
    make_old("serve-run-9.log", 31);
    make_old("serve-run-9.log.1", 31);
    begin();
    bool kept = is_there("serve-run-9.log") && is_there("serve-run-9.log.1");
    close(alive);
    begin();
    bool removed = !is_there("serve-run-9.log") && !is_there("serve-run-9.log.1");
    assert_true(kept);
    assert_true(removed);
}

static void test_service_log__one_in_a_run_directory_is_cut(void **state)
{
    char own[64], path[80], elsewhere[sizeof run_dir + 16];
    snprintf(own, sizeof own, STATE_ROOT "/test-log-%d", (int)getpid());
    if ((mkdir(STATE_ROOT, 0700) && errno != EEXIST) || mkdir(own, 0700)) {
        print_message("skipped: only root can make %s\n", own);
        skip();
    }
    snprintf(path, sizeof path, "%s/serve.log", own);
    snprintf(elsewhere, sizeof elsewhere, "%s/serve.log", run_dir);
    assert_int_equal(setenv("LOGS_DIRECTORY", "/proc/none", 1), 0);
    begin_in(own);
    assert_int_equal(ftruncate(STDERR_FILENO, SERVICE_LOG_MAX), 0);
    log_info("second");
    off_t size = size_of(path);
    begin(); /* a file of this user's is not ours to cut */
    assert_int_equal(ftruncate(STDERR_FILENO, SERVICE_LOG_MAX), 0);
    log_info("second");
    unlink(path);
    rmdir(own);
    assert_true(size > 0 && size < 256);
    assert_true(size_of(elsewhere) > SERVICE_LOG_MAX);
}

static void test_service_log__a_link_or_a_directory_of_others_is_not_used(void **state)
{
    char victim[SCRATCH_MAX + 16];
    struct stat st;
    snprintf(victim, sizeof victim, "%s/victim", dir);
    close(open(victim, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(mkdir(logs, 0700), 0);
    assert_int_equal(symlink(victim, file), 0);
    begin(); /* into the run directory instead */
    log_error("not there");
    assert_int_equal(size_of(victim), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(link(victim, file), 0);
    begin();
    log_error("not there");
    assert_int_equal(size_of(victim), 0);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(chmod(logs, 0777), 0);
    begin();
    assert_int_equal(lstat(file, &st), -1);
}

static void test_service_log__the_last_line_explains(void **state)
{
    begin();
    log_error("serve: the image is gone");
    assert_int_equal(service_log_explain(run_dir, "serve.log", "it does not start", error_set(-EIO, "exit 1")), -EIO);
    assert_string_equal(error_text(), "it does not start: the image is gone");
    fprintf(stderr, "granary: serve: no such option\n"); /* before it came to log */
    assert_int_equal(service_log_explain(run_dir, "serve.log", "it does not start", error_set(-EIO, "exit 1")), -EIO);
    assert_string_equal(error_text(), "it does not start: no such option");
}

static void test_service_log__what_another_said_before_or_no_error_explains_nothing(void **state)
{
    begin();
    log_error("serve: the image is gone");
    begin(); /* and killed before it says a word */
    assert_int_equal(service_log_explain(run_dir, "serve.log", "it does not start", error_set(-EIO, "killed")), -EIO);
    assert_string_equal(error_text(), "killed");
    log_warning("the disk is slow");
    assert_int_equal(service_log_explain(run_dir, "serve.log", "it does not start", error_set(-EIO, "killed")), -EIO);
    assert_string_equal(error_text(), "killed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_service_log__a_line_has_time_and_level, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__the_level_of_a_program_s_line_is_read_from_it, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__a_full_file_is_rotated, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__a_directory_behind_a_link_is_rotated_too, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__old_ones_of_mounts_that_are_gone_are_removed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__a_quiet_one_of_a_living_process_stays, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__one_in_a_run_directory_is_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__a_link_or_a_directory_of_others_is_not_used, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__the_last_line_explains, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_service_log__what_another_said_before_or_no_error_explains_nothing, set_up,
                                        tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
