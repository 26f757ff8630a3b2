/* A followed directory shows one version after the other at one path, from one moment on; who holds the version before
 * keeps it, and so does a container without propagation. In a mount namespace with a /run of its own, for root. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach/attach_internal.h"
#include "attach/follow/follow.h"
#include "attach/mount/mountinfo.h"
#include "base/error.h"
#include "base/io.h"
#include "unit/scratch.h"

#define IMAGE "/store/faces:daily"

static char scratch[SCRATCH_MAX], dir[SCRATCH_MAX + 8];

/* A claimed directory with versions that are tmpfs's: file "name" in each has its number. */
struct followed {
    struct follow_state f;
    int lock;
};

static struct digest digest_number(int n)
{
    return digest_of(&n, sizeof n);
}

static const char *path_of(const char *below)
{
    static char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", dir, below);
    return path;
}

static void write_number(const char *path, int n)
{
    char text[16];
    snprintf(text, sizeof text, "%d", n);
    int fd = open(path, O_WRONLY | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(io_write_full(fd, text, strlen(text)), 0);
    close(fd);
}

/* Return the number in a file; -1: there is no such file. */
static int number_in(int at, const char *path)
{
    char text[16] = "";
    CLEANUP_FD int fd = openat(at, path, O_RDONLY);
    return fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? atoi(text) : -1;
}

static void add_version(struct followed *d, int n)
{
    char version[PATH_MAX], file[PATH_MAX + 8];
    struct digest digest = digest_number(n);
    assert_int_equal(follow_add(&d->f, &digest), 0);
    follow_version_dir(&d->f, &digest, version);
    assert_int_equal(mount("version", version, "tmpfs", 0, NULL), 0);
    snprintf(file, sizeof file, "%s/name", version);
    write_number(file, n);
}

static int show(struct followed *d, int n)
{
    struct digest digest = digest_number(n);
    return follow_show(&d->f, &digest);
}

static void begin_at(struct followed *d, const char *name)
{
    bool made;
    snprintf(dir, sizeof dir, "%s/%s", scratch, name);
    assert_int_equal(mkdir(dir, 0755), 0);
    assert_int_equal(follow_claim(dir, IMAGE, &d->f, &d->lock), 0);
    assert_int_equal(follow_make(&d->f, &made), 0);
    assert_true(made);
}

static void end(struct followed *d)
{
    char version[PATH_MAX];
    close(d->lock);
    while (!umount2(path_of("current"), MNT_DETACH))
        ;
    for (size_t i = 0; i < d->f.count; i++) {
        (void)umount2(follow_version_dir(&d->f, &d->f.versions[i].digest, version), MNT_DETACH);
        assert_int_equal(rmdir(version), 0);
    }
    assert_int_equal(umount2(follow_versions(&d->f, version), MNT_DETACH), 0);
    assert_int_equal(rmdir(version), 0);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(rmdir(dir), 0);
    state_remove_dir(d->f.run_dir);
}

static void begin(struct followed *d)
{
    begin_at(d, "data");
}

static size_t mounts_at_current(void)
{
    size_t n;
    assert_int_equal(mountinfo_stacked(path_of("current"), &n), 0);
    return n;
}

static void test_follow__new_opens_see_the_new_version_and_old_ones_theirs(void **state)
{
    struct followed d;
    struct stat link;
    begin(&d);
    assert_int_equal(follow_shows(&d.f), 0);
    add_version(&d, 1);
    assert_int_equal(show(&d, 1), 0); /* not in place of another */
    assert_int_equal(follow_shows(&d.f), 1);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 1);
    int held = open(path_of("current"), O_RDONLY | O_DIRECTORY);
    assert_true(held >= 0);
    add_version(&d, 2);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 1);
    assert_int_equal(show(&d, 2), 1);
    assert_int_equal(show(&d, 2), 0);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 2);
    assert_int_equal(number_in(held, "name"), 1);
    assert_int_equal(mounts_at_current(), 1);
    assert_int_equal(lstat(path_of("@current"), &link), 0);
    assert_true(S_ISLNK(link.st_mode));
    assert_int_equal(number_in(AT_FDCWD, path_of("@current/name")), 2);
    close(held);
    end(&d);
}

static void test_follow__a_tag_goes_back_and_forth(void **state)
{
    struct followed d;
    begin(&d);
    add_version(&d, 1);
    add_version(&d, 2);
    assert_int_equal(show(&d, 1), 0);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(show(&d, 2 - i % 2), 1);
        assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 2 - i % 2);
        assert_int_equal(mounts_at_current(), 1);
    }
    assert_int_equal(d.f.switches, 10);
    end(&d);
}

