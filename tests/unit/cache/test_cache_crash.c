/* Power losses at the level of blocks. A small cache of two directories fills (plain or compressed), evicts, pins,
 * binds slabs anew, is damaged, heals, is resized and started again, while every change of its files is recorded
 * (crash_disk.h). What little is synced (when resizing) is not counted on: a crash may leave any of the versions each
 * sector ever had. Made from the record, and opened:
 *
 *   - every tenth prefix of the writes (all with GRANARY_FULL), which is also kill -9 at that moment, as it is and with
 *     the next write torn: some sectors of it, or up to a byte (sanitizers: every 21st or less);
 *   - random subsets of the next writes on top of a prefix, reordered, whole or torn, and random subsets of all writes
 *     there ever were: as many as there is time for (GRANARY_FULL: minutes; GRANARY_SEED=N: others).
 *
 * What must hold in each: the cache opens; its state table holds; every chunk it says it has is read right to the byte
 * with the store dead, or is that store's error (a miss); and, now and then, with the store alive a quarter of all
 * chunks is read right, and what was kept by that is right after the next start.
 *
 * Every write is a pwrite (ring.h), also where io_uring reads.
 */
#include "unit/cache_world.h"
#include "unit/counts.h"
#include "unit/crash_disk.h"

#include "base/clock.h"
#include "base/log.h"

#define K 1024u
static const uint32_t lens[] = {4096, 8000, 700, 40 * K, 8192, 1, 3000, 7 * K, 4096, 300 * K, 5000, 2048, 64 * K};

enum { CHUNKS = 390, BUDGET = 16 << 20, OTHER_BUDGET = 20 << 20, WINDOW_MAX = 128, ALIVE_EVERY = 41 };

#if defined(__SANITIZE_THREAD__) /* a tenth of the speed */
enum { PREFIX_STEP = 31, TORN_STEP = 31, RANDOM_MS = 2000 };
#elif defined(__SANITIZE_ADDRESS__)
enum { PREFIX_STEP = 7, TORN_STEP = 7, RANDOM_MS = 3000 };
#else
enum { PREFIX_STEP = 1, TORN_STEP = 3, RANDOM_MS = 5000 };
#endif

struct crash {
    struct world w;
    VEC(uint64_t) budgets; /* in force when event i was recorded */
    uint8_t *got;
    uint64_t seed;
    uint64_t evictions, crc_errors; /* of the history */
    uint64_t states, hits, misses;  /* so far */
};

/* ---- the history ---- */

static void note_budgets(struct crash *c)
{
    while (c->budgets.len < the_disk.events.len)
        assert_int_equal(vec_push(&c->budgets, c->w.config.dirs[0].size), 0);
}

static void open_cache(struct crash *c, uint64_t budget)
{
    for (int i = 0; i < DISK_DIRS; i++)
        c->w.config.dirs[i].size = budget;
    const struct cache_test_hooks hooks = {.apart_ms = 1};
    if (cache_open_with(&c->w.config, &hooks, &c->w.cache))
        fail_msg("the cache does not open: %s", error_text());
    assert_int_equal(c->w.cache->dir_count, DISK_DIRS);
    assert_int_equal(cache_start_threads(c->w.cache), 0);
}

static void close_cache(struct crash *c)
{
    c->evictions += count_of(&c->w, "evictions_total");
    c->crc_errors += count_of(&c->w, "crc_errors_total");
    world_close(&c->w);
    note_budgets(c);
}

static void start_again(struct crash *c, uint64_t budget, bool compressed)
{
    close_cache(c);
    c->w.config.compressed = compressed;
    open_cache(c, budget);
    note_budgets(c);
}

/* n chunks one after the other, of every step-th of the lengths. */
static void fill_some(struct crash *c, unsigned n, unsigned first, unsigned step)
{
    for (unsigned i = 0; i < n; i++) {
        unsigned chunk = (first + step * (unsigned)(world_random(&c->seed) % (CHUNKS / step))) % CHUNKS;
        struct cache_piece p = world_piece(&c->w, chunk, 0, 0, NULL);
        assert_int_equal(cache_ensure(c->w.cache, &p, 1, PRIORITY_WARM), 0);
        world_settle(&c->w);
    }
}

static void evict_some(struct crash *c)
{
    unsigned evicted = 0;
    for (unsigned i = 0; i < CHUNKS; i += 5)
        evicted += cache_evict(c->w.cache, &c->w.refs[i].digest, true) == 0;
    assert_true(evicted > 10);
}

