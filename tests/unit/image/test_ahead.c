/* Completion in the background over a real cache and the fake store: what many scattered reads bring, what few do not,
 * and when nothing is fetched at all. Besides, what page faults take along. */
#include "unit/cmocka_all.h"

#include <errno.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "image/image.h"
#include "image/image_internal.h"
#include "unit/counters.h"
#include "unit/scratch.h"

enum { CHUNK = 64 << 10, CHUNKS = 256, IMAGES = 2, PAGE = 4096, PAGES = CHUNK / PAGE };

struct world {
    struct store_fake *fake;
    struct image_fake img[IMAGES];
    char dir[SCRATCH_MAX];
    struct cache *cache;
    struct ahead *ahead;
    struct image *image[IMAGES];
    unsigned count;
};

#define completed(w, i) counter_value(image_counters, (w)->image[i], "granary_image_completion_bytes_total")

static void world_open(struct world *w, unsigned images, uint64_t cache_size, unsigned threads)
{
    *w = (struct world){.fake = store_fake_new(), .count = images};
    scratch_make(w->dir);
    struct cache_config config = {.fetch = {.workers = 8}, .dir_count = 1, .disk_timeout_ms = 60000};
    config.dirs[0].path = w->dir;
    config.dirs[0].size = cache_size;
    assert_int_equal(cache_open(&config, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    assert_int_equal(ahead_new(threads, &w->ahead), 0);
    for (unsigned i = 0; i < images; i++) {
        w->img[i] = (struct image_fake){
            .seed = 40 + i, .size = (uint64_t)CHUNKS * CHUNK, .chunk_size = CHUNK, .pack_chunks = 100};
        image_fake_put(&w->img[i], w->fake, NULL);
        const struct image_config image = {.cache = w->cache,
                                           .store = store_fake_store(w->fake),
                                           .manifest = &w->img[i].manifest,
                                           .readahead = 1 << 20};
        assert_int_equal(image_open(&image, &w->img[i].digest, &w->image[i]), 0);
        assert_int_equal(ahead_add(w->ahead, w->image[i]), 0);
    }
}

static void world_init(struct world *w, unsigned images, uint64_t cache_size, unsigned threads)
{
    world_open(w, images, cache_size, threads);
    assert_int_equal(ahead_start_threads(w->ahead), 0);
}

static void world_release(struct world *w)
{
    ahead_free(w->ahead);
    for (unsigned i = 0; i < w->count; i++) {
        image_close(w->image[i]);
        image_fake_release(&w->img[i]);
    }
    cache_close(w->cache);
    store_fake_free(w->fake);
    scratch_remove(w->dir);
}

static void read_chunk(struct world *w, unsigned image, uint64_t chunk)
{
    static uint8_t got[CHUNK], want[CHUNK];
    assert_int_equal(image_read(w->image[image], got, chunk * CHUNK, CHUNK), 0);
    image_fake_bytes(&w->img[image], chunk * CHUNK, want, CHUNK);
    assert_memory_equal(got, want, CHUNK);
}

/* n chunks, here and there. */
static void read_some(struct world *w, unsigned image, unsigned n)
{
    for (uint64_t i = 0; i < n; i++)
        read_chunk(w, image, i * 37 % CHUNKS);
}

static void note_read(struct image *img)
{
    img->noted(img->noted_arg, img, 0);
}

/* As somebody who reads on: what nobody has read for seconds is not completed, and this machine may be slow. */
static void wait_until_cached(struct world *w, unsigned image)
{
    uint64_t since = 0;
    for (uint64_t i = 0; i < CHUNKS; i++)
        while (!cache_has(w->cache, &w->img[image].refs[i].digest)) {
            note_read(w->image[image]);
            counter_pause(&since, "the image to be completed");
        }
}

static void test_ahead__a_quarter_read_here_and_there_brings_the_image(void **state)
{
    struct world w;
    world_init(&w, 1, 64 << 20, 8);
    read_some(&w, 0, CHUNKS / 4);
    wait_until_cached(&w, 0);
    /* One each for those that were read; what lay between them came by gets of several, shorter or longer ones, as the
     * reads went. */
    assert_true(store_fake_calls(w.fake, FAKE_GET) < 3 * CHUNKS / 4);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    read_some(&w, 0, CHUNKS);
    world_release(&w);
}

static void test_ahead__a_sample_costs_nothing_and_what_goes_beyond_it_eight_times_as_much(void **state)
{
    struct world w;
    world_init(&w, 1, 64 << 20, 1);
    read_some(&w, 0, CHUNKS / 16);
    assert_int_equal(completed(&w, 0), 0);
    for (uint64_t i = CHUNKS / 16; i < CHUNKS / 16 + 4; i++)
        read_chunk(&w, 0, i * 37 % CHUNKS);
    counter_wait(image_counters, w.image[0], "granary_image_completion_bytes_total", CHUNK);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    assert_in_range(completed(&w, 0), CHUNK, 4 * 8 * CHUNK);
    world_release(&w);
}

static void test_ahead__nothing_is_completed_that_the_cache_cannot_hold(void **state)
{
    struct world w;
    world_init(&w, 1, 16 << 20, 2);
    read_some(&w, 0, CHUNKS);
    assert_int_equal(completed(&w, 0), 0);
    world_release(&w);
}

/* Both fit by themselves, but not together: what the first has is not pushed out for the second. */
static void test_ahead__images_that_do_not_fit_together_get_free_room_alone(void **state)
{
    struct world w;
    world_init(&w, IMAGES, 24 << 20, 2);
    read_some(&w, 0, CHUNKS / 4);
    wait_until_cached(&w, 0);
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_cache_evictions_total"), 0);
    read_some(&w, 1, CHUNKS / 2);
    assert_true(completed(&w, 1) <= 8 << 20);
    assert_true(counter_value(cache_counters, w.cache, "granary_cache_evictions_total") <= CHUNKS / 2);
    world_release(&w);
}

static _Atomic unsigned lines;

static void count_line(enum log_level level, const char *line)
{
    if (strstr(line, "in the background") && strstr(line, "injected fault"))
        atomic_fetch_add(&lines, 1);
}

static void test_ahead__a_store_that_fails_in_the_background_fails_no_reader_and_is_one_line_of_log(void **state)
{
    struct world w;
    uint64_t since = 0, began_ms = clock_now_ms();
    atomic_store(&lines, 0);
    log_to(count_line, LOG_LEVEL_WARNING);
    world_open(&w, 1, 64 << 20, 2);
    read_some(&w, 0, CHUNKS / 4);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    store_fake_set_dead(w.fake, -ECONNREFUSED);
    uint64_t calls = store_fake_calls(w.fake, FAKE_GET);
    assert_int_equal(ahead_start_threads(w.ahead), 0);
    while (!atomic_load(&lines) || store_fake_calls(w.fake, FAKE_GET) < calls + 5) {
        note_read(w.image[0]); /* further units fail too, after their rests */
        counter_pause(&since, "a line of log and further tries");
    }
    for (uint64_t i = 0; i < CHUNKS / 4; i++)
        read_chunk(&w, 0, i * 37 % CHUNKS);
    store_fake_set_dead(w.fake, 0);
    assert_in_range(atomic_load(&lines), 1, 1 + (clock_now_ms() - began_ms) / 30000);
    wait_until_cached(&w, 0); /* after its rest */
    world_release(&w);
    log_to(NULL, LOG_LEVEL_INFO);
}

static void test_ahead__a_bad_chunk_keeps_no_other_from_being_completed(void **state)
{
    struct world w;
    char key[OBJECT_KEY_MAX];
    const unsigned bad = 200;
    log_to(count_line, LOG_LEVEL_ERROR);
    world_init(&w, 1, 64 << 20, 2);
    const struct chunk_ref *ref = &w.img[0].refs[bad];
    assert_true(store_fake_flip(w.fake, object_key(OBJECT_PACK, &ref->object, key), ref->offset + 9));
    for (uint64_t i = 0; i < CHUNKS / 2; i++)
        if (i * 37 % CHUNKS != bad)
            read_chunk(&w, 0, i * 37 % CHUNKS);
    uint64_t since = 0;
    for (uint64_t i = 0; i < CHUNKS; i++)
        while (i != bad && !cache_has(w.cache, &w.img[0].refs[i].digest)) {
            note_read(w.image[0]);
            counter_pause(&since, "all the others");
        }
    /* It was asked for once, and once more, in the first unit that met it alone. */
    assert_int_equal(counter_value(cache_counters, w.cache, "granary_fetch_verify_failures_total"), 2);
    world_release(&w);
    log_to(NULL, LOG_LEVEL_INFO);
}

/* Its thread is in its first unit when it is told to stop. A GET takes so long that it could fetch half of what is
 * missing only if this thread stood still for more than a second. */
static void test_ahead__the_end_waits_for_the_unit_that_was_begun_and_for_no_other(void **state)
{
    enum { MISSING = CHUNKS / 2, GET_MS = 300 };
    struct world w;
    world_open(&w, 1, 64 << 20, 1);
    read_some(&w, 0, CHUNKS - MISSING);
    counter_wait_zero(cache_counters, w.cache, "granary_fetch_in_flight");
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(ahead_start_threads(w.ahead), 0);
    store_fake_wait_held(w.fake, 1);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = GET_MS});
    store_fake_release(w.fake);
    ahead_free(w.ahead);
    w.ahead = NULL;
    assert_in_range(completed(&w, 0), CHUNK, MISSING / 2 * CHUNK);
    world_release(&w);
}

