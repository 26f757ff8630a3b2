/* A chunk is its own slot: its number in the trace is the slot number that the policy sees. The only index is the one
 * from key to number that builds the trace. It is made of chains of numbers, 4 to 8 bytes a chunk, because a trace may
 * have hundreds of millions; an entry of base/map.h with key and number takes 21 to 43.
 *
 * The optimum needs the future: a backward pass over the trace stores, for each read, when its chunk is read next. A
 * heap holds the cached chunks by their next read. It is not updated in place: a read pushes a new entry, and an
 * outdated entry is dropped when it reaches the top.
 */
#include "cache/policy/evict_sim.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/error.h"

enum { BUCKETS_MIN = 1024 };
#define NEVER UINT32_MAX

/* ---- the trace ---- */

static uint32_t *evict_sim_bucket_of(struct evict_trace *t, uint64_t key)
{
    return &t->buckets[key & (t->bucket_count - 1)];
}

/* Double the buckets and rehash. */
static int grow(struct evict_trace *t)
{
    uint32_t count = GR_MAX(t->bucket_count * 2, (uint32_t)BUCKETS_MIN);
    uint32_t *buckets = malloc(count * sizeof *buckets);
    if (!buckets)
        return error_no_memory();
    free(t->buckets);
    t->buckets = buckets;
    t->bucket_count = count;
    memset(buckets, 0xff, count * sizeof *buckets); /* EVICT_NONE */
    for (uint32_t i = 0; i < t->chunks.len; i++) {
        uint32_t *bucket = evict_sim_bucket_of(t, t->chunks.items[i].key);
        t->chunks.items[i].hash_next = *bucket;
        *bucket = i;
    }
    return 0;
}

/* Find the number of a chunk, or add it. */
static int chunk_of(struct evict_trace *t, uint64_t key, uint32_t len, uint32_t *out)
{
    if (t->chunks.len >= t->bucket_count && grow(t))
        return -ENOMEM;
    uint32_t *bucket = evict_sim_bucket_of(t, key);
    for (*out = *bucket; *out != EVICT_NONE; *out = t->chunks.items[*out].hash_next)
        if (t->chunks.items[*out].key == key)
            return t->chunks.items[*out].len == len ? 0 : -EINVAL;
    struct evict_sim_chunk chunk = {.key = key, .len = len, .hash_next = *bucket};
    if (vec_push(&t->chunks, chunk))
        return -ENOMEM;
    *bucket = *out = (uint32_t)t->chunks.len - 1;
    t->bytes += len;
    return 0;
}

int evict_trace_ask(struct evict_trace *t, uint64_t key, uint32_t len, uint32_t wanted)
{
    uint32_t chunk;
    if (t->asks.len >= EVICT_TRACE_ASKS_MAX)
        return -EFBIG;
    int rc = chunk_of(t, key, len, &chunk);
    const uint8_t part = (uint8_t)evict_part(GR_MIN(wanted, len), len);
    if (!rc)
        rc = vec_push(&t->parts, part);
    return rc ? rc : vec_push(&t->asks, chunk);
}

/* Return the number of reads when the last epoch was ended. */
static uint32_t last_end(const struct evict_trace *t)
{
    return t->epochs.len ? t->epochs.items[t->epochs.len - 1] : 0;
}

int evict_trace_epoch(struct evict_trace *t)
{
    uint32_t end = (uint32_t)t->asks.len;
    return end > last_end(t) ? vec_push(&t->epochs, end) : 0;
}

size_t evict_trace_epoch_count(const struct evict_trace *t)
{
    return t->epochs.len + (t->asks.len > last_end(t));
}

void evict_trace_release(struct evict_trace *t)
{
    vec_release(&t->chunks);
    vec_release(&t->asks);
    vec_release(&t->parts);
    vec_release(&t->epochs);
    free(t->buckets);
    memset(t, 0, sizeof *t);
}

/* ---- results ---- */

static int result_init(struct evict_sim_result *r, const struct evict_trace *t)
{
    memset(r, 0, sizeof *r);
    return vec_reserve(&r->epochs, evict_trace_epoch_count(t) + 1);
}

