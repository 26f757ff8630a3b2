/* Bytes of an image at any address, from the store alone. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/thread.h"
#include "fake/image_fake.h"
#include "fake/store_fake.h"
#include "repository/read/chunk_read.h"

enum { CHUNK = CHUNK_SIZE_MIN };

struct world {
    struct store_fake *store;
    struct image_fake image;
    struct image_bytes *bytes;
};

static bool is_hole(uint64_t chunk)
{
    return chunk == 3 || (chunk > 160 && chunk < 2990); /* a whole leaf of them too */
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    w->store = store_fake_new();
    w->image =
        (struct image_fake){.seed = 5, .size = UINT64_C(3000) * CHUNK + 4096, .chunk_size = CHUNK, .hole = is_hole};
    image_fake_put(&w->image, w->store, NULL);
    assert_int_equal(image_bytes_new(store_fake_store(w->store), &w->image.manifest, &w->bytes), 0);
    *state = w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    image_bytes_free(w->bytes);
    image_fake_release(&w->image);
    store_fake_free(w->store);
    free(w);
    return 0;
}

static void expect(struct world *w, uint64_t address, size_t len)
{
    uint8_t *got = malloc(len + 1), *want = malloc(len + 1);
    assert_int_equal(image_bytes_read(w->bytes, address, len, got), 0);
    image_fake_bytes(&w->image, address, want, len);
    assert_memory_equal(got, want, len);
    free(got);
    free(want);
}

static void test_image_bytes__any_range_is_right(void **state)
{
    struct world *w = *state;
    expect(w, 0, 1);
    expect(w, 3 * CHUNK - 5, 2 * CHUNK); /* across a hole */
    expect(w, UINT64_C(2000) * CHUNK - 1, 3);
    expect(w, w->image.size - 4097, 4097);
    expect(w, w->image.size, 0);
    uint8_t byte;
    assert_int_equal(image_bytes_read(w->bytes, w->image.size, 1, &byte), -EINVAL);
    assert_int_equal(image_bytes_read(w->bytes, UINT64_MAX, 2, &byte), -EINVAL);
}

static void test_image_bytes__neighbours_cost_one_fetch(void **state)
{
    struct world *w = *state;
    expect(w, 10 * CHUNK, 10);
    store_fake_reset_counters(w->store);
    for (unsigned i = 0; i < 100; i++)
        expect(w, 10 * CHUNK + i * 100, 100);
    assert_int_equal(store_fake_calls(w->store, FAKE_ANY), 0);
    expect(w, 11 * CHUNK, 1);
    assert_int_equal(store_fake_calls(w->store, FAKE_ANY), 1);
    for (unsigned i = 20; i < 20 + IMAGE_BYTES_CHUNKS; i++)
        expect(w, (uint64_t)i * CHUNK, 1);
    store_fake_reset_counters(w->store);
    expect(w, 10 * CHUNK, 1); /* had to make room */
    assert_int_equal(store_fake_calls(w->store, FAKE_ANY), 1);
}

static void test_image_bytes__damage_is_no_bytes(void **state)
{
    struct world *w = *state;
    char key[OBJECT_KEY_MAX];
    uint8_t byte;
    const struct chunk_ref *ref = &w->image.refs[7];
    assert_true(store_fake_flip(w->store, object_key(OBJECT_PACK, &ref->object, key), ref->offset));
    assert_int_equal(image_bytes_read(w->bytes, 7 * CHUNK, 1, &byte), -EBADMSG);
    assert_int_equal(image_bytes_read(w->bytes, 7 * CHUNK, 1, &byte), -EBADMSG);
    expect(w, 8 * CHUNK, 1);
    assert_true(store_fake_flip(w->store, key, ref->offset));
    expect(w, 7 * CHUNK, 1); /* a failure is not kept */
}

struct reader {
    struct world *world;
    pthread_t thread;
    unsigned seed;
};

static void *read_much(void *arg)
{
    struct reader *r = arg;
    unsigned x = r->seed;
    for (unsigned i = 0; i < 400; i++) {
        x = x * 1103515245 + 12345;
        uint64_t address = (uint64_t)(x >> 8) % (UINT64_C(200) * CHUNK);
        uint8_t got[300], want[300];
        if (image_bytes_read(r->world->bytes, address, sizeof got, got))
            abort();
        image_fake_bytes(&r->world->image, address, want, sizeof want);
        if (memcmp(got, want, sizeof got))
            abort();
    }
    return NULL;
}

static void test_image_bytes__threads_share_it(void **state)
{
    struct world *w = *state;
    struct reader readers[6];
    for (unsigned i = 0; i < GR_ARRAY_SIZE(readers); i++) {
        readers[i] = (struct reader){.world = w, .seed = i / 2};
        assert_int_equal(thread_start(&readers[i].thread, read_much, &readers[i]), 0);
    }
    for (unsigned i = 0; i < GR_ARRAY_SIZE(readers); i++)
        pthread_join(readers[i].thread, NULL);
}

#define RUN(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        RUN(test_image_bytes__any_range_is_right),
        RUN(test_image_bytes__neighbours_cost_one_fetch),
        RUN(test_image_bytes__damage_is_no_bytes),
        RUN(test_image_bytes__threads_share_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
