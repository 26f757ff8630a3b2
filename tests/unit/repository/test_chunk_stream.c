/* Chunks in order from a pool of threads, and export on top: whatever the threads, the faults and the
 * moment of an interrupt. */
#include "unit/cmocka_all.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/io.h"
#include "fake/image_fake.h"
#include "repository/read/chunk_read.h"
#include "unit/scratch.h"
#include "upkeep/upkeep.h"
#include "upkeep/upkeep_internal.h"

enum { CHUNK = 64 << 10, CHUNKS = 300 };

static bool some_holes(uint64_t chunk)
{
    return chunk % 7 == 3 || (chunk >= 100 && chunk < 150) || chunk == CHUNKS - 1;
}

struct world {
    struct store_fake *fake;
    struct store *store;
    struct image_fake image;
};

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->fake = store_fake_new();
    w->store = store_fake_store(w->fake);
    w->image = (struct image_fake){
        .seed = 5, .size = (uint64_t)CHUNKS * CHUNK - 4096, .chunk_size = CHUNK, .pack_chunks = 11, .hole = some_holes};
    image_fake_put(&w->image, w->fake, NULL);
    store_fake_reset_counters(w->fake);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    image_fake_release(&w->image);
    store_fake_free(w->fake);
    free(w);
    return 0;
}

struct seen {
    struct world *w;
    uint64_t next, failed;
    uint64_t stop_at; /* 0: never */
    volatile int *cancel_at_next;
    bool wrong;
};

static int look(void *arg, const struct chunk_item *item)
{
    struct seen *s = arg;
    uint8_t want[CHUNK];
    s->wrong |= item->number != s->next;
    s->next += item->count;
    if (item->rc)
        s->failed++;
    for (uint64_t i = item->number; i < item->number + item->count; i++)
        s->wrong |= some_holes(i) != !item->ref;
    if (item->data) {
        image_fake_bytes(&s->w->image, item->number * CHUNK, want, item->ref->plain_len);
        s->wrong |= memcmp(want, item->data, item->ref->plain_len) != 0;
    }
    if (s->cancel_at_next)
        *s->cancel_at_next = 1;
    return s->stop_at && s->next >= s->stop_at ? 77 : 0;
}

static int stream(struct seen *s, unsigned threads, const volatile int *cancel)
{
    struct chunk_stream_options options = {.threads = threads, .cancel = cancel};
    return chunk_stream(s->w->store, &s->w->image.manifest, &options, look, s);
}

static void test_chunk_stream__every_chunk_once_in_order_whatever_the_threads(void **state)
{
    static const unsigned threads[] = {0, 1, 2, 16};
    for (size_t i = 0; i < GR_ARRAY_SIZE(threads); i++) {
        struct seen s = {.w = *state};
        assert_int_equal(stream(&s, threads[i], NULL), 0);
        assert_int_equal(s.next, CHUNKS);
        assert_int_equal(s.failed, 0);
        assert_false(s.wrong);
    }
}

struct some {
    struct world *w;
    uint64_t next, count;
    bool wrong;
};

static bool every_fifth(void *arg, uint64_t number)
{
    return number % 5 == 1;
}

static int look_at_some(void *arg, const struct chunk_item *item)
{
    struct some *s = arg;
    uint8_t want[CHUNK];
    s->wrong |= item->number < s->next || item->number % 5 != 1 || item->count != 1 || !item->data;
    s->next = item->number + 1;
    s->count++;
    image_fake_bytes(&s->w->image, item->number * CHUNK, want, item->ref->plain_len);
    s->wrong |= memcmp(want, item->data, item->ref->plain_len) != 0;
    return 0;
}

static void test_chunk_stream__only_what_is_wanted_is_read(void **state)
{
    struct some s = {.w = *state};
    const struct chunk_stream_options options = {.wanted = every_fifth};
    uint64_t want = 0, bytes = 0;
    for (uint64_t i = 1; i < CHUNKS; i += 5) {
        want += !some_holes(i);
        bytes += some_holes(i) ? 0 : s.w->image.refs[i].stored_len;
    }
    assert_int_equal(chunk_stream(s.w->store, &s.w->image.manifest, &options, look_at_some, &s), 0);
    assert_int_equal(s.count, want);
    assert_false(s.wrong);
    assert_true(store_fake_bytes_got(s.w->fake) < bytes + INDEX_NODE_MAX);
}

static void test_chunk_stream__slow_runs_do_not_change_the_order(void **state)
{
    struct world *w = *state;
    store_fake_add_fault(w->fake,
                         &(struct store_fake_fault){
                             .op = FAKE_GET, .kind = FAKE_DELAY, .key_prefix = "packs/", .permille = 300, .bytes = 20});
    struct seen s = {.w = w};
    assert_int_equal(stream(&s, 4, NULL), 0);
    assert_int_equal(s.next, CHUNKS);
    assert_false(s.wrong);
    assert_true(store_fake_peak(w->fake) > 1);
    assert_true(store_fake_peak(w->fake) <= 4);
}

static void test_chunk_stream__one_flipped_byte_is_one_failed_chunk(void **state)
{
    struct world *w = *state;
    char key[OBJECT_KEY_MAX];
    const struct chunk_ref *ref = &w->image.refs[40];
    assert_false(chunk_is_hole(ref));
    assert_true(store_fake_flip(w->fake, object_key(OBJECT_PACK, &ref->object, key), ref->offset + 5));
    struct seen s = {.w = w};
    assert_int_equal(stream(&s, 4, NULL), 0);
    assert_int_equal(s.next, CHUNKS);
    assert_int_equal(s.failed, 1);
    assert_false(s.wrong);
}