/* What is cached of every third is pinned, or let go. */
static void pin_some(struct crash *c, bool on)
{
    unsigned done = 0;
    for (unsigned i = 0; i < CHUNKS; i += 3)
        done += cache_pin(c->w.cache, &c->w.refs[i].digest, on) == 0;
    assert_true(done > 0);
}

/* What is on the slow directory is read until some of it has moved up. */
static void move_some(struct crash *c)
{
    for (int i = 0; i < 100 && count_of(&c->w, "moves_total") < 10; i++)
        for (unsigned k = 0; k < CHUNKS; k++)
            if (cache_has(c->w.cache, &c->w.refs[k].digest))
                world_expect(&c->w, k);
    assert_true(count_of(&c->w, "moves_total") > 0);
}

/* Bytes are overwritten in data and, fewer, among the records; then much is read. */
static void damage_some(struct crash *c)
{
    for (unsigned i = 0; i < 80; i++) {
        uint64_t junk = world_random(&c->seed), at = world_random(&c->seed);
        unsigned file = i % DISK_FILES;
        uint64_t size = disk_size(file);
        at = file % 2 ? 8192 + at % (size - 8192 - sizeof junk) : at % (size / 2);
        if (file % 2 == 0 || i < 16)
            assert_int_equal(pwrite(the_disk.fds[file], &junk, sizeof junk, (off_t)at), sizeof junk);
    }
    for (unsigned i = 0; i < CHUNKS; i += 2) {
        world_expect(&c->w, i);
        world_settle(&c->w);
    }
}

static void make_history(struct crash *c)
{
    the_disk.mode = DISK_RECORD;
    open_cache(c, BUDGET);
    fill_some(c, 60, 0, 1);
    fill_some(c, 60, 3, GR_ARRAY_SIZE(lens)); /* one length: slabs are bound to it */
    fill_some(c, 60, 9, GR_ARRAY_SIZE(lens));
    fill_some(c, 60, 1, 1);
    damage_some(c);
    start_again(c, BUDGET, true);
    fill_some(c, 60, 0, 1);
    evict_some(c);
    pin_some(c, true);
    fill_some(c, 30, 0, 1);
    start_again(c, OTHER_BUDGET, false);
    fill_some(c, 60, 0, 1);
    c->w.config.dirs[1].hdd = true;
    start_again(c, BUDGET, false);
    fill_some(c, 30, 0, 1);
    pin_some(c, false);
    evict_some(c);
    move_some(c);
    c->w.config.dirs[1].hdd = false;
    fill_some(c, 30, 0, 1);
    damage_some(c);
    close_cache(c);
    assert_true(c->evictions > 0 && c->crc_errors > 0);
    assert_true(disk_is_complete());
    the_disk.mode = DISK_REPLAY;
}

/* ---- one state of the disk ---- */

/* With the store dead: right, or a miss. */
static void read_what_it_has(struct crash *c)
{
    struct cache_piece pieces[CHUNKS];
    struct digest digests[CHUNKS];
    struct cache_chunk held[CHUNKS];
    unsigned n = 0;
    uint8_t *at = c->got;
    for (unsigned i = 0; i < CHUNKS; i++)
        digests[i] = c->w.refs[i].digest;
    cache_query(c->w.cache, digests, CHUNKS, held);
    for (unsigned i = 0; i < CHUNKS; i++)
        if (held[i].cached) {
            pieces[n++] = world_piece(&c->w, i, 0, c->w.refs[i].plain_len, at);
            at += c->w.refs[i].plain_len;
        }
    bool all = cache_read(c->w.cache, pieces, n, NULL, 0, PRIORITY_DEMAND) == 0;
    for (unsigned k = 0; k < n; k++) {
        unsigned i = 0;
        while (!digest_equal(&c->w.refs[i].digest, &pieces[k].ref.digest))
            i++;
        if (!all && cache_read(c->w.cache, &pieces[k], 1, NULL, 0, PRIORITY_DEMAND)) {
            c->misses++;
            continue;
        }
        if (memcmp(pieces[k].dst, c->w.plain[i], pieces[k].len) != 0)
            fail_msg("state %llu: wrong bytes of chunk %u", (unsigned long long)c->states, i);
        c->hits++;
    }
}

static void check_state(struct crash *c, uint64_t budget)
{
    bool alive = ++c->states % ALIVE_EVERY == 0;
    if (alive) {
        open_cache(c, budget);
        for (unsigned i = (unsigned)c->states % 4; i < CHUNKS; i += 4)
            world_expect(&c->w, i);
        world_check(&c->w);
        world_close(&c->w);
    }
    store_fake_set_dead(c->w.fake, -EIO);
    open_cache(c, budget);
    world_check(&c->w);
    read_what_it_has(c);
    world_check(&c->w);
    world_close(&c->w);
    store_fake_set_dead(c->w.fake, 0);
    disk_restore();
}

