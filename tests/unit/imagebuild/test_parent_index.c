/* Leaves of a parent's index, of one image and of several, fetched ahead: how many at a time, in which order, and what
 * of it fails where. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/rebuild/parent_index.h"
#include "repository/read/index_read.h"

enum { CHUNK = CHUNK_SIZE_MIN, LEAVES = 2 * INDEX_AHEAD + 9, HOLE_LEAF = 5, LAST_COUNT = 100 };

/* One chunk of a leaf is stored, but leaf 5 is a hole. */
static bool most_are_holes(uint64_t chunk)
{
    return chunk % INDEX_FANOUT != 7 || chunk / INDEX_FANOUT == HOLE_LEAF;
}

struct world {
    struct store_fake *fake;
    struct image_fake image;
    struct parent_index *index;
    struct parent_leaves *leaves;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->fake = store_fake_new();
    w->image = (struct image_fake){.size = ((uint64_t)(LEAVES - 1) * INDEX_FANOUT + LAST_COUNT) * CHUNK,
                                   .chunk_size = CHUNK,
                                   .hole = most_are_holes};
    image_fake_put(&w->image, w->fake, NULL);
    *state = w;
    const struct sink_parent parent = {.store = store_fake_store(w->fake), .manifest = &w->image.manifest};
    return parent_index_new(&parent, &w->index);
}

static int teardown(void **state)
{
    struct world *w = *state;
    parent_leaves_free(w->leaves);
    parent_index_free(w->index);
    image_fake_release(&w->image);
    store_fake_free(w->fake);
    free(w);
    return 0;
}

static void check(struct world *w, uint64_t leaf, const struct chunk_ref *chunks)
{
    assert_int_equal(!chunks, leaf >= LEAVES || leaf == HOLE_LEAF);
    for (uint64_t i = 0; chunks && i < (leaf == LEAVES - 1 ? LAST_COUNT : INDEX_FANOUT); i++)
        assert_true(digest_equal(&chunks[i].digest, &w->image.refs[leaf * INDEX_FANOUT + i].digest));
}

static void check_get(struct world *w, uint64_t leaf)
{
    const struct chunk_ref *chunks;
    assert_int_equal(parent_leaves_get(w->leaves, leaf, &chunks), 0);
    check(w, leaf, chunks);
}

static bool is_odd(void *arg, uint64_t leaf)
{
    return leaf % 2;
}

/* The root is held from here on, so that all other gets are of leaves. Returns how a leaf is named. */
static struct index_child entry(struct world *w, uint64_t leaf)
{
    struct index_child child;
    assert_int_equal(parent_index_child(w->index, 0, leaf, &child), 0);
    return child;
}

static void start_again(struct world *w, bool (*wanted)(void *arg, uint64_t leaf))
{
    parent_leaves_free(w->leaves);
    w->leaves = NULL;
    assert_int_equal(parent_leaves_new(w->index, wanted, NULL, &w->leaves), 0);
    store_fake_reset_counters(w->fake);
}

static void test_parent_leaves__each_is_fetched_once_in_order(void **state)
{
    struct world *w = *state;
    entry(w, 0);
    start_again(w, NULL);
    for (uint64_t leaf = 0; leaf < LEAVES + 2; leaf++) {
        check_get(w, leaf);
        check_get(w, leaf);
    }
    assert_int_equal(store_fake_calls(w->fake, FAKE_GET_SMALL), LEAVES - 1);
    assert_true(store_fake_peak(w->fake) <= INDEX_AHEAD);
}

static void test_parent_leaves__a_wrong_guess_is_right_all_the_same(void **state)
{
    struct world *w = *state;
    entry(w, 0);
    for (uint64_t stride = 1; stride < 50; stride += 6) {
        start_again(w, is_odd);
        for (uint64_t leaf = 0; leaf < LEAVES; leaf += stride)
            check_get(w, leaf);
    }
}

struct got {
    struct world *w;
    uint64_t leaf;
    const struct chunk_ref *chunks;
    int rc;
};

static void *get_in_thread(void *arg)
{
    struct got *g = arg;
    g->rc = parent_leaves_get(g->w->leaves, g->leaf, &g->chunks);
    return NULL;
}

static void test_parent_leaves__many_are_in_the_air_and_no_more(void **state)
{
    struct world *w = *state;
    struct got g = {.w = w, .leaf = 1};
    pthread_t thread;
    entry(w, 0);
    start_again(w, is_odd); /* the hole among them takes a place, but no fetch */
    store_fake_hold(w->fake, FAKE_GET_SMALL);
    assert_int_equal(pthread_create(&thread, NULL, get_in_thread, &g), 0);
    store_fake_wait_held(w->fake, INDEX_AHEAD - 1);
    store_fake_release(w->fake);
    pthread_join(thread, NULL);
    assert_int_equal(g.rc, 0);
    check(w, 1, g.chunks);
    for (uint64_t leaf = 3; leaf < LEAVES; leaf += 2)
        check_get(w, leaf);
    assert_true(store_fake_peak(w->fake) >= INDEX_AHEAD - 1);
    assert_true(store_fake_peak(w->fake) <= INDEX_AHEAD);
}

