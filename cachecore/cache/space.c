/* Slabs are bound to a size class when the class first needs one. A class that is full evicts within
 * itself, except that every REBIND_PERIOD-th time it takes the coldest slab of another class when
 * everything in that slab was used longer ago than its own next victim: so that space follows a
 * workload that moves from one chunk size to another. A class without any slab takes the coldest at
 * once.
 *
 * Age is counted in fills (32 bits of the clock, compared by difference): cheap, and it stands still
 * when nothing needs room.
 */
#include "cache/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/le.h"

_Static_assert(sizeof(struct slot) == 56, "docs/cache.md states the memory of a chunk");

enum { REBIND_PERIOD = 32, SLOT_MASK = (1 << SPACE_SLOT_BITS) - 1, BUCKETS_MIN = 1024 };

struct slot *space_slot_at(const struct space *s, uint32_t id)
{
    return &s->slabs[id >> SPACE_SLOT_BITS].slots[id & SLOT_MASK];
}

static struct slab *slab_of(const struct space *s, uint32_t id)
{
    return &s->slabs[id >> SPACE_SLOT_BITS];
}

static struct evict_node *node_at(void *arg, uint32_t id)
{
    return &space_slot_at(arg, id)->node;
}

/* Pins are taken under the lock and given back without it: reading 0 here (acquire) means that the
 * last reader is done with the slot's bytes. Sequentially consistent for the fill that waits for
 * room (fill.c). */
static bool slot_pinned(const struct slot *slot)
{
    return atomic_load(&slot->pins) != 0;
}

static bool busy_at(void *arg, uint32_t id)
{
    return slot_pinned(space_slot_at(arg, id));
}

void space_unpin(_Atomic uint16_t *pins)
{
    atomic_fetch_sub(pins, 1);
}

/* ---- the index ---- */

static uint32_t *bucket_of(const struct space *s, const struct digest *digest)
{
    return &s->buckets[le32_get(digest->b) & s->bucket_mask];
}

uint32_t space_find(const struct space *s, const struct digest *digest)
{
    uint32_t id = *bucket_of(s, digest);
    while (id != SPACE_NONE && !digest_equal(&space_slot_at(s, id)->digest, digest))
        id = space_slot_at(s, id)->hash_next;
    return id;
}

static void index_insert(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    uint32_t *bucket = bucket_of(s, &slot->digest);
    slot->hash_next = *bucket;
    *bucket = id;
}

static void index_remove(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    uint32_t *link = bucket_of(s, &slot->digest);
    while (*link != id)
        link = &space_slot_at(s, *link)->hash_next;
    *link = slot->hash_next;
}

/* ---- life ---- */

static int buckets_init(struct space *s, uint64_t data_size)
{
    uint64_t want = data_size / (128 << 10), n = BUCKETS_MIN;
    while (n < want && n < UINT32_C(1) << 31)
        n *= 2;
    s->buckets = malloc(n * sizeof *s->buckets);
    if (!s->buckets)
        return -ENOMEM;
    for (uint64_t i = 0; i < n; i++)
        s->buckets[i] = SPACE_NONE;
    s->bucket_mask = (uint32_t)n - 1;
    return 0;
}

static int dir_init(struct space *s, unsigned dir, const struct cache_geometry *g)
{
    struct space_dir *d = &s->dirs[dir];
    d->geometry = *g;
    d->first = s->slab_count;
    if (vec_reserve(&d->unbound, g->slab_count))
        return -ENOMEM;
    for (uint32_t i = g->slab_count; i-- > 0;)
        d->unbound.items[d->unbound.len++] = i;
    s->slab_count += g->slab_count;
    return 0;
}

static int init_parts(struct space *s, const struct cache_geometry *dirs, size_t count)
{
    uint64_t slabs = 0, data = 0;
    for (size_t i = 0; i < count; i++) {
        slabs += dirs[i].slab_count;
        data += cache_geometry_data_size(&dirs[i]);
    }
    if (slabs > CACHE_SLABS_MAX)
        return error_set(-EINVAL, "cache: the directories are too large together; the most is 127 TiB");
    if (buckets_init(s, data))
        return -ENOMEM;
    s->slabs = calloc(slabs ? slabs : 1, sizeof *s->slabs);
    if (!s->slabs)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        if (dir_init(s, (unsigned)i, &dirs[i]))
            return -ENOMEM;
        for (uint32_t k = 0; k < dirs[i].slab_count; k++)
            s->slabs[s->dirs[i].first + k].dir = (uint8_t)i;
    }
    return 0;
}

