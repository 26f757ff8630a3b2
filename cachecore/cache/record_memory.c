/* Stripes, chosen by digest. Each is a log, in which new records overwrite the oldest, and a table of where they are:
 *
 *    log    | newer | newest |  free, or the oldest  | old | older than newer |
 *                            ^ end
 *    table  sets of 4 cells: the high bits of a cell are a tag from the digest, the others the place of its record
 *
 * Places never repeat: they count the bytes that were ever written, and the place in the log is the rest of a division.
 * So a cell tells by itself whether its record is overwritten: it is when it ends more than a log's length ago. */
#include "cache/record_memory.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/counter.h"
#include "base/error.h"
#include "base/le.h"

enum {
    STRIPES = 8,
    WAYS = 4,       /* cells of a set */
    LOG_CELL = 128, /* bytes of a stripe for each cell: about one record of a chunk of 64 KiB */
    UNIT = 8,       /* records begin at multiples of this */
    TAG_SHIFT = 44, /* a cell: tag | place in units, from 1; 128 TiB of records go through before it repeats */
};
#define PLACE_MASK ((UINT64_C(1) << TAG_SHIFT) - 1)

/* What stands before each record in the log. */
struct record_head {
    uint64_t key[2]; /* the first bytes of the digest */
    uint64_t len;
};

struct stripe {
    pthread_mutex_t lock; /* innermost; guards the cells, the log and end */
    uint64_t end;         /* place of the next record */
    /* constant from here on */
    uint64_t *cells;
    uint64_t set_mask;
    uint8_t *log;
    uint64_t log_size;
} __attribute__((aligned(64)));

struct record_memory {
    struct stripe stripes[STRIPES];
    uint8_t *memory;
};
DEFINE_CLEANUP(record_memory, struct record_memory *, record_memory_free)

/* ---- life ---- */

static void stripe_init(struct stripe *s, uint8_t *memory, size_t size)
{
    size_t cells = size / LOG_CELL;
    pthread_mutex_init(&s->lock, NULL);
    s->end = UNIT; /* place 0 means: none */
    s->cells = (uint64_t *)memory;
    s->set_mask = cells / WAYS - 1;
    s->log = memory + cells * sizeof *s->cells;
    s->log_size = size - cells * sizeof *s->cells;
}

int record_memory_new(uint64_t capacity, struct record_memory **out)
{
    size_t size = RECORD_MEMORY_MIN;
    while (size < RECORD_MEMORY_MAX && size < capacity / RECORD_MEMORY_SHARE)
        size *= 2;
    CLEANUP(cleanup_record_memory)
    struct record_memory *m = aligned_alloc(_Alignof(struct record_memory), sizeof *m);
    if (!m)
        return error_no_memory();
    memset(m, 0, sizeof *m);
    m->memory = calloc(1, size); /* pages that are never written take no memory */
    if (!m->memory)
        return error_no_memory();
    for (size_t i = 0; i < STRIPES; i++)
        stripe_init(&m->stripes[i], m->memory + i * (size / STRIPES), size / STRIPES);
    *out = steal_ptr(&m);
    return 0;
}

void record_memory_free(struct record_memory *m)
{
    if (!m)
        return;
    for (size_t i = 0; m->memory && i < STRIPES; i++)
        pthread_mutex_destroy(&m->stripes[i].lock);
    free(m->memory);
    free(m);
}

uint64_t record_memory_used(struct record_memory *m)
{
    uint64_t used = 0;
    for (size_t i = 0; m && i < STRIPES; i++) {
        struct stripe *s = &m->stripes[i];
        SCOPED_LOCK(&s->lock);
        used += GR_MIN(s->end, s->log_size);
    }
    return used;
}

/* ---- finding ---- */

/* The bits of a digest: 8 bytes are the hash of indexes elsewhere, so others choose stripe, set and tag here. */
struct record_key {
    struct stripe *stripe;
    uint64_t *set;
    uint64_t tag;
    struct record_head head;
};

static struct record_key key_of(struct record_memory *m, const struct digest *digest, uint32_t len)
{
    uint64_t bits = le64_get(digest->b + 16);
    struct stripe *s = &m->stripes[bits % STRIPES];
    struct record_key k = {.stripe = s,
                           .set = s->cells + (bits / STRIPES & s->set_mask) * WAYS,
                           .tag = bits & ~PLACE_MASK,
                           .head = {.len = len}};
    memcpy(k.head.key, digest->b, sizeof k.head.key);
    return k;
}

/* Return the place of a cell's record; 0: there is none, or it is overwritten. */
static uint64_t place_locked(const struct stripe *s, uint64_t cell)
{
    uint64_t place = (cell & PLACE_MASK) * UNIT;
    return place && s->end - place <= s->log_size ? place : 0;
}

/* Return what the log has of the chunk: a head, which may have another length, and the record. NULL: nothing. *cell:
 * its cell, or the one that a new record takes: one without a record, else that of the oldest. */
static uint8_t *find_locked(const struct record_key *k, uint64_t **cell)
{
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; i < WAYS; i++) {
        uint64_t place = place_locked(k->stripe, k->set[i]);
        if (place < least) {
            least = place;
            *cell = &k->set[i];
        }
        if (!place || (k->set[i] & ~PLACE_MASK) != k->tag)
            continue;
        uint8_t *at = k->stripe->log + place % k->stripe->log_size;
        if (memcmp(at, k->head.key, sizeof k->head.key) != 0)
            continue;
        *cell = &k->set[i];
        return at;
    }
    return NULL;
}

bool record_memory_get(struct record_memory *m, const struct digest *digest, uint8_t *out, uint32_t len)
{
    struct record_key k = key_of(m, digest, len);
    uint64_t *cell;
    SCOPED_LOCK(&k.stripe->lock);
    const uint8_t *at = find_locked(&k, &cell);
    if (!at || memcmp(at, &k.head, sizeof k.head) != 0)
        return false;
    memcpy(out, at + sizeof k.head, len);
    return true;
}

/* Take the next bytes of the log. A record is in one piece: what is left at the end of the log is skipped. */
static uint64_t append_locked(struct stripe *s, size_t bytes)
{
    uint64_t left = s->log_size - s->end % s->log_size;
    if (left < bytes)
        s->end += left;
    uint64_t place = s->end;
    s->end += bytes;
    return place;
}

void record_memory_put(struct record_memory *m, const struct digest *digest, const uint8_t *record, uint32_t len)
{
    struct record_key k = key_of(m, digest, len);
    struct stripe *s = k.stripe;
    assert(sizeof k.head + len <= s->log_size);
    uint64_t *cell = NULL;
    SCOPED_LOCK(&s->lock);
    uint8_t *at = find_locked(&k, &cell);
    if (!at || memcmp(at, &k.head, sizeof k.head) != 0) {
        uint64_t place = append_locked(s, GR_ALIGN_UP(sizeof k.head + len, (size_t)UNIT));
        *cell = k.tag | place / UNIT;
        at = s->log + place % s->log_size;
    }
    memcpy(at, &k.head, sizeof k.head);
    memcpy(at + sizeof k.head, record, len);
}

void record_memory_forget(struct record_memory *m, const struct digest *digest)
{
    struct record_key k = key_of(m, digest, 0);
    uint64_t *cell = NULL;
    SCOPED_LOCK(&k.stripe->lock);
    if (find_locked(&k, &cell))
        *cell = 0;
}
