/* Whole images beside a cache's slots: what is complete is the image, whatever failed or was killed before, and what is
 * not complete is never opened. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "cache/resident.h"
#include "fake/image_fake.h"
#include "format/content_root.h"
#include "format/index.h"
#include "image/image.h"
#include "unit/counters.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CACHE_SIZE = 64 << 20 };

/* ---- the order of syncing and naming ---- */

static struct {
    unsigned syncs, renames;
    unsigned syncs_at_rename;
    int fail_sync, fail_rename; /* with this errno; 0: not */
} calls;

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    calls.syncs++;
    errno = calls.fail_sync;
    return calls.fail_sync ? -1 : __real_fsync(fd);
}

int __real_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags);
int __wrap_renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    calls.renames++;
    calls.syncs_at_rename = calls.syncs;
    errno = calls.fail_rename;
    return calls.fail_rename ? -1 : __real_renameat2(from_dir, from, to_dir, to, flags);
}

/* ---- an image and a cache ---- */

struct world {
    struct store_fake *fake;
    struct image_fake img;
    char dir[SCRATCH_MAX];
    struct cache *cache;
    struct image *image;
    struct resident_id id;
};

static bool every_third(uint64_t chunk)
{
    return chunk % 3 == 1;
}

/* Two levels, the middle leaf all holes, most of the others holes. */
static bool middle_leaf(uint64_t chunk)
{
    return chunk / INDEX_FANOUT == 1 || chunk % 64 != 5;
}

static const struct image_fake small = {.seed = 1, .size = 20 * CHUNK + 4096, .chunk_size = CHUNK, .hole = every_third};
static const struct image_fake large = {.seed = 2,
                                        .size = (2 * INDEX_FANOUT + 7) * (uint64_t)CHUNK + 8192,
                                        .chunk_size = CHUNK,
                                        .pack_chunks = 256,
                                        .hole = middle_leaf};
static const struct image_fake full_leaf = {
    .seed = 3, .size = INDEX_FANOUT * (uint64_t)CHUNK, .chunk_size = CHUNK, .hole = middle_leaf};

static void open_cache(struct world *w)
{
    struct cache_config config = {.fetch = {.workers = 8}, .dir_count = 1, .disk_timeout_ms = 60000};
    config.dirs[0].path = w->dir;
    config.dirs[0].size = CACHE_SIZE;
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
}

static void world_init(struct world *w, const struct image_fake *img)
{
    memset(&calls, 0, sizeof calls);
    *w = (struct world){.fake = store_fake_new(), .img = *img};
    image_fake_put(&w->img, w->fake, NULL);
    scratch_make(w->dir);
    open_cache(w);
    const struct image_config image = {
        .cache = w->cache, .store = store_fake_store(w->fake), .manifest = &w->img.manifest};
    assert_int_equal(image_open(&image, &w->img.digest, &w->image), 0);
    const struct manifest *m = &w->img.manifest;
    w->id = (struct resident_id){.content_root = m->content_root, .size = m->size, .chunk_size = m->chunk_size};
}

static int evict_it(void *arg, const struct resident_entry *e)
{
    (void)!resident_evict(arg, e->name); /* an immutable file is not removed by scratch_remove */
    return 0;
}

static void world_release(struct world *w)
{
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    assert_int_equal(resident_each(w->dir, evict_it, w->dir), 0);
    scratch_remove(w->dir);
}

static int write_chunk(void *arg, uint64_t off, const void *data, size_t len)
{
    return resident_write(arg, off, data, len);
}

static int no_step(void *arg, uint64_t done)
{
    return 0;
}

/* Write the whole file. */
static int fill(struct world *w)
{
    CLEANUP_RESIDENT_FILLING f = RESIDENT_FILLING_NONE;
    int rc = resident_begin(w->dir, &w->id, &f);
    if (!rc)
        rc = image_copy_out(w->image, NULL, write_chunk, no_step, &f);
    return rc ? rc : resident_finish(&f);
}

static int open_it(struct world *w, int *out_fd)
{
    char path[PATH_MAX];
    return resident_open(w->dir, &w->id, path, out_fd);
}

