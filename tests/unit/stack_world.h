/* Two stores with three images, and stacks on them. */
#ifndef GRANARY_TESTS_UNIT_STACK_WORLD_H
#define GRANARY_TESTS_UNIT_STACK_WORLD_H

#include <stdio.h>

#include "fake/image_fake.h"
#include "stack.h"
#include "unit/cmocka_all.h"
#include "unit/exports.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10 };

/* A directory with two stores, and the images faces and cars in the first, faces in the second. */
struct world {
    char dir[SCRATCH_MAX], cache[SCRATCH_MAX + 16];
    struct image_fake faces, cars, other;
    char faces_ref[256], cars_ref[256], other_ref[256];
};

static inline void save(struct world *w, const char *store, struct image_fake *img, const char *name, char ref[256])
{
    char path[SCRATCH_MAX + 16];
    struct store_fake *fake = store_fake_new();
    *img = (struct image_fake){.seed = (uint64_t)(uintptr_t)ref & 0xffff, .size = 40 * CHUNK, .chunk_size = CHUNK};
    image_fake_put(img, fake, name);
    snprintf(path, sizeof path, "%s/%s", w->dir, store);
    image_fake_save(fake, path);
    store_fake_free(fake);
    snprintf(ref, 256, "%s/%s", path, name);
}

static inline void world_init(struct world *w)
{
    scratch_make(w->dir);
    snprintf(w->cache, sizeof w->cache, "%s/cache", w->dir);
    save(w, "a", &w->faces, "faces", w->faces_ref);
    save(w, "a", &w->cars, "cars", w->cars_ref);
    save(w, "b", &w->other, "faces", w->other_ref);
}

static inline void world_release(struct world *w)
{
    image_fake_release(&w->faces);
    image_fake_release(&w->cars);
    image_fake_release(&w->other);
    scratch_remove(w->dir);
}

/* A machine that is busy for seconds is no disk that hangs: nothing is left out at the end. */
enum { DISK_TIMEOUT_MS = 60000 };

static inline int open_stack(struct world *w, const struct stack_image *images, size_t n, bool keep, struct stack **out)
{
    struct stack_config config = {.images = images, .image_count = n, .store = {.timeout_ms = 1}};
    if (keep) {
        config.cache.dirs[0].path = w->cache;
        config.cache.dirs[0].size = 64 << 20;
        config.cache.dir_count = 1;
        config.cache.disk_timeout_ms = DISK_TIMEOUT_MS;
    }
    return stack_open(&config, out);
}

static inline struct stack *start(struct world *w, const struct stack_image *images, size_t n, bool keep)
{
    struct stack *s = NULL;
    assert_int_equal(open_stack(w, images, n, keep, &s), 0);
    assert_int_equal(stack_start_threads(s), 0);
    return s;
}

static inline void expect_image(struct image *img, const struct image_fake *expected)
{
    CLEANUP_FREE uint8_t *got = malloc(expected->size), *want = malloc(expected->size);
    assert_non_null(img);
    assert_int_equal(image_read(img, got, 0, expected->size), 0);
    image_fake_bytes(expected, 0, want, expected->size);
    assert_memory_equal(got, want, expected->size);
}

/* The first store. */
static inline void take_away(struct world *w)
{
    char from[SCRATCH_MAX + 16], to[SCRATCH_MAX + 16];
    snprintf(from, sizeof from, "%s/a", w->dir);
    snprintf(to, sizeof to, "%s/gone", w->dir);
    assert_int_equal(rename(from, to), 0);
}

#endif
