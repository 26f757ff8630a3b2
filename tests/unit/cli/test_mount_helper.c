/* What mount(8) says, as words for granary. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/io.h"
#include "cli/open.h"
#include "cli/verbs/verbs.h"
#include "unit/scratch.h"

#define WORDS(...) ((char *[]){__VA_ARGS__, NULL})

/* The words with a space after each; what was refused instead, in brackets. */
static const char *words_of(char **argv)
{
    static char text[512];
    CLEANUP_STRING_LIST words = {0};
    bool nothing;
    int argc = 0;
    while (argv[argc])
        argc++;
    *text = 0;
    if (mount_helper_words(argc, argv, &words, &nothing)) {
        snprintf(text, sizeof text, "[%.500s]", error_text());
        return text;
    }
    for (size_t i = 0; i + 1 < words.len; i++) {
        strcat(text, words.items[i]);
        strcat(text, " ");
    }
    if (nothing)
        strcat(text, "(nothing)");
    return text;
}

static void test_helper__options_of_the_verb_become_its_options(void **state)
{
    char options[] = "rw,cache=/ssd:20G,_netdev,nofail,memory=1G,noexec,x-systemd.requires=a.service,user";
    assert_string_equal(words_of(WORDS("/sbin/mount.granary", "s3://b/i:v1", "/mnt", "-o", options)),
                        "granary mount --cache=/ssd:20G --memory=1G --noexec -- s3://b/i:v1 /mnt ");
    assert_string_equal(words_of(WORDS("mount.granary", "s3://b/i:v1", "/mnt")), "granary mount -- s3://b/i:v1 /mnt ");
    char ignored[] =
        "async,sync,dirsync,atime,noatime,diratime,nodiratime,relatime,norelatime,strictatime,nostrictatime,"
        "lazytime,nolazytime,iversion,noiversion,mand,nomand,_rnetdev,silent,loud";
    assert_string_equal(words_of(WORDS("mount.granary", "i", "/mnt", "-o", ignored)), "granary mount -- i /mnt ");
    char joined[] = "-oro,fuse";
    assert_string_equal(words_of(WORDS("mount.granary", "-nv", "i", "/mnt", joined)),
                        "granary mount --fuse -- i /mnt ");
}

static void test_helper__an_unknown_option_is_left_to_the_verb_unless_sloppy(void **state)
{
    char options[] = "what=1,cache=/c:1G", again[] = "what=1,cache=/c:1G";
    assert_string_equal(words_of(WORDS("mount.granary", "i", "/mnt", "-o", options)),
                        "granary mount --what=1 --cache=/c:1G -- i /mnt ");
    assert_string_equal(words_of(WORDS("mount.granary", "i", "/mnt", "-s", "-o", again)),
                        "granary mount --cache=/c:1G -- i /mnt ");
}

static void test_helper__what_cannot_be_is_refused(void **state)
{
    char remount[] = "rw,remount", foreground[] = "foreground";
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i", "/mnt", "-o", remount)), "[a mounted image"));
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i", "/mnt", "-o", foreground)), "[mount -t granary"));
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i")), "[an operand"));
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i", "/mnt", "/x")), "[too many"));
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i", "/mnt", "-N", "1")), "[-N"));
    assert_non_null(strstr(words_of(WORDS("mount.granary", "i", "/mnt", "-o")), "[an option"));
    assert_non_null(strstr(words_of(WORDS("umount.granary", "/mnt", "-l")), "[a lazy"));
}

static void test_helper__umount_and_a_mount_that_is_only_tried(void **state)
{
    assert_string_equal(words_of(WORDS("/usr/sbin/umount.granary", "/mnt", "-v")), "granary umount -- /mnt ");
    assert_string_equal(words_of(WORDS("mount.granary", "-f", "i", "/mnt")), "granary mount -- i /mnt (nothing)");
    assert_true(mount_helper_called("/sbin/umount.granary"));
    assert_false(mount_helper_called("/usr/bin/granary"));
}

/* What loading a file with that text comes to, by one of the functions below. */
static int load_by(int (*load_file)(const char *path), const char *text)
{
    char dir[SCRATCH_MAX], path[SCRATCH_MAX + 8];
    scratch_make(dir);
    snprintf(path, sizeof path, "%s/env", dir);
    assert_int_equal(io_write_file_atomic(path, text, strlen(text), false), 0);
    int rc = load_file(path);
    scratch_remove(dir);
    return rc;
}

static int load(const char *text)
{
    return load_by(env_file_load, text);
}

/* The bytes for the server are those of the file. */
static int load_keys_file(const char *path)
{
    struct bytes text CLEANUP(bytes_wipe) = BYTES_INIT(S3_KEYS_TEXT_MAX);
    CLEANUP(cleanup_s3_keys) struct s3_keys *keys = NULL;
    int rc = keys_file_load(path, &text, &keys);
    assert_true(!rc == !!keys);
    if (!rc)
        assert_non_null(strstr(bytes_string(&text), "AWS_SECRET_ACCESS_KEY=hunter2\n"));
    return rc;
}

static void test_env_file__lines_are_settings(void **state)
{
    assert_int_equal(
        load("# not this\n\n  A_ONE = two words \nA_QUOTED=\" kept \"\n;nor this\nA_URL='http://h:1/?a=b'"), 0);
    assert_string_equal(getenv("A_ONE"), "two words");
    assert_string_equal(getenv("A_QUOTED"), " kept ");
    assert_string_equal(getenv("A_URL"), "http://h:1/?a=b");
}

static void test_env_file__a_wrong_line_is_named_not_shown(void **state)
{
    assert_int_equal(load("A=b\nhunter2\n"), -EINVAL);
    assert_non_null(strstr(error_text(), ":2: no NAME=VALUE"));
    assert_null(strstr(error_text(), "hunter2"));
    assert_int_equal(env_file_load("/nowhere/env"), -ENOENT);
}

static void test_keys_file__keys_are_checked_and_not_shown(void **state)
{
    static char large[S3_KEYS_TEXT_MAX + 2];
    memset(large, '#', sizeof large - 1);
    assert_int_equal(load_by(load_keys_file, "AWS_ACCESS_KEY_ID=me\nAWS_SECRET_ACCESS_KEY=hunter2\n"), 0);
    assert_int_equal(load_by(load_keys_file, "AWS_ACCESS_KEY_ID=me\nhunter2\n"), -EINVAL);
    assert_non_null(strstr(error_text(), "/env: keys: line 2 is wrong"));
    assert_null(strstr(error_text(), "hunter2"));
    assert_int_equal(load_by(load_keys_file, large), -EINVAL);
    assert_non_null(strstr(error_text(), "too large"));
    assert_int_equal(load_keys_file("/nowhere/keys"), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_helper__options_of_the_verb_become_its_options),
        cmocka_unit_test(test_helper__an_unknown_option_is_left_to_the_verb_unless_sloppy),
        cmocka_unit_test(test_helper__what_cannot_be_is_refused),
        cmocka_unit_test(test_helper__umount_and_a_mount_that_is_only_tried),
        cmocka_unit_test(test_env_file__lines_are_settings),
        cmocka_unit_test(test_env_file__a_wrong_line_is_named_not_shown),
        cmocka_unit_test(test_keys_file__keys_are_checked_and_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