/* Pages [page, page + n) of a chunk, one by one; they may reach into the next one. */
static void fault_in(struct world *w, uint64_t chunk, unsigned page, unsigned n)
{
    for (uint64_t off = chunk * CHUNK + page * PAGE; n--; off += PAGE) {
        uint8_t got[PAGE], want[PAGE];
        assert_int_equal(image_read(w->image[0], got, off, PAGE), 0);
        image_fake_bytes(&w->img[0], off, want, PAGE);
        assert_memory_equal(got, want, PAGE);
    }
}

#define taken_along(w) counter_value(image_counters, (w)->image[0], "granary_image_readahead_bytes_total")

static void test_ahead__who_faults_pages_in_across_chunks_waits_once(void **state)
{
    enum { VALUES = 10 };
    struct world w;
    world_open(&w, 1, 64 << 20, 1);
    fault_in(&w, 0, PAGES - 2, 4); /* from now on it is known */
    unsigned gets = store_fake_calls(w.fake, FAKE_GET);
    for (unsigned i = 1; i <= VALUES; i++)
        fault_in(&w, (uint64_t)i * 20, PAGES - 2, 4);
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET) - gets, VALUES);
    assert_int_equal(taken_along(&w), VALUES * CHUNK);
    assert_int_equal(counter_value(image_counters, w.image[0], "granary_image_ahead_used_bytes_total"), VALUES * CHUNK);
    world_release(&w);
}