static void test_chunk_stream__a_lost_pack_fails_its_chunks_alone(void **state)
{
    struct world *w = *state;
    char key[OBJECT_KEY_MAX];
    uint64_t lost = 0;
    for (uint64_t i = 0; i < CHUNKS; i++)
        lost += !some_holes(i) && digest_equal(&w->image.refs[i].object, &w->image.refs[60].object);
    assert_true(store_fake_remove(w->fake, object_key(OBJECT_PACK, &w->image.refs[60].object, key)));
    struct seen s = {.w = w};
    assert_int_equal(stream(&s, 4, NULL), 0);
    assert_int_equal(s.failed, lost);
    assert_false(s.wrong);
}

static void test_chunk_stream__a_broken_index_ends_it(void **state)
{
    struct world *w = *state;
    char key[OBJECT_KEY_MAX];
    assert_true(store_fake_flip(w->fake, object_key(OBJECT_INDEX, &w->image.manifest.index_root.digest, key), 100));
    struct seen s = {.w = w};
    assert_int_equal(stream(&s, 4, NULL), -EBADMSG);
}

static void test_chunk_stream__visit_and_cancel_end_it_at_once(void **state)
{
    struct seen s = {.w = *state, .stop_at = 5};
    assert_int_equal(stream(&s, 4, NULL), 77);
    assert_true(s.next < 30);
    volatile int cancel = 0;
    s = (struct seen){.w = *state, .cancel_at_next = &cancel};
    assert_int_equal(stream(&s, 4, &cancel), -ECANCELED);
    assert_true(s.next < CHUNKS);
}

/* ---- export ---- */

static char dir[SCRATCH_MAX];

static int setup_export(void **state)
{
    scratch_make(dir);
    return setup(state);
}

static int teardown_export(void **state)
{
    scratch_remove(dir);
    return teardown(state);
}

static size_t files_in_dir(void)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void test_export__the_file_is_the_image_and_sparse(void **state)
{
    struct world *w = *state;
    char path[SCRATCH_MAX + 16];
    uint8_t want[CHUNK], got[CHUNK];
    struct stat st;
    const struct export_options options = {.threads = 3};
    snprintf(path, sizeof path, "%s/image", dir);
    assert_int_equal(io_write_file_atomic(path, "old", 3, false), 0); /* replaced */
    assert_int_equal(export_file(w->store, &w->image.manifest, path, &options), 0);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, w->image.size);
    assert_true((uint64_t)st.st_blocks * 512 < w->image.size - 40 * CHUNK);
    int fd = open(path, O_RDONLY);
    for (uint64_t off = 0; off < w->image.size; off += CHUNK) {
        size_t n = GR_MIN((uint64_t)CHUNK, w->image.size - off);
        image_fake_bytes(&w->image, off, want, n);
        assert_int_equal(io_pread_full(fd, got, n, off), n);
        assert_memory_equal(want, got, n);
    }
    close(fd);
    assert_int_equal(files_in_dir(), 1);
}

static void test_export__a_failure_leaves_no_file_and_keeps_the_old_one(void **state)
{
    struct world *w = *state;
    char path[SCRATCH_MAX + 16], key[OBJECT_KEY_MAX];
    const volatile int cancel = 1;
    struct export_options options = {.threads = 3, .cancel = &cancel};
    snprintf(path, sizeof path, "%s/image", dir);
    assert_int_equal(export_file(w->store, &w->image.manifest, path, &options), -ECANCELED);
    assert_int_equal(files_in_dir(), 0);
    assert_int_equal(io_write_file_atomic(path, "old", 3, false), 0);
    store_fake_flip(w->fake, object_key(OBJECT_PACK, &w->image.refs[200].object, key), 3);
    options.cancel = NULL;
    assert_int_equal(export_file(w->store, &w->image.manifest, path, &options), -EBADMSG);
    assert_int_equal(files_in_dir(), 1);
    CLEANUP_BYTES text = BYTES_INIT(100);
    assert_int_equal(io_read_file(path, &text), 0);
    assert_int_equal(text.len, 3);
    assert_int_equal(export_file(w->store, &w->image.manifest, dir, &options), -EINVAL);
}

/* ---- packs ---- */

static void test_pack_set__keeps_the_longest_need_of_each_pack(void **state)
{
    struct pack_set set = {0};
    for (uint32_t i = 0; i < 20000; i++) { /* packs come again and again, in no order */
        struct chunk_ref ref = {.offset = i, .stored_len = 10};
        ref.digest.b[0] = 1;
        ref.object.b[0] = (uint8_t)((i * 7) % 13 + 1);
        assert_int_equal(pack_set_add(&set, &ref), 0);
    }
    assert_true(set.needs.len < 10000); /* merged on the way */
    pack_set_finish(&set);
    assert_int_equal(set.needs.len, 13);
    for (size_t i = 0; i < 13; i++) {
        assert_int_equal(set.needs.items[i].pack.b[0], i + 1);
        assert_true(set.needs.items[i].len > 20000 - 13 + 9 && set.needs.items[i].len <= 20009);
    }
    pack_set_release(&set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_chunk_stream__every_chunk_once_in_order_whatever_the_threads, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__only_what_is_wanted_is_read, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__slow_runs_do_not_change_the_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__one_flipped_byte_is_one_failed_chunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__a_lost_pack_fails_its_chunks_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__a_broken_index_ends_it, setup, teardown),
        cmocka_unit_test_setup_teardown(test_chunk_stream__visit_and_cancel_end_it_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(test_export__the_file_is_the_image_and_sparse, setup_export, teardown_export),
        cmocka_unit_test_setup_teardown(test_export__a_failure_leaves_no_file_and_keeps_the_old_one, setup_export,
                                        teardown_export),
        cmocka_unit_test(test_pack_set__keeps_the_longest_need_of_each_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