/* A build that is interrupted frees it with fetches in flight. */
static void test_parent_leaves__can_be_given_up_at_any_leaf(void **state)
{
    struct world *w = *state;
    for (uint64_t end = 0; end < LEAVES; end += 10) {
        start_again(w, NULL);
        for (uint64_t leaf = 0; leaf < end; leaf++)
            check_get(w, leaf);
    }
}

static void test_parent_leaves__an_error_comes_where_it_stands(void **state)
{
    struct world *w = *state;
    enum { BAD = 20 };
    char key[OBJECT_KEY_MAX];
    const struct chunk_ref *chunks;
    const struct index_child child = entry(w, BAD);
    assert_true(store_fake_flip(w->fake, object_key(OBJECT_INDEX, &child.digest, key), 50));
    start_again(w, NULL);
    for (uint64_t leaf = 0; leaf < BAD; leaf++)
        check_get(w, leaf);
    assert_int_equal(parent_leaves_get(w->leaves, BAD, &chunks), PARENT_DAMAGED);
    assert_non_null(strstr(error_text(), key));
    check_get(w, BAD + 1);
}

/* Without the root there is no leaf, and it is not asked for again and again. */
static void test_parent_leaves__a_lost_inner_node_is_the_error_of_its_first_leaf(void **state)
{
    struct world *w = *state;
    char key[OBJECT_KEY_MAX];
    const struct chunk_ref *chunks;
    assert_true(store_fake_remove(w->fake, object_key(OBJECT_INDEX, &w->image.manifest.index_root.digest, key)));
    start_again(w, NULL);
    assert_int_equal(parent_leaves_get(w->leaves, 0, &chunks), PARENT_DAMAGED);
    assert_int_equal(store_fake_calls(w->fake, FAKE_ANY), 1);
}

/* Two images laid end to end: the first one's last leaf is filled up with holes. */
static void test_parent_index__images_end_to_end_are_one(void **state)
{
    struct world *w = *state;
    const uint64_t begin = (uint64_t)LEAVES * INDEX_FANOUT * CHUNK;
    const struct parent_image images[] = {{.manifest = w->image.manifest},
                                          {.begin = begin, .manifest = w->image.manifest}};
    const struct manifest all = {.size = begin + w->image.size, .chunk_size = CHUNK};
    const struct sink_parent parent = {
        .store = store_fake_store(w->fake), .manifest = &all, .images = images, .image_count = 2};
    const struct chunk_ref *one, *ahead;
    struct index_child child;
    parent_index_free(w->index);
    assert_int_equal(parent_index_new(&parent, &w->index), 0);
    start_again(w, NULL);
    for (uint64_t leaf = 0; leaf < 2 * LEAVES; leaf++) {
        assert_int_equal(parent_index_leaf(w->index, leaf, &one), 0);
        assert_int_equal(parent_leaves_get(w->leaves, leaf, &ahead), 0);
        check(w, leaf % LEAVES, one);
        check(w, leaf % LEAVES, ahead);
    }
    assert_int_equal(parent_leaves_get(w->leaves, 2 * LEAVES, &ahead), 0);
    assert_null(ahead);
    assert_int_equal(parent_index_leaf(w->index, LEAVES - 1, &one), 0);
    for (uint64_t i = LAST_COUNT; i < INDEX_FANOUT; i++)
        assert_true(chunk_is_hole(&one[i]));
    assert_int_equal(parent_index_child(w->index, 1, 0, &child), 0); /* of neither image alone */
    assert_true(digest_is_zero(&child.digest));
}

/* In a join of ext4 the first image lies behind leaves that no image has. */
static void test_parent_index__a_gap_before_the_first_image_is_holes(void **state)
{
    struct world *w = *state;
    const uint64_t gap = 3, begin = gap * INDEX_FANOUT * CHUNK;
    const struct parent_image image = {.begin = begin, .manifest = w->image.manifest};
    const struct manifest all = {.size = begin + w->image.size, .chunk_size = CHUNK};
    const struct sink_parent parent = {
        .store = store_fake_store(w->fake), .manifest = &all, .images = &image, .image_count = 1};
    const struct chunk_ref *one, *ahead;
    parent_index_free(w->index);
    assert_int_equal(parent_index_new(&parent, &w->index), 0);
    start_again(w, NULL);
    for (uint64_t leaf = 0; leaf < gap + LEAVES; leaf++) {
        assert_int_equal(parent_index_leaf(w->index, leaf, &one), 0);
        assert_int_equal(parent_leaves_get(w->leaves, leaf, &ahead), 0);
        if (leaf < gap) {
            assert_null(one);
            assert_null(ahead);
        } else {
            check(w, leaf - gap, one);
            check(w, leaf - gap, ahead);
        }
    }
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_parent_leaves__each_is_fetched_once_in_order),
        RUN(test_parent_leaves__a_wrong_guess_is_right_all_the_same),
        RUN(test_parent_leaves__many_are_in_the_air_and_no_more),
        RUN(test_parent_leaves__can_be_given_up_at_any_leaf),
        RUN(test_parent_leaves__an_error_comes_where_it_stands),
        RUN(test_parent_leaves__a_lost_inner_node_is_the_error_of_its_first_leaf),
        RUN(test_parent_index__images_end_to_end_are_one),
        RUN(test_parent_index__a_gap_before_the_first_image_is_holes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
