/* A directory in use: loading, filling, its health. (cache_dir_open.c creates and opens the files.)
 *
 *    fill:   [slab's table entry] -> [old record blanked] -> data (O_DIRECT) -> new record
 *             if newly bound          if there may be one
 *
 * Nothing is ever synced, so after a power loss any subset of these writes may be on the disk, in any order. That is
 * why a record carries the CRC of each block it describes. A record over bytes it was not made for (an old record
 * over new data, a new record over old data, torn data) is caught by the first read of that block, which becomes a
 * miss. A record over exactly its bytes is right, whichever fill wrote them. Blanking the old record first only makes
 * such misses rare.
 */
#include "cache/disk/cache_dir.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"

enum { AHEAD_SLABS = 32 /* records of this many slabs are prefetched while loading */ };

void cache_dir_close(struct cache_dir *d)
{
    if (!d)
        return;
    if (d->record_fd >= 0)
        close(d->record_fd);
    if (d->data_fd >= 0)
        close(d->data_fd);
    if (d->lock_fd >= 0)
        close(d->lock_fd);
    pthread_mutex_destroy(&d->health_lock);
    free(d->yielded);
    free(d->path);
    free(d);
}

/* ---- loading ---- */

/* What the loading thread owns, so that it can be left behind when its disk does not answer. */
struct loader {
    int fd; /* its own descriptor of the record file, which may be closed while it hangs */
    struct io_thread *thread;
    struct io_op op;
    bool hangs;
    uint8_t *table, *region;
};

static void loader_free(void *arg)
{
    struct loader *l = arg;
    if (l->fd >= 0)
        close(l->fd);
    free(l->table);
    free(l->region);
    free(l);
}

/* Free the loader, or leave it to its thread if that hangs. */
static void loader_end(struct loader *l)
{
    if (l->hangs) {
        io_thread_orphan(l->thread, loader_free, l);
        return;
    }
    io_thread_free(l->thread);
    loader_free(l);
}
DEFINE_CLEANUP(loader, struct loader *, loader_end)

/* Make a loader with buffers for the slab table and for the largest region of records. NULL: out of memory or
 * threads. */
static struct loader *loader_new(const struct cache_dir *d, const struct io_calls *calls)
{
    struct loader *l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->table = calloc(d->geometry.slab_count + (size_t)1, CACHE_META_SLAB_SIZE);
    l->region = malloc(CACHE_REGION_MAX);
    l->fd = fcntl(d->record_fd, F_DUPFD_CLOEXEC, 0);
    if (l->fd >= 0 && l->table && l->region && io_thread_new(calls, &l->thread) == 0)
        return l;
    loader_free(l);
    return NULL;
}

/* Read from the record file, within a time. -errno of the disk; -ETIMEDOUT: it hangs. */
static int load_bytes(struct loader *l, uint8_t *out, size_t len, uint64_t off, uint32_t timeout_ms)
{
    size_t at;
    l->op = (struct io_op){.fd = l->fd, .off = off, .len = (uint32_t)len, .data = out};
    l->hangs = !io_thread_run(l->thread, &l->op, 1, clock_now_ms() + timeout_ms, &at);
    return l->hangs ? -ETIMEDOUT : l->op.rc;
}

/* Read the records of one bound slab into the space. -ENOMEM. */
static int load_records(struct cache_dir *d, unsigned number, struct loader *l, struct cache_load *load,
                        struct cache_place place)
{
    uint32_t stride = cache_class_record_size(place.class);
    uint32_t slots = cache_class_slots(&d->geometry, place.class);
    place.slot = 0;
    if (load_bytes(l, l->region, (size_t)slots * stride, cache_place_record_offset(&d->geometry, &place),
                   load->timeout_ms))
        return 0; /* its chunks are misses */
    int rc = space_load_slab(load->space, number, &place);
    struct cache_record record;
    for (; !rc && place.slot < slots; place.slot++)
        if (cache_meta_record_decode(&d->geometry, &place, l->region + (size_t)place.slot * stride, &record))
            rc = space_load_slot(load->space, &load->slots, number, &place, &record);
    return rc;
}

/* Have the kernel prefetch the records of a slab, if it is bound. */
static void cache_dir_read_ahead(const struct cache_dir *d, const uint8_t *table, uint32_t slab)
{
    struct cache_place place = {.slab = slab};
    if (slab < d->geometry.slab_count &&
        cache_meta_slab_decode(&d->geometry, table + (size_t)slab * CACHE_META_SLAB_SIZE, &place))
        (void)posix_fadvise(d->record_fd, (off_t)cache_place_record_offset(&d->geometry, &place),
                            (off_t)cache_class_slots(&d->geometry, place.class) * cache_class_record_size(place.class),
                            POSIX_FADV_WILLNEED);
}