struct found {
    unsigned count;
    struct resident_entry entry; /* the last one */
};

static int keep_it(void *arg, const struct resident_entry *e)
{
    struct found *f = arg;
    f->count++;
    f->entry = *e;
    return 0;
}

/* Is there exactly one file? */
static bool only(struct world *w, struct resident_entry *out)
{
    struct found f = {0};
    assert_int_equal(resident_each(w->dir, keep_it, &f), 0);
    *out = f.entry;
    return f.count == 1;
}

static bool none(struct world *w)
{
    struct found f = {0};
    assert_int_equal(resident_each(w->dir, keep_it, &f), 0);
    return !f.count;
}

static void expect_image(struct world *w)
{
    CLEANUP_FD int fd = -1;
    CLEANUP_FREE uint8_t *got = malloc(w->id.size + 1), *expected = malloc(w->id.size);
    assert_int_equal(open_it(w, &fd), 0);
    assert_int_equal(io_pread_full(fd, got, w->id.size + 1, 0), w->id.size);
    image_fake_bytes(&w->img, 0, expected, w->id.size);
    assert_memory_equal(got, expected, w->id.size);
}

/* Change the mode of a complete file. */
static void set_mode(struct world *w, const char *name, mode_t mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "chattr -i %s/" RESIDENT_DIR "/%s 2>&1 | grep -q never", w->dir, name);
    assert_true(system(path) >= 0); /* it need not be there: the flag is root's */
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    assert_int_equal(chmod(path, mode), 0);
}

/* Change a byte of a complete file, as a disk may. */
static void flip(struct world *w, const char *name, uint64_t off)
{
    char path[PATH_MAX];
    uint8_t byte;
    set_mode(w, name, 0600);
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    CLEANUP_FD int fd = open(path, O_RDWR);
    assert_true(fd >= 0 && io_pread_full(fd, &byte, 1, off) == 1);
    byte ^= 1;
    assert_int_equal(io_pwrite_full(fd, &byte, 1, off), 0);
}

/* Set when it was mounted last. */
static void set_time(struct world *w, const char *name, time_t seconds)
{
    char path[PATH_MAX];
    const struct timespec times[] = {{.tv_sec = seconds}, {.tv_sec = seconds}};
    set_mode(w, name, 0400);
    snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w->dir, name);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

/* ---- the tests ---- */

static void test_content_root__is_the_manifests(void **state)
{
    static const struct image_fake *const images[] = {&small, &large, &full_leaf};
    for (size_t i = 0; i < GR_ARRAY_SIZE(images); i++) {
        struct world w;
        CLEANUP(cleanup_content_root) struct content_root *root = NULL;
        uint8_t data[CHUNK];
        world_init(&w, images[i]);
        assert_int_equal(content_root_new(w.id.size, w.id.chunk_size, &root), 0);
        for (uint64_t off = 0; off < w.id.size; off += w.id.chunk_size) {
            size_t len = GR_MIN(w.id.size - off, (uint64_t)w.id.chunk_size);
            image_fake_bytes(&w.img, off, data, len);
            const struct digest digest = chunk_all_zero(data, len) ? (struct digest){{0}} : digest_of(data, len);
            content_root_add(root, &digest);
        }
        const struct digest is = content_root_finish(root);
        assert_true(digest_equal(&is, &w.id.content_root));
        world_release(&w);
    }
    struct content_root *none;
    assert_int_equal(content_root_new(0, CHUNK, &none), -EINVAL);
    assert_int_equal(content_root_new(1, 0, &none), -EINVAL);
}

static void test_resident__what_is_complete_is_the_image(void **state)
{
    static const struct image_fake *const images[] = {&small, &large};
    for (size_t i = 0; i < GR_ARRAY_SIZE(images); i++) {
        struct world w;
        struct resident_entry e;
        int fd;
        world_init(&w, images[i]);
        assert_int_equal(open_it(&w, &fd), -ENOENT);
        assert_int_equal(fill(&w), 0);
        expect_image(&w);
        assert_true(only(&w, &e));
        assert_int_equal(e.state, RESIDENT_COMPLETE);
        assert_false(e.in_use);
        assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), 0);
        assert_int_equal(fill(&w), -EEXIST);
        assert_true(resident_bytes(w.dir) >= e.bytes && e.bytes < w.id.size); /* holes stay holes */
        world_release(&w);
    }
}

