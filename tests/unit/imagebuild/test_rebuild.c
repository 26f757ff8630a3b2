/* Builds upon a parent, day after day: each image is what a full build would have made, and costs little more than what
 * changed.
 */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "unit/counts.h"
#include "unit/rebuild_world.h"
#include "upkeep/upkeep.h"

/* The filesystem's own checker, where it is installed, finds nothing. */
static void check_by_fsck(struct world *w, const struct build_result *r)
{
    char path[] = "/tmp/granary-rebuild-XXXXXX", command[128];
    const struct manifest *m = &r->manifest;
    struct read_back_file file = {.fd = mkstemp(path), .chunk_size = CHUNK};
    assert_true(file.fd >= 0);
    assert_int_equal(ftruncate(file.fd, (off_t)m->size), 0);
    read_back_node(w->store, &m->index_root, m->index_levels - 1, 0, read_back_into_file, &file);
    close(file.fd);
    snprintf(command, sizeof command, "%s %s >&2", m->fs == MANIFEST_EXT4 ? "e2fsck -fn" : "fsck.erofs", path);
    int rc = system(command);
    assert_true(WIFEXITED(rc) && (WEXITSTATUS(rc) == 0 || WEXITSTATUS(rc) == 127)); /* 127: not installed */
    unlink(path);
}

/* ------------------------------------------------------------------ tests */

static void test_rebuild__an_unchanged_source_is_the_parent(void **state)
{
    static struct world w;
    struct build_options o = options();
    srand(1);
    open_world(&w, 500);
    w.fs = fs_of(state);
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, small_size());
    struct build_result first = rebuild(&w, &o);
    assert_true(digest_is_zero(&first.rebuild.parent));
    for (unsigned day = 0; day < 3; day++) {
        store_fake_reset_counters(w.store);
        struct build_result r = rebuild(&w, &o);
        assert_true(digest_equal(&r.image, &first.image));
        assert_true(digest_equal(&r.rebuild.parent, &first.image));
        assert_int_equal(r.bytes_read, 0);
        assert_int_equal(r.bytes_uploaded, 0);
        assert_int_equal(r.objects_new, 0);
        assert_int_equal(r.rebuild.unchanged, 500);
        assert_int_equal(r.rebuild.added + r.rebuild.changed + r.rebuild.removed, 0);
        assert_int_equal(r.rebuild.bytes_kept, w.listed);
        assert_true(store_fake_bytes_put(w.store) < 4096); /* tags and the lease */
    }
    /* the same when something was dead before: only a change makes files move */
    for (unsigned i = 0; i < w.count; i += 2)
        w.paths[i].there = false;
    struct build_result half = rebuild(&w, &o), again = rebuild(&w, &o);
    assert_true(half.rebuild.dead_bytes > half.rebuild.bytes_kept / 10);
    assert_true(digest_equal(&half.image, &again.image));
    struct image_stats stats; /* with nothing new in it, what inspect counts is what the build did */
    assert_int_equal(image_stats(store_fake_store(w.store), &again.manifest, &(struct image_stats_options){0}, &stats),
                     0);
    assert_int_equal(stats.dead_bytes, again.rebuild.dead_bytes);
    store_fake_free(w.store);
}

/* A day of anything: files of all sizes come, change, go, become directories or links. */
static void pass_wild_day(struct world *w)
{
    unsigned edits = (unsigned)rand() % 60;
    for (unsigned e = 0; e < edits; e++) {
        unsigned i = (unsigned)rand() % w->count;
        struct path *p = &w->paths[i];
        switch (rand() % 9) {
        case 0:
        case 1:
            p->there = false;
            break;
        case 2:
            *p = (struct path){.there = true, .kind = rand() % 2 ? DIRECTORY : SYMLINK, .seed = (unsigned)rand()};
            break;
        case 3:
            set_file(w, i, (uint64_t)rand() % 3 * 100000 + (uint64_t)rand() % 300000);
            break;
        case 4:
            set_file(w, i, 0);
            break;
        case 5: /* another's content */
            if (w->paths[i / 2].there && w->paths[i / 2].kind == FILE_KIND)
                *p = w->paths[i / 2];
            break;
        case 6: /* of a path that the source was told before it */
            *p = (struct path){.there = i > 0, .kind = HARD_LINK, .seed = i ? (unsigned)rand() % i : 0};
            break;
        default:
            set_file(w, i, small_size());
            break;
        }
    }
}

