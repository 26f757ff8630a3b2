/* The front for FUSE, mounted: files are what the exports are, read by many threads at a time, and who reads does not
 * see that one session follows another on the same mount. */
#include "unit/cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "attach/device/device_internal.h"
#include "attach/server/server_internal.h"
#include "fuse/files.h"
#include "fuse/session.h"
#include "unit/counters.h"
#include "unit/serving_world.h"
#include "unit/threads.h"

enum { READERS = 8, READS = 200, SESSIONS = 10, PIECE = 150000, SKIP = 77 };

struct world {
    char dir[SCRATCH_MAX], mnt[SCRATCH_MAX + 16], file[SCRATCH_MAX + 32];
    struct image_fake img;
    struct serving serving;
    struct session *session;
    int fd;          /* a copy of the mount's, as a supervisor has it */
    bool gives_back; /* the kernel can: fuse_mount_give_back */
};

static struct world w;

static void begin_session(unsigned threads)
{
    if (session_open(&w.serving, dup(w.fd), threads, &w.session) || session_start(w.session))
        fail_msg("%s", error_text());
}

static void world_init(unsigned threads)
{
    serving_make_store(w.dir, &w.img);
    snprintf(w.mnt, sizeof w.mnt, "%s/mnt", w.dir);
    snprintf(w.file, sizeof w.file, "%s/faces", w.mnt);
    serving_begin(&w.serving, w.dir);
    if (fuse_mount_open(w.mnt, &w.fd))
        fail_msg("%s", error_text());
    w.gives_back = !fuse_mount_give_back(w.fd); /* while nobody has taken anything */
    begin_session(threads);
}

static void world_release(void)
{
    fuse_mount_clear(w.mnt);
    close(w.fd);
    session_close(w.session);
    serving_close(&w.serving);
    image_fake_release(&w.img);
    scratch_remove(w.dir);
}

/* ---- what is there ---- */

static void check_listing(void)
{
    struct stat st;
    DIR *d = opendir(w.mnt);
    assert_non_null(d);
    const struct dirent *e = readdir(d);
    assert_non_null(e);
    assert_string_equal(e->d_name, "faces");
    assert_int_equal(stat(w.file, &st), 0);
    assert_int_equal(e->d_ino, st.st_ino);
    assert_null(readdir(d));
    closedir(d);
}

