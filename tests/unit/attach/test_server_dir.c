/* The directory of a server that mounts share: this program, by another word, is the server. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach/server/server_internal.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "unit/counters.h"
#include "unit/scratch.h"

#define ODD "a word\nof \xff bytes"

static char scratch[SCRATCH_MAX], dir[SCRATCH_MAX + 8], told[SCRATCH_MAX + 8];

/* Says how it was called, and stays. */
static int be_server(char **argv)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    const char *file = argv[2];
    for (; *argv; argv++)
        if (bytes_append(&text, *argv, strlen(*argv) + 1))
            return 1;
    if (io_write_file_atomic(file, text.data, text.len, false))
        return 1;
    for (;;)
        pause();
}

/* An update takes the file away under a program that runs. */
static int be_updated(char **argv)
{
    char program[PATH_MAX];
    return unlink(argv[0]) || process_own_program(program) ||
           io_write_file_atomic(argv[2], program, strlen(program), false);
}

static void end(const struct process *p)
{
    assert_int_equal(kill(p->pid, SIGKILL), 0);
    assert_int_equal(waitpid(p->pid, NULL, 0), p->pid);
}

/* How it was called is what it was started with. */
static void check_told(const char *const *argv)
{
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    for (uint64_t since = 0; io_read_file(told, &text);)
        counter_pause(&since, "the server to begin");
    size_t at = 0;
    for (; *argv; at += strlen(*argv++) + 1) {
        assert_true(at + strlen(*argv) < text.len);
        assert_string_equal((const char *)text.data + at, *argv);
    }
    assert_int_equal(at, text.len);
    assert_int_equal(unlink(told), 0);
}

static void test_server_dir__one_that_died_is_started_again_as_it_was(void **state)
{
    char program[PATH_MAX], left[SCRATCH_MAX + 16];
    struct process first, second;
    assert_int_equal(process_own_program(program), 0);
    const char *const argv[] = {program, "--as-server", told, ODD, "", NULL};
    assert_int_equal(server_dir_alive(dir).pid, 0);
    assert_int_equal(server_dir_make(dir), 0);
    assert_int_equal(server_dir_start(dir, argv, &first), 0);
    assert_int_equal(server_dir_alive(dir).pid, first.pid);
    check_told(argv);
    snprintf(left, sizeof left, "%s/left", dir);
    assert_int_equal(io_write_file_atomic(left, "x", 1, false), 0);
    end(&first);
    assert_int_equal(server_dir_alive(dir).pid, 0);

    assert_int_equal(server_dir_start_again(dir, &second), 0);
    assert_int_equal(server_dir_alive(dir).pid, second.pid);
    check_told(argv);
    assert_int_equal(access(left, F_OK), 0);
    end(&second);

    assert_int_equal(server_dir_make(dir), 0);
    assert_int_equal(server_dir_start(dir, argv, &first), 0); /* another one */
    check_told(argv);
    assert_int_equal(access(left, F_OK), -1);
    end(&first);
    server_dir_remove(dir);
    assert_int_equal(access(dir, F_OK), -1);
}

static void test_server_dir__of_nothing_and_of_damage_none_is_started(void **state)
{
    static const char *const bad[] = {"", "granary server 1",
                                      "granary server 1\0"
                                      "12\0"
                                      "1",
                                      "granary server 2\0"
                                      "12\0"
                                      "1\0"
                                      "x"};
    static const size_t lens[] = {0, 17, 21, 24};
    char path[SCRATCH_MAX + 16];
    struct process p;
    assert_int_equal(server_dir_start_again(dir, &p), -ENOENT);
    assert_non_null(strstr(error_text(), dir));
    assert_int_equal(io_mkdirs(dir), 0);
    snprintf(path, sizeof path, "%s/server", dir);
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++) {
        assert_int_equal(io_write_file_atomic(path, bad[i], lens[i], false), 0);
        assert_int_equal(server_dir_alive(dir).pid, 0);
        assert_int_equal(server_dir_start_again(dir, &p), -EBADMSG);
        assert_non_null(strstr(error_text(), path));
    }
    server_dir_remove(dir);
}

static void test_process_own_program__is_found_after_an_update(void **state)
{
    char program[PATH_MAX], copy[SCRATCH_MAX + 8];
    CLEANUP_BYTES text = BYTES_INIT(64 << 20), said = BYTES_INIT(PATH_MAX);
    pid_t pid;
    int status;
    assert_int_equal(process_own_program(program), 0);
    assert_int_equal(io_read_file(program, &text), 0);
    snprintf(copy, sizeof copy, "%s/copy", scratch);
    assert_int_equal(io_write_file_atomic(copy, text.data, text.len, false), 0);
    assert_int_equal(chmod(copy, 0700), 0);
    const char *const argv[] = {copy, "--updated", told, NULL};
    assert_int_equal(process_spawn(&(struct process_spec){.argv = argv, .output = -1, .listen_fd = -1}, &pid), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(io_read_file(told, &said), 0);
    assert_string_equal(bytes_string(&said), copy);
    assert_int_equal(unlink(told), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_server_dir__one_that_died_is_started_again_as_it_was),
        cmocka_unit_test(test_server_dir__of_nothing_and_of_damage_none_is_started),
        cmocka_unit_test(test_process_own_program__is_found_after_an_update),
    };
    if (setenv("LOGS_DIRECTORY", "/nonexistent/granary", 1)) /* the logs lie with the servers */
        return 1;
    if (argc > 2 && !strcmp(argv[1], "--updated"))
        return be_updated(argv);
    if (argc > 2 && !strcmp(argv[1], "--as-server"))
        return be_server(argv);
    scratch_make(scratch);
    snprintf(dir, sizeof dir, "%s/dir", scratch);
    snprintf(told, sizeof told, "%s/told", scratch);
    int rc = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(scratch);
    return rc;
}
