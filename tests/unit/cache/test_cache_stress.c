/* Everything at once: 32 threads read, warm, ask, pin and evict over a cache of two unequal directories, half of what
 * is read, while the store delays, errs and sends damaged bytes, the disk lies, fails, is slow and hangs beyond its
 * deadline, files are damaged and cut, and the cache is closed and opened again,
 * with a memory tier or without, chunks kept plain or compressed, in directories of other
 * sizes, one of them slow or not. Every byte read is compared with the
 * known chunk; with the store well a read is given its bytes, whatever the disks do; the directories never hold more
 * than their budgets. 2 seconds, 3 minutes with GRANARY_FULL; the sanitizers run it too.
 */
#include "unit/cache_world.h"

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "unit/counts.h"
#include "unit/threads.h"

#define K 1024u
static const uint32_t lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7, 256 * K};

enum {
    THREADS = 32,
    CHUNKS = 510, /* 62 MiB of slots, where there are 30 */
    PIECES = 6,
    PIECE_ROOM = (300 + 4) << 10,
    DIRS = 2,
    DISK_TIMEOUT_MS = 100,
    ATTEMPTS = 200, /* joins to in-flight fetches that began when the store was bad */
};
static const uint64_t budgets[] = {16 << 20, 22 << 20, 30 << 20};

struct stress {
    struct world w;
    char dirs[DIRS][80];
    _Atomic uint64_t allowed[DIRS]; /* bytes */
    pthread_rwlock_t open;          /* held while the cache is used; written: it is closed and opened */
    _Atomic unsigned store_phase;   /* odd: the store misbehaves */
    _Atomic bool stop;
    _Atomic unsigned numbers;
    _Atomic uint64_t reads, refused, ensured, evicted, pinned, lives, evictions, moves, bad;
};

/* The disk's moods, for the calls of a ring's thread. */
static _Atomic unsigned disk_fails_permille, disk_hangs_permille;
static _Atomic uint64_t disk_seed = 1;

static uint64_t seed_of(struct stress *s)
{
    return 0x9E3779B97F4A7C15u * (1 + atomic_fetch_add(&s->numbers, 1));
}

/* ---- the disk ---- */

static bool disk_refuses(void)
{
    uint64_t r = atomic_fetch_add(&disk_seed, 1);
    world_random(&r);
    world_random(&r);
    if (r % 1000 < atomic_load(&disk_hangs_permille))
        sleep_ms(3 * DISK_TIMEOUT_MS);
    return (r >> 10) % 1000 < atomic_load(&disk_fails_permille);
}

static ssize_t bad_pread(int fd, void *out, size_t len, off_t off)
{
    if (disk_refuses()) {
        errno = EIO;
        return -1;
    }
    return pread(fd, out, len, off);
}

static ssize_t bad_pwrite(int fd, const void *data, size_t len, off_t off)
{
    if (disk_refuses()) {
        errno = off % 3 ? EIO : ENOSPC;
        return -1;
    }
    return pwrite(fd, data, len, off);
}

/* ---- users ---- */

static struct cache_piece random_piece(struct stress *s, uint64_t *seed, uint8_t *dst, unsigned *out_chunk)
{
    unsigned chunk = (unsigned)(world_random(seed) % CHUNKS);
    if (world_random(seed) % 2)
        chunk %= 40; /* some are wanted more than others: hits, and many at once */
    uint32_t whole = s->w.refs[chunk].plain_len, off = 0, len = whole;
    if (world_random(seed) % 4) {
        off = (uint32_t)(world_random(seed) % whole);
        len = 1 + (uint32_t)(world_random(seed) % GR_MIN(whole - off, 16 * K));
    }
    *out_chunk = chunk;
    return world_piece(&s->w, chunk, off, len, dst);
}

