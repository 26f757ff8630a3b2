/* What is the file store's own: places on disk, crashes, races between processes, refusals of the
 * system. What every store must do is in test_store_conformance.c. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/error.h"
#include "base/io.h"
#include "store/store.h"

struct place {
    char dir[64], root[80];
    struct store *store;
};

static int set_up(void **state)
{
    struct place *p = calloc(1, sizeof *p);
    strcpy(p->dir, "/tmp/granary-test-XXXXXX");
    if (!mkdtemp(p->dir))
        return -1;
    snprintf(p->root, sizeof p->root, "%s/store", p->dir);
    *state = p;
    return store_file_open(p->root, NULL, &p->store);
}

static int tear_down(void **state)
{
    struct place *p = *state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", p->dir);
    store_close(p->store);
    free(p);
    return system(command);
}

static int put(struct store *s, const char *key, const char *text, enum store_put_mode mode, const char *version)
{
    return store_put(
        s, &(struct store_put){.key = key, .data = text, .len = strlen(text), .mode = mode, .version = version});
}

/* How many names the directory holds, "." and ".." not counted; -1: it cannot be read. */
static int entries(const char *dir, const char *sub)
{
    char command[256];
    snprintf(command, sizeof command, "exit $(ls -A %s/%s | wc -l)", dir, sub);
    return WEXITSTATUS(system(command));
}

static void test_store_file__urls(void **state)
{
    struct place *p = *state;
    struct store *s = NULL;
    char url[128];
    snprintf(url, sizeof url, "file://%s//", p->root);
    assert_int_equal(store_file_open(url, NULL, &s), 0);
    snprintf(url, sizeof url, "file://%s", p->root);
    assert_string_equal(s->url, url);
    store_close(s);
    assert_int_equal(store_file_open("file://relative/x", NULL, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "must be absolute"));
    assert_int_equal(store_file_open("/etc/passwd", NULL, &s), -EINVAL);
    assert_non_null(strstr(error_text(), "not a directory"));
}

