/* A store with the image `faces` in a scratch directory, and a serving of it with a cache. */
#ifndef GRANARY_TESTS_UNIT_SERVING_WORLD_H
#define GRANARY_TESTS_UNIT_SERVING_WORLD_H

#include <stdio.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "server/serving.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CHUNKS = 40, SIZE = CHUNKS * CHUNK + 4096 };

/* Make the directory, with the store in it; img->hole is as the caller has set it. */
static inline void serving_make_store(char dir[SCRATCH_MAX], struct image_fake *img)
{
    scratch_make(dir);
    struct store_fake *store = store_fake_new();
    *img = (struct image_fake){.seed = 1, .size = SIZE, .chunk_size = CHUNK, .hole = img->hole};
    image_fake_put(img, store, "faces");
    image_fake_save(store, dir);
    store_fake_free(store);
}

static inline void serving_begin(struct serving *s, const char *dir)
{
    char image[SCRATCH_MAX + 8], cache[SCRATCH_MAX + 16];
    snprintf(image, sizeof image, "%s/faces", dir);
    snprintf(cache, sizeof cache, "%s/cache:32M", dir);
    serving_init(s);
    if (stack_options_set(&s->options, "image", image) || stack_options_set(&s->options, "cache", cache) ||
        stack_options_set(&s->options, "disk-timeout", "60s") || stack_options_complete(&s->options) ||
        serving_open(s) || serving_start(s))
        fail_msg("%s", error_text());
}

#endif