void evict_sim_release(struct evict_sim_result *r)
{
    vec_release(&r->epochs);
}

/* Count a read and its epoch. result_init has reserved the memory for all epochs. */
static void note_ask(struct evict_sim_result *r, const struct evict_trace *t, uint32_t len, bool hit)
{
    size_t ended = r->epochs.len ? r->epochs.len - 1 : 0;
    if (!r->epochs.len || (ended < t->epochs.len && r->asks == t->epochs.items[ended]))
        r->epochs.items[r->epochs.len++] = (struct evict_sim_epoch){0};
    struct evict_sim_epoch *epoch = &r->epochs.items[r->epochs.len - 1];
    r->asks++;
    r->ask_bytes += len;
    epoch->asks++;
    r->hits += hit;
    r->hit_bytes += hit ? len : 0;
    epoch->hits += hit;
}

/* ---- a policy ---- */

/* A replay through a policy. */
struct sim {
    const struct evict_trace *t;
    struct evict *e;
    struct evict_node *nodes;
    bool *in;            /* per chunk: it is cached */
    uint64_t size, used; /* bytes */
};

static struct evict_node *node_at(void *arg, uint32_t slot)
{
    return &((struct sim *)arg)->nodes[slot];
}

static bool never_busy(void *arg, uint32_t slot)
{
    (void)arg;
    (void)slot;
    return false;
}

/* Read a chunk; true: a hit. */
static bool sim_ask(struct sim *s, uint32_t chunk, unsigned part, struct evict_sim_result *r)
{
    const struct evict_sim_chunk *c = &s->t->chunks.items[chunk];
    if (s->in[chunk]) {
        evict_hit(s->e, 0, chunk, c->key, part);
        return true;
    }
    evict_miss(s->e, 0, c->key, part);
    bool room = s->used + c->len <= s->size;
    if (c->len > s->size || (!room && !evict_admit(s->e, 0, c->key))) {
        r->not_admitted++;
        return false;
    }
    for (; s->used + c->len > s->size; r->evictions++) {
        uint32_t victim = evict_victim(s->e, 0);
        evict_remove(s->e, 0, victim, s->t->chunks.items[victim].key);
        s->in[victim] = false;
        s->used -= s->t->chunks.items[victim].len;
    }
    evict_insert(s->e, 0, chunk, c->key);
    s->in[chunk] = true;
    s->used += c->len;
    return false;
}

/* The capacity in slots is an estimate from the mean length; bytes decide what fits. */
int evict_sim_policy(const struct evict_trace *t, uint64_t size, enum evict_policy policy, struct evict_sim_result *out)
{
    int rc = result_init(out, t);
    if (rc || !t->chunks.len)
        return rc;
    CLEANUP_FREE struct evict_node *nodes = calloc(t->chunks.len, sizeof *nodes);
    CLEANUP_FREE bool *in = calloc(t->chunks.len, sizeof *in);
    if (!nodes || !in)
        return error_no_memory();
    struct sim s = {.t = t, .nodes = nodes, .in = in, .size = size};
    uint64_t mean = t->bytes / t->chunks.len;
    struct evict_config config = {.policy = policy,
                                  .pools = 1,
                                  .capacity = GR_MIN(size / mean, (uint64_t)t->chunks.len),
                                  .node_at = node_at,
                                  .busy = never_busy,
                                  .arg = &s};
    rc = evict_new(&config, &s.e);
    if (rc)
        return rc;
    for (size_t i = 0; i < t->asks.len; i++) {
        uint32_t chunk = t->asks.items[i];
        note_ask(out, t, t->chunks.items[chunk].len, sim_ask(&s, chunk, t->parts.items[i], out));
    }
    out->following = evict_following(s.e);
    evict_free(s.e);
    return 0;
}

/* ---- the optimum ---- */

/* An entry of the heap, ordered by `next`, the farthest at the top. It is outdated if its chunk was read or evicted
 * since. */
