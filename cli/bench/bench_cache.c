/* The cache on a disk, without a network: a store that makes its chunks up fills a real cache, and reads of what it
 * holds are then answered from the disk alone. A chunk is a block of random bytes with its number in front, so that
 * the store's part of the work is a copy.
 *
 * The cache has a fixed name below the directory, and its lock tells one that is at work from one that was killed. So
 * nothing stays for longer than until the next run, even after SIGKILL.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/crc32c.h"
#include "base/error.h"
#include "base/io.h"
#include "base/safe_dir.h"
#include "cache/cache.h"
#include "cache/cache_tools.h"
#include "cli/bench/bench.h"
#include "cli/interrupt.h"

enum {
    LEN = 64 << 10,       /* bytes of a chunk */
    TOGETHER = 16,        /* chunks of a fill and of a large read */
    FILLERS = 4,          /* threads */
    READERS = 16,         /* as many as read the raw disk */
    SHARE_PERCENT = 75,   /* of the cache's size in chunks: the rest is its records and reserve */
    DISK_TIMEOUT_S = 10,  /* a disk that is slow is measured, too */
    RANDOM_AT_ONCE = 256, /* bytes that io_random gives */
};
#define NAME ".granary-bench"

struct bench_world {
    struct store store; /* first: the chunks are made here */
    uint8_t block[LEN];
    struct chunk_ref *chunks;
    size_t count;          /* of chunks */
    _Atomic size_t filled; /* the first of them, which are in the cache */
    struct cache *cache;
    unsigned together; /* chunks of a read */
    uint32_t len;      /* bytes of a piece */
    _Atomic uint64_t ops;
};

/* ---- the store ---- */

static void make_chunk(const struct bench_world *w, uint64_t number, uint8_t out[LEN])
{
    memcpy(out, w->block, LEN);
    memcpy(out, &number, sizeof number);
}

static int made_up_get(struct store *s, const char *key, uint64_t off, uint64_t len, struct request_context *context,
                       store_sink *sink, void *arg)
{
    const struct bench_world *w = (const struct bench_world *)s;
    int rc = 0;
    store_note_try(s, context);
    while (!rc && len) {
        uint8_t chunk[LEN];
        uint64_t in = off % LEN, n = GR_MIN(len, LEN - in);
        make_chunk(w, off / LEN, chunk);
        rc = sink(arg, chunk + in, n);
        off += n;
        len -= n;
    }
    return rc;
}

/* Name the chunks. */
static int init_chunks(struct bench_world *w, size_t count)
{
    static const struct store_ops ops = {.get = made_up_get};
    uint8_t chunk[LEN];
    w->store = (struct store){.ops = &ops, .url = "bench:"};
    w->count = count;
    w->chunks = calloc(count, sizeof *w->chunks);
    if (!w->chunks)
        return error_no_memory();
    for (size_t i = 0; i < LEN; i += RANDOM_AT_ONCE)
        if (io_random(w->block + i, RANDOM_AT_ONCE))
            return error_set(-EIO, "the system has no random bytes");
    for (size_t i = 0; i < count; i++) {
        make_chunk(w, i, chunk);
        w->chunks[i] = (struct chunk_ref){.digest = digest_of(chunk, LEN),
                                          .object = digest_of(NAME, sizeof NAME),
                                          .kind = OBJECT_PACK,
                                          .offset = (uint32_t)(i * LEN),
                                          .stored_len = LEN,
                                          .stored_crc = crc32c(chunk, LEN),
                                          .plain_len = LEN};
    }
    return 0;
}

/* ---- the directory ---- */

/* Remove a cache that no process uses. */
static int remove_cache(const char *path)
{
    static const char *const files[] = {"data", "records", "lock"};
    CLEANUP_FD int fd = -1;
    CLEANUP_FD int lock = -1;
    struct stat st;
    if (lstat(path, &st) && errno == ENOENT)
        return 0;
    int rc = safe_dir_open(path, 0, &fd);
    if (!rc)
        rc = cache_lock_take(fd, path, true, &lock);
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(files); i++)
        if (unlinkat(fd, files[i], 0) && errno != ENOENT)
            rc = error_set(-errno, "cannot remove %s/%s: %s", path, files[i], strerror(errno));
    if (!rc && rmdir(path))
        rc = error_set(-errno, "cannot remove %s: %s", path, strerror(errno));
    return rc;
}