/* A process that was killed after the new version was mounted beneath the old one. */
static void test_follow__a_switch_that_was_cut_off_is_finished(void **state)
{
    struct followed d;
    char old[PATH_MAX];
    struct digest digest = digest_number(1);
    begin(&d);
    add_version(&d, 1);
    add_version(&d, 2);
    assert_int_equal(show(&d, 1), 0);
    assert_int_equal(show(&d, 2), 1);
    assert_int_equal(mount(follow_version_dir(&d.f, &digest, old), path_of("current"), NULL, MS_BIND, NULL), 0);
    d.f.shown = digest; /* and nothing was saved */
    assert_int_equal(mounts_at_current(), 2);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 1);
    assert_int_equal(follow_recognize(&d.f), 0);
    digest = digest_number(2);
    assert_true(digest_equal(&d.f.shown, &digest)); /* readers have seen it, so it stays */
    assert_int_equal(show(&d, 2), 0);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 2);
    assert_int_equal(mounts_at_current(), 1);
    end(&d);
}

static void test_follow__a_version_that_is_not_mounted_is_not_shown(void **state)
{
    struct followed d;
    struct digest digest = digest_number(2);
    begin(&d);
    add_version(&d, 1);
    assert_int_equal(show(&d, 1), 0);
    assert_int_equal(follow_add(&d.f, &digest), 0);
    assert_int_equal(show(&d, 2), -ENOENT);
    assert_int_equal(number_in(AT_FDCWD, path_of("current/name")), 1);
    end(&d);
}

/* A process in a mount namespace of its own that has DIR at its own place, made in the steps of runc: all mounts become
 * slaves, DIR is copied, the copy gets its propagation. It answers each byte with the number that it reads in file, or
 * without a file with the number of mounts that the copy has. */
struct container {
    pid_t pid;
    int ask, answer;
};

static int mounts_below(const char *place)
{
    char *line = NULL, at[PATH_MAX];
    size_t size = 0;
    int n = 0;
    FILE *f = fopen("/proc/self/mountinfo", "re");
    while (f && getline(&line, &size, f) > 0)
        n += sscanf(line, "%*s %*s %*s %*s %4095s", at) == 1 && !strncmp(at, place, strlen(place));
    free(line);
    if (f)
        fclose(f);
    return n;
}

static void contain(const struct container *c, const char *place, unsigned long propagation, const char *file)
{
    char byte;
    bool made = !unshare(CLONE_NEWNS) && !mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) &&
                !mount(dir, place, NULL, MS_BIND | MS_REC, NULL) &&
                !mount(NULL, place, NULL, MS_REC | propagation, NULL) && !chdir(place);
    while (read(c->ask, &byte, 1) == 1) {
        int n = !made ? -2 : file ? number_in(AT_FDCWD, file) : mounts_below(place);
        if (write(c->answer, &n, sizeof n) != sizeof n)
            break;
    }
    _exit(0);
}

static struct container start_container(const char *name, unsigned long propagation, const char *file)
{
    int ask[2], answer[2];
    char place[SCRATCH_MAX + 32];
    snprintf(place, sizeof place, "%s/%s", scratch, name);
    assert_int_equal(mkdir(place, 0755), 0);
    assert_int_equal(pipe(ask) | pipe(answer), 0);
    struct container c = {.pid = fork(), .ask = ask[0], .answer = answer[1]};
    assert_true(c.pid >= 0);
    if (!c.pid) {
        close(ask[1]);
        close(answer[0]);
        contain(&c, place, propagation, file);
    }
    close(ask[0]);
    close(answer[1]);
    c.ask = ask[1];
    c.answer = answer[0];
    return c;
}

static int ask_container(const struct container *c)
{
    int n;
    assert_int_equal(write(c->ask, "?", 1), 1);
    assert_int_equal(read(c->answer, &n, sizeof n), sizeof n);
    return n;
}

static void end_container(const struct container *c)
{
    close(c->ask);
    close(c->answer);
    assert_int_equal(kill(c->pid, SIGKILL), 0); /* other children may have the pipe's other end */
    assert_int_equal(waitpid(c->pid, NULL, 0), c->pid);
}

static void test_follow__containers_see_it_by_propagation_or_keep_their_version(void **state)
{
    struct followed d;
    begin(&d);
    add_version(&d, 1);
    assert_int_equal(show(&d, 1), 0);
    const struct container slave = start_container("slave", MS_SLAVE, "current/name");
    const struct container private = start_container("private", MS_PRIVATE, "current/name");
    assert_int_equal(ask_container(&slave), 1);
    assert_int_equal(ask_container(&private), 1);
    add_version(&d, 2);
    assert_int_equal(show(&d, 2), 1);
    assert_int_equal(ask_container(&slave), 2);
    assert_int_equal(ask_container(&private), 1);
    add_version(&d, 3);
    assert_int_equal(show(&d, 3), 1);
    assert_int_equal(ask_container(&slave), 3);
    assert_int_equal(ask_container(&private), 1);
    end_container(&slave);
    end_container(&private);
    end(&d);
}