/* Its file would be mounted for the image whose content it claims to have. */
static void test_resident__an_image_that_claims_anothers_content_has_no_file(void **state)
{
    static const struct image_fake *const images[] = {&small, &large};
    for (size_t i = 0; i < GR_ARRAY_SIZE(images); i++) {
        struct world sound, forged;
        world_init(&sound, images[i]);
        struct image_fake img = *images[i];
        img.seed += 100;
        img.content = &sound.img.manifest.index_root.content;
        world_init(&forged, &img);
        assert_true(digest_equal(&forged.id.content_root, &sound.id.content_root));
        assert_int_equal(fill(&forged), -EBADMSG);
        assert_non_null(strstr(error_text(), "than its content root says"));
        assert_true(none(&forged));
        world_release(&forged);
        world_release(&sound);
    }
}

static void test_resident__bytes_are_on_disk_before_the_name(void **state)
{
    struct world w;
    struct resident_entry e;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    assert_int_equal(calls.syncs_at_rename, 1); /* the file's */
    assert_int_equal(calls.syncs, 2);           /* and the directory's after it */
    assert_true(only(&w, &e));
    assert_int_equal(resident_evict(w.dir, e.name), 0);
    calls.fail_sync = EIO;
    assert_int_equal(fill(&w), -EIO);
    assert_int_equal(calls.renames, 1);
    assert_true(none(&w));
    calls.fail_sync = 0;
    calls.fail_rename = ENOSPC;
    assert_int_equal(fill(&w), -ENOSPC);
    assert_true(none(&w));
    calls.fail_rename = 0;
    assert_int_equal(fill(&w), 0);
    expect_image(&w);
    world_release(&w);
}

static void test_resident__what_a_killed_writer_left_is_never_opened(void **state)
{
    struct world w;
    struct resident_filling killed, second;
    struct resident_entry e;
    int fd;
    world_init(&w, &small);
    assert_int_equal(resident_begin(w.dir, &w.id, &killed), 0);
    assert_int_equal(resident_write(&killed, CHUNK, "wrong", 5), 0); /* in a hole */
    assert_int_equal(resident_begin(w.dir, &w.id, &second), -EBUSY); /* it lives */
    resident_release(&second);
    assert_true(only(&w, &e));
    assert_int_equal(e.state, RESIDENT_FILLING);
    assert_true(e.in_use);
    assert_int_equal(resident_evict(w.dir, e.name), -EBUSY);
    close(killed.fd);
    close(killed.dir_fd);
    assert_int_equal(open_it(&w, &fd), -ENOENT);
    assert_int_equal(fill(&w), 0); /* nothing of it is left */
    expect_image(&w);
    world_release(&w);
}

/* Write something of an image, and be killed. */
static void leave_torn(struct world *w, uint8_t root)
{
    struct resident_filling f;
    struct resident_id id = w->id;
    id.content_root = digest_of(&root, sizeof root);
    assert_int_equal(resident_begin(w->dir, &id, &f), 0);
    assert_int_equal(resident_write(&f, CHUNK, "wrong", 5), 0);
    close(f.fd);
    close(f.dir_fd);
}

static void test_resident__a_start_removes_what_a_killed_writer_left(void **state)
{
    struct world w;
    struct resident_entry e;
    world_init(&w, &small);
    leave_torn(&w, 1);
    assert_true(only(&w, &e));
    image_close(w.image);
    w.image = NULL;
    cache_close(w.cache);
    open_cache(&w);
    assert_true(none(&w));
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_cache_resident_bytes"), 0);
    world_release(&w);
}

