/* Parts of an image by path, and chunk numbers to chunks: exact with the store there, honest without. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "fake/image_fake.h"
#include "image/image_internal.h"
#include "image/warm/select.h"
#include "repository/read/catalog_glob.h"
#include "unit/counters.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CHUNKS = 3000 };

/* The leaf in the middle (chunks 1024 to 2047) is all holes, the others most of them. */
static bool holes(uint64_t chunk)
{
    return chunk / 1024 == 1 || chunk % 50;
}

#define FILE_ENTRY(name, first, bytes)                                                                                 \
    {                                                                                                                  \
        .path = name, .path_len = sizeof name - 1, .mode = S_IFREG | 0644, .size = bytes,                              \
        .extents = &(const struct catalog_extent){(uint64_t)(first)*CHUNK, bytes}, .extent_count = 1, .content = {     \
            {1}                                                                                                        \
        }                                                                                                              \
    }
#define DIR_ENTRY(name)                                                                                                \
    {                                                                                                                  \
        .path = name, .path_len = sizeof name - 1, .mode = S_IFDIR | 0755                                              \
    }

static const struct catalog_entry entries[] = {
    DIR_ENTRY(""),
    FILE_ENTRY("a.jpg", 1, 100),
    DIR_ENTRY("train"),
    FILE_ENTRY("train/b.jpg", 2, 3 * CHUNK),
    FILE_ENTRY("train/c.txt", 1000, 50 * CHUNK),
    DIR_ENTRY("train/deep"),
    FILE_ENTRY("train/deep/d.jpg", 2500, CHUNK + 1),
    FILE_ENTRY("trainer", 9, 7),
    FILE_ENTRY("train\xff.jpg", 2990, 1),
};

struct world {
    char dir[SCRATCH_MAX];
    struct store_fake *fake;
    struct store *store;
    struct image_fake img;
    struct cache *cache;
    struct image *image;
};

static void world_open_image(struct world *w)
{
    const struct image_config image = {.cache = w->cache, .store = w->store, .manifest = &w->img.manifest};
    assert_int_equal(image_open(&image, &w->img.digest, &w->image), 0);
}

static void world_init(struct world *w)
{
    *w = (struct world){.fake = store_fake_new()};
    w->img = (struct image_fake){.seed = 3,
                                 .size = (uint64_t)CHUNKS * CHUNK,
                                 .chunk_size = CHUNK,
                                 .hole = holes,
                                 .entries = entries,
                                 .entry_count = GR_ARRAY_SIZE(entries)};
    image_fake_put(&w->img, w->fake, NULL);
    w->store = store_fake_store(w->fake);
    scratch_make(w->dir);
    struct cache_config config = {.dirs = {{.path = w->dir, .size = 64 << 20}},
                                  .dir_count = 1,
                                  .disk_timeout_ms = 60000,
                                  .fetch = {.workers = 2}};
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    world_open_image(w);
}

static void world_release(struct world *w)
{
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    scratch_remove(w->dir);
}

static int note_path(void *arg, const struct catalog_entry *e)
{
    size_t used = strlen(arg);
    snprintf((char *)arg + used, 200 - used, "%.*s ", (int)e->path_len, e->path);
    return 0;
}

static void expect_files(struct world *w, const char *glob, const char *expected)
{
    char got[200] = "";
    assert_int_equal(select_files(w->image, w->store, glob, note_path, got), 0);
    assert_string_equal(got, expected);
}

static void test_select__globs_match_full_paths(void **state)
{
    struct world w;
    world_init(&w);
    expect_files(&w, "a.jpg", "a.jpg ");
    expect_files(&w, "*.jpg", "a.jpg train/b.jpg train/deep/d.jpg train\xff.jpg ");
    expect_files(&w, "train/*.jpg", "train/b.jpg train/deep/d.jpg ");
    expect_files(&w, "/train/?.[jt]*", "train/b.jpg train/c.txt ");
    expect_files(&w, "train", "train/b.jpg train/c.txt train/deep/d.jpg ");
    expect_files(&w, "train/deep/", "train/deep/d.jpg ");
    expect_files(&w, "train/d*", "train/deep/d.jpg ");
    expect_files(&w, "b.jpg", "");
    expect_files(&w, "tr\\ain/c.txt", "train/c.txt ");
    world_release(&w);
}

