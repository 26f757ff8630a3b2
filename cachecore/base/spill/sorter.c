/* Records are stored back to back in an arena in the order in which they were added, with one reference each; sorting
 * moves only the references. When arena and references fill the memory, they are written to a scratch as a sorted run:
 *
 *   sorter_add -> arena --full: sort--> runs --merge_pass, while too many--> fewer runs --merge_next--> records
 *                   |
 *                   +-- everything fitted: sort the references, no run ---------------------------> records
 *
 *   in the arena:  u32 key length | u32 value length | key | value
 *   in a run:      u32 length of the rest | shared, rest of the key, value: lengths | rest of the key | value
 *
 * A record in a run is what differs from the one before (base/spill/pack.h): of the key, the bytes after those that
 * both share. Lengths are in the machine's byte order, since no run outlives the process.
 *
 * A merge gives back the space of what it has read, and reads each run through a window, and the windows share the
 * memory. If that memory does not hold a window of WINDOW_MIN for every run, neighbouring runs are merged into longer
 * ones first.
 *
 * The sort is stable. Records with equal keys are ordered by their place in the arena within a run, and by the number
 * of the run between runs; only neighbouring runs are merged, so both follow the order of adding.
 */
#include "base/spill/sorter.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/bytes.h"
#include "base/error.h"
#include "base/spill/pack.h"
#include "base/vec.h"

enum {
    HEADER = 8,                /* bytes: the two lengths of a record in the arena */
    LEN = 4,                   /* bytes: the length of a record in a run */
    WINDOW_MIN = 16 << 10,     /* bytes of a run in memory while it is merged, at least */
    WINDOW_MAX = 1 << 20,      /* the same, at most */
    WRITE_BUFFER = 256 << 10,  /* bytes collected before a write to the scratch */
    RECORD_COST = HEADER + 32, /* bytes beside key and value: header, reference, and the space qsort_r needs */
};

struct ref {
    uint64_t head; /* the key's 8 bytes after the prefix that all keys of the run share, as a big-endian number */
    uint64_t at;   /* offset of the record in the arena */
};

struct run {
    uint64_t start, end; /* offsets in the scratch */
};

/* The record that the next one in a run differs from. */
struct before {
    struct bytes key, value;
};

/* Reads one run. */
struct reader {
    struct scratch_reader in;
    struct before last; /* the record read last */
};

struct sorter {
    const char *dir; /* dir_copy or NULL */
    char *dir_copy;
    size_t memory; /* bytes */
    struct bytes arena;
    VEC(struct ref) refs;
    struct scratch *scratch;
    VEC(struct run) runs;
    struct bytes out;   /* records to be written to the scratch */
    struct before last; /* the one put into `out` last */
    /* after sorter_sort */
    bool sorted, started; /* started: merge_next has returned a record of the present merge */
    size_t next;          /* without runs: the next reference */
    struct reader *readers;
    size_t reader_count;
    uint32_t *heap; /* min-heap of the readers that have a record, by that record */
    size_t heap_len;
};

static const struct before nothing = {.key = {.max = SORTER_RECORD_MAX}, .value = {.max = SORTER_RECORD_MAX}};

static void before_release(struct before *b)
{
    bytes_release(&b->key);
    bytes_release(&b->value);
}

int sorter_new(const struct sorter_config *config, struct sorter **out)
{
    CLEANUP(cleanup_sorter) struct sorter *s = calloc(1, sizeof *s);
    if (!s)
        return error_no_memory();
    s->memory = config->memory ? config->memory : SORTER_MEMORY_DEFAULT;
    s->arena.max = SIZE_MAX / 2;
    s->out.max = WRITE_BUFFER + LEN + 3 * PACK_NUMBER_MAX + pack_changes_max(SORTER_RECORD_MAX);
    s->last = nothing;
    if (config->dir && !(s->dir = s->dir_copy = strdup(config->dir)))
        return error_no_memory();
    *out = steal_ptr(&s);
    return 0;
}

static void readers_free(struct sorter *s)
{
    for (size_t i = 0; i < s->reader_count; i++) {
        scratch_reader_release(&s->readers[i].in);
        before_release(&s->readers[i].last);
    }
    free(steal_ptr(&s->readers));
    free(steal_ptr(&s->heap));
    s->reader_count = s->heap_len = 0;
}