/* Load every bound slab that has its room on disk, until the disk hangs. */
static int load_slabs(struct cache_dir *d, unsigned number, struct loader *l, struct cache_load *load)
{
    int rc = 0;
    for (uint32_t i = 0; i < AHEAD_SLABS; i++)
        cache_dir_read_ahead(d, l->table, i);
    for (uint32_t i = 0; !rc && !l->hangs && i < d->geometry.slab_count; i++) {
        struct cache_place place = {.slab = i};
        cache_dir_read_ahead(d, l->table, i + AHEAD_SLABS);
        if (!(d->yielded && d->yielded[i]) &&
            cache_meta_slab_decode(&d->geometry, l->table + (size_t)i * CACHE_META_SLAB_SIZE, &place))
            rc = load_records(d, number, l, load, place);
    }
    return rc;
}

int cache_dir_load(struct cache_dir *d, unsigned number, struct cache_load *load)
{
    CLEANUP(cleanup_loader) struct loader *l = loader_new(d, load->calls);
    if (!l)
        return error_no_memory();
    for (uint32_t i = 0; d->yielded && i < d->geometry.slab_count; i++)
        if (d->yielded[i])
            space_load_yielded(load->space, number, i);
    size_t table_size = (size_t)d->geometry.slab_count * CACHE_META_SLAB_SIZE;
    int read = load_bytes(l, l->table, table_size, cache_slab_entry_offset(&d->geometry, 0), load->timeout_ms);
    int rc = read ? 0 : load_slabs(d, number, l, load);
    if (read || l->hangs)
        cache_dir_note(d, CACHE_READING, l->hangs ? -ETIMEDOUT : read);
    return rc;
}

/* ---- filling ---- */

/* Offsets in the bounce buffer: slab entries, a blank record's head, records. */
enum { ENTRIES_AT = 0, BLANK_AT = 512, RECORDS_AT = 4096 };
static_assert(CACHE_FILLS_MAX * CACHE_META_SLAB_SIZE <= BLANK_AT &&
                  RECORDS_AT + CACHE_FILLS_MAX * CACHE_RECORD_MAX <= RING_BOUNCE &&
                  2 * CACHE_FILLS_MAX <= RING_WRITES_MAX,
              "what belongs to the chunks of a call fits");

/* Announce slabs that are bound anew, and blank the records of slots that had another chunk. */
static int write_heads(const struct cache_dir *d, struct ring *ring, const struct cache_fill *fills, size_t n,
                       uint64_t deadline_ms)
{
    uint8_t *entries = ring_bounce(ring) + ENTRIES_AT, *blank = ring_bounce(ring) + BLANK_AT;
    struct ring_write writes[RING_WRITES_MAX];
    size_t count = 0;
    memset(blank, 0, CACHE_META_RECORD_HEAD);
    for (size_t i = 0; i < n; i++) {
        const struct space_slot *slot = fills[i].slot;
        unsigned file = cache_record_file(slot->dir);
        uint8_t *entry = entries + i * CACHE_META_SLAB_SIZE;
        if (slot->slab_bound) {
            cache_meta_slab_encode(&d->geometry, &slot->place, entry);
            writes[count++] = (struct ring_write){file, cache_slab_entry_offset(&d->geometry, slot->place.slab),
                                                  CACHE_META_SLAB_SIZE, entry};
        }
        if (slot->recorded)
            writes[count++] = (struct ring_write){file, cache_place_record_offset(&d->geometry, &slot->place),
                                                  CACHE_META_RECORD_HEAD, blank};
    }
    return ring_write_all(ring, writes, count, deadline_ms);
}

/* Write up to `cap`, which is whole 4 KiB as O_DIRECT requires; the bytes after the chunk are zero. */
static void write_data(const struct cache_dir *d, struct ring *ring, struct cache_fill *fills, size_t n,
                       uint64_t deadline_ms)
{
    struct ring_write writes[CACHE_FILLS_MAX] = {0};
    struct buf *held[CACHE_FILLS_MAX] = {NULL};
    int rc[CACHE_FILLS_MAX];
    for (size_t i = 0; i < n; i++) {
        const struct space_slot *slot = fills[i].slot;
        writes[i] = (struct ring_write){cache_data_file(slot->dir), cache_place_data_offset(&d->geometry, &slot->place),
                                        (uint32_t)fills[i].stored->cap, fills[i].stored->data};
        held[i] = fills[i].stored;
    }
    ring_write_each(ring, writes, held, n, rc, deadline_ms);
    for (size_t i = 0; i < n; i++)
        fills[i].rc = rc[i];
}