/* ---- many ---- */

static void try_prefixes(struct crash *c)
{
    const size_t step = full_or(PREFIX_STEP, 10 * PREFIX_STEP), torn_step = full_or(PREFIX_STEP, 4 * TORN_STEP);
    disk_rewind();
    for (size_t i = 0; i < the_disk.events.len; i++) {
        const struct disk_event *e = &the_disk.events.items[i];
        uint64_t budget = c->budgets.items[i];
        if (i % step == 0)
            check_state(c, budget);
        if (i % torn_step == 0) {
            disk_apply_torn(e, (enum tear)(i % TEARS), world_random(&c->seed));
            check_state(c, budget);
        }
        disk_apply(e, true);
    }
    check_state(c, BUDGET);
}

/* Some of events [from, to), in any order, some of them torn. */
static void apply_some(struct crash *c, size_t from, size_t to)
{
    size_t n = to - from, *order = calloc(n, sizeof *order);
    uint64_t r = world_random(&c->seed);
    unsigned lost = (const unsigned[]){0, 10, 50, 90}[r % 4], torn = (const unsigned[]){0, 10, 50, 100}[r >> 8 & 3];
    for (size_t i = 0; i < n; i++) {
        size_t k = r >> 16 & 1 ? world_random(&c->seed) % (i + 1) : i;
        order[i] = order[k];
        order[k] = from + i;
    }
    for (size_t i = 0; i < n; i++) {
        const struct disk_event *e = &the_disk.events.items[order[i]];
        r = world_random(&c->seed);
        if (r % 100 < lost)
            continue;
        if ((r >> 8) % 100 < torn)
            disk_apply_torn(e, (enum tear)((r >> 16) % TEARS), r >> 20);
        else
            disk_apply(e, false);
    }
    free(order);
}

static void try_random(struct crash *c, uint64_t until_ms)
{
    size_t n = the_disk.events.len;
    while (clock_now_ms() < until_ms) {
        disk_rewind();
        apply_some(c, 0, n);
        check_state(c, BUDGET);
        for (size_t i = 0; i < n && clock_now_ms() < until_ms; i++) {
            if (world_random(&c->seed) % 32 == 0) {
                uint64_t r = world_random(&c->seed);
                size_t window = 1 + (r >> 8) % WINDOW_MAX, to = GR_MIN(n, i + window);
                apply_some(c, i, to);
                check_state(c, r % 4 ? c->budgets.items[to - 1] : OTHER_BUDGET);
            }
            disk_apply(&the_disk.events.items[i], true);
        }
    }
}

static void test_cache_crash__whatever_a_power_loss_leaves_is_right_or_a_miss(void **state)
{
    CLEANUP_FREE struct crash *c = calloc(1, sizeof *c);
    const char *seed = getenv("GRANARY_SEED");
    log_to(NULL, LOG_LEVEL_ERROR); /* every state is damaged, and says so */
    disk_init();
    world_init_level(&c->w, CHUNKS, lens, GR_ARRAY_SIZE(lens), BUDGET, 1);
    world_add_metadata(&c->w, 7);
    c->w.config.dir_count = DISK_DIRS;
    for (int i = 0; i < DISK_DIRS; i++)
        c->w.config.dirs[i].path = the_disk.dirs[i];
    c->w.config.fetch.workers = 1;
    c->got = malloc((size_t)CHUNKS * 300 * K);
    c->seed = 1;
    make_history(c);
    c->seed = seed ? strtoull(seed, NULL, 10) : 1;
    uint64_t start = clock_now_ms();
    try_prefixes(c);
    uint64_t prefixes = c->states, after_prefixes = clock_now_ms();
    try_random(c, after_prefixes + full_or(40 * RANDOM_MS, RANDOM_MS / 2));
    print_message("%zu writes; %llu states of prefixes in %llu ms, %llu random ones; %llu reads right, %llu misses\n",
                  the_disk.events.len, (unsigned long long)prefixes, (unsigned long long)(after_prefixes - start),
                  (unsigned long long)(c->states - prefixes), (unsigned long long)c->hits,
                  (unsigned long long)c->misses);
    assert_true(c->hits > c->states && c->misses > 0); /* it was a test of something */
    vec_release(&c->budgets);
    free(c->got);
    world_release(&c->w);
}

static int remove_disk(void **state)
{
    disk_release();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_cache_crash__whatever_a_power_loss_leaves_is_right_or_a_miss, remove_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
