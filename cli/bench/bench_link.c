/* The way to a store, by the client that a server uses: ranges of an image's packs are read, over one connection and
 * over many, since a store that is slow over one may be fast over sixteen. Bytes are counted as they arrive, and a get
 * is cut off when its time is over: on a slow link even one range may take longer than the whole measurement.
 */
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/bench/bench.h"
#include "cli/interrupt.h"
#include "format/chunk.h"
#include "repository/read/index_read.h"

enum { RANGE = 4 << 20 /* bytes of a read, for the speed */ };

/* Note the packs of the first chunks, each once. */
static int note_packs(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct bench_link *l = arg;
    for (uint64_t i = 0; chunks && i < count; i++) {
        char key[OBJECT_KEY_MAX];
        if (chunk_is_hole(&chunks[i]))
            continue;
        object_key(chunks[i].kind, &chunks[i].object, key);
        size_t k = 0;
        while (k < l->count && strcmp(l->packs[k].key, key) != 0)
            k++;
        if (k < l->count)
            continue;
        if (l->count == BENCH_PACKS_MAX)
            return BENCH_DONE;
        memcpy(l->packs[l->count++].key, key, sizeof key);
    }
    return 0;
}

int bench_link_init(struct bench_link *out, const struct open_image *image)
{
    const struct index_walk_ops ops = {.chunks = note_packs};
    memset(out, 0, sizeof *out);
    out->store = image->store;
    int rc = index_walk(image->store, &image->manifest, &ops, out);
    if (rc == BENCH_DONE)
        rc = 0;
    for (size_t i = 0; !rc && i < out->count; i++) {
        struct bench_pack *p = &out->packs[i];
        struct store_item item;
        rc = store_stat(image->store, p->key, &item);
        if (!rc && !item.size)
            rc = error_set(-EBADMSG, "%s is empty; granary verify --repair restores it from the source", p->key);
        if (!rc)
            p->size = item.size;
    }
    return rc;
}

/* Return where the i-th range of len bytes begins: one pack after the other, then the next range of each; from the
 * start again when there are no more. *len is cut at the pack's end. */
static uint64_t place_of(const struct bench_link *l, size_t i, uint64_t *len, const char **out_key)
{
    const struct bench_pack *p = &l->packs[i % l->count];
    uint64_t ranges = (p->size + *len - 1) / *len, off = i / l->count % ranges * *len;
    *len = GR_MIN(p->size - off, *len);
    *out_key = p->key;
    return off;
}

static int drop(void *arg, const void *data, size_t len)
{
    return 0;
}

int bench_link_latency(const struct bench_link *l, uint32_t len, size_t most, uint64_t ms, struct bench_times *out)
{
    uint64_t until = clock_now_ms() + ms;
    int rc = 0;
    out->count = 0;
    while (!rc && out->count < GR_MIN(most, (size_t)BENCH_TIMES_MAX) && (!out->count || clock_now_ms() < until)) {
        const char *key;
        uint64_t n = len, off = place_of(l, out->count, &n, &key), start = clock_now_us();
        rc = store_get(l->store, key, off, n, drop, NULL);
        out->us[out->count++] = clock_now_us() - start;
    }
    return rc;
}

static int count_bytes(void *arg, const void *data, size_t len)
{
    struct bench_link *l = arg;
    uint64_t bytes = atomic_fetch_add(&l->bytes, len) + len;
    return bytes >= l->most || interrupt_came() || clock_now_ms() >= l->until_ms ? BENCH_DONE : 0;
}

static int read_range(void *arg, size_t i)
{
    struct bench_link *l = arg;
    const char *key;
    uint64_t len = RANGE, off = place_of(l, i, &len, &key);
    return store_get(l->store, key, off, len, count_bytes, l);
}

int bench_link_speed(struct bench_link *l, unsigned connections, uint64_t ms, uint64_t most, double *out)
{
    const struct bench_work work = {.threads = connections, .ms = ms, .item = read_range, .arg = l};
    uint64_t us;
    l->until_ms = clock_now_ms() + ms;
    l->most = most;
    atomic_store(&l->bytes, 0);
    int rc = bench_run(&work, &us);
    *out = bench_rate(atomic_load(&l->bytes), us);
    return rc;
}