/* What was taken along for one who crossed once is three chunks. */
static void test_ahead__who_faults_in_pages_here_and_there_pays_for_no_more(void **state)
{
    struct world w;
    world_open(&w, 1, 64 << 20, 1);
    for (uint64_t i = 1; i < 10; i += 2)
        fault_in(&w, i, 7, 1);
    assert_int_equal(taken_along(&w), 0);
    fault_in(&w, 20, PAGES - 1, 2);
    for (uint64_t i = 40; i < 240; i += 20)
        fault_in(&w, i, 7, 1);
    assert_int_equal(taken_along(&w), 3 * CHUNK);
    world_release(&w);
}

/* Long reads say of themselves how much is wanted. */
static void test_ahead__long_reads_take_no_chunk_along(void **state)
{
    struct world w;
    world_open(&w, 1, 64 << 20, 1);
    fault_in(&w, 0, PAGES - 2, 4);
    for (uint64_t i = 20; i < 240; i += 20)
        read_chunk(&w, 0, i);
    assert_int_equal(taken_along(&w), 0);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ahead__a_quarter_read_here_and_there_brings_the_image),
        cmocka_unit_test(test_ahead__a_sample_costs_nothing_and_what_goes_beyond_it_eight_times_as_much),
        cmocka_unit_test(test_ahead__nothing_is_completed_that_the_cache_cannot_hold),
        cmocka_unit_test(test_ahead__images_that_do_not_fit_together_get_free_room_alone),
        cmocka_unit_test(test_ahead__a_store_that_fails_in_the_background_fails_no_reader_and_is_one_line_of_log),
        cmocka_unit_test(test_ahead__a_bad_chunk_keeps_no_other_from_being_completed),
        cmocka_unit_test(test_ahead__the_end_waits_for_the_unit_that_was_begun_and_for_no_other),
        cmocka_unit_test(test_ahead__who_faults_pages_in_across_chunks_waits_once),
        cmocka_unit_test(test_ahead__who_faults_in_pages_here_and_there_pays_for_no_more),
        cmocka_unit_test(test_ahead__long_reads_take_no_chunk_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
