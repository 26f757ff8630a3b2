/* Whether an image can be read from its store, and how fast. What is read is read as a server reads it: ranges of
 * packs. The image's own packs are read for a second over one connection, and for a second over many: a store that is
 * slow over one may be fast over sixteen. Nothing is written.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/parallel.h"
#include "base/text.h"
#include "cli/doctor/doctor.h"
#include "cli/output.h"
#include "format/object.h"
#include "repository/read/chunk_read.h"
#include "repository/read/index_read.h"

enum {
    PACKS_MAX = 16,    /* of an image, to read from */
    TRIES = 5,         /* of one byte, for the latency */
    RANGE = 4 << 20,   /* bytes of a read, for the speed */
    MEASURE_MS = 1000, /* how long the speed is measured */
    MANY = 16,         /* connections */
    SLOW_MS = 200,     /* a latency that makes every miss felt */
    DONE = 1           /* ends a walk or the work, without an error */
};

/* Where to read from. */
struct target {
    struct store *store;
    struct pack {
        char key[OBJECT_KEY_MAX];
        uint64_t size;
    } packs[PACKS_MAX];
    size_t count;
    uint64_t until_ms; /* on clock_now_ms */
    _Atomic uint64_t bytes;
};

/* Note the packs of the first chunks, each once. */
static int note_packs(void *arg, uint64_t first, uint64_t count, const struct chunk_ref *chunks)
{
    struct target *t = arg;
    for (uint64_t i = 0; chunks && i < count; i++) {
        char key[OBJECT_KEY_MAX];
        if (chunk_is_hole(&chunks[i]))
            continue;
        object_key(chunks[i].kind, &chunks[i].object, key);
        size_t k = 0;
        while (k < t->count && strcmp(t->packs[k].key, key) != 0)
            k++;
        if (k < t->count)
            continue;
        if (t->count == PACKS_MAX)
            return DONE;
        memcpy(t->packs[t->count++].key, key, sizeof key);
    }
    return 0;
}

static int drop(void *arg, const void *data, size_t len)
{
    return 0;
}

/* Read the i-th range; a pack is read from its start again when there are no more. */
static int read_range(void *arg, size_t i)
{
    struct target *t = arg;
    const struct pack *p = &t->packs[i % t->count];
    if (clock_now_ms() >= t->until_ms)
        return DONE;
    uint64_t ranges = (p->size + RANGE - 1) / RANGE, off = i / t->count % ranges * RANGE;
    uint64_t len = GR_MIN(p->size - off, (uint64_t)RANGE);
    int rc = store_get(t->store, p->key, off, len, drop, NULL);
    if (!rc)
        atomic_fetch_add(&t->bytes, len);
    return rc;
}

/* Measure bytes a second over N connections. */
static int measure_speed(struct target *t, unsigned connections, uint64_t *out)
{
    const struct parallel work = {.count = SIZE_MAX / 2, .threads = connections, .item = read_range, .arg = t};
    uint64_t start = clock_now_ms();
    t->until_ms = start + MEASURE_MS;
    atomic_store(&t->bytes, 0);
    int rc = parallel_run(&work);
    uint64_t took = GR_MAX(clock_now_ms() - start, (uint64_t)1);
    *out = atomic_load(&t->bytes) * 1000 / took;
    return rc == DONE ? 0 : rc;
}

static int compare_times(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

/* Measure the median time of a request for one byte. */
static int measure_latency(const struct target *t, uint64_t *out_us)
{
    uint64_t times[TRIES];
    for (size_t i = 0; i < TRIES; i++) {
        uint64_t start = clock_now_us();
        int rc = store_get(t->store, t->packs[0].key, 0, 1, drop, NULL);
        if (rc)
            return rc;
        times[i] = clock_now_us() - start;
    }
    qsort(times, TRIES, sizeof *times, compare_times);
    *out_us = times[TRIES / 2];
    return 0;
}

/* Find the image's packs and their sizes, and measure. */
static int measure(struct doctor_report *r, struct open_image *image)
{
    struct target t = {.store = image->store};
    const struct index_walk_ops ops = {.chunks = note_packs};
    int rc = index_walk(image->store, &image->manifest, &ops, &t);
    for (size_t i = 0; (!rc || rc == DONE) && i < t.count; i++) {
        struct store_item item;
        rc = store_stat(image->store, t.packs[i].key, &item);
        if (!rc && !item.size)
            rc =
                error_set(-EBADMSG, "%s is empty; granary verify --repair restores it from the source", t.packs[i].key);
        t.packs[i].size = rc ? 0 : item.size;
    }
    if (rc && rc != DONE)
        return rc;
    if (!t.count) /* an image of holes */
        return 0;
    uint64_t us, one, many;
    char by_one[TEXT_SIZE_MAX], by_many[TEXT_SIZE_MAX];
    rc = measure_latency(&t, &us);
    if (rc)
        return rc;
    doctor_add(r, us > SLOW_MS * 1000 ? DOCTOR_WARN : DOCTOR_OK, "store-latency",
               us > SLOW_MS * 1000
                   ? "every miss waits so long: warm images before jobs read them, or use a nearer store"
                   : NULL,
               "a request takes %.1f ms", (double)us / 1000);
    rc = measure_speed(&t, 1, &one);
    if (!rc)
        rc = measure_speed(&t, MANY, &many);
    if (!rc)
        doctor_add(r, DOCTOR_OK, "store-speed", NULL, "%s/s over one connection, %s/s over %d",
                   text_format_size(one, by_one), text_format_size(many, by_many), MANY);
    return rc;
}

/* Read the first chunk of metadata, which verifies it. */
static int read_chunk(const struct open_image *image)
{
    CLEANUP(cleanup_image_bytes) struct image_bytes *bytes = NULL;
    uint8_t block[4096];
    int rc = image_bytes_new(image->store, &image->manifest, &bytes);
    return rc ? rc : image_bytes_read(bytes, image->manifest.metadata_offset, sizeof block, block);
}

void doctor_check_image(struct doctor_report *r, const char *image, const struct open_access *access)
{
    CLEANUP_OPEN_IMAGE opened;
    char digest[PRINT_DIGEST_MAX], size[TEXT_SIZE_MAX];
    int rc = open_image(image, access, &opened);
    if (!rc)
        rc = read_chunk(&opened);
    if (!rc) {
        doctor_add(r, DOCTOR_OK, "image", NULL, "%s is %s, %llu files, %s; one chunk read and verified", image,
                   print_digest(&opened.digest, digest), (unsigned long long)opened.manifest.counts.files,
                   text_format_size(opened.manifest.counts.bytes, size));
        rc = measure(r, &opened);
    }
    if (rc)
        doctor_add(r, DOCTOR_FAIL, "image", NULL, "%s", error_text());
}
