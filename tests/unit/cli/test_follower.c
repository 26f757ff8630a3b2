/* The order of the follower's steps, with versions that are tmpfs's: it moves only to what the store has told, stays
 * where it is when a step fails, tells the hook, and goes on where another one was. What needs a server and devices is
 * in flow/mount-follow. In a mount namespace with a /run of its own, for root. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/io.h"
#include "cli/follower.h"
#include "unit/scratch.h"

#define IMAGE "/store/faces:daily"

/* One answer about the tag, and what DIR/current shows when the question comes. */
struct step {
    int shown;   /* 0: nothing */
    int version; /* that the tag names; 0: the question fails */
    enum {
        FROM_STORE,
        FROM_TABLE, /* only a table knows it */
        REFUSED,    /* its mount fails */
        ENDING,     /* another process is about to unmount the directory */
        UNMOUNTED   /* and has begun */
    } how;
};

static char scratch[SCRATCH_MAX], dir[SCRATCH_MAX + 8];
static const struct step *steps;
static size_t step_count, at;
static unsigned mounts;

static struct digest digest_number(int n)
{
    return digest_of(&n, sizeof n);
}

/* Return the number in a file; 0: there is no such file. */
static int number_in(const char *name)
{
    char path[PATH_MAX], text[16] = "";
    snprintf(path, sizeof path, "%s/%s", dir, name);
    CLEANUP_FD int fd = open(path, O_RDONLY);
    return fd >= 0 && read(fd, text, sizeof text - 1) > 0 ? atoi(text) : 0;
}

/* Whether the state says that it is behind. */
static bool is_behind(void)
{
    struct follow_state f;
    return !follow_load(dir, &f) && f.behind;
}

/* Do as another process does that unmounts the directory, or was killed before it did. */
static void set_ending(int how)
{
    struct follow_state f;
    char path[PATH_MAX];
    if (follow_load(dir, &f))
        return;
    snprintf(path, sizeof path, "%s/ending", f.run_dir);
    if (how != ENDING && how != UNMOUNTED)
        (void)unlink(path);
    else
        assert_int_equal(io_write_file_atomic(path, "", 0, false), 0);
    snprintf(path, sizeof path, "%s/current", dir);
    if (how == UNMOUNTED)
        assert_int_equal(umount2(path, MNT_DETACH), 0);
}

/* After the last step others unmount the directory, which ends the follower. */
static int scripted_ask(void *arg, struct digest *out, bool *out_from_store)
{
    if (at == step_count) {
        assert_int_equal(umount2(dir, MNT_DETACH), 0);
        return error_set(-EAGAIN, "the script is over");
    }
    const struct step *before = at ? &steps[at - 1] : NULL, *step = &steps[at++];
    assert_int_equal(number_in("current/name"), step->shown);
    if (before) /* what was asked for last is shown, or else it is behind */
        assert_int_equal(is_behind(),
                         at > 2 && (before->how == FROM_TABLE || !before->version || before->version != step->shown));
    set_ending(step->how);
    *out = digest_number(step->version);
    *out_from_store = step->how != FROM_TABLE;
    return step->version ? 0 : error_set(-EIO, "no store today");
}

/* A tmpfs and a state, as of a mount by FUSE whose server another has. */
static int scripted_mount(void *arg, const char *version_dir, struct mount_state *out)
{
    const struct step *step = &steps[at - 1];
    char name[PATH_MAX + 8], text[16];
    if (step->how == REFUSED)
        return error_set(-EIO, "no device today");
    mounts++;
    *out = (struct mount_state){.digest = digest_number(step->version), .mounted = true, .method = "fuse"};
    state_name(version_dir, out);
    snprintf(out->fuse_file, sizeof out->fuse_file, "file");
    snprintf(out->control, sizeof out->control, "/nowhere");
    assert_int_equal(mount("version", version_dir, "tmpfs", 0, NULL), 0);
    snprintf(name, sizeof name, "%s/name", version_dir);
    snprintf(text, sizeof text, "%d", step->version);
    assert_int_equal(io_write_file_atomic(name, text, strlen(text), false), 0);
    assert_true(!mkdir(out->run_dir, 0700) || errno == EEXIST);
    return state_save(out);
}

