/* What safe_dir.h refuses, and what it takes. Another user's files need root to make: without it those tests say that
 * they are skipped. */
#include "base/safe_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

enum { STRANGER = 65534 };

#define NEED_ROOT()                                                                                                    \
    do {                                                                                                               \
        if (geteuid()) {                                                                                               \
            print_message("skipped: only root can make another user's files\n");                                       \
            skip();                                                                                                    \
        }                                                                                                              \
    } while (0)

/* A scratch directory and names in it. */
struct place {
    char dir[SCRATCH_MAX];
    char name[SCRATCH_MAX + 32];
};

static const char *in(struct place *p, const char *name)
{
    snprintf(p->name, sizeof p->name, "%s/%s", p->dir, name);
    return p->name;
}

static void make_place(struct place *p)
{
    scratch_make(p->dir);
    assert_int_equal(chmod(p->dir, 0700), 0);
}

static void make_file(const char *path, mode_t mode)
{
    CLEANUP_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "mine", 4), 4);
    assert_int_equal(fchmod(fd, mode), 0);
}

static void expect_dir(const char *path, int rc, const char *why)
{
    CLEANUP_FD int fd = -1;
    (void)error_set(-EIO, "no sentence");
    assert_int_equal(safe_dir_open(path, SAFE_DIR_MAKE, &fd), rc);
    if (rc && !strstr(error_text(), why))
        fail_msg("'%s' does not say '%s'", error_text(), why);
    assert_true(rc ? fd == -1 : fd >= 0);
}

static void expect_file(struct place *p, int flags, int rc, const char *why)
{
    CLEANUP_FD int dir = -1;
    CLEANUP_FD int fd = -1;
    (void)error_set(-EIO, "no sentence");
    assert_int_equal(safe_dir_open(p->dir, 0, &dir), 0);
    assert_int_equal(safe_file_open(dir, p->dir, "data", flags, &fd), rc);
    if (rc && !strstr(error_text(), why))
        fail_msg("'%s' does not say '%s'", error_text(), why);
    assert_true(rc ? fd == -1 : fd >= 0);
}

