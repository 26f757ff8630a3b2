/* An image over a real cache and the fake store, for the tests of the image reader. */
#ifndef GRANARY_TESTS_UNIT_IMAGE_WORLD_H
#define GRANARY_TESTS_UNIT_IMAGE_WORLD_H

#include "unit/cmocka_all.h"

#include "base/error.h"
#include "fake/image_fake.h"
#include "image/image.h"
#include "unit/counters.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CACHE_SIZE = 64 << 20 };

struct world {
    struct store_fake *fake;
    struct image_fake img;
    char dir[SCRATCH_MAX]; /* empty: nothing is kept */
    struct cache *cache;
    struct image *image;
};

#define image_count(w, name) counter_value(image_counters, (w)->image, "granary_image_" name)
#define cache_count(w, name) counter_value(cache_counters, (w)->cache, "granary_" name)

static inline void open_image(struct world *w, size_t index_memory, uint32_t readahead)
{
    const struct image_config config = {.cache = w->cache,
                                        .store = store_fake_store(w->fake),
                                        .manifest = &w->img.manifest,
                                        .index_memory = index_memory,
                                        .readahead = readahead};
    assert_int_equal(image_open(&config, &w->img.digest, &w->image), 0);
}

/* A store with img, a cache without a directory or with one, and the image open. */
static inline void world_init(struct world *w, const struct image_fake *img, bool keep, uint32_t readahead)
{
    *w = (struct world){.fake = store_fake_new(), .img = *img};
    image_fake_put(&w->img, w->fake, NULL);
    struct cache_config config = {.fetch = {.workers = 8}};
    if (keep) {
        scratch_make(w->dir);
        config.dirs[0].path = w->dir;
        config.dirs[0].size = CACHE_SIZE;
        config.dir_count = 1;
        config.disk_timeout_ms = 60000; /* a machine that is busy for seconds is no disk that hangs */
    }
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    open_image(w, 0, readahead);
}

static inline void world_release(struct world *w)
{
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
    if (*w->dir)
        scratch_remove(w->dir);
}

static inline void expect_read(struct world *w, uint64_t off, size_t len)
{
    CLEANUP_FREE uint8_t *got = malloc(len + 1), *expected = malloc(len + 1);
    assert_true(got && expected);
    got[len] = 0xA5;
    assert_int_equal(image_read(w->image, got, off, len), 0);
    image_fake_bytes(&w->img, off, expected, len);
    assert_memory_equal(got, expected, len);
    assert_int_equal(got[len], 0xA5);
}

static inline bool every_third(uint64_t chunk)
{
    return chunk % 3 == 1;
}

static const struct image_fake small = {.seed = 1, .size = 20 * CHUNK + 4096, .chunk_size = CHUNK, .hole = every_third};

#endif