struct future {
    uint32_t next, chunk;
};

/* A replay through the optimum. */
struct oracle {
    const struct evict_trace *t;
    VEC(struct future) heap;
    uint32_t *next; /* per read: the next read of its chunk, or NEVER */
    uint32_t *due;  /* per cached chunk: its next read */
    bool *in;
    uint64_t size, used;
};

static void swap(struct future *a, struct future *b)
{
    struct future t = *a;
    *a = *b;
    *b = t;
}

static int push(struct oracle *o, struct future f)
{
    if (vec_push(&o->heap, f))
        return -ENOMEM;
    struct future *h = o->heap.items;
    for (size_t i = o->heap.len - 1; i && h[(i - 1) / 2].next < h[i].next; i = (i - 1) / 2)
        swap(&h[i], &h[(i - 1) / 2]);
    return 0;
}

static void pop(struct oracle *o)
{
    struct future *h = o->heap.items;
    h[0] = h[--o->heap.len];
    for (size_t i = 0, k; (k = 2 * i + 1) < o->heap.len; i = k) {
        k += k + 1 < o->heap.len && h[k + 1].next > h[k].next;
        if (h[k].next <= h[i].next)
            return;
        swap(&h[i], &h[k]);
    }
}

/* Evict chunks whose next read comes after `next` until len bytes fit. False: they do not. */
static bool evict_sim_make_room(struct oracle *o, uint32_t len, uint32_t next, struct evict_sim_result *r)
{
    while (o->used + len > o->size && o->heap.len) {
        struct future f = o->heap.items[0];
        if (!o->in[f.chunk] || o->due[f.chunk] != f.next) {
            pop(o);
            continue;
        }
        if (f.next <= next)
            return false;
        pop(o);
        o->in[f.chunk] = false;
        o->used -= o->t->chunks.items[f.chunk].len;
        r->evictions++;
    }
    return o->used + len <= o->size;
}

/* Read number i. *out_hit: its chunk was cached. -ENOMEM. */
static int oracle_ask(struct oracle *o, size_t i, struct evict_sim_result *r, bool *out_hit)
{
    uint32_t chunk = o->t->asks.items[i], next = o->next[i], len = o->t->chunks.items[chunk].len;
    *out_hit = o->in[chunk];
    if (!*out_hit && (next == NEVER || len > o->size || !evict_sim_make_room(o, len, next, r))) {
        r->not_admitted++;
        return 0;
    }
    o->used += *out_hit ? 0 : len;
    o->in[chunk] = true;
    o->due[chunk] = next;
    return push(o, (struct future){.next = next, .chunk = chunk});
}

/* Fill in oracle.next, from the end of the trace to its beginning. */
static void look_ahead(struct oracle *o)
{
    memset(o->due, 0xff, o->t->chunks.len * sizeof *o->due); /* NEVER */
    for (size_t i = o->t->asks.len; i-- > 0;) {
        uint32_t chunk = o->t->asks.items[i];
        o->next[i] = o->due[chunk];
        o->due[chunk] = (uint32_t)i;
    }
}

int evict_sim_optimum(const struct evict_trace *t, uint64_t size, struct evict_sim_result *out)
{
    int rc = result_init(out, t);
    if (rc || !t->chunks.len)
        return rc;
    CLEANUP_FREE uint32_t *next = malloc(t->asks.len * sizeof *next);
    CLEANUP_FREE uint32_t *due = malloc(t->chunks.len * sizeof *due);
    CLEANUP_FREE bool *in = calloc(t->chunks.len, sizeof *in);
    if (!next || !due || !in)
        return error_no_memory();
    struct oracle o = {.t = t, .next = next, .due = due, .in = in, .size = size};
    look_ahead(&o);
    for (size_t i = 0; !rc && i < t->asks.len; i++) {
        bool hit;
        rc = oracle_ask(&o, i, out, &hit);
        note_ask(out, t, t->chunks.items[t->asks.items[i]].len, hit);
    }
    vec_release(&o.heap);
    return rc;
}