static void test_resident__what_is_of_no_use_goes_before_what_can_be_mounted(void **state)
{
    struct world w;
    struct resident_entry e;
    uint64_t left;
    int fd;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    assert_true(only(&w, &e));
    flip(&w, e.name, 0);
    assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), -EBADMSG);
    assert_int_equal(fill(&w), 0);
    uint64_t complete = e.bytes;
    set_time(&w, e.name, 1); /* it was mounted long ago */
    leave_torn(&w, 1);
    assert_int_equal(resident_make_room(w.dir, complete, &(struct digest){{1}}, &left), 0);
    assert_int_equal(left, complete);
    assert_int_equal(open_it(&w, &fd), 0);
    close(fd);
    world_release(&w);
}

static void test_resident__a_disk_that_is_full_leaves_nothing(void **state)
{
    struct world w;
    world_init(&w, &small);
    const struct rlimit old = scratch_limit(10 * CHUNK);
    int rc = fill(&w);
    scratch_unlimit(&old);
    assert_int_equal(rc, -EFBIG);
    assert_true(none(&w));
    world_release(&w);
}

static void test_resident__a_bad_byte_anywhere_is_found_and_ends_its_use(void **state)
{
    static const uint64_t offsets[] = {0, CHUNK /* in a hole */, 20 * CHUNK + 4095};
    for (size_t i = 0; i < GR_ARRAY_SIZE(offsets); i++) {
        struct world w;
        struct resident_entry e;
        int fd;
        world_init(&w, &small);
        assert_int_equal(fill(&w), 0);
        assert_true(only(&w, &e));
        flip(&w, e.name, offsets[i]);
        assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), -EBADMSG);
        assert_int_equal(open_it(&w, &fd), -ENOENT);
        assert_true(only(&w, &e));
        assert_int_equal(e.state, RESIDENT_BAD);
        assert_int_equal(fill(&w), 0);
        expect_image(&w);
        world_release(&w);
    }
}

/* While a check reads: another one ends, and the image is written again. */
static void check_and_fill(void *arg, uint64_t done, uint64_t total)
{
    struct world *w = arg;
    struct resident_entry e;
    assert_true(only(w, &e));
    assert_int_equal(resident_check(w->dir, &e, &(struct resident_check){NULL}), -EBADMSG);
    assert_int_equal(fill(w), 0);
}

static int count_bad(void *arg, const struct resident_entry *e)
{
    *(unsigned *)arg += e->state == RESIDENT_BAD;
    return 0;
}

static void test_resident__a_check_takes_only_the_file_that_it_read_out_of_use(void **state)
{
    struct world w;
    struct resident_entry e;
    unsigned bad = 0;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    assert_true(only(&w, &e));
    flip(&w, e.name, 0);
    const struct resident_check check = {.progress = check_and_fill, .arg = &w};
    assert_int_equal(resident_check(w.dir, &e, &check), -EBADMSG);
    assert_null(strstr(error_text(), "cannot be taken out of use")); /* an immutable file's name stays anyway */
    expect_image(&w);                                                /* the new one */
    flip(&w, e.name, 0);
    assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), -EBADMSG);
    assert_int_equal(resident_each(w.dir, count_bad, &bad), 0);
    assert_int_equal(bad, 2); /* the first, which might be mounted, still counts */
    world_release(&w);
}

static void test_resident__a_file_of_another_size_is_not_opened(void **state)
{
    struct world w;
    struct resident_entry e;
    int fd;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    assert_true(only(&w, &e));
    w.id.size += 4096;
    assert_int_equal(open_it(&w, &fd), -EBADMSG);
    assert_int_equal(open_it(&w, &fd), -ENOENT);
    world_release(&w);
}

