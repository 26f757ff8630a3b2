/* Whole images beside a cache's slots: what is pinned or cannot be removed stays, what another version has is compared,
 * and what has holes is found. */
#include "unit/image/resident_world.h"

#include "base/log.h"

/* ---- files that cannot be removed ---- */

static struct {
    unsigned unlinks;
    bool refuse; /* as for an immutable file, without the capability for that */
} calls;

int __real_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags);
int __wrap_unlinkat(int dir, const char *name, int flags)
{
    calls.unlinks++;
    if (!calls.refuse || calls.unlinks > 100) /* so that who tries again for ever ends here */
        return __real_unlinkat(dir, name, flags);
    errno = EPERM;
    return -1;
}

/* ---- the tests ---- */

static void test_resident__what_cannot_be_removed_ends_the_making_of_room(void **state)
{
    struct world w;
    struct resident_entry e;
    uint64_t left;
    world_init(&w, &small);
    assert_int_equal(fill(&w), 0);
    calls.unlinks = 0;
    calls.refuse = true;
    assert_int_equal(resident_make_room(w.dir, 0, &(struct digest){{1}}, &left), -EPERM);
    assert_int_equal(calls.unlinks, 1);
    calls.refuse = false;
    assert_true(only(&w, &e));
    assert_int_equal(resident_make_room(w.dir, 0, &(struct digest){{1}}, &left), 0);
    assert_true(none(&w));
    world_release(&w);
}

static void test_resident__what_is_pinned_stays(void **state)
{
    struct world w;
    struct resident_entry e;
    uint64_t left;
    int fd;
    world_init_complete(&w, &e);
    assert_false(e.pinned);
    assert_int_equal(resident_pin(w.dir, e.name, true), 0);
    assert_true(only(&w, &e));
    assert_true(e.pinned);
    expect_image(&w);
    assert_true(only(&w, &e) && e.pinned); /* a mount notes its time */
    assert_int_equal(resident_evict(w.dir, e.name), -EBUSY);
    assert_int_equal(resident_make_room(w.dir, 0, &(struct digest){{1}}, &left), 0);
    assert_int_equal(left, e.bytes);
    const struct resident_counts n = resident_count(w.dir);
    assert_true(n.complete == 1 && n.pinned == 1 && !n.bad && !n.in_use);
    flip(&w, e.name, 0);
    set_mode(&w, e.name, 01400);
    assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), -EBADMSG); /* bad goes before pinned */
    assert_int_equal(open_it(&w, &fd), -ENOENT);
    assert_true(only(&w, &e) && !e.pinned && e.state == RESIDENT_BAD);
    assert_int_equal(resident_pin(w.dir, e.name, true), -EINVAL);
    assert_int_equal(resident_count(w.dir).bad, 1);
    assert_int_equal(resident_evict(w.dir, e.name), 0);
    world_release(&w);
}

/* What another version has, as it says; one chunk of it is wrong. */
struct other {
    struct world *w;
    uint64_t wrong; /* the offset of that chunk */
    _Atomic uint64_t shared, written, written_at;
    int refuse; /* sharing fails so */
};

static bool peek_other(void *arg, uint64_t off, void *dst, size_t len)
{
    struct other *o = arg;
    image_fake_bytes(&o->w->img, off, dst, len);
    ((uint8_t *)dst)[len - 1] ^= off == o->wrong;
    return off != 0; /* of the first chunk it has nothing */
}

static int share_other(void *arg, uint64_t off, size_t len)
{
    struct other *o = arg;
    if (o->refuse)
        return o->refuse;
    assert_int_not_equal(off, o->wrong);
    o->shared += len;
    return 0;
}

static int write_other(void *arg, uint64_t off, const void *data, size_t len)
{
    struct other *o = arg;
    uint8_t expected[CHUNK];
    image_fake_bytes(&o->w->img, off, expected, len);
    assert_memory_equal(data, expected, len);
    o->written += len;
    o->written_at += off;
    return 0;
}

static void test_resident__only_what_has_the_chunks_digest_is_taken_from_another_version(void **state)
{
    struct world w;
    world_init(&w, &small);
    struct other o = {.w = &w, .wrong = 5 * CHUNK}; /* no hole */
    const struct image_copy copy = {
        .visit = write_other, .step = no_step, .peek = peek_other, .share = share_other, .arg = &o};
    uint64_t gets = store_fake_bytes_got(w.fake);
    assert_true(image_likeness(w.image, peek_other, &o) == 0); /* the index is not cached */
    assert_int_equal(store_fake_bytes_got(w.fake), gets);      /* and no store is asked */
    assert_int_equal(image_copy_out(w.image, &copy), 0);
    assert_int_equal(o.written, 2 * CHUNK);
    assert_int_equal(o.written_at, o.wrong);
    assert_true(o.shared > 10 * CHUNK);
    const unsigned likes = image_likeness(w.image, peek_other, &o);
    assert_true(likes > 80 && likes < 100); /* all but the first and the wrong one */
    o = (struct other){.w = &w, .wrong = UINT64_MAX, .refuse = -EOPNOTSUPP};
    assert_int_equal(image_copy_out(w.image, &copy), 0); /* what is not taken is written */
    assert_true(o.written > 12 * CHUNK && !o.shared);
    world_release(&w);
}

/* A disk, or somebody, has cut the file or put holes into it, and its name says complete. */
static void test_resident__holes_in_a_complete_file_are_found(void **state)
{
    struct world w;
    struct resident_entry e;
    char path[PATH_MAX];
    int fd;
    for (unsigned cut = 0; cut < 2; cut++) {
        world_init_complete(&w, &e);
        set_mode(&w, e.name, 0600);
        snprintf(path, sizeof path, "%s/" RESIDENT_DIR "/%s", w.dir, e.name);
        fd = open(path, O_RDWR);
        if (cut)
            assert_int_equal(ftruncate(fd, CHUNK), 0);
        else
            assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, CHUNK), 0);
        close(fd);
        set_mode(&w, e.name, 0400);
        if (cut)
            assert_int_equal(open_it(&w, &fd), -EBADMSG); /* the next mount finds it */
        else
            assert_int_equal(resident_check(w.dir, &e, &(struct resident_check){NULL}), -EBADMSG);
        assert_int_equal(open_it(&w, &fd), -ENOENT);
        world_release(&w);
    }
}

int main(void)
{
    log_to(NULL, LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_resident__what_cannot_be_removed_ends_the_making_of_room),
        cmocka_unit_test(test_resident__what_is_pinned_stays),
        cmocka_unit_test(test_resident__only_what_has_the_chunks_digest_is_taken_from_another_version),
        cmocka_unit_test(test_resident__holes_in_a_complete_file_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
