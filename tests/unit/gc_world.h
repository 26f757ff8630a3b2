/* A fake store with images, a clock that tests set, and gc over it. */
#ifndef GRANARY_TESTS_UNIT_GC_WORLD_H
#define GRANARY_TESTS_UNIT_GC_WORLD_H

#include <stdlib.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/lease.h"
#include "repository/nesting.h"
#include "repository/read/index_read.h"
#include "repository/repository.h"
#include "upkeep/upkeep.h"

enum { DAY = 24 * 3600, GRACE = 14 * DAY };
#define EPOCH INT64_C(2000000000) /* the tests' time begins here */

static const struct nesting place = {.is_store = true};

struct fixture {
    struct store_fake *fake;
    struct store *store;
    struct image_fake images[3];
    int64_t now;
};

/* deltas_of: see image_fake.h. */
static inline void put_image_upon(struct fixture *f, int i, uint64_t seed, const struct image_fake *deltas_of,
                                  const char *tag)
{
    struct image_fake *img = &f->images[i];
    *img = (struct image_fake){
        .seed = seed, .size = 1 << 20, .chunk_size = 64 << 10, .pack_chunks = 4, .deltas_of = deltas_of};
    image_fake_put(img, f->fake, NULL);
    struct tag t = {.digest = img->digest, .content_root = img->manifest.content_root, .created = f->now};
    if (tag)
        assert_int_equal(repository_publish(f->store, "faces", tag, &t, false), 0);
}

static inline void put_image(struct fixture *f, int i, uint64_t seed, const char *tag)
{
    put_image_upon(f, i, seed, NULL, tag);
}

static inline int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    f->fake = store_fake_new();
    f->store = store_fake_store(f->fake);
    f->now = EPOCH;
    store_fake_set_now(f->fake, f->now);
    *state = f;
    return repository_check(f->store, true);
}

static inline int teardown(void **state)
{
    struct fixture *f = *state;
    for (int i = 0; i < 3; i++)
        image_fake_release(&f->images[i]);
    store_fake_free(f->fake);
    free(f);
    return 0;
}

static inline void pass(struct fixture *f, int64_t seconds)
{
    f->now += seconds;
    store_fake_set_now(f->fake, f->now);
}

static inline struct gc_result run(struct fixture *f, unsigned keep_last, bool dry_run)
{
    const struct gc_options options = {.grace_s = GRACE, .keep_last = keep_last, .dry_run = dry_run, .now = f->now};
    struct gc_result r;
    if (gc_run(f->store, &options, &r))
        fail_msg("%s", error_text());
    assert_int_equal(r.objects, r.needed + r.young + r.waiting + r.marked + r.swept);
    return r;
}

static inline int count_chunks(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    uint64_t *sum = arg;
    *sum += count;
    return 0;
}

/* Every chunk of the image can still be read. */
static inline bool image_whole(struct fixture *f, int i)
{
    const struct image_fake *img = &f->images[i];
    struct manifest m;
    uint64_t chunks = 0;
    const struct index_walk_ops ops = {.chunks = count_chunks};
    if (repository_manifest(f->store, &img->digest, &m) || index_walk(f->store, &m, &ops, &chunks))
        return false;
    assert_int_equal(chunks, manifest_chunk_count(&m));
    for (uint64_t c = 0; c < chunks; c++) {
        char key[OBJECT_KEY_MAX];
        if (!store_fake_has(f->fake, object_key(OBJECT_PACK, &img->refs[c].object, key)) ||
            (chunk_is_delta(&img->refs[c]) &&
             !store_fake_has(f->fake, object_key(OBJECT_PACK, &img->refs[c].base.object, key))))
            return false;
    }
    return true;
}

static inline size_t object_count(struct fixture *f)
{
    size_t n = 0;
    for (int kind = 0; kind < OBJECT_KINDS; kind++)
        n += store_fake_count(f->fake, object_kind_prefix((enum object_kind)kind));
    return n;
}

/* Put an image without a tag, and mark it so long ago that gc sweeps it. */
static inline void ripen(struct fixture *f)
{
    put_image(f, 0, 1, NULL);
    pass(f, GRACE);
    run(f, 0, false);
    pass(f, GRACE);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

#endif