static void test_resident__what_is_open_stays_the_oldest_other_goes(void **state)
{
    struct world w;
    struct resident_entry e;
    CLEANUP_FD int fd = -1;
    uint64_t left;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    assert_int_equal(open_it(&w, &fd), 0);
    assert_true(only(&w, &e));
    assert_true(e.in_use);
    assert_int_equal(resident_evict(w.dir, e.name), -EBUSY);
    assert_int_equal(resident_make_room(w.dir, 0, &(struct digest){{1}}, &left), 0);
    assert_int_equal(left, e.bytes);
    close(steal_fd(&fd));
    assert_int_equal(resident_make_room(w.dir, 0, &w.id.content_root, &left), 0);
    assert_int_equal(left, e.bytes); /* the one that is to be there */
    assert_int_equal(resident_make_room(w.dir, 0, &(struct digest){{1}}, &left), 0);
    assert_int_equal(left, 0);
    assert_true(none(&w));
    assert_int_equal(resident_evict(w.dir, "../data"), -EINVAL);
    world_release(&w);
}

/* Tests run on overlay, too, where there is no file to make room for. Releases the world then. */
static bool is_unfit(struct world *w)
{
    const char *dir;
    if (!resident_check_place(w->dir))
        return false;
    assert_int_equal(cache_resident_begin(w->cache, &w->id, NULL, &dir), -ENOTSUP);
    world_release(w);
    return true;
}

static void test_resident__the_budget_gives_the_room(void **state)
{
    struct world w;
    const char *dir = NULL;
    world_init(&w, &small);
    if (is_unfit(&w))
        return;
    struct resident_id big = w.id;
    big.size = CACHE_SIZE / 100 * RESIDENT_SHARE_PERCENT + 4096;
    assert_int_equal(cache_resident_begin(w.cache, &big, NULL, &dir), -ENOSPC);
    assert_int_equal(cache_resident_begin(w.cache, &w.id, NULL, &dir), 0);
    assert_true(counter_value(cache_counters, w.cache, "granary_cache_yielded_bytes") > 0);
    const char *other;
    assert_int_equal(cache_resident_begin(w.cache, &w.id, NULL, &other), -EBUSY);
    assert_int_equal(fill(&w), 0);
    cache_resident_end(w.cache, dir);
    assert_true(counter_value(cache_counters, w.cache, "granary_cache_resident_bytes") > 0);
    assert_int_equal(cache_resident_begin(w.cache, &w.id, NULL, &other), -EEXIST);
    expect_image(&w);
    world_release(&w);
}

/* It is never mounted, so it must not count as written. */
static void test_resident__a_file_that_may_not_be_used_is_no_complete_one(void **state)
{
    struct world w;
    struct resident_entry e;
    const char *dir = NULL;
    world_init(&w, &small);
    if (is_unfit(&w))
        return;
    assert_int_equal(fill(&w), 0);
    assert_true(only(&w, &e));
    set_mode(&w, e.name, 0666);
    assert_int_equal(cache_resident_begin(w.cache, &w.id, NULL, &dir), -EPERM);
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_cache_yielded_bytes"), 0);
    set_mode(&w, e.name, 0400);
    assert_int_equal(cache_resident_begin(w.cache, &w.id, NULL, &dir), -EEXIST);
    world_release(&w);
}

int main(void)
{
    log_to(NULL, LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_content_root__is_the_manifests),
        cmocka_unit_test(test_resident__what_is_complete_is_the_image),
        cmocka_unit_test(test_resident__an_image_that_claims_anothers_content_has_no_file),
        cmocka_unit_test(test_resident__bytes_are_on_disk_before_the_name),
        cmocka_unit_test(test_resident__what_a_killed_writer_left_is_never_opened),
        cmocka_unit_test(test_resident__a_start_removes_what_a_killed_writer_left),
        cmocka_unit_test(test_resident__what_is_of_no_use_goes_before_what_can_be_mounted),
        cmocka_unit_test(test_resident__a_disk_that_is_full_leaves_nothing),
        cmocka_unit_test(test_resident__a_bad_byte_anywhere_is_found_and_ends_its_use),
        cmocka_unit_test(test_resident__a_check_takes_only_the_file_that_it_read_out_of_use),
        cmocka_unit_test(test_resident__a_file_of_another_size_is_not_opened),
        cmocka_unit_test(test_resident__what_is_open_stays_the_oldest_other_goes),
        cmocka_unit_test(test_resident__a_file_that_may_not_be_used_is_no_complete_one),
        cmocka_unit_test(test_resident__the_budget_gives_the_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