static void test_rebuild__any_day_is_a_full_build_of_that_day(void **state)
{
    static struct world w;
    uint64_t size;
    for (unsigned seed = 1; seed <= full_or(8, 1); seed++) {
        srand(seed);
        struct build_result r;
        open_world(&w, 200);
        w.fs = seed % 2 ? MANIFEST_EROFS : MANIFEST_EXT4;
        for (unsigned i = 0; i < w.count; i += 2)
            set_file(&w, i, small_size());
        for (unsigned day = 0; day < 12; day++) {
            struct build_options o = options();
            o.compact_percent = (unsigned)rand() % 3 * 15;
            o.scrub = rand() % 4 == 0;
            o.jobs = 1 + (unsigned)rand() % 8;
            r = rebuild(&w, &o);
            assert_int_equal(digest_is_zero(&r.rebuild.parent), day == 0);
            compare_with_full(&w, &r, &size);
            assert_true(!o.scrub || !others_bytes(&w, &r));
            pass_wild_day(&w);
        }
        check_by_fsck(&w, &r);
        store_fake_free(w.store);
    }
}

static void test_rebuild__the_digest_does_not_depend_on_parallelism(void **state)
{
    static struct world w;
    struct digest first = {{0}};
    for (unsigned jobs = 1; jobs <= 9; jobs += 4) {
        srand(7);
        open_world(&w, 300);
        for (unsigned i = 0; i < w.count; i++)
            set_file(&w, i, small_size());
        struct build_options o = options();
        o.jobs = o.workers = o.uploads = jobs;
        struct build_result r = rebuild(&w, &o);
        for (unsigned day = 0; day < 6; day++) {
            pass_wild_day(&w);
            o.scrub = day == 4;
            r = rebuild(&w, &o);
        }
        assert_true(jobs == 1 || digest_equal(&first, &r.image));
        first = r.image;
        store_fake_free(w.store);
    }
}

/* A hundredth changes, a hundredth comes, a hundredth goes. */
static void pass_day(struct world *w)
{
    unsigned there = 0, part;
    for (unsigned i = 0; i < w->count; i++)
        there += w->paths[i].there;
    part = there / 100;
    for (unsigned n = 0; n < 3 * part;) {
        unsigned i = (unsigned)rand() % w->count;
        bool want = n % 3 != 0;
        if (w->paths[i].there != want)
            continue;
        if (n % 3 == 2)
            w->paths[i].there = false;
        else
            set_file(w, i, small_size());
        n++;
    }
}

static void test_rebuild__thirty_days_stay_bounded(void **state)
{
    static struct world w;
    struct build_options o = options();
    uint64_t full_size, first_upload = 0, dead[31];
    srand(30);
    open_world(&w, FILES_MAX);
    w.fs = fs_of(state);
    if (w.fs == MANIFEST_EXT4 && !full_or(1, 0)) {
        store_fake_free(w.store);
        skip(); /* what is moved, and when, is decided for both filesystems alike */
    }
    for (unsigned i = 0; i < 2000; i++)
        set_file(&w, (i * 7) % w.count, small_size());
    for (unsigned day = 0; day <= 30; day++) {
        struct build_result r = rebuild(&w, &o);
        uint64_t budget = w.blocks / 100 * 2, metadata = 150 * r.manifest.catalog_entries;
        if (day == 0)
            first_upload = r.bytes_uploaded;
        /* the end of a region's last chunk, the front, leaves and nodes of the index are the rest */
        if (day > 0)
            assert_true(r.bytes_uploaded <= w.unequal + budget + metadata + 4 * CHUNK);
        assert_true(day == 0 || r.bytes_uploaded < first_upload / 5);
        assert_true(r.bytes_read <= w.unequal);
        assert_true(r.rebuild.bytes_moved <= budget);
        assert_true(r.rebuild.dead_bytes <= w.blocks / 3);
        dead[day] = r.rebuild.dead_bytes;
        if (day % 10 == 0) {
            compare_with_full(&w, &r, &full_size);
            assert_true(r.manifest.size <= 2 * full_size);
        }
        w.unequal = 0;
        pass_day(&w);
    }
    /* what dies a day comes near to what is given back */
    assert_true(dead[30] - dead[20] < (dead[10] - dead[0]) / 2);
    store_fake_free(w.store);
}