/* ---- fills and reads ---- */

static void choose_pieces(struct bench_world *w, size_t first, unsigned n, uint32_t len, uint8_t *dst,
                          struct cache_piece out[TOGETHER])
{
    for (unsigned i = 0; i < n; i++)
        out[i] = (struct cache_piece){
            .ref = w->chunks[first + i], .store = &w->store, .len = len, .dst = dst ? dst + i * len : NULL};
}

static int fill_some(void *arg, size_t i)
{
    struct bench_world *w = arg;
    struct cache_piece pieces[TOGETHER];
    if ((i + 1) * TOGETHER > w->count)
        return BENCH_DONE;
    choose_pieces(w, i * TOGETHER, TOGETHER, LEN, NULL, pieces);
    int rc = cache_ensure(w->cache, pieces, TOGETHER, PRIORITY_WARM);
    if (!rc)
        atomic_fetch_add(&w->filled, TOGETHER);
    return rc;
}

/* Reads go to all chunks, in an order that looks random; large ones to a group of neighbours. */
static int read_some(void *arg, size_t i)
{
    struct bench_world *w = arg;
    struct cache_piece pieces[TOGETHER];
    CLEANUP_BUF struct buf *b = buf_new((size_t)w->together * w->len);
    size_t groups = atomic_load(&w->filled) / w->together;
    if (!b)
        return error_no_memory();
    choose_pieces(w, bench_scatter(i, groups) * w->together, w->together, w->len, b->data, pieces);
    int rc = cache_read(w->cache, pieces, w->together, NULL, 0, PRIORITY_DEMAND);
    atomic_fetch_add(&w->ops, 1);
    return rc;
}

static int measure_reads(struct bench_world *w, unsigned together, uint32_t len, uint64_t ms, double *out)
{
    const struct bench_work work = {.threads = READERS, .ms = ms, .item = read_some, .arg = w};
    uint64_t us;
    w->together = together;
    w->len = len;
    atomic_store(&w->ops, 0);
    int rc = bench_run(&work, &us);
    *out = bench_rate(atomic_load(&w->ops), us);
    return rc;
}

/* Fill an open cache and read it. */
static int bench_cache_measure(struct bench_world *w, uint64_t ms, struct bench_cache_figures *out)
{
    const struct bench_work filling = {.threads = FILLERS, .ms = ms / 4, .item = fill_some, .arg = w};
    uint64_t us;
    int rc = cache_start_threads(w->cache);
    if (!rc)
        rc = bench_run(&filling, &us);
    if (!rc && !atomic_load(&w->filled))
        rc = error_set(-ETIMEDOUT, "the cache wrote nothing within %u ms: its disk is too slow", (unsigned)(ms / 4));
    if (rc)
        return rc;
    out->fill = bench_rate(atomic_load(&w->filled) * LEN, us);
    rc = measure_reads(w, TOGETHER, LEN, ms / 4, &out->read);
    out->read *= TOGETHER * LEN;
    if (!rc)
        rc = measure_reads(w, 1, 4096, ms / 4, &out->read_4k);
    if (!rc)
        rc = measure_reads(w, 1, LEN, ms / 4, &out->read_64k);
    return rc;
}

int bench_cache(const char *dir, uint64_t size, uint64_t ms, struct bench_cache_figures *out)
{
    CLEANUP_FREE char *path = NULL;
    CLEANUP_FREE struct bench_world *w = calloc(1, sizeof *w);
    if (asprintf(&path, "%s/" NAME, dir) < 0)
        path = NULL;
    if (!w || !path)
        return error_no_memory();
    struct cache_config config = {
        .dirs = {{.path = path, .size = size}}, .dir_count = 1, .disk_timeout_ms = DISK_TIMEOUT_S * 1000};
    int rc = remove_cache(path);
    if (rc)
        return rc;
    rc = init_chunks(w, size / LEN * SHARE_PERCENT / 100);
    if (!rc)
        rc = cache_open(&config, &w->cache);
    if (!rc)
        rc = bench_cache_measure(w, ms, out);
    struct error failed;
    error_take(&failed, rc);
    cache_close(w->cache);
    free(w->chunks);
    int removed = remove_cache(path);
    return rc ? error_restore(&failed) : removed;
}