static void read_some(struct stress *s, uint64_t *seed, uint8_t *memory)
{
    struct cache_piece p[PIECES], ahead[4];
    unsigned chunk[PIECES], unused, n = 1 + (unsigned)(world_random(seed) % PIECES);
    for (unsigned i = 0; i < n; i++)
        p[i] = random_piece(s, seed, memory + i * PIECE_ROOM + world_random(seed) % 2, &chunk[i]);
    for (unsigned i = 0; i < GR_ARRAY_SIZE(ahead); i++)
        ahead[i] = random_piece(s, seed, NULL, &unused);
    enum fetch_priority priority = (enum fetch_priority)(world_random(seed) % PRIORITIES);
    unsigned phase = atomic_load(&s->store_phase);
    int rc = -EIO;
    for (int i = 0; rc && i < ATTEMPTS; i++) {
        rc = cache_read(s->w.cache, p, n, ahead, world_random(seed) % 2 ? GR_ARRAY_SIZE(ahead) : 0, priority);
        if (rc && (phase % 2 || atomic_load(&s->store_phase) != phase)) {
            atomic_fetch_add(&s->refused, 1);
            return; /* the store's error */
        }
    }
    must(rc == 0, "the store is well, but: %s", error_text());
    for (unsigned i = 0; i < n; i++)
        must(memcmp(p[i].dst, s->w.plain[chunk[i]] + p[i].offset, p[i].len) == 0,
             "wrong bytes: chunk %u at %u, %u bytes", chunk[i], p[i].offset, p[i].len);
    atomic_fetch_add(&s->reads, 1);
}

static void ensure_some(struct stress *s, uint64_t *seed)
{
    struct cache_piece p[PIECES];
    unsigned unused;
    for (unsigned i = 0; i < PIECES; i++)
        p[i] = random_piece(s, seed, NULL, &unused);
    if (cache_ensure(s->w.cache, p, PIECES, PRIORITY_WARM) == 0) /* else the store's error or the disk's */
        atomic_fetch_add(&s->ensured, 1);
}

static void ask_some(struct stress *s, uint64_t *seed)
{
    struct cache_chunk held[PIECES];
    struct digest digests[PIECES];
    for (unsigned i = 0; i < PIECES; i++)
        digests[i] = s->w.refs[world_random(seed) % CHUNKS].digest;
    cache_query(s->w.cache, digests, PIECES, held);
    for (unsigned i = 0; i < PIECES; i++)
        must(!held[i].cached || held[i].stored_bytes, "a chunk without bytes");
    cache_has(s->w.cache, &digests[0]);
    struct counter_wanted wanted = {.name = "granary_cache_entries"};
    cache_counters(s->w.cache, counter_pick, &wanted);
    must(wanted.found, "no counter");
}

static void evict_some(struct stress *s, uint64_t *seed)
{
    if (cache_evict(s->w.cache, &s->w.refs[world_random(seed) % 40].digest, world_random(seed) % 2) == 0)
        atomic_fetch_add(&s->evicted, 1);
}

/* More are pinned than let go, so that the limit of pins is met, too. */
static void pin_some(struct stress *s, uint64_t *seed)
{
    if (cache_pin(s->w.cache, &s->w.refs[world_random(seed) % CHUNKS].digest, world_random(seed) % 4) == 0)
        atomic_fetch_add(&s->pinned, 1);
}

static void *use(void *arg)
{
    struct stress *s = arg;
    uint64_t seed = seed_of(s);
    uint8_t *memory = aligned_alloc(4096, PIECES * PIECE_ROOM);
    while (!atomic_load(&s->stop)) {
        uint64_t what = world_random(&seed) % 32;
        pthread_rwlock_rdlock(&s->open);
        if (what == 0)
            evict_some(s, &seed);
        else if (what == 1)
            ask_some(s, &seed);
        else if (what == 2)
            pin_some(s, &seed);
        else if (what < 6)
            ensure_some(s, &seed);
        else
            read_some(s, &seed, memory);
        pthread_rwlock_unlock(&s->open);
    }
    free(memory);
    return NULL;
}

/* ---- what goes wrong ---- */

static void *spoil_store(void *arg)
{
    struct stress *s = arg;
    uint64_t seed = seed_of(s);
    while (!atomic_load(&s->stop)) {
        sleep_ms(150);
        atomic_fetch_add(&s->store_phase, 1);
        struct store_fake_fault faults[] = {
            {.op = FAKE_GET, .kind = FAKE_DELAY, .permille = 300, .bytes = 3},
            {.op = FAKE_GET, .kind = FAKE_FAIL, .permille = 100, .code = -EIO},
            {.op = FAKE_GET, .kind = FAKE_FLIP, .permille = 100, .bytes = world_random(&seed) % 5000},
            {.op = FAKE_GET, .kind = FAKE_CUT, .permille = 100, .bytes = 777, .code = -EAGAIN},
        };
        for (size_t i = 0; i < GR_ARRAY_SIZE(faults); i++)
            store_fake_add_fault(s->w.fake, &faults[i]);
        sleep_ms(100);
        store_fake_clear_faults(s->w.fake);
        store_fake_add_fault(s->w.fake, &faults[0]);
        atomic_fetch_add(&s->store_phase, 1);
    }
    return NULL;
}

