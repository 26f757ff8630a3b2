/* granary bench STORE: the packs of its newest image, or of the image that is named, are read, raw; then the image
 * itself, as a server without a cache reads it: chunk index, ranges joined by the fetch scheduler, decompression,
 * SHA-256.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/interrupt.h"
#include "cli/options.h"
#include "repository/repository.h"
#include "stack_options.h"

enum {
    SMALL = 64 << 10, /* bytes of a ranged get: a chunk */
    READ = 1 << 20    /* bytes of a read of the image */
};

/* ---- the newest image ---- */

struct newest {
    struct image_ref ref; /* no name: there is none yet */
    int64_t created;
};

static int note_newest(void *arg, const char *name, const char *tag, const struct tag *t)
{
    struct newest *n = arg;
    if (*n->ref.name && t->created < n->created)
        return 0; /* of two of one time the later in byte order: "latest" rather than a build tag */
    n->created = t->created;
    snprintf(n->ref.name, sizeof n->ref.name, "%s", name);
    snprintf(n->ref.tag, sizeof n->ref.tag, "%s", tag);
    return 0;
}

/* Find it, and write its reference. -ENOENT: there is no store; -ENODATA: it has no image. */
static int find_newest(const char *text, const struct open_access *access, char out[IMAGE_REF_MAX])
{
    struct newest n = {0};
    CLEANUP(cleanup_store) struct store *store = NULL;
    int rc = open_store(text, access, &n.ref, &store);
    if (!rc)
        rc = repository_tags(store, NULL, note_newest, &n);
    if (!rc && !*n.ref.name)
        return error_set(-ENODATA, "%s has no image to read; build one first: granary build SOURCE %s/NAME", text,
                         text);
    if (!rc)
        image_ref_text(&n.ref, out);
    return rc;
}

/* Find the image to read: the operand itself, if there is no store of that address but an image. A store that cannot be
 * listed (plain HTTP) needs that. */
static int find_image(const char *text, const struct open_access *access, char out[IMAGE_REF_MAX],
                      struct open_image *image)
{
    struct error none;
    error_take(&none, find_newest(text, access, out));
    if (!none.code)
        return open_image(out, access, image);
    if (none.code != -ENOENT)
        return error_restore(&none);
    int rc = open_image(text, access, image);
    if (!rc)
        image_ref_text(&image->ref, out);
    /* what is neither names no store, unless the image's store is there: then its tag is missing */
    return !image->store && (rc == -ENOENT || rc == CLI_USAGE) ? error_restore(&none) : rc;
}

/* ---- what Granary reaches ---- */

/* An image that threads read. */
struct readers {
    struct image *image;
    uint64_t size;
    struct bench_times *times; /* of misses */
};

/* Read the i-th MiB; from the start again when there are no more, since nothing is cached. */
static int read_piece(void *arg, size_t i)
{
    struct readers *r = arg;
    CLEANUP_BUF struct buf *b = buf_new(READ);
    uint64_t off = i % ((r->size + READ - 1) / READ) * READ;
    return b ? image_read(r->image, b->data, off, GR_MIN(r->size - off, (uint64_t)READ)) : error_no_memory();
}

/* Return how many bytes came from the store, decoded. */
static uint64_t fetched(struct image *image)
{
    struct image_traffic t;
    image_traffic(image, &t);
    return t.served.bytes[CACHE_FROM_STORE];
}

/* Read a part of one chunk, all over the image; a hole does not count. */
static int read_miss(void *arg, size_t i)
{
    struct readers *r = arg;
    uint8_t block[4096];
    uint64_t blocks = r->size / sizeof block, before = fetched(r->image), start = clock_now_us();
    if (i >= blocks || r->times->count == BENCH_TIMES_MAX)
        return BENCH_DONE;
    int rc = image_read(r->image, block, i * 7919 % blocks * sizeof block, sizeof block);
    if (!rc && fetched(r->image) > before)
        r->times->us[r->times->count++] = clock_now_us() - start;
    return rc;
}

