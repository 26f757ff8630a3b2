/* The log of slow reads: what it says of where the time went, and how many lines it has. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/error.h"
#include "fake/image_fake.h"
#include "image/image.h"
#include "unit/counters.h"

enum { CHUNK = 64 << 10, CHUNKS = 8, DELAY_MS = 30 };

/* The log, which is the process's. */
static struct {
    pthread_mutex_t lock;
    unsigned lines; /* of slow reads */
    char last[1024];
    double queued; /* the most of any line */
    char named[256];
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void hear(enum log_level level, const char *line)
{
    SCOPED_LOCK(&heard.lock);
    if (!strncmp(line, "slow read at ", 13))
        snprintf(heard.named, sizeof heard.named, "%s", line);
    if (strncmp(line, "slow read: ", 11))
        return;
    heard.lines++;
    snprintf(heard.last, sizeof heard.last, "%s", line);
    const char *queue = strstr(line, ", queue ");
    heard.queued = GR_MAX(heard.queued, queue ? strtod(queue + 8, NULL) : 0);
}

struct world {
    struct store_fake *fake;
    struct image_fake img;
    struct cache *cache;
    struct slow_reads slow;
    struct image *image;
};

static void world_init_with(struct world *w, uint64_t slow_us, const struct catalog_entry *entries, size_t count)
{
    *w = (struct world){.fake = store_fake_new(), .img = {.seed = 3, .size = CHUNKS * CHUNK, .chunk_size = CHUNK}};
    w->img.entries = entries;
    w->img.entry_count = count;
    slow_reads_init(&w->slow, slow_us);
    image_fake_put(&w->img, w->fake, NULL);
    w->img.manifest.metadata_offset = (CHUNKS - 1) * CHUNK;
    w->img.manifest.metadata_len = CHUNK;
    const struct cache_config cache = {.fetch = {.workers = 1}};
    assert_int_equal(cache_open(&cache, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
    const struct image_config image = {
        .cache = w->cache, .store = store_fake_store(w->fake), .manifest = &w->img.manifest, .slow = &w->slow};
    assert_int_equal(image_open(&image, &w->img.digest, &w->image), 0);
    heard.lines = 0;
    heard.queued = 0;
    *heard.last = 0;
    *heard.named = 0;
    log_to(hear, LOG_LEVEL_INFO);
}

static void world_init(struct world *w, uint64_t slow_us)
{
    world_init_with(w, slow_us, NULL, 0);
}

static void world_release(struct world *w)
{
    log_to(NULL, LOG_LEVEL_INFO);
    image_close(w->image);
    cache_close(w->cache);
    image_fake_release(&w->img);
    store_fake_free(w->fake);
}

static int read_chunk(struct world *w, unsigned chunk)
{
    CLEANUP_FREE uint8_t *buf = malloc(CHUNK);
    return image_read(w->image, buf, (uint64_t)chunk * CHUNK, CHUNK);
}

/* The seconds after a word of the last line. */
static double seconds_of(const char *word)
{
    const char *at = strstr(heard.last, word);
    assert_non_null(at);
    return strtod(at + strlen(word), NULL);
}

static void test_slow_read__says_which_layer_the_time_went_to_and_for_which_chunk(void **state)
{
    struct world w;
    char hex[DIGEST_HEX_SIZE], key[OBJECT_KEY_MAX];
    world_init(&w, DELAY_MS * 1000);
    store_fake_add_fault(w.fake, &(struct store_fake_fault){.op = FAKE_GET, .kind = FAKE_DELAY, .bytes = DELAY_MS});
    assert_int_equal(read_chunk(&w, 5), 0);
    assert_int_equal(heard.lines, 1);
    assert_true(seconds_of(" took ") >= 2 * DELAY_MS / 1000.0); /* a node of the index, and the chunk */
    assert_true(seconds_of(": index ") >= DELAY_MS / 1000.0);
    assert_true(seconds_of(", store ") >= DELAY_MS / 1000.0);
    assert_non_null(strstr(heard.last, digest_hex(&w.img.digest, hex)));
    assert_non_null(strstr(heard.last, digest_hex(&w.img.refs[5].digest, hex)));
    assert_non_null(strstr(heard.last, object_key(OBJECT_PACK, &w.img.refs[5].object, key)));
    assert_non_null(strstr(heard.last, "asked 1 times, last of fake://store"));
    assert_int_equal(counter_get(&w.slow.total), 1);
    world_release(&w);
}

struct reader {
    struct world *w;
    unsigned chunk;
};

static void *read_one(void *arg)
{
    const struct reader *r = arg;
    assert_int_equal(read_chunk(r->w, r->chunk), 0);
    return NULL;
}

static void test_slow_read__the_wait_for_other_gets_is_not_the_stores(void **state)
{
    struct world w;
    pthread_t first, second;
    world_init(&w, 1);
    assert_int_equal(read_chunk(&w, 0), 0); /* the index is known now */
    store_fake_hold(w.fake, FAKE_GET);
    assert_int_equal(pthread_create(&first, NULL, read_one, &(struct reader){&w, 1}), 0);
    store_fake_wait_held(w.fake, 1);
    assert_int_equal(pthread_create(&second, NULL, read_one, &(struct reader){&w, 7}), 0);
    counter_wait(cache_counters, w.cache, "granary_fetch_queued", 1); /* there is one worker */
    nanosleep(&(struct timespec){.tv_nsec = DELAY_MS * 1000000}, NULL);
    store_fake_release(w.fake);
    pthread_join(first, NULL);
    pthread_join(second, NULL);
    assert_true(heard.queued >= DELAY_MS / 1000.0);
    world_release(&w);
}

static void test_slow_read__those_that_fail_are_told_too(void **state)
{
    struct world w;
    world_init(&w, 1);
    assert_int_equal(read_chunk(&w, 0), 0);
    store_fake_set_dead(w.fake, -ETIMEDOUT);
    assert_int_equal(read_chunk(&w, 6), -ETIMEDOUT);
    assert_non_null(strstr(heard.last, " failed after "));
    struct slow_read kept[SLOW_READS_KEPT];
    assert_int_equal(slow_reads_last(&w.slow, kept), 2);
    assert_true(kept[0].failed && !kept[1].failed);
    assert_non_null(strstr(error_text(), "injected fault")); /* still the read's own sentence */
    world_release(&w);
}

static void test_slow_read__there_is_no_line_where_none_is_slow_and_few_in_a_storm(void **state)
{
    enum { STORM = 1000 };
    for (int on = 0; on <= 1; on++) {
        struct world w;
        world_init(&w, on ? 1 : 0);
        for (unsigned i = 0; i < STORM; i++)
            assert_int_equal(read_chunk(&w, i % CHUNKS), 0);
        assert_int_equal(counter_get(&w.slow.total), on ? STORM : 0);
        assert_in_range(heard.lines, on ? LOG_LIMIT_BURST : 0, on ? STORM / 2 : 0);
        world_release(&w);
    }
}

/* The file that chunk 5 is of, and one before it. */
static const struct catalog_extent extents[] = {{4 * CHUNK, CHUNK}, {5 * CHUNK, CHUNK}};
static const struct catalog_entry entries[] = {
    {.path = "", .mode = S_IFDIR | 0755},
    {.path = "before", .path_len = 6, .mode = S_IFREG | 0644, .size = CHUNK, .extents = &extents[0], .extent_count = 1},
    {.path = "odd\nname",
     .path_len = 8,
     .mode = S_IFREG | 0644,
     .size = CHUNK,
     .extents = &extents[1],
     .extent_count = 1},
};

static void wait_for_name(void)
{
    for (bool named = false; !named;) {
        SCOPED_LOCK(&heard.lock);
        named = *heard.named;
        sched_yield();
    }
}

static void expect_name(unsigned chunk, const char *tail, const char *what)
{
    struct slow_read kept[SLOW_READS_KEPT];
    struct world w = {.fake = NULL};
    struct slow_names *names;
    world_init_with(&w, 1, entries, GR_ARRAY_SIZE(entries));
    assert_int_equal(slow_names_new(&w.slow, &names), 0);
    assert_int_equal(slow_names_start_thread(names), 0);
    assert_int_equal(read_chunk(&w, chunk), 0);
    wait_for_name();
    assert_string_equal(heard.named + strlen(heard.named) - strlen(tail), tail);
    for (*kept->what = 0; !*kept->what;) { /* said first, then noted */
        assert_int_equal(slow_reads_last(&w.slow, kept), 1);
        sched_yield();
    }
    assert_string_equal(kept->what, what);
    assert_int_equal(kept->offset, chunk * CHUNK);
    store_fake_reset_counters(w.fake);
    *heard.named = 0;
    assert_int_equal(read_chunk(&w, 3), 0);
    slow_names_free(names);                                  /* though it rests */
    assert_int_equal(store_fake_calls(w.fake, FAKE_GET), 1); /* the chunk: the catalog is not read again at once */
    assert_string_equal(heard.named, "");
    world_release(&w);
}

static void test_slow_read__a_line_names_the_file(void **state)
{
    expect_name(5, " was of the file odd?name", "odd\nname");
}

static void test_slow_read__or_says_that_it_was_metadata(void **state)
{
    expect_name(CHUNKS - 1, " was of the filesystem's metadata", "the filesystem's metadata");
}

static void test_slow_read__the_last_ones_are_kept(void **state)
{
    struct world w;
    struct slow_read kept[SLOW_READS_KEPT];
    world_init(&w, 1);
    assert_int_equal(slow_reads_last(&w.slow, kept), 0);
    for (unsigned i = 0; i < SLOW_READS_KEPT + 3; i++)
        assert_int_equal(read_chunk(&w, i % CHUNKS), 0);
    assert_int_equal(slow_reads_last(&w.slow, kept), SLOW_READS_KEPT);
    for (unsigned i = 0; i < SLOW_READS_KEPT; i++)
        assert_int_equal(kept[i].offset, (SLOW_READS_KEPT + 2 - i) % CHUNKS * CHUNK);
    assert_false(kept[0].failed);
    assert_true(kept[0].took_us >= kept[0].store_us);
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slow_read__says_which_layer_the_time_went_to_and_for_which_chunk),
        cmocka_unit_test(test_slow_read__the_last_ones_are_kept),
        cmocka_unit_test(test_slow_read__a_line_names_the_file),
        cmocka_unit_test(test_slow_read__or_says_that_it_was_metadata),
        cmocka_unit_test(test_slow_read__the_wait_for_other_gets_is_not_the_stores),
        cmocka_unit_test(test_slow_read__those_that_fail_are_told_too),
        cmocka_unit_test(test_slow_read__there_is_no_line_where_none_is_slow_and_few_in_a_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