/* Follow until the script is over. */
static void follow(const struct step *script, size_t n, const char *hook)
{
    static const volatile int never = 0;
    const struct follower_config config = {.dir = dir,
                                           .image = IMAGE,
                                           .poll_ms = 1,
                                           .keep = 3,
                                           .hook = hook,
                                           .keeps_nothing = true,
                                           .ask = scripted_ask,
                                           .mount = scripted_mount,
                                           .cancel = &never};
    struct follower w;
    bool begun;
    steps = script;
    step_count = n;
    at = mounts = 0;
    assert_int_equal(follower_open(&w, &config, &begun), 0);
    assert_true(begun);
    assert_int_equal(follower_run(&w), -ENOENT);
    follower_close(&w);
    assert_int_equal(at, n);
}

static void test_follower__it_moves_to_what_the_store_has_told(void **state)
{
    static const struct step script[] = {{0, 1, FROM_STORE}, {1, 1, FROM_STORE}, {1, 2, FROM_TABLE},
                                         {1, 2, FROM_STORE}, {2, 0, FROM_STORE}, {2, 2, FROM_STORE},
                                         {2, 1, FROM_STORE}, {1, 1, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
    assert_int_equal(mounts, 2); /* the first one is still there when the tag goes back */
}

static void test_follower__the_first_version_may_be_what_a_table_knows(void **state)
{
    static const struct step script[] = {{0, 1, FROM_TABLE}, {1, 1, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
}

static void test_follower__what_cannot_be_mounted_is_tried_again(void **state)
{
    static const struct step script[] = {
        {0, 1, FROM_STORE}, {1, 2, REFUSED}, {1, 2, REFUSED}, {1, 2, FROM_STORE}, {2, 2, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
}

/* A process may be killed between its note that it will unmount and the unmount. */
static void test_follower__nothing_is_shown_while_another_process_unmounts(void **state)
{
    static const struct step script[] = {{0, 1, FROM_STORE}, {1, 2, ENDING}, {1, 2, FROM_STORE}, {2, 2, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
}

static void test_follower__a_tag_that_comes_back_before_the_switch_is_no_more_behind(void **state)
{
    static const struct step script[] = {{0, 1, FROM_STORE}, {1, 2, ENDING}, {1, 1, FROM_STORE}, {1, 1, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
}

static void test_follower__what_another_process_has_unmounted_stays_so_until_it_has_ended(void **state)
{
    static const struct step script[] = {
        {0, 1, FROM_STORE}, {1, 0, UNMOUNTED}, {0, 0, FROM_STORE}, {1, 1, FROM_STORE}, {1, 1, FROM_STORE}};
    follow(script, GR_ARRAY_SIZE(script), NULL);
}

static void test_follower__the_hook_is_told_of_switches_and_of_the_first_wait(void **state)
{
    static const struct step script[] = {
        {0, 1, FROM_STORE}, {1, 2, REFUSED}, {1, 2, REFUSED}, {1, 2, FROM_STORE}, {2, 2, FROM_STORE}};
    char hook[SCRATCH_MAX + 8], said[SCRATCH_MAX + 8], text[1024], expected[2048], one[DIGEST_HEX_SIZE],
        two[DIGEST_HEX_SIZE];
    const struct digest first = digest_number(1), second = digest_number(2);
    CLEANUP_BYTES got = BYTES_INIT(1 << 16);
    snprintf(hook, sizeof hook, "%s/hook", scratch);
    snprintf(said, sizeof said, "%s/said", scratch);
    snprintf(text, sizeof text,
             "#!/bin/sh\necho \"$GRANARY_EVENT $GRANARY_DIR $GRANARY_IMAGE $GRANARY_DIGEST $GRANARY_BEFORE "
             "$GRANARY_VERSION $GRANARY_REASON\" >>%s\nexit 3\n",
             said);
    assert_int_equal(io_write_file_atomic(hook, text, strlen(text), false), 0);
    assert_int_equal(chmod(hook, 0755), 0);
    follow(script, GR_ARRAY_SIZE(script), hook);
    digest_hex(&first, one);
    digest_hex(&second, two);
    int len = 0;
    for (int i = 0; i < 2; i++)
        len += snprintf(expected + len, sizeof expected - (size_t)len,
                        "%s %s " IMAGE " sha256:%s sha256:%s %s/@%.12s %s\n", i ? "switched" : "waiting", dir, two, one,
                        dir, two, i ? "" : "no device today");
    assert_int_equal(io_read_file(said, &got), 0);
    assert_non_null(bytes_string(&got));
    assert_true(!strncmp((const char *)got.data, expected, (size_t)len)); /* then the end of the script */
}

static void test_follower__another_one_goes_on(void **state)
{
    static const struct step script[] = {{0, 1, FROM_STORE}};
    static const volatile int never = 0;
    const struct follower_config config = {.dir = dir,
                                           .image = IMAGE,
                                           .poll_ms = 1,
                                           .keep = 3,
                                           .keeps_nothing = true,
                                           .ask = scripted_ask,
                                           .mount = scripted_mount,
                                           .cancel = &never};
    struct follower w;
    bool begun;
    steps = script;
    step_count = 1;
    at = mounts = 0;
    assert_int_equal(follower_open(&w, &config, &begun), 0);
    assert_true(begun);
    w.f.behind = 1700000000;
    assert_int_equal(follow_save(&w.f), 0);
    follower_close(&w);                                      /* as if it were killed */
    assert_int_equal(follower_open(&w, &config, &begun), 0); /* and asks nothing */
    assert_false(begun);
    assert_int_equal(w.f.behind, 1700000000); /* so it may still be */
    assert_int_equal(number_in("current/name"), 1);
    assert_int_equal(follower_run(&w), -ENOENT);
    follower_close(&w);
    assert_int_equal(mounts, 1);
}

/* Others have unmounted the version, and the store or the device is away. */
static void test_follower__a_failure_to_go_on_takes_nothing_down(void **state)
{
    static const struct step script[] = {{0, 1, FROM_STORE}, {1, 1, REFUSED}};
    static const volatile int never = 0;
    const struct follower_config config = {.dir = dir,
                                           .image = IMAGE,
                                           .poll_ms = 1,
                                           .keep = 3,
                                           .keeps_nothing = true,
                                           .ask = scripted_ask,
                                           .mount = scripted_mount,
                                           .cancel = &never};
    struct follower w;
    const struct digest first = digest_number(1);
    char version[PATH_MAX];
    bool begun;
    steps = script;
    step_count = 2;
    at = mounts = 0;
    assert_int_equal(follower_open(&w, &config, &begun), 0);
    follower_close(&w); /* as if it were killed */
    assert_int_equal(umount2(follow_version_dir(&w.f, &first, version), MNT_DETACH), 0);
    assert_int_equal(follower_open(&w, &config, &begun), -EIO);
    follower_close(&w);
    assert_false(begun);
    assert_int_equal(number_in("current/name"), 1);
}

static int begin(void **state)
{
    scratch_make(scratch);
    snprintf(dir, sizeof dir, "%s/data", scratch);
    return mkdir(dir, 0755);
}

static int end(void **state)
{
    (void)umount2(dir, MNT_DETACH);
    scratch_remove(scratch);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_follower__it_moves_to_what_the_store_has_told, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__the_first_version_may_be_what_a_table_knows, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__what_cannot_be_mounted_is_tried_again, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__nothing_is_shown_while_another_process_unmounts, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__a_tag_that_comes_back_before_the_switch_is_no_more_behind, begin,
                                        end),
        cmocka_unit_test_setup_teardown(test_follower__what_another_process_has_unmounted_stays_so_until_it_has_ended,
                                        begin, end),
        cmocka_unit_test_setup_teardown(test_follower__the_hook_is_told_of_switches_and_of_the_first_wait, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__another_one_goes_on, begin, end),
        cmocka_unit_test_setup_teardown(test_follower__a_failure_to_go_on_takes_nothing_down, begin, end),
    };
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount("tmpfs", "/run", "tmpfs", 0, NULL)) {
        puts("mounting needs root");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