int space_init(struct space *s, const struct cache_geometry *dirs, size_t count)
{
    assert(count <= SPACE_DIRS_MAX);
    memset(s, 0, sizeof *s);
    s->dir_count = count;
    for (unsigned c = 0; c < CACHE_CLASSES; c++) {
        evict_list_init(&s->free[c]);
        evict_init(&s->evict[c], node_at, s);
    }
    int rc = init_parts(s, dirs, count);
    if (rc) {
        space_release(s);
        return rc == -ENOMEM ? error_set(rc, "cache: out of memory for the index") : rc;
    }
    return 0;
}

void space_release(struct space *s)
{
    for (uint32_t i = 0; s->slabs && i < s->slab_count; i++) {
        free(s->slabs[i].slots);
        free(s->slabs[i].crcs);
    }
    for (size_t i = 0; i < s->dir_count; i++)
        vec_release(&s->dirs[i].unbound);
    free(s->slabs);
    free(s->buckets);
    memset(s, 0, sizeof *s);
}

uint64_t space_capacity(const struct space *s)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < s->dir_count; i++)
        sum += cache_geometry_data_size(&s->dirs[i].geometry);
    return sum;
}

/* ---- slots changing state ---- */

static void use_slot(struct space *s, uint32_t id)
{
    slab_of(s, id)->used = space_slot_at(s, id)->used = (uint32_t)s->clock;
}

static void describe(struct space *s, uint32_t id, struct space_slot *out)
{
    struct slab *slab = slab_of(s, id);
    struct slot *slot = space_slot_at(s, id);
    *out = (struct space_slot){
        .id = id,
        .dir = slab->dir,
        .place = {.slab = (id >> SPACE_SLOT_BITS) - s->dirs[slab->dir].first,
                  .slot = id & SLOT_MASK,
                  .epoch = slab->epoch,
                  .class = slab->class},
        .plain_len = slot->plain_len,
        .crcs = slab->crcs + (size_t)(id & SLOT_MASK) * cache_class_blocks(slab->class),
        .pins = &slot->pins,
        .recorded = slot->recorded,
    };
}

bool space_can_pin(const struct space *s, uint32_t id)
{
    return atomic_load(&space_slot_at(s, id)->pins) < UINT16_MAX;
}

void space_pin(struct space *s, uint32_t id, struct space_slot *out)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_READY);
    assert(space_can_pin(s, id));
    atomic_fetch_add(&slot->pins, 1);
    use_slot(s, id);
    evict_touch(&s->evict[slab_of(s, id)->class], id);
    describe(s, id, out);
}

static void forget_ready(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_READY);
    index_remove(s, id);
    evict_remove(&s->evict[slab_of(s, id)->class], id);
    s->entries--;
    s->used_bytes -= cache_class_slot_size(slab_of(s, id)->class);
}

static void make_free(struct space *s, uint32_t id)
{
    space_slot_at(s, id)->state = SLOT_FREE;
    evict_list_push_tail(&s->free[slab_of(s, id)->class], node_at, s, id);
}

void space_drop(struct space *s, uint32_t id)
{
    forget_ready(s, id);
    make_free(s, id);
}

void space_abort(struct space *s, uint32_t id)
{
    assert(space_slot_at(s, id)->state == SLOT_FILLING);
    index_remove(s, id);
    slab_of(s, id)->announced = false; /* perhaps that was what failed: the next fill writes it again */
    make_free(s, id);
}

void space_commit(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_FILLING);
    slot->state = SLOT_READY;
    evict_insert(&s->evict[slab_of(s, id)->class], id);
    use_slot(s, id);
    s->entries++;
    s->used_bytes += cache_class_slot_size(slab_of(s, id)->class);
}

/* ---- slabs ---- */