static int open_in(const struct stress *s, unsigned dir, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", s->dirs[dir], name);
    return open(path, O_RDWR | O_CLOEXEC);
}

/* Bytes overwritten; now and then the end of a file cut off and put back as zeros. */
static void damage_one(struct stress *s, uint64_t *seed)
{
    unsigned dir = (unsigned)(world_random(seed) % DIRS);
    bool data = world_random(seed) % 4;
    const struct cache_geometry *g = &s->w.cache->dirs[dir]->geometry;
    uint64_t size = data ? cache_geometry_data_file_size(g) : cache_geometry_record_file_size(g);
    CLEANUP_FD int fd = open_in(s, dir, data ? "data" : "records");
    uint64_t junk = world_random(seed), at = 4096 + world_random(seed) % (size - 8192);
    must(io_pwrite_full(fd, &junk, sizeof junk, at) == 0, "cannot damage");
    if (world_random(seed) % 64 == 0)
        must(ftruncate(fd, (off_t)at) == 0 && fallocate(fd, 0, 0, (off_t)size) == 0, "cannot cut: %s", strerror(errno));
}

/* Not while the cache is closed and opened: what is put back would have the size of the larger file of before, beyond
 * the budget. */
static void damage(struct stress *s, uint64_t *seed)
{
    pthread_rwlock_rdlock(&s->open);
    damage_one(s, seed);
    pthread_rwlock_unlock(&s->open);
}

static void *spoil_disk(void *arg)
{
    struct stress *s = arg;
    uint64_t seed = seed_of(s);
    while (!atomic_load(&s->stop)) {
        for (int i = 0; i < 20; i++) {
            damage(s, &seed);
            sleep_ms(5);
        }
        uint64_t mood = world_random(&seed) % 4;
        atomic_store(&disk_fails_permille, mood == 1 ? 100 : mood == 2 ? 5 : 0);
        atomic_store(&disk_hangs_permille, mood == 3 ? 5 : 0);
    }
    return NULL;
}

/* Under other options than before, of other sizes too. */
static void open_cache(struct stress *s, uint64_t random)
{
    s->w.config.compressed = random & 1;
    s->w.config.memory = random % 3 ? 0 : 16 << 20;
    s->w.config.dirs[1].hdd = random & 20;
    for (int i = 0; i < DIRS; i++) {
        uint64_t size = budgets[(random >> (8 + 4 * i)) % GR_ARRAY_SIZE(budgets)];
        s->w.config.dirs[i].size = size;
        atomic_store(&s->allowed[i], GR_MAX(size, atomic_load(&s->allowed[i])));
    }
    struct cache_test_hooks hooks = {
        .no_uring = random & 8, .calls = {.pread = bad_pread, .pwrite = bad_pwrite}, .apart_ms = 5};
    must(cache_open_with(&s->w.config, &hooks, &s->w.cache) == 0, "%s", error_text());
    must(cache_start_threads(s->w.cache) == 0, "%s", error_text());
    for (int i = 0; i < DIRS; i++)
        atomic_store(&s->allowed[i], s->w.config.dirs[i].size);
    s->lives++;
}

static void note_counters(struct stress *s)
{
    s->evictions += count_of(&s->w, "evictions_total");
    s->moves += count_of(&s->w, "moves_total");
    s->bad += count_of(&s->w, "crc_errors_total") + count_of(&s->w, "read_errors_total");
}

static void *open_and_close(void *arg)
{
    struct stress *s = arg;
    uint64_t seed = seed_of(s);
    while (!atomic_load(&s->stop)) {
        sleep_ms(400 + world_random(&seed) % 400);
        pthread_rwlock_wrlock(&s->open);
        world_check(&s->w);
        note_counters(s);
        world_close(&s->w);
        open_cache(s, world_random(&seed));
        world_check(&s->w);
        pthread_rwlock_unlock(&s->open);
    }
    return NULL;
}