/* Measure an open stack. *out: bytes a second. */
static int measure_stack(struct stack *s, volatile int *cancel, uint64_t ms, struct bench_times *times, double *out)
{
    CLEANUP(cleanup_stack_export) struct stack_export *e = stack_get(s, "");
    struct readers r = {.image = stack_export_image(e), .times = times};
    r.size = image_manifest(r.image)->size;
    const struct bench_work misses = {.threads = 1, .ms = ms / 3, .item = read_miss, .arg = &r, .cancel = cancel};
    const struct bench_work pieces = {
        .threads = BENCH_LINK_MANY, .ms = ms - ms / 3, .item = read_piece, .arg = &r, .cancel = cancel};
    uint64_t us;
    int rc = bench_run(&misses, &us);
    uint64_t before = fetched(r.image);
    if (!rc)
        rc = bench_run(&pieces, &us);
    *out = bench_rate(fetched(r.image) - before, us);
    return rc;
}

/* Read the image as a server without cache and readahead. */
static int measure_granary(const char *image, const struct open_access *access, uint64_t ms, struct bench_times *times,
                           double *out)
{
    static const char *const settings[][2] = {{"cache", "none"}, {"readahead", "0"}, {"hedge", "0"}};
    volatile int cancel = 0;
    struct stack_options o;
    struct stack *stack = NULL;
    stack_options_init(&o);
    int rc = stack_options_set(&o, "image", image);
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(settings); i++)
        rc = stack_options_set(&o, settings[i][0], settings[i][1]);
    if (!rc && access->endpoint)
        rc = stack_options_set(&o, "endpoint", access->endpoint);
    if (!rc)
        rc = stack_options_complete(&o);
    if (!rc && access->timeout_s)
        o.stack.store.timeout_ms = o.stack.cache.fetch.timeout_ms = access->timeout_s * 1000;
    o.stack.store.cancel = &cancel;
    if (!rc)
        rc = stack_open(&o.stack, &stack);
    if (!rc)
        rc = stack_start_threads(stack);
    if (!rc)
        rc = measure_stack(stack, &cancel, ms, times, out);
    stack_close(stack);
    stack_options_release(&o);
    return rc;
}

/* ---- both ---- */

/* A third of the time for requests, a third for one connection and many, a third for Granary. */
static int measure_all(struct bench_report *r, struct bench_link *l, const struct open_access *access, uint64_t ms)
{
    CLEANUP_FREE struct bench_times *raw = calloc(1, sizeof *raw), *granary = calloc(1, sizeof *granary);
    double one = 0, many = 0, reached = 0;
    if (!raw || !granary)
        return error_no_memory();
    int rc = bench_link_latency(l, SMALL, BENCH_TIMES_MAX, ms / 6, raw);
    if (!rc)
        rc = bench_link_speed(l, 1, ms / 6, UINT64_MAX, &one);
    if (!rc)
        rc = bench_link_speed(l, BENCH_LINK_MANY, ms / 4, UINT64_MAX, &many);
    if (!rc)
        rc = measure_granary(r->image, access, ms * 5 / 12, granary, &reached);
    if (rc)
        return rc;
    bench_add(r, "latency_p50", "one chunk of 64 KiB, median", BENCH_US, bench_percentile(raw, 50),
              bench_percentile(granary, 50));
    bench_add(r, "latency_p99", "one chunk, 99 % within", BENCH_US, bench_percentile(raw, 99),
              bench_percentile(granary, 99));
    bench_add(r, "read_one", "read over one connection", BENCH_BYTES_PER_S, one, BENCH_NONE);
    bench_add(r, "read_many", "read over 16 connections", BENCH_BYTES_PER_S, many, reached);
    bench_note(r, "raw: bytes as they are stored; granary: bytes of files, decompressed and verified, nothing cached");
    return 0;
}

int bench_store(struct bench_report *r, const char *store, const struct open_access *access, uint64_t ms)
{
    CLEANUP_OPEN_IMAGE image = {0};
    struct bench_link link;
    int rc = find_image(store, access, r->image, &image);
    if (!rc)
        rc = bench_link_init(&link, &image);
    if (!rc && !link.count)
        return error_set(-ENODATA, "%s has no data to read: build an image of files that are not empty", r->image);
    return rc ? rc : measure_all(r, &link, access, ms);
}