void sorter_free(struct sorter *s)
{
    if (!s)
        return;
    readers_free(s);
    scratch_free(s->scratch);
    bytes_release(&s->arena);
    bytes_release(&s->out);
    before_release(&s->last);
    vec_release(&s->refs);
    vec_release(&s->runs);
    free(s->dir_copy);
    free(s);
}

/* Return the record that is encoded at p. */
static struct sorter_record record_at(const uint8_t *p)
{
    uint32_t lens[2];
    memcpy(lens, p, HEADER);
    return (struct sorter_record){p + HEADER, p + HEADER + lens[0], lens[0], lens[1]};
}

/* Compare two keys as memcmp does; a prefix comes first. */
static int order_of(const struct sorter_record *a, const struct sorter_record *b)
{
    size_t common = GR_MIN(a->key_len, b->key_len);
    int order = common ? memcmp(a->key, b->key, common) : 0;
    return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

/* ------------------------------------------------------------------ the arena */

/* For qsort_r: compare heads, then whole keys, then places, since qsort_r is not stable. */
static int ref_order(const void *a, const void *b, void *arg)
{
    const struct ref *x = a, *y = b;
    if (x->head != y->head)
        return x->head < y->head ? -1 : 1;
    const struct sorter *s = arg;
    struct sorter_record p = record_at(s->arena.data + x->at), q = record_at(s->arena.data + y->at);
    int order = order_of(&p, &q);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

/* Sort the references. Paths in one directory share most of their bytes, so the 8 bytes after the prefix that all keys
 * share nearly always decide, without a look into the arena. */
static void sort_arena(struct sorter *s)
{
    if (!s->refs.len)
        return;
    struct sorter_record first = record_at(s->arena.data + s->refs.items[0].at);
    size_t shared = first.key_len;
    for (size_t i = 1; i < s->refs.len && shared; i++) {
        struct sorter_record r = record_at(s->arena.data + s->refs.items[i].at);
        shared = GR_MIN(shared, r.key_len);
        if (shared && memcmp(r.key, first.key, shared)) {
            size_t same = 0;
            while (r.key[same] == first.key[same])
                same++;
            shared = same;
        }
    }
    for (size_t i = 0; i < s->refs.len; i++) {
        struct sorter_record r = record_at(s->arena.data + s->refs.items[i].at);
        uint64_t head = 0;
        if (r.key_len > shared)
            memcpy(&head, r.key + shared, GR_MIN(r.key_len - shared, sizeof head));
        s->refs.items[i].head = be64toh(head);
    }
    qsort_r(s->refs.items, s->refs.len, sizeof *s->refs.items, ref_order, s);
}

/* ------------------------------------------------------------------ runs */

static int flush_out(struct sorter *s, struct scratch *to)
{
    int rc = scratch_write(to, scratch_len(to), s->out.data, s->out.len);
    bytes_clear(&s->out);
    return rc;
}

/* Make a buffer hold what a record has, from `shared` on. */
static int keep(struct bytes *b, size_t shared, const void *data, size_t len)
{
    b->len = shared;
    return bytes_append(b, (const uint8_t *)data + shared, len - shared);
}

static int put_record(struct sorter *s, struct scratch *to, const struct sorter_record *r)
{
    struct before *last = &s->last;
    size_t shared = pack_shared(r->key, r->key_len, last->key.data, last->key.len);
    uint8_t *start;
    int rc = bytes_reserve(&s->out, LEN + 3 * PACK_NUMBER_MAX + (r->key_len - shared) + pack_changes_max(r->value_len),
                           &start);
    if (rc)
        return rc;
    uint8_t *p = pack_number(start + LEN, (uint32_t)shared);
    p = pack_number(p, (uint32_t)(r->key_len - shared));
    p = pack_number(p, (uint32_t)r->value_len);
    if (r->key_len > shared)
        p = mempcpy(p, r->key + shared, r->key_len - shared);
    p = pack_changes(p, r->value, r->value_len, last->value.data, last->value.len);
    uint32_t len = (uint32_t)(p - start - LEN);
    memcpy(start, &len, LEN);
    s->out.len += LEN + len;
    rc = keep(&last->key, shared, r->key, r->key_len);
    if (!rc)
        rc = keep(&last->value, 0, r->value, r->value_len);
    return !rc && s->out.len >= WRITE_BUFFER ? flush_out(s, to) : rc;
}

/* A run begins: its first record differs from nothing. */
static struct run begin_run(struct sorter *s, const struct scratch *to)
{
    bytes_clear(&s->last.key);
    bytes_clear(&s->last.value);
    return (struct run){.start = scratch_len(to)};
}

/* Make a scratch that goes to its file at once: the memory is for sorting. */
static int run_scratch(struct sorter *s, struct scratch **out)
{
    return scratch_new(&(struct scratch_config){.dir = s->dir, .memory = 1}, out);
}

/* Sort the arena, write it to the scratch as a run and empty it. */
static int spill(struct sorter *s)
{
    int rc = s->scratch ? 0 : run_scratch(s, &s->scratch);
    if (rc)
        return rc;
    struct run run = begin_run(s, s->scratch);
    sort_arena(s);
    for (size_t i = 0; !rc && i < s->refs.len; i++) {
        struct sorter_record r = record_at(s->arena.data + s->refs.items[i].at);
        rc = put_record(s, s->scratch, &r);
    }
    if (!rc)
        rc = flush_out(s, s->scratch);
    if (rc)
        return rc;
    run.end = scratch_len(s->scratch);
    bytes_clear(&s->arena);
    s->refs.len = 0;
    return vec_push(&s->runs, run);
}

int sorter_add(struct sorter *s, const void *key, size_t key_len, const void *value, size_t value_len)
{
    assert(!s->sorted);
    if (key_len > SORTER_RECORD_MAX || value_len > SORTER_RECORD_MAX - key_len)
        return error_set(-EINVAL, "a record to be sorted is larger than %d bytes", SORTER_RECORD_MAX);
    int rc = 0;
    if (s->refs.len &&
        s->arena.len + s->refs.len * (RECORD_COST - HEADER) + RECORD_COST + key_len + value_len > s->memory)
        rc = spill(s);
    if (rc)
        return rc;
    struct ref ref = {.at = s->arena.len};
    uint32_t lens[2] = {(uint32_t)key_len, (uint32_t)value_len};
    rc = bytes_append(&s->arena, lens, HEADER);
    if (!rc)
        rc = bytes_append(&s->arena, key, key_len);
    if (!rc)
        rc = bytes_append(&s->arena, value, value_len);
    if (!rc)
        rc = vec_push(&s->refs, ref);
    if (rc) /* no half a record stays */
        s->arena.len = (size_t)ref.at;
    return rc;
}

/* ------------------------------------------------------------------ merging */

/* Go to the reader's next record. Returns 1, 0 at the end of the run, or -errno. */
static int reader_next(struct reader *r)
{
    if (scratch_reader_ended(&r->in))
        return 0;
    struct before *last = &r->last;
    uint32_t len, shared, rest, value_len;
    int rc = scratch_reader_fill(&r->in, LEN);
    if (rc)
        return rc;
    memcpy(&len, r->in.window + r->in.pos, LEN);
    rc = scratch_reader_fill(&r->in, LEN + (size_t)len);
    if (rc)
        return rc;
    const uint8_t *p = unpack_number(r->in.window + r->in.pos + LEN, &shared);
    p = unpack_number(p, &rest);
    p = unpack_number(p, &value_len);
    r->in.pos += LEN + len;
    last->key.len = shared;
    rc = bytes_append(&last->key, p, rest);
    size_t before_len = last->value.len;
    uint8_t *more;
    if (!rc && value_len > before_len)
        rc = bytes_extend(&last->value, value_len - before_len, &more);
    if (rc)
        return rc;
    (void)unpack_changes(p + rest, last->value.data, value_len, before_len);
    last->value.len = value_len;
    return 1;
}

static struct sorter_record reader_record(const struct reader *r)
{
    return (struct sorter_record){r->last.key.data, r->last.value.data, r->last.key.len, r->last.value.len};
}

/* Does reader a's record come before reader b's? Of equal keys, the earlier run's comes first. */
static bool before(const struct sorter *s, uint32_t a, uint32_t b)
{
    struct sorter_record x = reader_record(&s->readers[a]), y = reader_record(&s->readers[b]);
    int order = order_of(&x, &y);
    return order ? order < 0 : a < b;
}

/* Restore the heap below position i, whose reader has changed. */
static void sift_down(struct sorter *s, size_t i)
{
    uint32_t moved = s->heap[i];
    for (size_t child; (child = 2 * i + 1) < s->heap_len; i = child) {
        if (child + 1 < s->heap_len && before(s, s->heap[child + 1], s->heap[child]))
            child++;
        if (!before(s, s->heap[child], moved))
            break;
        s->heap[i] = s->heap[child];
    }
    s->heap[i] = moved;
}

/* Begin to merge `count` runs: a reader and a window each, and the heap over all of them. */
static int merge_start(struct sorter *s, const struct run *runs, size_t count)
{
    readers_free(s);
    s->readers = calloc(count, sizeof *s->readers);
    s->heap = calloc(count, sizeof *s->heap);
    if (!s->readers || !s->heap)
        return error_no_memory();
    s->reader_count = count;
    s->started = false;
    size_t window = GR_MIN(GR_MAX(s->memory / count, (size_t)WINDOW_MIN), (size_t)WINDOW_MAX);
    for (size_t i = 0; i < count; i++) {
        struct reader *r = &s->readers[i];
        r->last = nothing;
        int rc = scratch_reader_init(&r->in, s->scratch, runs[i].start, runs[i].end, window);
        r->in.forgets = true;
        if (!rc)
            rc = reader_next(r);
        if (rc < 0)
            return rc;
        assert(rc);
        s->heap[s->heap_len++] = (uint32_t)i;
    }
    for (size_t i = count / 2; i-- > 0;) /* Floyd's heap construction */
        sift_down(s, i);
    return 0;
}

/* Get the least record of all readers. It stays in its reader until the next call, which is when that reader
 * goes on. */
static int merge_next(struct sorter *s, struct sorter_record *out)
{
    if (s->started && s->heap_len) {
        int rc = reader_next(&s->readers[s->heap[0]]);
        if (rc < 0)
            return rc;
        if (!rc)
            s->heap[0] = s->heap[--s->heap_len];
        if (s->heap_len)
            sift_down(s, 0);
    }
    s->started = true;
    if (!s->heap_len)
        return 0;
    *out = reader_record(&s->readers[s->heap[0]]);
    return 1;
}

/* Merge each group of `fan` neighbouring runs into one, in a new scratch that replaces the old one. */
static int merge_pass(struct sorter *s, size_t fan)
{
    CLEANUP(cleanup_scratch) struct scratch *to = NULL;
    int rc = run_scratch(s, &to);
    size_t merged = 0;
    for (size_t i = 0; !rc && i < s->runs.len; i += fan) {
        struct run run = begin_run(s, to);
        rc = merge_start(s, s->runs.items + i, GR_MIN(fan, s->runs.len - i));
        struct sorter_record r;
        while (!rc && (rc = merge_next(s, &r)) > 0)
            rc = put_record(s, to, &r);
        if (!rc)
            rc = flush_out(s, to);
        run.end = scratch_len(to);
        s->runs.items[merged++] = run;
    }
    readers_free(s);
    if (rc)
        return rc;
    s->runs.len = merged;
    scratch_free(s->scratch);
    s->scratch = steal_ptr(&to);
    return 0;
}

int sorter_sort(struct sorter *s)
{
    assert(!s->sorted);
    s->sorted = true;
    if (!s->runs.len) {
        sort_arena(s);
        return 0;
    }
    int rc = s->refs.len ? spill(s) : 0;
    bytes_release(&s->arena);
    vec_release(&s->refs);
    size_t fan = GR_MAX(s->memory / WINDOW_MIN, (size_t)2);
    while (!rc && s->runs.len > fan)
        rc = merge_pass(s, fan);
    bytes_release(&s->out);
    before_release(&s->last);
    return rc ? rc : merge_start(s, s->runs.items, s->runs.len);
}

int sorter_next(struct sorter *s, struct sorter_record *out)
{
    assert(s->sorted);
    if (s->runs.len)
        return merge_next(s, out);
    if (s->next == s->refs.len)
        return 0;
    *out = record_at(s->arena.data + s->refs.items[s->next++].at);
    return 1;
}