static int refuse_globs(struct world *w, const char *glob)
{
    char got[200] = "";
    int rc = select_files(w->image, w->store, glob, note_path, got);
    assert_string_equal(got, "");
    return rc;
}

static int stop_at_once(void *arg, const struct catalog_entry *e)
{
    ++*(int *)arg;
    return -ECANCELED;
}

static void test_select__wrong_globs_and_a_dead_store_are_errors(void **state)
{
    struct world w;
    char longest[CATALOG_GLOB_MAX + 2];
    int visits = 0;
    world_init(&w);
    memset(longest, 'a', sizeof longest);
    longest[CATALOG_GLOB_MAX + 1] = 0;
    assert_int_equal(refuse_globs(&w, ""), -EINVAL);
    assert_int_equal(refuse_globs(&w, "//"), -EINVAL);
    assert_int_equal(refuse_globs(&w, longest), -EINVAL);
    longest[CATALOG_GLOB_MAX] = 0;
    assert_int_equal(refuse_globs(&w, longest), 0);
    assert_int_equal(select_files(w.image, w.store, "*", stop_at_once, &visits), -ECANCELED);
    assert_int_equal(visits, 1);
    store_fake_set_dead(w.fake, -EACCES);
    assert_int_equal(refuse_globs(&w, "*"), -EACCES);
    store_fake_set_dead(w.fake, 0);
    world_release(&w);
}

static void test_select__extents_are_chunks_or_refused(void **state)
{
    struct world w;
    uint64_t first, end;
    world_init(&w);
    assert_int_equal(select_extent(w.image, &entries[6], 0, &first, &end), 0);
    assert_int_equal(first, 2500);
    assert_int_equal(end, 2502);
    struct catalog_extent e = {(uint64_t)(CHUNKS - 1) * CHUNK, CHUNK};
    struct catalog_entry file = {.path = "f", .path_len = 1, .extents = &e, .extent_count = 1};
    assert_int_equal(select_extent(w.image, &file, 0, &first, &end), 0);
    assert_int_equal(end, CHUNKS);
    static const struct catalog_extent wrong[] = {
        {0, 0}, {0, (uint64_t)CHUNKS * CHUNK + 1}, {(uint64_t)CHUNKS * CHUNK, 1}, {UINT64_MAX, 2}, {8, UINT64_MAX}};
    for (size_t i = 0; i < GR_ARRAY_SIZE(wrong); i++) {
        e = wrong[i];
        assert_int_equal(select_extent(w.image, &file, 0, &first, &end), -EBADMSG);
    }
    world_release(&w);
}

static void test_select__sets_give_back_what_was_added(void **state)
{
    struct world w;
    CLEANUP(chunk_set_release) struct chunk_set set = {0};
    static const uint64_t members[] = {0, 1, 63, 64, 65, 1000, 2943, 2999};
    world_init(&w);
    assert_int_equal(chunk_set_init(&set, w.image), 0);
    assert_int_equal(chunk_set_next(&set, 0), UINT64_MAX);
    for (size_t i = 0; i < GR_ARRAY_SIZE(members); i++) {
        assert_true(chunk_set_add(&set, members[i]));
        assert_false(chunk_set_add(&set, members[i]));
    }
    uint64_t at = 0;
    for (size_t i = 0; i < GR_ARRAY_SIZE(members); i++, at++) {
        at = chunk_set_next(&set, at);
        assert_int_equal(at, members[i]);
    }
    assert_int_equal(chunk_set_next(&set, at), UINT64_MAX);
    for (uint64_t first = 0; first < CHUNKS; first += 9)
        for (uint64_t end = first; end < CHUNKS; end += 5) {
            bool want = false;
            for (size_t i = 0; i < GR_ARRAY_SIZE(members); i++)
                want |= members[i] >= first && members[i] < end;
            assert_int_equal(chunk_set_meets(&set, first, end), want);
        }
    world_release(&w);
}