/* An ext4 image has room for so much; what needs more is built anew, and that is the next parent. */
static void test_rebuild__an_ext4_parent_that_is_too_small(void **state)
{
    if (!full_or(1, 0))
        skip(); /* the smallest image of ext4 has 256 MiB */
    static struct world w;
    struct build_options o = options();
    uint64_t size;
    srand(5);
    open_world(&w, 100);
    w.fs = MANIFEST_EXT4;
    for (unsigned i = 0; i + 1 < w.count; i++)
        set_file(&w, i, small_size());
    struct build_result small = rebuild(&w, &o);
    set_file(&w, 99, (uint64_t)240 << 20);
    struct build_result large = rebuild(&w, &o);
    assert_true(large.rebuild.parent_differs);
    assert_true(large.manifest.size > small.manifest.size);
    assert_int_equal(large.bytes_read, w.listed);
    compare_with_full(&w, &large, &size);
    assert_int_equal(large.manifest.size, size);
    check_by_fsck(&w, &large);
    set_file(&w, 50, 1000);
    struct build_result next = rebuild(&w, &o);
    assert_int_equal(next.bytes_read, 1000);
    assert_int_equal(next.manifest.size, large.manifest.size);
    store_fake_free(w.store);
}

static void test_rebuild__without_a_parent_everything_is_read(void **state)
{
    static struct world w;
    struct build_options o = options();
    srand(4);
    open_world(&w, 100);
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, small_size());
    struct build_result first = rebuild(&w, &o), r;
    o.no_parent = true;
    r = rebuild(&w, &o);
    assert_true(digest_is_zero(&r.rebuild.parent));
    assert_int_equal(r.bytes_read, w.listed);
    assert_true(digest_equal(&r.image, &first.image));
    /* nothing of a parent of another geometry can stay where it is */
    o.no_parent = false;
    o.chunk_size = 2 * CHUNK;
    r = rebuild(&w, &o);
    assert_true(digest_is_zero(&r.rebuild.parent));
    assert_true(r.rebuild.parent_differs);
    assert_int_equal(r.bytes_read, w.listed);
    /* a size that nobody asked for is the parent's */
    o.chunk_size = 0;
    struct build_result again = rebuild(&w, &o);
    assert_true(digest_equal(&again.rebuild.parent, &r.image) && digest_equal(&again.image, &r.image));
    assert_int_equal(again.bytes_read, 0);
    o.chunk_size = 2 * CHUNK;
    /* unless it was asked for */
    struct image_ref parent;
    char tag[64 + IMAGE_TAG_MAX];
    snprintf(tag, sizeof tag, "/store/faces:%s", first.unique_tag);
    assert_int_equal(image_ref_parse(tag, &parent), 0);
    o.parents = &parent;
    o.parent_count = 1;
    assert_int_equal(run(&w, w.store, &o, &r), -EINVAL);
    assert_non_null(strstr(error_text(), "--parent none"));
    o.chunk_size = CHUNK;
    r = rebuild(&w, &o);
    assert_true(digest_equal(&r.rebuild.parent, &first.image));
    assert_true(digest_equal(&r.image, &first.image));
    store_fake_free(w.store);
}