static void test_safe_dir__is_made_for_this_user_alone(void **state)
{
    struct place p;
    struct stat st;
    make_place(&p);
    expect_dir(in(&p, "new"), 0, "");
    assert_int_equal(stat(in(&p, "new"), &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    expect_dir(in(&p, "new"), 0, "");
    expect_dir(in(&p, "new/./../new//"), 0, "");
    expect_dir(in(&p, "no/new"), -ENOENT, "the directory above it does not exist");
    make_file(in(&p, "file"), 0600);
    expect_dir(in(&p, "file"), -ENOTDIR, "Not a directory");
    expect_dir("", -ENOENT, "cannot open");
    scratch_remove(p.dir);
}

static void test_safe_dir__of_a_relative_path(void **state)
{
    struct place p;
    char here[4096];
    make_place(&p);
    assert_non_null(getcwd(here, sizeof here));
    assert_int_equal(chdir(p.dir), 0);
    expect_dir("sub", 0, "");
    assert_int_equal(chdir(here), 0);
    assert_int_equal(access(in(&p, "sub"), F_OK), 0);
    scratch_remove(p.dir);
}

static void test_safe_dir__that_others_may_write_is_refused(void **state)
{
    struct place p;
    make_place(&p);
    assert_int_equal(mkdir(in(&p, "open"), 0700), 0);
    assert_int_equal(chmod(in(&p, "open"), 0770), 0);
    expect_dir(in(&p, "open"), -EPERM, "may be written by other users (mode 0770); take their right away ('chmod go-w");
    assert_int_equal(chmod(in(&p, "open"), 0777), 0);
    expect_dir(in(&p, "open"), -EPERM, "may be written by other users (mode 0777)");
    expect_dir(in(&p, "open/below"), -EPERM, "who could put another directory in its place");
    assert_int_equal(chmod(in(&p, "open"), 01777), 0); /* as /tmp: nobody replaces what is another's */
    expect_dir(in(&p, "open/below"), 0, "");
    expect_dir(in(&p, "open"), -EPERM, "may be written by other users (mode 1777)");
    scratch_remove(p.dir);
}

static void test_safe_dir__below_one_of_root_s_that_its_group_may_write(void **state)
{
    NEED_ROOT();
    struct place p;
    CLEANUP_FD int fd = -1;
    make_place(&p);
    assert_int_equal(mkdir(in(&p, "log"), 0755), 0);
    assert_int_equal(chmod(in(&p, "log"), 0775), 0);
    expect_dir(in(&p, "log/ours"), -EPERM, "who could put another directory in its place");
    assert_int_equal(safe_dir_open(in(&p, "log"), SAFE_DIR_ROOTS_GROUP, &fd), -EPERM); /* not itself */
    assert_int_equal(safe_dir_open(in(&p, "log/ours"), SAFE_DIR_MAKE | SAFE_DIR_ROOTS_GROUP, &fd), 0);
    close(steal_fd(&fd));
    assert_int_equal(chmod(in(&p, "log"), 0777), 0);
    assert_int_equal(safe_dir_open(in(&p, "log/ours"), SAFE_DIR_ROOTS_GROUP, &fd), -EPERM);
    assert_int_equal(chmod(in(&p, "log"), 0775), 0);
    assert_int_equal(chown(in(&p, "log"), STRANGER, STRANGER), 0);
    assert_int_equal(safe_dir_open(in(&p, "log/ours"), SAFE_DIR_ROOTS_GROUP, &fd), -EPERM);
    scratch_remove(p.dir);
}

static void test_safe_dir__of_another_user_is_refused(void **state)
{
    NEED_ROOT();
    struct place p;
    make_place(&p);
    assert_int_equal(mkdir(in(&p, "theirs"), 0700), 0);
    assert_int_equal(chown(in(&p, "theirs"), STRANGER, STRANGER), 0);
    expect_dir(in(&p, "theirs"), -EPERM,
               "belongs to user 65534 (nobody) and not to user 0 (root), who runs this; run it as that user");
    expect_dir(
        in(&p, "theirs/below"), -EPERM,
        "theirs above it belongs to user 65534 (nobody), who could put another directory in its place; choose one "
        "below directories of root");
    assert_null(strstr(error_text(), "user 0"));
    assert_int_equal(access(in(&p, "theirs/below"), F_OK), -1); /* and nothing was made there */
    scratch_remove(p.dir);
}

static void test_safe_dir__through_links_of_this_user_and_no_other(void **state)
{
    struct place p;
    make_place(&p);
    assert_int_equal(mkdir(in(&p, "real"), 0700), 0);
    assert_int_equal(symlink("real", in(&p, "link")), 0);
    assert_int_equal(symlink("loop", in(&p, "loop")), 0);
    char *absolute = realpath(in(&p, "real"), NULL);
    assert_non_null(absolute);
    assert_int_equal(symlink(absolute, in(&p, "far")), 0);
    free(absolute);
    expect_dir(in(&p, "link"), 0, "");
    expect_dir(in(&p, "link/below"), 0, "");
    expect_dir(in(&p, "far/below"), 0, "");
    expect_dir(in(&p, "loop"), -ELOOP, "cannot open");
    if (!geteuid()) {
        assert_int_equal(lchown(in(&p, "link"), STRANGER, STRANGER), 0);
        expect_dir(in(&p, "link"), -EPERM, "is a symbolic link of user 65534");
        expect_dir(in(&p, "link/below"), -EPERM, "is a symbolic link of user 65534");
    }
    scratch_remove(p.dir);
}

static void test_safe_file__is_made_for_this_user_alone(void **state)
{
    struct place p;
    struct stat st;
    make_place(&p);
    expect_file(&p, O_RDWR, -ENOENT, "cannot open");
    expect_file(&p, O_RDWR | O_CREAT | O_NOATIME, 0, "");
    assert_int_equal(stat(in(&p, "data"), &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0600);
    expect_file(&p, O_RDWR | O_CREAT, 0, "");
    scratch_remove(p.dir);
}

static void test_safe_file__that_is_a_link_is_refused(void **state)
{
    struct place p;
    make_place(&p);
    make_file(in(&p, "other"), 0600);
    assert_int_equal(symlink("other", in(&p, "data")), 0);
    expect_file(&p, O_RDWR | O_CREAT, -EPERM, "/data is a symbolic link; remove it");
    assert_int_equal(unlink(in(&p, "data")), 0);
    assert_int_equal(symlink("missing", in(&p, "data")), 0);
    expect_file(&p, O_RDWR | O_CREAT, -EPERM, "/data is a symbolic link; remove it");
    assert_int_equal(access(in(&p, "missing"), F_OK), -1);
    assert_int_equal(unlink(in(&p, "data")), 0);
    char other[sizeof p.name];
    strcpy(other, in(&p, "other"));
    assert_int_equal(link(other, in(&p, "data")), 0);
    expect_file(&p, O_RDWR | O_CREAT, -EPERM, "a hard link");
    scratch_remove(p.dir);
}

static void test_safe_file__that_another_made_or_may_write_is_refused(void **state)
{
    struct place p;
    make_place(&p);
    make_file(in(&p, "data"), 0666);
    expect_file(&p, O_RDWR | O_CREAT, -EPERM, "may be written by other users");
    assert_int_equal(unlink(in(&p, "data")), 0);
    assert_int_equal(mkfifo(in(&p, "data"), 0600), 0);
    expect_file(&p, O_RDONLY, -EPERM, "is no regular file"); /* and nobody waits for a writer */
    assert_int_equal(unlink(in(&p, "data")), 0);
    if (!geteuid()) {
        make_file(in(&p, "data"), 0600);
        assert_int_equal(chown(in(&p, "data"), STRANGER, STRANGER), 0);
        expect_file(&p, O_RDWR | O_CREAT | O_NOATIME, -EPERM,
                    "/data belongs to user 65534 (nobody) and not to user 0 (root), who runs this");
    }
    scratch_remove(p.dir);
}

/* Read it by its path, as what lies beside a socket in /tmp is. */
static void expect_read(struct place *p, uid_t also, int rc, const char *why)
{
    CLEANUP_BYTES text = BYTES_INIT(100);
    (void)error_set(-EIO, "no sentence");
    assert_int_equal(safe_file_read(in(p, "data"), also, &text), rc);
    if (rc && !strstr(error_text(), why))
        fail_msg("'%s' does not say '%s'", error_text(), why);
    assert_int_equal(text.len, rc ? 0 : 4);
}

static void test_safe_file__is_read_only_where_no_other_user_can_have_planted_it(void **state)
{
    struct place p;
    make_place(&p);
    assert_int_equal(chmod(p.dir, 01777), 0);
    expect_read(&p, geteuid(), -ENOENT, "cannot open");
    make_file(in(&p, "data"), 0644);
    expect_read(&p, geteuid(), 0, "");
    assert_int_equal(chmod(in(&p, "data"), 0664), 0);
    expect_read(&p, geteuid(), -EPERM, "/data may be written by other users");
    assert_int_equal(rename(in(&p, "data"), strcat(strcpy((char[sizeof p.name]){0}, p.dir), "/other")), 0);
    assert_int_equal(symlink("other", in(&p, "data")), 0);
    expect_read(&p, geteuid(), -EPERM, "/data is a symbolic link");
    assert_int_equal(unlink(in(&p, "data")), 0);
    assert_int_equal(mkfifo(in(&p, "data"), 0600), 0);
    expect_read(&p, geteuid(), -EPERM, "is no regular file"); /* and nobody waits for a writer */
    assert_int_equal(unlink(in(&p, "data")), 0);
    if (!geteuid()) {
        make_file(in(&p, "data"), 0644);
        assert_int_equal(chown(in(&p, "data"), STRANGER, STRANGER), 0);
        expect_read(&p, geteuid(), -EPERM, "/data belongs to user 65534");
        expect_read(&p, STRANGER, 0, "");
        assert_int_equal(chown(in(&p, "data"), 0, 0), 0);
        assert_int_equal(seteuid(STRANGER), 0);
        expect_read(&p, geteuid(), 0, ""); /* root's */
        assert_int_equal(seteuid(0), 0);
    }
    scratch_remove(p.dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safe_dir__is_made_for_this_user_alone),
        cmocka_unit_test(test_safe_dir__of_a_relative_path),
        cmocka_unit_test(test_safe_dir__that_others_may_write_is_refused),
        cmocka_unit_test(test_safe_dir__below_one_of_root_s_that_its_group_may_write),
        cmocka_unit_test(test_safe_dir__of_another_user_is_refused),
        cmocka_unit_test(test_safe_dir__through_links_of_this_user_and_no_other),
        cmocka_unit_test(test_safe_file__is_made_for_this_user_alone),
        cmocka_unit_test(test_safe_file__that_is_a_link_is_refused),
        cmocka_unit_test(test_safe_file__that_another_made_or_may_write_is_refused),
        cmocka_unit_test(test_safe_file__is_read_only_where_no_other_user_can_have_planted_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
