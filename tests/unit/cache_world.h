/* A cache in a temporary directory over a fake store that holds chunks of chosen lengths, stored plain in one pack,
 * for the tests of the cache.
 */
#ifndef GRANARY_TESTS_UNIT_CACHE_WORLD_H
#define GRANARY_TESTS_UNIT_CACHE_WORLD_H

#include "unit/cmocka_all.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/error.h"
#include "cache/cache_internal.h"
#include "fake/store_fake.h"
#include "unit/counters.h"

enum { WORLD_CHUNKS_MAX = 512, WORLD_PACK_MAX = 256 << 20 };

struct world {
    char dir[64];
    struct store_fake *fake;
    struct store *store;
    struct chunk_ref refs[WORLD_CHUNKS_MAX];
    uint8_t *plain[WORLD_CHUNKS_MAX];
    unsigned count;
    struct cache_config config;
    struct cache *cache;
    _Atomic unsigned readers; /* so far: each gets another seed */
};

#define count_of(w, name) counter_value(cache_counters, (w)->cache, "granary_cache_" name)
#define wait_for(w, name, least) counter_wait(cache_counters, (w)->cache, "granary_cache_" name, least)
#define gets(w) store_fake_calls((w)->fake, FAKE_GET)

static inline uint64_t world_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

/* level 0: random bytes, stored plain; else three quarters repeat and compress. */
static inline void world_add_chunk(struct world *w, struct bytes *pack, uint32_t len, int level)
{
    CLEANUP_BYTES stored = BYTES_INIT(CHUNK_SIZE_MAX);
    unsigned i = w->count++;
    uint64_t seed = 0x9E3779B97F4A7C15u * (i + 1);
    w->plain[i] = malloc(len);
    assert_non_null(w->plain[i]);
    for (uint32_t k = 0; k < len; k += 8) {
        uint64_t eight = level && k >= len / 4 ? i : world_random(&seed);
        memcpy(w->plain[i] + k, &eight, GR_MIN(len - k, (uint32_t)sizeof eight));
    }
    assert_int_equal(chunk_encode(w->plain[i], len, level, &stored, &w->refs[i]), 0);
    w->refs[i].kind = OBJECT_PACK;
    w->refs[i].object = digest_of("pack", 4);
    w->refs[i].offset = (uint32_t)pack->len;
    assert_int_equal(bytes_append(pack, stored.data, stored.len), 0);
}

/* n chunks of lens[i % lens_count] bytes; a cache of budget bytes (0: no directory), not yet open. */
static inline void world_init_level(struct world *w, unsigned n, const uint32_t *lens, size_t lens_count,
                                    uint64_t budget, int level)
{
    CLEANUP_BYTES pack = BYTES_INIT(WORLD_PACK_MAX);
    struct digest name = digest_of("pack", 4);
    char key[OBJECT_KEY_MAX];
    memset(w, 0, sizeof *w);
    strcpy(w->dir, "cache-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    w->fake = store_fake_new();
    w->store = store_fake_store(w->fake);
    for (unsigned i = 0; i < n; i++)
        world_add_chunk(w, &pack, lens[i % lens_count], level);
    store_fake_put(w->fake, object_key(OBJECT_PACK, &name, key), pack.data, pack.len);
    w->config.dir_count = budget > 0;
    w->config.dirs[0].path = w->dir;
    w->config.dirs[0].size = budget;
    w->config.disk_timeout_ms = 60000; /* a machine that is busy for seconds is no disk that hangs */
    w->config.fetch.workers = 4;
    w->config.fill_memory = 256 << 20; /* nothing is dropped, however far behind a busy machine writes */
}

static inline void world_init(struct world *w, unsigned n, const uint32_t *lens, size_t lens_count, uint64_t budget)
{
    world_init_level(w, n, lens, lens_count, budget, 0);
}

/* Every step-th chunk counts as metadata. */
static inline void world_add_metadata(struct world *w, unsigned step)
{
    CLEANUP_BYTES pack = BYTES_INIT(WORLD_PACK_MAX);
    struct digest name = digest_of("pack", 4);
    char key[OBJECT_KEY_MAX];
    assert_true(store_fake_get(w->fake, object_key(OBJECT_PACK, &name, key), &pack));
    store_fake_put(w->fake, object_key(OBJECT_INDEX, &name, key), pack.data, pack.len);
    for (unsigned i = 0; i < w->count; i += step)
        w->refs[i].kind = OBJECT_INDEX;
}

static inline void world_open_hooks(struct world *w, const struct cache_test_hooks *hooks)
{
    assert_int_equal(cache_open_with(&w->config, hooks, &w->cache), 0);
    assert_int_equal(cache_start_threads(w->cache), 0);
}

static inline void world_open_with(struct world *w, bool no_uring)
{
    world_open_hooks(w, &(struct cache_test_hooks){.no_uring = no_uring});
}

static inline void world_open(struct world *w)
{
    world_open_with(w, false);
}

static inline void world_close(struct world *w)
{
    cache_close(w->cache);
    w->cache = NULL;
}

static inline void world_release(struct world *w)
{
    world_close(w);
    store_fake_free(w->fake);
    for (unsigned i = 0; i < w->count; i++)
        free(w->plain[i]);
    char path[128];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", w->dir, (const char *[]){"lock", "data", "records"}[i]);
        unlink(path);
    }
    rmdir(w->dir);
}