static void test_follow__a_copy_has_what_is_shown_and_no_other_version(void **state)
{
    struct followed d;
    char link[PATH_MAX];
    const struct digest first = digest_number(1);
    begin(&d);
    add_version(&d, 1);
    add_version(&d, 2);
    assert_int_equal(show(&d, 2), 0);
    const struct container shown = start_container("shown", MS_PRIVATE, "current/name");
    const struct container mounts = start_container("mounts", MS_PRIVATE, NULL);
    assert_int_equal(ask_container(&shown), 2);
    assert_int_equal(ask_container(&mounts), 2); /* of DIR and of DIR/current */
    strcat(follow_version_link(&d.f, &first, link), "/name");
    assert_int_equal(number_in(AT_FDCWD, link), 1);
    end_container(&shown);
    end_container(&mounts);
    end(&d);
}

static void test_follow__versions_are_as_hard_to_reach_as_the_directory(void **state)
{
    static const struct {
        mode_t scratch, parent, versions;
        gid_t group;
    } cases[] = {{0755, 0755, 0755, 0}, {0755, 0750, 0750, 4711}, {0755, 0700, 0700, 0}, {0700, 0750, 0700, 0}};
    char parent[SCRATCH_MAX + 8], versions[PATH_MAX];
    snprintf(parent, sizeof parent, "%s/p", scratch);
    assert_int_equal(mkdir(parent, 0755), 0);
    assert_int_equal(chown(parent, 0, 4711), 0);
    for (size_t i = 0; i < GR_ARRAY_SIZE(cases); i++) {
        struct followed d;
        struct stat st;
        assert_int_equal(chmod(scratch, cases[i].scratch) || chmod(parent, cases[i].parent), 0);
        begin_at(&d, "p/data");
        assert_int_equal(stat(follow_versions(&d.f, versions), &st), 0);
        assert_int_equal(st.st_mode & 07777, cases[i].versions);
        assert_int_equal(st.st_gid, cases[i].group);
        assert_int_equal(st.st_uid, 0);
        end(&d);
    }
    assert_int_equal(rmdir(parent), 0);
}

static void test_follow__a_note_of_an_unmount_counts_for_a_minute(void **state)
{
    struct followed d;
    char path[PATH_MAX];
    begin(&d);
    assert_false(follow_is_ending(&d.f));
    snprintf(path, sizeof path, "%s/ending", d.f.run_dir);
    assert_int_equal(io_write_file_atomic(path, "", 0, false), 0);
    assert_true(follow_is_ending(&d.f));
    const struct timespec before[2] = {{.tv_sec = time(NULL) - 61}, {.tv_sec = time(NULL) - 61}};
    assert_int_equal(utimensat(AT_FDCWD, path, before, 0), 0); /* its writer was killed */
    assert_false(follow_is_ending(&d.f));
    end(&d);
}

static void test_follow__the_version_that_is_shown_is_known_by_its_mount(void **state)
{
    const struct digest first = digest_number(1), second = digest_number(2);
    struct followed d;
    struct follow_state got;
    char version[PATH_MAX];
    begin(&d);
    add_version(&d, 1);
    add_version(&d, 2);
    assert_false(follow_shows_mount(follow_version_dir(&d.f, &first, version), &got));
    assert_int_equal(show(&d, 1), 0);
    assert_true(follow_shows_mount(version, &got));
    assert_string_equal(got.dir, d.f.dir);
    assert_false(follow_shows_mount(follow_version_dir(&d.f, &second, version), &got));
    end(&d);
}

static void test_follow__what_is_saved_is_read(void **state)
{
    struct followed d;
    struct follow_state got;
    begin(&d);
    add_version(&d, 1);
    add_version(&d, 2);
    assert_int_equal(show(&d, 1), 0);
    assert_int_equal(show(&d, 2), 1);
    d.f.wanted = digest_number(3);
    d.f.behind = 1700000000;
    snprintf(d.f.reason, sizeof d.f.reason, "all 2 versions are in use \xff");
    snprintf(d.f.control, sizeof d.f.control, "/run/granary/server-1/fuse.control");
    assert_int_equal(follow_save(&d.f), 0);
    assert_int_equal(follow_load(dir, &got), 0);
    assert_string_equal(got.dir, d.f.dir);
    assert_string_equal(got.image, IMAGE);
    assert_string_equal(got.control, d.f.control);
    assert_string_equal(got.reason, d.f.reason);
    assert_int_equal(got.count, 2);
    assert_true(digest_equal(&got.wanted, &d.f.wanted) && digest_equal(&got.shown, &d.f.shown));
    assert_int_equal(got.switches, 1);
    assert_int_equal(got.behind, 1700000000);
    assert_int_equal(got.follower.pid, getpid());
    assert_true(follow_is_alive(&got));
    assert_true(got.versions[1].shown && got.switched);
    end(&d);
    assert_int_equal(follow_load(dir, &got), -ENOENT);
}

