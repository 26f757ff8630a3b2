/* Whole images beside a cache's slots: what is complete is the image, whatever failed or was killed before, and what is
 * not complete is never opened. */
#include "unit/image/resident_world.h"

#include "base/error.h"
#include "base/log.h"
#include "format/content_root.h"
#include "unit/counters.h"

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
    memset(&calls, 0, sizeof calls);
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
    reopen_cache(&w);
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
    world_init_complete(&w, &e);
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
        world_init_complete(&w, &e);
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
    world_init_complete(&w, &e);
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
    world_init_complete(&w, &e);
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
