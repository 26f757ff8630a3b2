/* Checking a cache directory. Threads take slabs from a shared counter. For each slab a thread reads the whole region
 * of records, then the slots with believable records one by one, past the page cache: the bytes on the disk are what
 * counts. A slot is good when each block has the CRC in its record and the whole chunk has its SHA-256.
 *
 * Space that no record describes is not checked: a server never reads it either.
 */
#include "cache/cache_tools.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cancel.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/safe_dir.h"
#include "base/thread.h"
#include "format/chunk.h"

enum { ALIGN = 4096, TELL_EVERY_MS = 100 };

/* The state of one check, shared by its threads. */
struct fsck {
    const char *dir;
    const struct cache_fsck_options *options;
    struct cache_geometry geometry;
    int record_fd, data_fd;
    uint8_t *table; /* the slab table, as read */
    uint64_t bytes_total;
    _Atomic uint64_t bytes_done;
    _Atomic uint32_t next_slab;
    _Atomic bool stop; /* a thread failed, or the caller cancelled */

    pthread_mutex_t lock; /* guards everything below */
    pthread_cond_t ended; /* a thread has ended */
    unsigned running;
    struct error error;
    struct cache_fsck_result result;
};

/* The buffers and results of one thread. */
struct worker {
    struct fsck *f;
    uint8_t *region; /* records of a slab */
    uint8_t *slot;   /* a slot's data, aligned for direct I/O */
    uint8_t *unpacked;
    struct cache_record record;
    struct cache_fsck_result found;
};

/* ---- a slot ---- */

/* Return why the slot is bad, or NULL when it holds what its record says. */
static const char *cache_fsck_judge(struct worker *w, const struct cache_place *place, const uint8_t *bytes)
{
    struct fsck *f = w->f;
    const struct cache_record *r = &w->record;
    uint32_t len = GR_ALIGN_UP(r->stored_len, (uint32_t)ALIGN);
    ssize_t n = io_pread_full(f->data_fd, w->slot, len, cache_place_data_offset(&f->geometry, place));
    if (n < (ssize_t)len)
        return n < 0 ? "its data cannot be read" : "the data file ends before its data";
    if (!cache_meta_blocks_hold(bytes, 0, w->slot, r->stored_len))
        return "its data differs from the checksums in its record";
    const uint8_t *plain = w->slot;
    if (r->flags & RECORD_ZSTD) {
        if (chunk_unpack(w->slot, r->stored_len, w->unpacked, r->plain_len))
            return "its data cannot be decoded";
        plain = w->unpacked;
    }
    struct digest digest = digest_of(plain, r->plain_len);
    return digest_equal(&digest, &r->digest) ? NULL : "its data is not the chunk of that digest";
}

/* Classify one slot as good, empty, stale or bad, and repair a bad one if asked. */
static void check_slot(struct worker *w, const struct cache_place *place, const uint8_t *bytes)
{
    static const uint8_t zeros[CACHE_META_RECORD_HEAD];
    struct fsck *f = w->f;
    w->found.slots++;
    if (!cache_meta_record_decode(&f->geometry, place, bytes, &w->record)) {
        *(memcmp(bytes, zeros, sizeof zeros) == 0 ? &w->found.empty : &w->found.stale) += 1;
        return;
    }
    const char *why = cache_fsck_judge(w, place, bytes);
    if (!why) {
        w->found.good++;
        w->found.pinned += (w->record.flags & RECORD_PINNED) != 0;
        w->found.bytes += w->record.stored_len;
        return;
    }
    struct cache_fsck_bad bad = {.digest = &w->record.digest, .place = place, .why = why};
    /* No server believes a record without its head. */
    bad.repaired = f->options->repair &&
                   !io_pwrite_full(f->record_fd, zeros, sizeof zeros, cache_place_record_offset(&f->geometry, place));
    w->found.bad++;
    w->found.repaired += bad.repaired;
    if (!f->options->bad)
        return;
    SCOPED_LOCK(&f->lock);
    f->options->bad(f->options->arg, &bad);
}

/* ---- a slab ---- */

/* Decode the binding of a slab from the table. false: it is unbound. */
static bool slab_place(const struct fsck *f, uint32_t slab, struct cache_place *out)
{
    *out = (struct cache_place){.slab = slab};
    return cache_meta_slab_decode(&f->geometry, f->table + (size_t)slab * CACHE_META_SLAB_SIZE, out);
}