static void check_refusals(void)
{
    char path[SCRATCH_MAX + 64];
    snprintf(path, sizeof path, "%s/other", w.mnt);
    assert_int_equal(open(path, O_RDONLY), -1);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(open(path, O_RDWR | O_CREAT, 0600), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(open(w.file, O_WRONLY), -1);
    assert_int_equal(errno, EROFS);
    assert_int_equal(getxattr(w.file, "user.other", path, sizeof path), -1);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(getxattr(w.file, "user.granary", path, 5), -1);
    assert_int_equal(errno, ERANGE);
}

static void test_fuse__a_file_is_its_export(void **state)
{
    struct stat st;
    struct statvfs fs;
    struct digest root;
    char description[SERVING_DESCRIPTION_MAX] = "";
    world_init(4);
    assert_int_equal(stat(w.file, &st), 0);
    assert_int_equal(st.st_mode, S_IFREG | 0400);
    assert_int_equal(st.st_uid, geteuid());
    assert_int_equal(st.st_size, SIZE);
    assert_int_equal(stat(w.mnt, &st), 0);
    assert_int_equal(st.st_mode, S_IFDIR | 0500);
    assert_int_equal(statvfs(w.mnt, &fs), 0);
    assert_int_equal(fs.f_blocks * fs.f_frsize, SIZE);
    assert_int_equal(fs.f_bavail, 0);
    check_listing();
    check_refusals();
    assert_true(getxattr(w.file, "user.granary", description, sizeof description - 1) > 0);
    assert_int_equal(nbd_content_root(description, &root), 0);
    assert_true(digest_equal(&root, &w.img.manifest.content_root));
    world_release();
}

/* ---- reading ---- */

static void check_piece(int fd, uint64_t off, size_t len)
{
    static _Thread_local _Alignas(4096) uint8_t got[PIECE + 4096], want[PIECE + 4096];
    ssize_t n = pread(fd, got, len, (off_t)off);
    size_t expected = off < SIZE ? GR_MIN((uint64_t)len, SIZE - off) : 0;
    must(n == (ssize_t)expected, "%zd bytes of %zu at %llu: %s", n, expected, (unsigned long long)off, strerror(errno));
    image_fake_bytes(&w.img, off, want, expected);
    must(!memcmp(got, want, expected), "other bytes at %llu", (unsigned long long)off);
}

static atomic_uint reads;
static atomic_bool busy; /* readers go on */

/* Every other one past the page cache. */
static void *read_at_random(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    int fd = open(w.file, O_RDONLY | (seed % 2 ? O_DIRECT : 0));
    must(fd >= 0, "%s: %s", w.file, strerror(errno));
    for (int i = 0; i < READS || busy; i++, reads++) {
        uint64_t off = (uint64_t)rand_r(&seed) % SIZE;
        size_t len = 1 + (unsigned)rand_r(&seed) % PIECE;
        if ((uintptr_t)arg % 2) {
            off &= ~4095ull;
            len = (len + 4095) & ~4095ul;
        }
        check_piece(fd, off, len);
    }
    close(fd);
    return NULL;
}

static void with_readers(void (*meanwhile)(void))
{
    pthread_t readers[READERS];
    reads = 0;
    busy = true;
    for (uintptr_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&readers[i], NULL, read_at_random, (void *)(i + 1)), 0);
    meanwhile();
    busy = false;
    for (size_t i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
}

static void do_nothing(void)
{
}

static void test_fuse__readers_get_the_image(void **state)
{
    world_init(16);
    int fd = open(w.file, O_RDONLY);
    check_piece(fd, 0, 1);
    check_piece(fd, SIZE - 3, 100);
    check_piece(fd, SIZE, 100);
    close(fd);
    with_readers(do_nothing);
    world_release();
}

/* One thread answers all, in turn. */
static void test_fuse__one_thread_is_enough(void **state)
{
    world_init(1);
    with_readers(do_nothing);
    world_release();
}

/* Files follow the table of exports; the kernel tells of a close some time later. */
static uint64_t count_of(const char *name)
{
    return counter_value(stack_counters, w.serving.stack, name);
}

static void test_fuse__the_counters_have_the_mount_and_the_limits(void **state)
{
    world_init(16);
    with_readers(do_nothing);
    assert_int_equal(count_of("granary_front_connections"), 1);
    assert_int_equal(count_of("granary_front_connections_limit"), 1);
    assert_in_range(count_of("granary_front_threads"), 1, 16);
    assert_int_equal(count_of("granary_front_threads_limit"), 16);
    counter_wait_zero(stack_counters, w.serving.stack, "granary_front_reply_bytes");
    assert_int_equal(count_of("granary_front_reply_bytes_limit"), FILES_REPLIES_MAX);
    world_release();
}

static void test_fuse__an_open_export_stays(void **state)
{
    struct stat st;
    bool added;
    char ref[SCRATCH_MAX + 16];
    struct stack_export *e;
    world_init(4);
    int fd = open(w.file, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(stack_remove(w.serving.stack, "faces"), -EBUSY);
    check_piece(fd, 4096, PIECE);
    close(fd);
    while (stack_remove(w.serving.stack, "faces"))
        sleep_ms(1);
    assert_int_equal(stat(w.file, &st), -1);
    assert_int_equal(errno, ENOENT);
    snprintf(ref, sizeof ref, "%s/faces", w.dir);
    const struct stack_image image = {.ref = ref};
    assert_int_equal(stack_add(w.serving.stack, &image, NULL, &e, &added), 0);
    stack_put(e);
    assert_int_equal(stat(w.file, &st), 0);
    world_release();
}

/* What a session had taken and not answered is given to the next one. */
static void replace_sessions(void)
{
    for (unsigned i = 0; i < SESSIONS; i++) {
        for (unsigned before = reads; reads < before + READERS;)
            sleep_ms(1);
        session_close(w.session);
        assert_int_equal(fuse_mount_give_back(w.fd), 0);
        begin_session(16);
    }
}

static void test_fuse__a_session_follows_another(void **state)
{
    world_init(16);
    bool possible = w.gives_back;
    if (possible)
        with_readers(replace_sessions);
    world_release();
    if (!possible)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fuse__a_file_is_its_export),
        cmocka_unit_test(test_fuse__readers_get_the_image),
        cmocka_unit_test(test_fuse__one_thread_is_enough),
        cmocka_unit_test(test_fuse__the_counters_have_the_mount_and_the_limits),
        cmocka_unit_test(test_fuse__an_open_export_stays),
        cmocka_unit_test(test_fuse__a_session_follows_another),
    };
    if (geteuid() || access("/dev/fuse", R_OK | W_OK)) {
        puts("no /dev/fuse here, or not root: the front for FUSE is not tested");
        return SKIP;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