/* Walk the whole image; returns how many chunks were unknown. */
static uint64_t walk(struct world *w, struct image_cursor *c)
{
    uint64_t unknown = 0, run;
    for (uint64_t i = 0; i < CHUNKS; i += run) {
        const struct chunk_ref *ref;
        assert_int_equal(image_cursor_at(c, i, &ref, &run), 0);
        assert_in_range(run, 1, CHUNKS - i);
        unknown += c->unknown ? run : 0;
        if (c->unknown)
            assert_null(ref);
        else if (chunk_is_hole(&w->img.refs[i]))
            assert_null(ref);
        else
            assert_true(digest_equal(&ref->digest, &w->img.refs[i].digest));
    }
    return unknown;
}

static void test_select__a_cursor_gives_every_chunk_and_keeps_nothing(void **state)
{
    struct world w;
    struct image_cursor c;
    world_init(&w);
    image_cursor_init(&c, w.image, w.store);
    assert_int_equal(walk(&w, &c), 0);
    assert_int_equal(c.store_error.code, 0);
    image_cursor_release(&c);
    counter_wait_zero(cache_counters, w.cache,
                      "granary_fetch_in_flight"); /* what is fetched to be kept is kept by then */
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_cache_fills_total"), 0);
    assert_false(cache_has(w.cache, &w.img.manifest.index_root.digest));
    struct node_cache_stats nodes;
    node_cache_stats(w.image->nodes, &nodes);
    assert_int_equal(nodes.nodes, 0);
    world_release(&w);
}

static void test_select__without_the_store_what_is_cached_is_known(void **state)
{
    struct world w;
    struct image_cursor c;
    world_init(&w);
    store_fake_set_dead(w.fake, -EIO);
    image_cursor_init(&c, w.image, w.store);
    assert_int_equal(walk(&w, &c), CHUNKS);
    assert_int_equal(c.store_error.code, -EIO);
    unsigned calls = store_fake_calls(w.fake, FAKE_GET) + store_fake_calls(w.fake, FAKE_GET_SMALL);
    assert_int_equal(walk(&w, &c), CHUNKS); /* and it is not asked again */
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET) + store_fake_calls(w.fake, FAKE_GET_SMALL), calls);
    image_cursor_release(&c);

    store_fake_set_dead(w.fake, 0);
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0); /* the root and the first leaf */
    store_fake_set_dead(w.fake, -EIO);
    image_cursor_init(&c, w.image, w.store);
    assert_int_equal(walk(&w, &c), CHUNKS - 2048); /* the middle is a hole: its parent says so */
    image_cursor_release(&c);
    image_cursor_init(&c, w.image, NULL);
    assert_int_equal(walk(&w, &c), CHUNKS - 2048);
    assert_int_equal(c.store_error.code, 0);
    image_cursor_release(&c);
    store_fake_set_dead(w.fake, 0);
    world_release(&w);
}

/* Who looks again and again at what is cached must not make the hit ratio of readers. */
static void test_select__a_look_is_no_hit(void **state)
{
    struct world w;
    struct image_cursor c;
    uint64_t unknown = CHUNKS, since_ms = 0;
    world_init(&w);
    assert_int_equal(image_prefetch(w.image, 0, CHUNK), 0);
    image_close(w.image); /* its nodes are then on disk alone */
    world_open_image(&w);
    uint64_t hits = counter_value(cache_counters, w.cache, "granary_cache_hits_total");
    while (unknown != CHUNKS - 2048) { /* they are being written */
        counter_pause(&since_ms, "the index on disk");
        image_cursor_init(&c, w.image, NULL);
        unknown = walk(&w, &c);
        image_cursor_release(&c);
    }
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_cache_hits_total"), hits);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_select__globs_match_full_paths),
        cmocka_unit_test(test_select__wrong_globs_and_a_dead_store_are_errors),
        cmocka_unit_test(test_select__extents_are_chunks_or_refused),
        cmocka_unit_test(test_select__sets_give_back_what_was_added),
        cmocka_unit_test(test_select__a_look_is_no_hit),
        cmocka_unit_test(test_select__a_cursor_gives_every_chunk_and_keeps_nothing),
        cmocka_unit_test(test_select__without_the_store_what_is_cached_is_known),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