/* Write the records of the chunks whose data are written. */
static int write_records(const struct cache_dir *d, struct ring *ring, const struct cache_fill *fills, size_t n,
                         uint64_t deadline_ms)
{
    uint8_t *bytes = ring_bounce(ring) + RECORDS_AT;
    struct ring_write writes[CACHE_FILLS_MAX];
    size_t count = 0;
    for (size_t i = 0; i < n; i++, bytes += CACHE_RECORD_MAX) {
        const struct space_slot *slot = fills[i].slot;
        const struct cache_record record = {
            .digest = *fills[i].digest,
            .seq = slot->seq,
            .plain_len = slot->plain_len,
            .stored_len = slot->stored_len,
            .flags = space_record_flags(slot->flags),
            .owner = slot->owner,
        };
        if (fills[i].rc)
            continue;
        assert(fills[i].stored->len == slot->stored_len);
        cache_meta_record_encode(&d->geometry, &slot->place, &record, fills[i].stored->data, bytes);
        writes[count++] =
            (struct ring_write){cache_record_file(slot->dir), cache_place_record_offset(&d->geometry, &slot->place),
                                cache_class_record_size(slot->place.class), bytes};
    }
    return ring_write_all(ring, writes, count, deadline_ms);
}

/* Give those a result that have none. */
static void fail_rest(struct cache_fill *fills, size_t n, int rc)
{
    for (size_t i = 0; i < n; i++)
        fills[i].rc = fills[i].rc ? fills[i].rc : rc;
}

/* A ring that was lost writes nothing more. */
static bool is_late(const struct cache_fill *fills, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (fills[i].rc == -ETIMEDOUT)
            return true;
    return false;
}

void cache_dir_fill(const struct cache_dir *d, struct ring *ring, struct cache_fill *fills, size_t n,
                    uint64_t deadline_ms)
{
    assert(n <= CACHE_FILLS_MAX);
    int rc = write_heads(d, ring, fills, n, deadline_ms);
    for (size_t i = 0; i < n; i++)
        fills[i].rc = rc;
    if (rc)
        return;
    write_data(d, ring, fills, n, deadline_ms);
    fail_rest(fills, n, is_late(fills, n) ? -ETIMEDOUT : write_records(d, ring, fills, n, deadline_ms));
}

int cache_dir_blank(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot, uint64_t deadline_ms)
{
    const struct ring_write write = {cache_record_file(slot->dir),
                                     cache_place_record_offset(&d->geometry, &slot->place), CACHE_META_RECORD_HEAD,
                                     memset(ring_bounce(ring), 0, CACHE_META_RECORD_HEAD)};
    return ring_write_all(ring, &write, 1, deadline_ms);
}

int cache_dir_write_flags(const struct cache_dir *d, struct ring *ring, const struct space_slot *slot, uint8_t flags,
                          uint64_t deadline_ms)
{
    uint64_t off = cache_place_record_offset(&d->geometry, &slot->place) + CACHE_META_RECORD_FLAGS;
    *ring_bounce(ring) = flags;
    const struct ring_write write = {cache_record_file(slot->dir), off, 1, ring_bounce(ring)};
    return ring_write_all(ring, &write, 1, deadline_ms);
}

/* ---- room ---- */

int cache_dir_slab_ranges(const struct cache_dir *d, unsigned number, uint32_t slab, enum cache_slab_change change,
                          struct ring_range out[2])
{
    const struct cache_place place = {.slab = slab};
    uint32_t size = d->geometry.slab_size;
    out[0] = (struct ring_range){cache_record_file(number), cache_place_record_offset(&d->geometry, &place),
                                 size / CACHE_REGION_SHARE};
    out[1] = (struct ring_range){cache_data_file(number), cache_place_data_offset(&d->geometry, &place), size};
    return change == CACHE_PUNCH ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0;
}

int cache_dir_change_slab(const struct cache_dir *d, struct ring *ring, unsigned number, uint32_t slab,
                          enum cache_slab_change change, uint64_t deadline_ms)
{
    struct ring_range at[2];
    int mode = cache_dir_slab_ranges(d, number, slab, change, at);
    return ring_allocate_all(ring, mode, at, 2, deadline_ms);
}

/* ---- health: the transitions of the table in cache_dir.h ---- */

/* Go down, and double the interval of probes if it was down before without becoming normal. */
static void go_down(struct health *h, uint64_t now_ms)
{
    h->state = HEALTH_DOWN;
    h->faults = 0;
    h->probe_wait_ms =
        h->probe_wait_ms ? GR_MIN(h->probe_wait_ms * 2, (uint32_t)HEALTH_PROBE_MAX_MS) : HEALTH_PROBE_MIN_MS;
    h->probe_ms = now_ms + h->probe_wait_ms;
}

static void go_suspect(struct health *h, uint64_t now_ms)
{
    h->state = HEALTH_SUSPECT;
    h->fault_ms = now_ms;
    h->probe_ms = now_ms + HEALTH_PROBE_MIN_MS;
}