static inline struct cache_piece world_piece(struct world *w, unsigned chunk, uint32_t off, uint32_t len, uint8_t *dst)
{
    return (struct cache_piece){.ref = w->refs[chunk], .store = w->store, .offset = off, .len = len, .dst = dst};
}

/* Read one whole chunk and compare. */
static inline void world_expect(struct world *w, unsigned chunk)
{
    uint32_t len = w->refs[chunk].plain_len;
    CLEANUP_FREE uint8_t *got = malloc(len);
    struct cache_piece p = world_piece(w, chunk, 0, len, got);
    if (cache_read(w->cache, &p, 1, NULL, 0, PRIORITY_DEMAND))
        fail_msg("chunk %u: %s", chunk, error_text());
    if (memcmp(got, w->plain[chunk], len) != 0) /* not assert_memory_equal: it prints every byte */
        fail_msg("chunk %u: wrong bytes", chunk);
}

static inline void world_expect_all(struct world *w)
{
    for (unsigned i = 0; i < w->count; i++)
        world_expect(w, i);
}

/* Until what was read is kept, or left out, and no in-flight fetch is left to join: a reader has its bytes before the
 * fill, a fill is counted before its chunk can be read, and the in-flight fetch goes last. */
static inline void world_settle(struct world *w)
{
    counter_wait_zero(cache_counters, w->cache, "granary_fetch_in_flight");
}

/* world_settle, and there was this number of fills. */
static inline void world_settle_fills(struct world *w, uint64_t fills)
{
    world_settle(w);
    assert_int_equal(count_of(w, "fills_total"), fills);
}

/* Every chunk in the cache, at warm priority, and none in flight. */
static inline void world_warm(struct world *w)
{
    struct cache_piece *pieces = calloc(w->count, sizeof *pieces);
    for (unsigned i = 0; i < w->count; i++)
        pieces[i] = world_piece(w, i, 0, 0, NULL);
    if (cache_ensure(w->cache, pieces, w->count, PRIORITY_WARM))
        fail_msg("cache_ensure: %s", error_text());
    free(pieces);
    world_settle(w);
}

static inline bool world_takes_fills(struct world *w)
{
    SCOPED_LOCK(&w->cache->lock);
    for (size_t i = 0; i < w->cache->dir_count; i++)
        if (!w->cache->space.dirs[i].writable)
            return false;
    return true;
}

/* Until no directory is down, which takes a probe, and the space knows of it. */
static inline void world_wait_until_back(struct world *w)
{
    while (count_of(w, "reading_down") + count_of(w, "writing_down") || !world_takes_fills(w))
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

static inline void world_check(struct world *w)
{
    SCOPED_LOCK(&w->cache->lock);
    space_check(&w->cache->space);
}

static inline int world_open_file(struct world *w, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

/* Run body in a child process that ends without a farewell (as by kill -9); its failures fail the test. */
#define world_in_child(body)                                                                                           \
    do {                                                                                                               \
        fflush(NULL);                                                                                                  \
        pid_t pid_ = fork();                                                                                           \
        if (pid_ == 0) {                                                                                               \
            body;                                                                                                      \
            _exit(0);                                                                                                  \
        }                                                                                                              \
        int status_;                                                                                                   \
        assert_int_equal(waitpid(pid_, &status_, 0), pid_);                                                            \
        assert_int_equal(status_, 0);                                                                                  \
    } while (0)

#endif