/* What `du` would say, all the time. */
static void *watch_budget(void *arg)
{
    struct stress *s = arg;
    while (!atomic_load(&s->stop)) {
        for (unsigned i = 0; i < DIRS; i++) {
            static const char *const names[] = {"", "lock", "data", "records"};
            uint64_t lives = atomic_load(&s->lives), bytes = 0, allowed = atomic_load(&s->allowed[i]);
            struct stat st;
            char path[128];
            for (size_t k = 0; k < GR_ARRAY_SIZE(names); k++) {
                snprintf(path, sizeof path, "%s/%s", s->dirs[i], names[k]);
                bytes += stat(path, &st) ? 0 : (uint64_t)st.st_blocks * 512;
            }
            /* Opened under other options meanwhile? It may have more by then, and after another time less again. */
            allowed = GR_MAX(allowed, atomic_load(&s->allowed[i]));
            must(bytes <= allowed || atomic_load(&s->lives) != lives, "%s holds %llu bytes", s->dirs[i],
                 (unsigned long long)bytes);
        }
        sleep_ms(2);
    }
    return NULL;
}

static void start(struct stress *s)
{
    world_init_level(&s->w, CHUNKS, lens, GR_ARRAY_SIZE(lens), budgets[0], 1);
    world_add_metadata(&s->w, 10);
    s->w.config.dir_count = DIRS;
    s->w.config.fill_memory = 4 << 20;
    s->w.config.disk_timeout_ms = DISK_TIMEOUT_MS;
    s->w.config.fetch.queue_max = 64;
    for (int i = 0; i < DIRS; i++) {
        snprintf(s->dirs[i], sizeof s->dirs[i], "%s/%d", s->w.dir, i);
        s->w.config.dirs[i].path = s->dirs[i];
    }
    /* a closer must come in between 32 readers */
    pthread_rwlockattr_t attr;
    pthread_rwlockattr_init(&attr);
    pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    pthread_rwlock_init(&s->open, &attr);
    pthread_rwlockattr_destroy(&attr);
    open_cache(s, 0);
}

static void finish(struct stress *s)
{
    char path[128];
    world_check(&s->w);
    world_expect_all(&s->w);
    world_close(&s->w);
    for (int i = 0; i < DIRS; i++) {
        for (int k = 0; k < 3; k++) {
            snprintf(path, sizeof path, "%s/%s", s->dirs[i], (const char *[]){"lock", "data", "records"}[k]);
            unlink(path);
        }
        rmdir(s->dirs[i]);
    }
    pthread_rwlock_destroy(&s->open);
    world_release(&s->w);
}

static bool everything_happened(const struct stress *s)
{
    return s->reads && s->refused && s->ensured && s->evicted && s->pinned && s->evictions && s->bad && s->lives > 1;
}

static void test_cache_stress__every_byte_is_right_whatever_happens_at_once(void **state)
{
    static void *(*const others[])(void *) = {spoil_store, spoil_disk, open_and_close, watch_budget};
    enum { OTHERS = GR_ARRAY_SIZE(others) };
    static struct stress s;
    pthread_t threads[THREADS + OTHERS];
    log_to(NULL, LOG_LEVEL_ERROR);
    start(&s);
    for (unsigned i = 0; i < THREADS + OTHERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, i < THREADS ? use : others[i - THREADS], &s), 0);
    uint64_t end = clock_now_ms() + full_or(180000, 2000);
    while (clock_now_ms() < end || !everything_happened(&s)) /* ctest's limit ends it */
        sleep_ms(50);
    atomic_store(&s.stop, true);
    for (unsigned i = 0; i < THREADS + OTHERS; i++)
        pthread_join(threads[i], NULL);
    store_fake_clear_faults(s.w.fake);
    atomic_store(&disk_fails_permille, 0);
    atomic_store(&disk_hangs_permille, 0);
    note_counters(&s);
    print_message(
        "%llu calls read right, %llu had the store's error, %llu warmed, %llu evicted by hand, %llu pinned, %llu "
        "evicted to make room, %llu moved, %llu found bad, %llu lives\n",
        (unsigned long long)s.reads, (unsigned long long)s.refused, (unsigned long long)s.ensured,
        (unsigned long long)s.evicted, (unsigned long long)s.pinned, (unsigned long long)s.evictions,
        (unsigned long long)s.moves, (unsigned long long)s.bad, (unsigned long long)s.lives);
    finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_stress__every_byte_is_right_whatever_happens_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