/* A timeout or a bad probe brings a direction down at once, faults only in a row. */
static void note_bad(struct health *h, enum health_event event, uint64_t now_ms)
{
    h->fault_ms = now_ms;
    h->faults += event == HEALTH_FAULT;
    if (event == HEALTH_TIMEOUT || event == HEALTH_PROBE_BAD || h->faults >= HEALTH_FAULTS_MAX)
        go_down(h, now_ms);
    else if (h->state == HEALTH_NORMAL)
        go_suspect(h, now_ms);
}

/* A success ends a row of faults, and a suspect period that has lasted long enough. */
static void note_good(struct health *h, uint64_t now_ms)
{
    h->faults = 0;
    if (h->state == HEALTH_SUSPECT && now_ms >= h->fault_ms + HEALTH_NORMAL_AFTER_MS)
        *h = (struct health){0};
}

bool health_note(struct health *h, enum health_event event, uint64_t now_ms)
{
    enum health_state before = h->state;
    if (before == HEALTH_DOWN) { /* only probes count: results of older operations say nothing new */
        if (event == HEALTH_PROBE_GOOD)
            go_suspect(h, now_ms);
        else if (event == HEALTH_PROBE_BAD)
            go_down(h, now_ms);
    } else if (event == HEALTH_GOOD || event == HEALTH_PROBE_GOOD) {
        note_good(h, now_ms);
        h->probe_ms = event == HEALTH_PROBE_GOOD ? now_ms + HEALTH_PROBE_MIN_MS : h->probe_ms;
    } else {
        note_bad(h, event, now_ms);
    }
    return h->state != before;
}

bool health_wants_probe(const struct health *h, uint64_t now_ms)
{
    return h->state != HEALTH_NORMAL && now_ms >= h->probe_ms;
}

const char *health_name(enum health_state state)
{
    static const char *const names[] = {"normal", "suspect", "down"};
    return names[state];
}

/* ---- health of a directory ---- */

static const char *const direction_names[CACHE_DIRECTIONS] = {"reading", "writing"};

/* Log a change of state. All at the same level: a reader of the log who saw the fault must also see its end. */
static void say_state(const struct cache_dir *d, enum cache_direction direction, enum health_state before, int rc)
{
    const char *why = rc == -EBADMSG     ? "bytes differ from their checksum"
                      : rc == -ETIMEDOUT ? "no answer in time"
                                         : strerror(-rc);
    switch (cache_dir_state(d, direction)) {
    case HEALTH_NORMAL:
        log_warning("cache: %s: %s has worked for a while without a failure", d->path, direction_names[direction]);
        break;
    case HEALTH_SUSPECT:
        if (before == HEALTH_DOWN)
            log_warning("cache: %s: %s works again", d->path, direction_names[direction]);
        else
            log_warning("cache: %s: %s failed: %s; what fails is fetched, nothing is lost", d->path,
                        direction_names[direction], why);
        break;
    case HEALTH_DOWN:
        log_warning("cache: %s: %s is down: %s; %s until a probe finds it working", d->path, direction_names[direction],
                    why, direction == CACHE_READING ? "its chunks are fetched" : "nothing is kept there");
    }
}

/* Pass an event to the state machine, and log and publish a new state. */
static bool cache_dir_note_event(struct cache_dir *d, enum cache_direction direction, enum health_event event, int rc)
{
    SCOPED_LOCK(&d->health_lock); /* held while logging, so that lines come in the order of the states */
    enum health_state before = d->health[direction].state;
    if (!health_note(&d->health[direction], event, clock_now_ms()))
        return false;
    atomic_store(&d->state[direction], d->health[direction].state);
    say_state(d, direction, before, rc);
    return true;
}

bool cache_dir_note_change(struct cache_dir *d, enum cache_direction direction, int rc)
{
    if (rc == -ECANCELED || rc == -EAGAIN || rc == -ENOMEM)
        return false;
    enum health_event event = rc == 0            ? HEALTH_GOOD
                              : rc == -EBADMSG   ? HEALTH_WRONG
                              : rc == -ETIMEDOUT ? HEALTH_TIMEOUT
                                                 : HEALTH_FAULT;
    return cache_dir_note_event(d, direction, event, rc);
}

bool cache_dir_note_probe(struct cache_dir *d, enum cache_direction direction, int rc)
{
    return cache_dir_note_event(d, direction, rc ? HEALTH_PROBE_BAD : HEALTH_PROBE_GOOD, rc);
}

bool cache_dir_wants_probe(struct cache_dir *d, enum cache_direction direction)
{
    if (cache_dir_state(d, direction) == HEALTH_NORMAL)
        return false;
    SCOPED_LOCK(&d->health_lock);
    return health_wants_probe(&d->health[direction], clock_now_ms());
}