/* Check all slots of one slab. An error means that its records cannot be read. */
static int check_slab(struct worker *w, struct cache_place place)
{
    struct fsck *f = w->f;
    uint32_t stride = cache_class_record_size(place.class), slots = cache_class_slots(&f->geometry, place.class);
    size_t size = (size_t)slots * stride;
    ssize_t n = io_pread_full(f->record_fd, w->region, size, cache_place_record_offset(&f->geometry, &place));
    if (n < (ssize_t)size)
        return error_set(n < 0 ? (int)n : -EIO, "cache: %s/records: the records of slab %u cannot be read: %s", f->dir,
                         place.slab, n < 0 ? strerror((int)-n) : "the file ends before them");
    for (; place.slot < slots && !atomic_load(&f->stop); place.slot++) {
        check_slot(w, &place, w->region + (size_t)place.slot * stride);
        atomic_fetch_add(&f->bytes_done, f->geometry.slab_size / slots);
    }
    return 0;
}

/* Check slabs until there are none left, one fails, or the check is stopped. */
static int cache_fsck_work(struct worker *w)
{
    struct fsck *f = w->f;
    struct cache_place place;
    int rc = 0;
    for (uint32_t slab; !rc && !atomic_load(&f->stop);) {
        slab = atomic_fetch_add(&f->next_slab, 1);
        if (slab >= f->geometry.slab_count)
            break;
        if (slab_place(f, slab, &place))
            rc = check_slab(w, place);
    }
    return rc;
}

static void add_up(struct cache_fsck_result *sum, const struct cache_fsck_result *part)
{
    sum->slots += part->slots;
    sum->good += part->good;
    sum->empty += part->empty;
    sum->stale += part->stale;
    sum->bad += part->bad;
    sum->repaired += part->repaired;
    sum->pinned += part->pinned;
    sum->bytes += part->bytes;
}

/* A thread of the check: it takes slabs until there are none, then adds its results to the sum. */
static void *run_worker(void *arg)
{
    struct fsck *f = arg;
    CLEANUP_FREE struct worker *w = calloc(1, sizeof *w);
    CLEANUP_FREE uint8_t *region = malloc(CACHE_REGION_MAX);
    CLEANUP_FREE uint8_t *slot = aligned_alloc(ALIGN, cache_class_slot_size(CACHE_CLASSES - 1));
    CLEANUP_FREE uint8_t *unpacked = malloc(CHUNK_SIZE_MAX);
    int rc = !w || !region || !slot || !unpacked ? error_no_memory() : 0;
    if (!rc) {
        *w = (struct worker){.f = f, .region = region, .slot = slot, .unpacked = unpacked};
        rc = cache_fsck_work(w);
    }
    SCOPED_LOCK(&f->lock);
    if (w)
        add_up(&f->result, &w->found);
    if (rc && !f->error.code)
        error_take(&f->error, rc);
    if (rc)
        atomic_store(&f->stop, true);
    f->running--;
    pthread_cond_signal(&f->ended);
    return NULL;
}

/* ---- the directory ---- */

/* Open with O_DIRECT where the filesystem has it. */
static int open_file(const struct fsck *f, int dir_fd, const char *name, int flags, int *out_fd)
{
    int rc = safe_file_open(dir_fd, f->dir, name, flags, out_fd);
    if (rc == -EINVAL && flags & O_DIRECT)
        rc = safe_file_open(dir_fd, f->dir, name, flags & ~O_DIRECT, out_fd);
    return rc ? error_prefix(rc, "cache") : 0;
}

/* Read the header. A header that a server would not believe is an error here, with what the server would do. */
static int read_header(struct fsck *f)
{
    CLEANUP_FREE uint8_t *header = malloc(CACHE_META_HEADER_SIZE);
    if (!header)
        return error_no_memory();
    ssize_t n = io_pread_full(f->record_fd, header, CACHE_META_HEADER_SIZE, 0);
    int rc = n < 0 ? (int)n : cache_meta_header_decode(header, (size_t)n, &f->geometry);
    if (rc == -ENOTSUP)
        return error_set(rc, "cache: %s is of another version; a server of this one would start it empty", f->dir);
    if (rc == -EBADMSG)
        return error_set(rc, "cache: the header of %s/records is damaged; a server would start it empty", f->dir);
    return rc ? error_set(rc, "cache: cannot read %s/records: %s", f->dir, strerror(-rc)) : 0;
}

