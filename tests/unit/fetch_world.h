/* A fetch over an image in the fake store. */
#ifndef GRANARY_TESTS_UNIT_FETCH_WORLD_H
#define GRANARY_TESTS_UNIT_FETCH_WORLD_H

#include "base/error.h"
#include "fake/image_fake.h"
#include "fetch/fetch.h"
#include "unit/cmocka_all.h"
#include "unit/counters.h"

enum { CHUNK = 64 << 10, CHUNKS = 32 };

struct world {
    struct store_fake *fake;
    struct store *store;
    struct image_fake img;
    struct fetch *fetch;
};

#define count_of(w, name) counter_value(fetch_counters, (w)->fetch, "granary_fetch_" name)
#define wait_for(w, name, least) counter_wait(fetch_counters, (w)->fetch, "granary_fetch_" name, least)

static inline void world_init_of(struct world *w, const struct fetch_config *config, uint64_t chunks,
                                 uint64_t pack_chunks)
{
    w->fake = store_fake_new();
    w->store = store_fake_store(w->fake);
    w->img = (struct image_fake){.seed = 7, .size = chunks * CHUNK, .chunk_size = CHUNK, .pack_chunks = pack_chunks};
    image_fake_put(&w->img, w->fake, NULL);
    assert_int_equal(fetch_new(config, &w->fetch), 0);
    assert_int_equal(fetch_start_threads(w->fetch), 0);
}

static inline void world_init(struct world *w, const struct fetch_config *config, uint64_t pack_chunks)
{
    world_init_of(w, config, CHUNKS, pack_chunks);
}

static inline void world_release(struct world *w)
{
    fetch_free(w->fetch);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
}

/* Start chunks[0..n); flights NULL: nobody waits. */
static inline void start(struct world *w, const unsigned *chunks, size_t n, enum fetch_priority priority,
                         struct inflight **inflights)
{
    const struct chunk_ref *refs[CHUNKS];
    for (size_t i = 0; i < n; i++)
        refs[i] = &w->img.refs[chunks[i]];
    assert_int_equal(fetch_start(w->fetch, w->store, refs, n, inflights ? n : 0, priority, 0, inflights), 0);
}

static inline struct inflight *start_one(struct world *w, unsigned chunk, enum fetch_priority priority)
{
    struct inflight *inflight = NULL;
    start(w, &chunk, 1, priority, &inflight);
    return inflight;
}

/* A fetch that takes longer fails the test. */
enum { FETCH_WAIT_MS = 120000 };

/* Wait, compare with what the image has there, let go. */
static inline void expect_bytes(struct world *w, struct inflight *inflight, unsigned chunk)
{
    CLEANUP_BUF struct buf *plain = NULL;
    CLEANUP_FREE uint8_t *expected = malloc(CHUNK);
    assert_int_equal(inflight_wait_ms(inflight, FETCH_WAIT_MS, &plain), 0);
    image_fake_bytes(&w->img, (uint64_t)chunk * CHUNK, expected, CHUNK);
    assert_int_equal(plain->len, CHUNK);
    assert_memory_equal(plain->data, expected, CHUNK);
    inflight_unref(inflight);
}

static inline void expect_error(struct inflight *inflight, int code, const char *part)
{
    struct buf *plain = NULL;
    assert_int_equal(inflight_wait(inflight, &plain), code);
    assert_non_null(strstr(error_text(), part));
    inflight_unref(inflight);
}

#endif