static void test_store_file__the_first_put_makes_the_root_but_not_its_parent(void **state)
{
    struct place *p = *state;
    struct stat st;
    assert_int_equal(put(p->store, "granary.json", "{}", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(stat(p->root, &st), 0);
    struct store *s = NULL;
    char url[128];
    snprintf(url, sizeof url, "%s/not/there", p->dir);
    assert_int_equal(store_file_open(url, NULL, &s), 0);
    assert_int_equal(put(s, "a/b", "x", STORE_PUT_ALWAYS, NULL), -ENOENT);
    assert_non_null(strstr(error_text(), "make it first"));
    struct store_item item;
    assert_int_equal(store_stat(s, "a/b", &item), -ENOENT);
    assert_non_null(strstr(error_text(), "there is no such directory"));
    assert_int_not_equal(stat(url, &st), 0);
    store_close(s);
}

static void test_store_file__keys_never_lead_out(void **state)
{
    struct place *p = *state;
    static const char *const bad[] = {"",    "/",     "/etc/passwd", "..", "../x", "a/../../x",      "a/..",        ".",
                                      "./a", "a/./b", "a//b",        "a/", "/a",   ".granary-tmp/x", ".granary-tmp"};
    struct store_item item;
    CLEANUP_BYTES b = BYTES_INIT(100);
    for (size_t i = 0; i < GR_ARRAY_SIZE(bad); i++) {
        assert_int_equal(put(p->store, bad[i], "x", STORE_PUT_ALWAYS, NULL), -EINVAL);
        assert_int_equal(store_stat(p->store, bad[i], &item), -EINVAL);
        assert_int_equal(store_get_small(p->store, bad[i], &b, NULL), -EINVAL);
        assert_int_equal(store_remove(p->store, bad[i]), -EINVAL);
    }
    assert_int_equal(store_list(p->store, "../", NULL, NULL), -EINVAL);
    assert_int_equal(store_list(p->store, "a/../", NULL, NULL), -EINVAL);
    char long_key[STORE_KEY_MAX + 2];
    memset(long_key, 'k', sizeof long_key - 1);
    long_key[sizeof long_key - 1] = 0;
    assert_int_equal(put(p->store, long_key, "x", STORE_PUT_ALWAYS, NULL), -EINVAL);
    assert_int_equal(entries(p->dir, ""), 0);
}

static void test_store_file__puts_leave_no_temporary_files(void **state)
{
    struct place *p = *state;
    assert_int_equal(put(p->store, "a/b", "1", STORE_PUT_IF_ABSENT, NULL), 0);
    assert_int_equal(put(p->store, "a/b", "2", STORE_PUT_IF_ABSENT, NULL), -EEXIST);
    assert_int_equal(put(p->store, "a/b", "2", STORE_PUT_IF_MATCH, "nonsense"), -EEXIST);
    assert_int_equal(put(p->store, "a/b", "2", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(put(p->store, "a/b/c", "2", STORE_PUT_ALWAYS, NULL), -ENOENT); /* a/b is no directory */
    assert_int_equal(entries(p->root, ".granary-tmp"), 1);                          /* the lock */
    struct stat st;
    char path[128];
    snprintf(path, sizeof path, "%s/a/b", p->root);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

/* As a copy of a store that left out empty and hidden directories. */
static void test_store_file__the_lock_directory_is_made_for_a_removal(void **state)
{
    struct place *p = *state;
    char path[128];
    assert_int_equal(put(p->store, "a", "1", STORE_PUT_ALWAYS, NULL), 0);
    snprintf(path, sizeof path, "%s/.granary-tmp/lock", p->root);
    assert_int_equal(unlink(path), 0);
    *strrchr(path, '/') = 0;
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(store_remove(p->store, "a"), 0);
}

static void test_store_file__a_lock_that_is_a_link_is_not_followed(void **state)
{
    struct place *p = *state;
    char lock[128], other[128];
    snprintf(lock, sizeof lock, "%s/.granary-tmp/lock", p->root);
    snprintf(other, sizeof other, "%s/elsewhere", p->dir);
    assert_int_equal(put(p->store, "a", "1", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(symlink(other, lock), 0);
    assert_int_equal(put(p->store, "a", "2", STORE_PUT_ALWAYS, NULL), -EPERM);
    assert_non_null(strstr(error_text(), "/lock is a symbolic link; remove it"));
    assert_int_equal(access(other, F_OK), -1);
}

static void test_store_file__old_temporary_files_are_swept(void **state)
{
    struct place *p = *state;
    char path[160];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/.granary-tmp/put-%06d", p->root, i);
        if (i == 0) {
            char dir[128];
            snprintf(dir, sizeof dir, "%s/.granary-tmp", p->root);
            assert_int_equal(io_mkdirs(dir), 0);
        }
        assert_int_equal(io_write_file_atomic(path, "x", 1, false), 0);
    }
    struct timespec old[2] = {{.tv_sec = time(NULL) - 100000}, {.tv_sec = time(NULL) - 100000}};
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    assert_int_equal(put(p->store, "a", "1", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(entries(p->root, ".granary-tmp"), 2); /* the young one and the lock */
}

static int count_visit(void *arg, const struct store_item *item)
{
    assert_string_equal(item->key, "a/b");
    ++*(int *)arg;
    return 0;
}

static void test_store_file__listing_skips_what_is_no_object(void **state)
{
    struct place *p = *state;
    char path[128];
    assert_int_equal(put(p->store, "a/b", "1", STORE_PUT_ALWAYS, NULL), 0);
    snprintf(path, sizeof path, "%s/a/fifo", p->root);
    assert_int_equal(mkfifo(path, 0600), 0);
    struct store_item item;
    CLEANUP_BYTES b = BYTES_INIT(10);
    assert_int_equal(store_stat(p->store, "a/fifo", &item), -ENOENT);
    assert_int_equal(store_get_small(p->store, "a/fifo", &b, NULL), -ENOENT); /* and does not wait */
    snprintf(path, sizeof path, "%s/a/dangling", p->root);
    assert_int_equal(symlink("nowhere", path), 0);
    int n = 0;
    assert_int_equal(store_list(p->store, "", count_visit, &n), 0);
    assert_int_equal(n, 1);
}

static int any_visit(void *arg, const struct store_item *item)
{
    ++*(int *)arg;
    return 0;
}

static void test_store_file__a_loop_of_links_is_bounded(void **state)
{
    struct place *p = *state;
    char path[128];
    int n = 0;
    assert_int_equal(put(p->store, "a/b", "1", STORE_PUT_ALWAYS, NULL), 0);
    snprintf(path, sizeof path, "%s/c", p->root);
    assert_int_equal(symlink(".", path), 0);
    assert_int_equal(store_list(p->store, "", any_visit, &n), -ELOOP);
    assert_true(n < 64);
}

static void test_store_file__a_process_without_rights_is_told_so(void **state)
{
    struct place *p = *state;
    if (geteuid())
        return; /* only root can become somebody else */
    assert_int_equal(put(p->store, "a/b", "1", STORE_PUT_ALWAYS, NULL), 0);
    assert_int_equal(chmod(p->dir, 0755), 0);
    assert_int_equal(seteuid(65534), 0);
    CLEANUP_BYTES b = BYTES_INIT(10);
    int read = store_get_small(p->store, "a/b", &b, NULL);
    int written = put(p->store, "a/c", "1", STORE_PUT_ALWAYS, NULL);
    char text[ERROR_TEXT_MAX];
    strcpy(text, error_text());
    int removed = store_remove(p->store, "a/b");
    assert_int_equal(seteuid(0), 0);
    assert_int_equal(read, 0);
    assert_int_equal(written, -EACCES);
    assert_non_null(strstr(text, "check the directory's owner"));
    assert_int_equal(removed, -EACCES);
}

static void test_store_file__a_full_or_read_only_disk_is_told_so(void **state)
{
    struct place *p = *state;
    if (mkdir(p->root, 0755) || mount("granary-test", p->root, "tmpfs", 0, "size=256k"))
        skip();
    assert_int_equal(put(p->store, "a/small", "1", STORE_PUT_ALWAYS, NULL), 0);
    static char large[1 << 20];
    struct store_put q = {.key = "a/large", .data = large, .len = sizeof large};
    int full = store_put(p->store, &q);
    char text[ERROR_TEXT_MAX];
    strcpy(text, error_text());
    int left = entries(p->root, ".granary-tmp");
    int remounted = mount(NULL, p->root, NULL, MS_REMOUNT | MS_RDONLY, NULL);
    int read_only = put(p->store, "a/c", "1", STORE_PUT_ALWAYS, NULL);
    CLEANUP_BYTES b = BYTES_INIT(10);
    int read = store_get_small(p->store, "a/small", &b, NULL);
    assert_int_equal(umount(p->root), 0);
    assert_int_equal(full, -ENOSPC);
    assert_non_null(strstr(text, "free some space"));
    assert_int_equal(left, 1);
    assert_int_equal(remounted, 0);
    assert_int_equal(read_only, -EACCES);
    assert_int_equal(read, 0);
}

enum { RIVALS = 4, ROUNDS = 50 };

/* Add one to the number in the object, ROUNDS times, by compare and swap. */
static int increment(const char *root)
{
    struct store *s = NULL;
    int rc = store_file_open(root, NULL, &s);
    for (int done = 0; !rc && done < ROUNDS;) {
        CLEANUP_BYTES b = BYTES_INIT(100);
        char version[STORE_VERSION_MAX], next[16];
        rc = store_get_small(s, "counter", &b, version);
        if (rc)
            break;
        snprintf(next, sizeof next, "%d", atoi(bytes_string(&b)) + 1);
        rc = put(s, "counter", next, STORE_PUT_IF_MATCH, version);
        done += rc == 0;
        rc = rc == -EEXIST ? 0 : rc;
    }
    store_close(s);
    return rc;
}

static void test_store_file__compare_and_swap_between_processes_loses_nothing(void **state)
{
    struct place *p = *state;
    pid_t rivals[RIVALS];
    assert_int_equal(put(p->store, "counter", "0", STORE_PUT_IF_ABSENT, NULL), 0);
    for (int i = 0; i < RIVALS; i++) {
        rivals[i] = fork();
        if (rivals[i] == 0)
            _exit(increment(p->root) ? 1 : 0);
    }
    for (int i = 0; i < RIVALS; i++) {
        int status;
        assert_int_equal(waitpid(rivals[i], &status, 0), rivals[i]);
        assert_int_equal(status, 0);
    }
    CLEANUP_BYTES b = BYTES_INIT(100);
    assert_int_equal(store_get_small(p->store, "counter", &b, NULL), 0);
    assert_int_equal(atoi(bytes_string(&b)), RIVALS * ROUNDS);
}

static void *increment_thread(void *root)
{
    return increment(root) ? root : NULL;
}

static void test_store_file__compare_and_swap_between_threads_loses_nothing(void **state)
{
    struct place *p = *state;
    pthread_t rivals[RIVALS];
    assert_int_equal(put(p->store, "counter", "0", STORE_PUT_IF_ABSENT, NULL), 0);
    for (int i = 0; i < RIVALS; i++)
        assert_int_equal(pthread_create(&rivals[i], NULL, increment_thread, p->root), 0);
    for (int i = 0; i < RIVALS; i++) {
        void *failed;
        pthread_join(rivals[i], &failed);
        assert_null(failed);
    }
    CLEANUP_BYTES b = BYTES_INIT(100);
    assert_int_equal(store_get_small(p->store, "counter", &b, NULL), 0);
    assert_int_equal(atoi(bytes_string(&b)), RIVALS * ROUNDS);
}

static void test_store_file__one_of_many_creators_wins(void **state)
{
    struct place *p = *state;
    int winners = 0;
    for (int i = 0; i < RIVALS; i++)
        if (fork() == 0)
            _exit(put(p->store, "once", "x", STORE_PUT_IF_ABSENT, NULL) == 0);
    for (int i = 0; i < RIVALS; i++) {
        int status;
        assert_true(wait(&status) > 0);
        winners += WEXITSTATUS(status);
    }
    assert_int_equal(winners, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(test_store_file__##name, set_up, tear_down)
        TEST(urls),
        TEST(the_first_put_makes_the_root_but_not_its_parent),
        TEST(keys_never_lead_out),
        TEST(puts_leave_no_temporary_files),
        TEST(the_lock_directory_is_made_for_a_removal),
        TEST(a_lock_that_is_a_link_is_not_followed),
        TEST(old_temporary_files_are_swept),
        TEST(listing_skips_what_is_no_object),
        TEST(a_loop_of_links_is_bounded),
        TEST(a_process_without_rights_is_told_so),
        TEST(a_full_or_read_only_disk_is_told_so),
        TEST(compare_and_swap_between_processes_loses_nothing),
        TEST(compare_and_swap_between_threads_loses_nothing),
        TEST(one_of_many_creators_wins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