/* Read the slab table and count the bound slabs, of which the progress is told. */
static int cache_fsck_read_table(struct fsck *f)
{
    size_t size = (size_t)f->geometry.slab_count * CACHE_META_SLAB_SIZE;
    f->table = malloc(size + 1);
    if (!f->table)
        return error_no_memory();
    ssize_t n = io_pread_full(f->record_fd, f->table, size, cache_slab_entry_offset(&f->geometry, 0));
    if (n < (ssize_t)size)
        return error_set(-EIO, "cache: the slab table of %s/records cannot be read: %s", f->dir,
                         n < 0 ? strerror((int)-n) : "the file ends before it does");
    struct cache_place place;
    for (uint32_t i = 0; i < f->geometry.slab_count; i++)
        f->result.bound += slab_place(f, i, &place);
    f->result.slabs = f->geometry.slab_count;
    f->bytes_total = f->result.bound * f->geometry.slab_size;
    return 0;
}

/* Wait for the threads, report progress and look for a cancellation meanwhile. */
static void cache_fsck_watch(struct fsck *f)
{
    const struct cache_fsck_options *o = f->options;
    pthread_mutex_lock(&f->lock);
    for (uint64_t next_ms = clock_now_ms() + TELL_EVERY_MS; f->running; next_ms += TELL_EVERY_MS) {
        const struct timespec until = clock_at_ms(next_ms);
        while (f->running && pthread_cond_timedwait(&f->ended, &f->lock, &until) == 0)
            ;
        if (cancel_asked(o->cancel)) {
            atomic_store(&f->stop, true);
            if (!f->error.code)
                f->error.code = -ECANCELED;
        }
        if (o->progress)
            o->progress(o->arg, atomic_load(&f->bytes_done), f->bytes_total);
    }
    pthread_mutex_unlock(&f->lock);
}

/* Start the threads and wait for them. One thread is enough; none is an error. */
static int cache_fsck_check_all(struct fsck *f)
{
    pthread_t threads[CACHE_FSCK_THREADS_MAX];
    unsigned wanted = f->options->threads ? f->options->threads : CACHE_FSCK_THREADS, count = 0;
    int rc = 0;
    for (; count < GR_MIN(wanted, (unsigned)CACHE_FSCK_THREADS_MAX); count++) {
        pthread_mutex_lock(&f->lock);
        f->running++;
        pthread_mutex_unlock(&f->lock);
        rc = thread_start(&threads[count], run_worker, f);
        if (rc)
            break;
    }
    if (rc) { /* the threads already running will do */
        SCOPED_LOCK(&f->lock);
        f->running--;
    }
    if (!count)
        return error_prefix(rc, "cache");
    cache_fsck_watch(f);
    while (count)
        pthread_join(threads[--count], NULL);
    if (f->error.code == -ECANCELED)
        return error_set(-ECANCELED, "interrupted");
    return f->error.code ? error_restore(&f->error) : 0;
}

static void fsck_release(struct fsck *f)
{
    free(f->table);
    if (f->record_fd >= 0)
        close(f->record_fd);
    if (f->data_fd >= 0)
        close(f->data_fd);
    pthread_cond_destroy(&f->ended);
    pthread_mutex_destroy(&f->lock);
}

int cache_fsck(const char *dir, const struct cache_fsck_options *options, struct cache_fsck_result *out)
{
    CLEANUP_FD int lock = -1;
    CLEANUP(fsck_release)
    struct fsck f = {.dir = dir, .options = options, .record_fd = -1, .data_fd = -1, .lock = PTHREAD_MUTEX_INITIALIZER};
    thread_cond_init(&f.ended);
    CLEANUP_FD int dir_fd = -1;
    int rc = safe_dir_open(dir, 0, &dir_fd);
    rc = rc ? error_prefix(rc, "cache") : cache_lock_take(dir_fd, dir, false, &lock);
    if (!rc)
        rc = open_file(&f, dir_fd, "records", options->repair ? O_RDWR : O_RDONLY, &f.record_fd);
    if (!rc)
        rc = open_file(&f, dir_fd, "data", O_RDONLY | O_DIRECT, &f.data_fd);
    if (!rc)
        rc = read_header(&f);
    if (!rc)
        rc = cache_fsck_read_table(&f);
    if (!rc)
        rc = cache_fsck_check_all(&f);
    *out = f.result;
    return rc;
}