static void test_follow__every_cut_of_the_file_is_damage(void **state)
{
    struct followed d;
    struct follow_state got;
    char path[PATH_MAX];
    CLEANUP_BYTES text = BYTES_INIT(1 << 16);
    begin(&d);
    snprintf(path, sizeof path, "%s/follow.json", d.f.run_dir);
    assert_int_equal(io_read_file(path, &text), 0);
    for (size_t len = 0; len + 1 < text.len; len += 7) {
        assert_int_equal(io_write_file_atomic(path, text.data, len, false), 0);
        assert_int_equal(follow_load(dir, &got), -EBADMSG);
    }
    end(&d);
}

static void test_follow__one_process_and_one_image_at_a_time(void **state)
{
    struct followed d, other;
    bool made;
    begin(&d);
    assert_int_equal(follow_claim(dir, IMAGE, &other.f, &other.lock), -EBUSY);
    assert_non_null(strstr(error_text(), "follows " IMAGE));
    close(d.lock);
    assert_int_equal(follow_claim(dir, "/store/other:daily", &other.f, &other.lock), -EBUSY);
    assert_int_equal(follow_claim(dir, IMAGE, &other.f, &other.lock), 0);
    assert_int_equal(follow_make(&other.f, &made), 0); /* it goes on with what is there */
    end(&other);
}

/* umount -l of the directory by others */
static void test_follow__a_directory_that_others_unmounted_begins_anew(void **state)
{
    struct followed d;
    char link[PATH_MAX];
    bool made;
    begin(&d);
    add_version(&d, 1);
    assert_int_equal(show(&d, 1), 0);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(follow_shows(&d.f), -ENOENT);
    assert_int_equal(follow_make(&d.f, &made), 0);
    assert_true(made);
    assert_true(digest_is_zero(&d.f.shown));
    assert_int_equal(d.f.count, 1); /* which is still mounted */
    const struct digest first = digest_number(1);
    assert_int_equal(number_in(AT_FDCWD, strcat(follow_version_link(&d.f, &first, link), "/name")), 1);
    assert_int_equal(show(&d, 1), 0);
    assert_int_equal(d.f.switches, 0);
    end(&d);
}

/* Others have mounted something of theirs where DIR was. */
static void test_follow__what_others_mounted_there_is_left_alone(void **state)
{
    struct followed d;
    struct stat st;
    char theirs[SCRATCH_MAX + 8];
    bool made;
    begin(&d);
    snprintf(theirs, sizeof theirs, "%s/theirs", scratch);
    assert_int_equal(mkdir(theirs, 0755), 0);
    assert_int_equal(mount("theirs", theirs, "tmpfs", 0, NULL), 0);
    assert_int_equal(umount2(dir, MNT_DETACH), 0);
    assert_int_equal(mount(theirs, dir, NULL, MS_BIND, NULL), 0);
    assert_int_equal(follow_shows(&d.f), -ENOENT);
    assert_int_equal(follow_make(&d.f, &made), -EBUSY);
    assert_int_equal(follow_remove(dir, true, d.lock), 0);
    assert_int_equal(lstat(path_of("current"), &st), -1);
    assert_int_equal(umount2(dir, MNT_DETACH), 0); /* it was there */
    assert_int_equal(umount2(theirs, MNT_DETACH), 0);
    assert_int_equal(rmdir(dir), 0);
    close(d.lock);
}

static int make_scratch(void **state)
{
    scratch_make(scratch);
    return 0;
}

static int remove_scratch(void **state)
{
    scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_follow__new_opens_see_the_new_version_and_old_ones_theirs, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_tag_goes_back_and_forth, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_switch_that_was_cut_off_is_finished, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_version_that_is_not_mounted_is_not_shown, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__containers_see_it_by_propagation_or_keep_their_version,
                                        make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_copy_has_what_is_shown_and_no_other_version, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__versions_are_as_hard_to_reach_as_the_directory, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_note_of_an_unmount_counts_for_a_minute, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__the_version_that_is_shown_is_known_by_its_mount, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__what_is_saved_is_read, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__every_cut_of_the_file_is_damage, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__one_process_and_one_image_at_a_time, make_scratch, remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__a_directory_that_others_unmounted_begins_anew, make_scratch,
                                        remove_scratch),
        cmocka_unit_test_setup_teardown(test_follow__what_others_mounted_there_is_left_alone, make_scratch,
                                        remove_scratch),
    };
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL)) {
        puts("mounting needs root");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