static int bind_slab(struct space *s, uint32_t number, unsigned class, uint32_t epoch)
{
    struct slab *slab = &s->slabs[number];
    uint32_t count = cache_class_slots(&s->dirs[slab->dir].geometry, class);
    struct slot *slots = calloc(count, sizeof *slots);
    uint32_t *crcs = calloc((size_t)count * cache_class_blocks(class), sizeof *crcs);
    if (!slots || !crcs) {
        free(slots);
        free(crcs);
        return -ENOMEM;
    }
    slab->slots = slots;
    slab->crcs = crcs;
    slab->slot_count = count;
    slab->class = (uint8_t) class;
    slab->epoch = epoch;
    slab->announced = false;
    slab->used = (uint32_t)s->clock;
    for (uint32_t i = 0; i < count; i++)
        make_free(s, number << SPACE_SLOT_BITS | i);
    return 0;
}

static bool slab_busy(const struct slab *slab)
{
    for (uint32_t i = 0; i < slab->slot_count; i++)
        if (slab->slots[i].state == SLOT_FILLING || slot_pinned(&slab->slots[i]))
            return true;
    return false;
}

/* Was a used before b? */
static bool older(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* The slab of another class whose latest use is longest ago, and before `limit` if that is given. */
static uint32_t coldest_slab(const struct space *s, unsigned class, const uint32_t *limit)
{
    uint32_t best = SPACE_NONE;
    for (uint32_t i = 0; i < s->slab_count; i++) {
        const struct slab *slab = &s->slabs[i];
        if (!slab->slots || slab->class == class || (limit && !older(slab->used, *limit)))
            continue;
        if ((best == SPACE_NONE || older(slab->used, s->slabs[best].used)) && !slab_busy(slab))
            best = i;
    }
    return best;
}

static int take_slab(struct space *s, uint32_t number, unsigned class)
{
    struct slab *slab = &s->slabs[number];
    struct slab old = *slab;
    for (uint32_t i = 0; i < old.slot_count; i++) {
        uint32_t id = number << SPACE_SLOT_BITS | i;
        if (old.slots[i].state == SLOT_READY) {
            forget_ready(s, id);
            s->evictions++;
        } else {
            evict_list_remove(&s->free[old.class], node_at, s, id);
        }
    }
    uint32_t epoch = old.epoch + 1 ? old.epoch + 1 : 1;
    slab->slots = NULL;
    slab->crcs = NULL;
    slab->slot_count = 0;
    free(old.slots);
    free(old.crcs);
    int rc = bind_slab(s, number, class, epoch);
    if (rc) { /* back to the unbound ones; its epoch goes on there */
        struct space_dir *d = &s->dirs[slab->dir];
        slab->epoch = epoch;
        d->unbound.items[d->unbound.len++] = number - d->first;
    }
    return rc;
}

/* Bind an unbound slab of the directory that has the largest share of them left. -EAGAIN: none. */
static int bind_unbound(struct space *s, unsigned class)
{
    struct space_dir *best = NULL;
    for (size_t i = 0; i < s->dir_count; i++) {
        struct space_dir *d = &s->dirs[i];
        if (d->unbound.len && (!best || (uint64_t)d->unbound.len * best->geometry.slab_count >
                                            (uint64_t)best->unbound.len * d->geometry.slab_count))
            best = d;
    }
    if (!best)
        return -EAGAIN;
    uint32_t number = best->first + best->unbound.items[best->unbound.len - 1];
    int rc = bind_slab(s, number, class, s->slabs[number].epoch + 1 ? s->slabs[number].epoch + 1 : 1);
    if (!rc)
        best->unbound.len--;
    return rc;
}

/* ---- allocation ---- */

static uint32_t pop_free(struct space *s, unsigned class)
{
    uint32_t id = s->free[class].head;
    while (id != SPACE_NONE && busy_at(s, id))
        id = space_slot_at(s, id)->node.next;
    if (id != SPACE_NONE)
        evict_list_remove(&s->free[class], node_at, s, id);
    return id;
}

static uint32_t evict_one(struct space *s, unsigned class)
{
    uint32_t id = evict_victim(&s->evict[class], busy_at);
    if (id == SPACE_NONE)
        return id;
    if (++s->full_allocs[class] >= REBIND_PERIOD) {
        s->full_allocs[class] = 0;
        uint32_t cold = coldest_slab(s, class, &space_slot_at(s, id)->used);
        if (cold != SPACE_NONE && !take_slab(s, cold, class))
            return pop_free(s, class);
    }
    forget_ready(s, id);
    s->evictions++;
    return id;
}

static int find_room(struct space *s, unsigned class, uint32_t *out_id)
{
    *out_id = pop_free(s, class);
    if (*out_id != SPACE_NONE)
        return 0;
    int rc = bind_unbound(s, class);
    if (rc == -EAGAIN) {
        *out_id = evict_one(s, class);
        if (*out_id != SPACE_NONE)
            return 0;
        uint32_t cold = coldest_slab(s, class, NULL);
        if (cold == SPACE_NONE)
            return -EAGAIN;
        rc = take_slab(s, cold, class);
    }
    if (!rc)
        *out_id = pop_free(s, class);
    return rc;
}

int space_alloc(struct space *s, const struct digest *digest, uint32_t plain_len, struct space_slot *out)
{
    unsigned class = cache_class_of(plain_len);
    uint32_t id;
    int rc = find_room(s, class, &id);
    if (rc)
        return rc;
    struct slab *slab = slab_of(s, id);
    struct slot *slot = space_slot_at(s, id);
    slot->state = SLOT_FILLING;
    slot->digest = *digest;
    slot->plain_len = plain_len;
    index_insert(s, id);
    describe(s, id, out);
    out->seq = ++s->clock;
    out->slab_bound = !slab->announced;
    slab->announced = true;
    slot->recorded = true;
    return 0;
}

/* ---- loading ---- */

int space_load_slab(struct space *s, unsigned dir, const struct cache_place *place)
{
    uint32_t number = s->dirs[dir].first + place->slab;
    if (bind_slab(s, number, place->class, place->epoch))
        return error_set(-ENOMEM, "cache: out of memory for the index");
    s->slabs[number].announced = true;
    return 0;
}

int space_load_slot(struct space *s, struct space_load *load, unsigned dir, const struct cache_place *place,
                    const struct cache_record *record)
{
    uint32_t id = (s->dirs[dir].first + place->slab) << SPACE_SLOT_BITS | place->slot;
    struct slot *slot = space_slot_at(s, id);
    struct space_loaded loaded = {.seq = record->seq, .id = id};
    if (vec_push(&load->slots, loaded))
        return error_set(-ENOMEM, "cache: out of memory for the index");
    slot->recorded = true;
    slot->digest = record->digest;
    slot->plain_len = record->plain_len;
    memcpy(slab_of(s, id)->crcs + (size_t)place->slot * cache_class_blocks(place->class), record->crcs,
           cache_class_blocks(place->class) * sizeof(uint32_t));
    s->clock = GR_MAX(s->clock, record->seq);
    return 0;
}

static int by_seq(const void *a, const void *b)
{
    uint64_t x = ((const struct space_loaded *)a)->seq, y = ((const struct space_loaded *)b)->seq;
    return x < y ? -1 : x > y ? 1 : 0;
}

static void load_one(struct space *s, const struct space_loaded *loaded)
{
    struct slot *slot = space_slot_at(s, loaded->id);
    uint32_t twin = space_find(s, &slot->digest);
    if (twin != SPACE_NONE) /* evicted once, but the end of its record was lost: the newer one counts */
        space_drop(s, twin);
    evict_list_remove(&s->free[slab_of(s, loaded->id)->class], node_at, s, loaded->id);
    slot->state = SLOT_FILLING;
    index_insert(s, loaded->id);
    space_commit(s, loaded->id);
    slab_of(s, loaded->id)->used = slot->used = (uint32_t)loaded->seq;
}

void space_load_finish(struct space *s, struct space_load *load)
{
    for (size_t i = 0; i < s->dir_count; i++) {
        struct space_dir *d = &s->dirs[i];
        d->unbound.len = 0;
        for (uint32_t k = d->geometry.slab_count; k-- > 0;) {
            struct slab *slab = &s->slabs[d->first + k];
            if (!slab->slots)
                d->unbound.items[d->unbound.len++] = k;
            slab->used = (uint32_t)s->clock - (UINT32_C(1) << 30); /* long ago, unless a slot says otherwise */
        }
    }
    if (load->slots.len)
        qsort(load->slots.items, load->slots.len, sizeof *load->slots.items, by_seq);
    for (size_t i = 0; i < load->slots.len; i++)
        load_one(s, &load->slots.items[i]);
    vec_release(&load->slots);
}