static void test_rebuild__the_tags_say_the_parent(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct image_ref ref;
    struct digest image;
    struct tag tag;
    open_world(&w, 10);
    for (unsigned i = 0; i < 10; i++)
        set_file(&w, i, 5000);
    struct build_result first = rebuild(&w, &o);
    set_file(&w, 3, 6000);
    struct build_result second = rebuild(&w, &o);
    assert_int_equal(image_ref_parse("/store/faces:daily", &ref), 0);
    assert_int_equal(repository_resolve(store_fake_store(w.store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&image, &second.image));
    assert_true(digest_equal(&tag.parent, &first.image));
    snprintf(ref.tag, sizeof ref.tag, "%s", second.unique_tag);
    assert_int_equal(repository_resolve(store_fake_store(w.store), &ref, &image, &tag), 0);
    assert_true(digest_equal(&tag.parent, &first.image));
    store_fake_free(w.store);
}

/* A tag for each day, all of one second or two: each upon the one before. */
static void test_rebuild__a_new_tag_is_built_upon_the_newest_image(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    struct digest before = {{0}};
    char image[64], previous[64] = "";
    open_world(&w, 100);
    for (unsigned i = 0; i < w.count; i++)
        set_file(&w, i, 5000);
    for (unsigned day = 0; day < 5; day++) {
        snprintf(image, sizeof image, "/store/faces:v%u", 9 - day);
        assert_int_equal(run_as(&w, w.store, image, &o, &r), 0);
        assert_true(digest_equal(&r.rebuild.parent, &before));
        assert_string_equal(r.rebuild.parent_name, previous);
        assert_int_equal(r.bytes_read, day ? 6000 : w.listed);
        before = r.image;
        snprintf(previous, sizeof previous, "%s", strrchr(image, '/') + 1);
        set_file(&w, day, 6000);
    }
    /* another name's images are none of it; a store that cannot be listed has none */
    assert_int_equal(run_as(&w, w.store, "/store/dogs:v1", &o, &r), 0);
    assert_true(digest_is_zero(&r.rebuild.parent));
    store_fake_add_fault(w.store, &(struct store_fake_fault){
                                      .op = FAKE_LIST, .kind = FAKE_FAIL, .key_prefix = "images/", .code = -EACCES});
    assert_int_equal(run_as(&w, w.store, "/store/faces:next", &o, &r), 0);
    assert_true(digest_is_zero(&r.rebuild.parent));
    store_fake_free(w.store);
}

static void test_rebuild__a_dry_run_shows_the_plan(void **state)
{
    static struct world w;
    struct build_options o = options();
    struct build_result r;
    open_world(&w, 20);
    for (unsigned i = 0; i < 20; i++)
        set_file(&w, i, 5000);
    struct build_result first = rebuild(&w, &o);
    set_file(&w, 3, 6000);
    w.paths[4].there = false;
    o.dry_run = true;
    store_fake_reset_counters(w.store);
    assert_int_equal(run(&w, w.store, &o, &r), 0);
    assert_int_equal(store_fake_calls(w.store, FAKE_PUT), 0);
    assert_true(digest_equal(&r.rebuild.parent, &first.image));
    assert_int_equal(r.rebuild.unchanged, 18);
    assert_int_equal(r.rebuild.changed, 1);
    assert_int_equal(r.rebuild.removed, 1);
    assert_int_equal(r.rebuild.bytes_to_read, 6000);
    assert_int_equal(r.bytes_read, 0);
    store_fake_free(w.store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rebuild__an_unchanged_source_is_the_parent),
        cmocka_unit_test_prestate(test_rebuild__an_unchanged_source_is_the_parent, &ext4),
        cmocka_unit_test(test_rebuild__any_day_is_a_full_build_of_that_day),
        cmocka_unit_test(test_rebuild__the_digest_does_not_depend_on_parallelism),
        cmocka_unit_test(test_rebuild__thirty_days_stay_bounded),
        cmocka_unit_test_prestate(test_rebuild__thirty_days_stay_bounded, &ext4),
        cmocka_unit_test(test_rebuild__an_ext4_parent_that_is_too_small),
        cmocka_unit_test(test_rebuild__without_a_parent_everything_is_read),
        cmocka_unit_test(test_rebuild__the_tags_say_the_parent),
        cmocka_unit_test(test_rebuild__a_new_tag_is_built_upon_the_newest_image),
        cmocka_unit_test(test_rebuild__a_dry_run_shows_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
