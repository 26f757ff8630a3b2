/* A parent of which everything stays: which chunks are file data, where the images lie, and what has no room. */
#include "unit/cmocka_all.h"

#include <string.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "imagebuild/rebuild/parent.h"

#define CHUNK ((uint64_t)CHUNK_SIZE_MIN)
#define LEAF (CHUNK * INDEX_FANOUT)

/* Two images of holes, of which nothing is read: data from chunk 4 to chunk 10 of leaf 2, and from chunk 1 to chunk 5
 * of leaf 1. */
struct world {
    struct parent_image images[2];
    struct parent parent;
};

static void open_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    w->images[0].manifest = (struct manifest){.size = 3 * LEAF + 512 * CHUNK,
                                              .chunk_size = CHUNK,
                                              .front_len = 3 * CHUNK + 1,
                                              .metadata_offset = 2 * LEAF + 10 * CHUNK,
                                              .index_levels = 2};
    w->images[1].manifest = (struct manifest){
        .size = LEAF + 20 * CHUNK, .chunk_size = CHUNK, .metadata_offset = LEAF + 5 * CHUNK, .index_levels = 2};
    w->parent = (struct parent){.images = w->images, .image_count = 2, .manifest = {.chunk_size = CHUNK}};
}

static bool kept(struct world *w, uint64_t chunk)
{
    return parent_whole_kept(&w->parent, chunk);
}

static bool kept_all(struct world *w, uint64_t first, uint64_t end)
{
    return parent_whole_kept_all(&w->parent, first, end - first);
}

static void test_parent_whole__all_file_data_stays_and_nothing_else(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    assert_int_equal(parent_whole_place(&w.parent, CHUNK, 1000 * LEAF, "the limit"), 0);
    assert_int_equal(w.images[0].begin, 0);
    assert_int_equal(w.images[1].begin, 3 * LEAF); /* after the leaf in which the data ends */
    assert_int_equal(w.parent.manifest.size, 4 * LEAF + 20 * CHUNK);
    assert_int_equal(parent_whole_end(&w.parent), 4 * LEAF + 5 * CHUNK);
    for (uint64_t chunk = 0; chunk < 6 * INDEX_FANOUT; chunk++) {
        const bool first = chunk >= 4 && chunk < 2 * INDEX_FANOUT + 10;
        const bool second = chunk >= 3 * INDEX_FANOUT + 1 && chunk < 4 * INDEX_FANOUT + 5;
        assert_int_equal(kept(&w, chunk), first || second);
    }
    assert_true(kept_all(&w, 4, 2 * INDEX_FANOUT + 10));
    assert_true(kept_all(&w, INDEX_FANOUT, 2 * INDEX_FANOUT));
    assert_false(kept_all(&w, 3, 10));
    assert_false(kept_all(&w, 0, INDEX_FANOUT));
    assert_false(kept_all(&w, 2 * INDEX_FANOUT, 2 * INDEX_FANOUT + 11));
    assert_false(kept_all(&w, 2 * INDEX_FANOUT, 4 * INDEX_FANOUT)); /* from one image into the next */
    assert_true(kept_all(&w, 3 * INDEX_FANOUT + 1, 4 * INDEX_FANOUT + 5));
}

static void test_parent_whole__data_lies_after_the_new_front(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    assert_int_equal(parent_whole_size(&w.parent), 6 * LEAF);
    assert_int_equal(parent_whole_place(&w.parent, 4 * CHUNK, 1000 * LEAF, "the limit"), 0);
    assert_int_equal(w.images[0].begin, 0); /* its own front is as long */
    assert_int_equal(parent_whole_place(&w.parent, 5 * CHUNK, 1000 * LEAF, "the limit"), 0);
    assert_int_equal(w.images[0].begin, LEAF);
    assert_int_equal(w.images[1].begin, 4 * LEAF);
    for (uint64_t chunk = 0; chunk < INDEX_FANOUT + 4; chunk++)
        assert_false(kept(&w, chunk));
    assert_true(kept(&w, INDEX_FANOUT + 4));
    assert_true(parent_whole_end(&w.parent) <= 5 * CHUNK + parent_whole_size(&w.parent));
}

static void test_parent_whole__what_has_no_room_or_another_layout_is_refused(void **state)
{
    struct world w;
    (void)state;
    open_world(&w);
    assert_int_equal(parent_whole_place(&w.parent, CHUNK, 4 * LEAF + 5 * CHUNK - 1, "the limit"), -EFBIG);
    assert_non_null(strstr(error_text(), "the limit"));
    assert_int_equal(parent_whole_place(&w.parent, CHUNK, 4 * LEAF + 5 * CHUNK, "the limit"), 0);
    w.images[1].manifest.metadata_offset += 4096;
    assert_int_equal(parent_whole_place(&w.parent, CHUNK, 1000 * LEAF, "the limit"), -EBADMSG);
    assert_non_null(strstr(error_text(), "build it again"));
}

static bool most_are_holes(uint64_t chunk)
{
    return chunk % 128 != 0;
}

/* Data ends in leaf 1; the leaves after it, the last one cut short, do not count. */
static void test_parent_whole__leaves_that_are_left_out_leave_the_stored_bytes(void **state)
{
    const uint64_t chunks = 4 * INDEX_FANOUT + 150;
    struct image_fake fake = {.size = chunks * CHUNK - 4096, .chunk_size = CHUNK, .hole = most_are_holes};
    struct store_fake *store = store_fake_new();
    uint64_t used = 0, unused = 0;
    (void)state;
    image_fake_put(&fake, store, NULL);
    for (uint64_t i = 0; i < chunks; i++)
        *(i < 2 * INDEX_FANOUT ? &used : &unused) += most_are_holes(i) ? 0 : fake.refs[i].stored_len;
    assert_true(used && unused);
    struct parent_image image = {.manifest = fake.manifest};
    struct parent parent = {.images = &image,
                            .image_count = 1,
                            .config = {.store = store_fake_store(store)},
                            .manifest = {.chunk_size = CHUNK, .stored_bytes = used + unused}};
    image.manifest.metadata_offset = INDEX_FANOUT * CHUNK + 9 * CHUNK;
    assert_int_equal(parent_whole_place(&parent, CHUNK, 1000 * LEAF, "the limit"), 0);
    assert_int_equal(parent.manifest.stored_bytes, used);
    /* data in the last leaf: none is left out */
    parent.manifest.stored_bytes = used + unused;
    image.manifest.metadata_offset = (chunks - 2) * CHUNK;
    assert_int_equal(parent_whole_place(&parent, CHUNK, 1000 * LEAF, "the limit"), 0);
    assert_int_equal(parent.manifest.stored_bytes, used + unused);
    image_fake_release(&fake);
    store_fake_free(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parent_whole__all_file_data_stays_and_nothing_else),
        cmocka_unit_test(test_parent_whole__data_lies_after_the_new_front),
        cmocka_unit_test(test_parent_whole__what_has_no_room_or_another_layout_is_refused),
        cmocka_unit_test(test_parent_whole__leaves_that_are_left_out_leave_the_stored_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
