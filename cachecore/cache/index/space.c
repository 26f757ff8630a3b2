/* The index from digest to slot, and the changes of a slot's state (the table in space.h). Which slot is taken is
 * decided elsewhere (space_alloc.c).
 *
 *    buckets --> slot.hash_next --> ...          by the first 4 bytes of the digest
 *    free lists, one per directory and class     free slots
 *    pools of the policy, one per directory,     ready slots that are not pinned by the user
 *    class and kind (data, metadata)
 *
 * Age is counted in fills (the clock's low 32 bits, compared by difference): cheap, and time stands still while
 * nothing needs room.
 *
 * The index does not use base/map.h. Its chains are 4-byte slot numbers inside the slots, less than half of what a
 * map needs at 100 million slots, and it is made once at full size, since it must not be copied under the cache's
 * lock to grow.
 *
 * Memory has 16 bytes of each digest. Two chunks that agree in those are told apart by the record on disk, which
 * every read compares whole; the false hit is then a miss.
 */
#include "cache/index/space.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"
#include "cache/index/space_internal.h"
#include "format/chunk.h"

_Static_assert(sizeof(struct slot) == 48, "docs/internals/cache.md states the memory of a chunk");

enum { BUCKETS_MIN = 1024 };

struct slot *space_slot_at(const struct space *s, uint32_t id)
{
    return &s->slabs[id >> SPACE_SLOT_BITS].slots[id & SPACE_SLOT_MASK];
}

unsigned space_dir_of(const struct space *s, uint32_t id)
{
    return space_slab_of(s, id)->dir;
}

struct evict_node *space_node_at(void *arg, uint32_t id)
{
    return &space_slot_at(arg, id)->node;
}

/* Pins are taken under the lock and released without it. Reading 0 here means that the last reader is done with the
 * slot's bytes. Sequentially consistent, for the fill that waits for a pin (cache_unpin). */
bool space_busy_at(void *arg, uint32_t id)
{
    return atomic_load(&space_slot_at(arg, id)->node.pins) != 0;
}

void space_unpin(_Atomic uint16_t *pins)
{
    atomic_fetch_sub(pins, 1);
}

/* ---- the index ---- */

uint32_t *space_bucket_of(const struct space *s, struct space_key key)
{
    return &s->buckets[(uint32_t)key.word[0] & s->bucket_mask];
}

static bool key_equal(struct space_key a, struct space_key b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

uint32_t space_find_key(const struct space *s, struct space_key key)
{
    uint32_t id = *space_bucket_of(s, key);
    while (id != SPACE_NONE && !key_equal(space_slot_at(s, id)->key, key))
        id = space_slot_at(s, id)->hash_next;
    return id;
}

uint32_t space_find(const struct space *s, const struct digest *digest)
{
    return space_find_key(s, space_key_of(digest));
}

static void index_insert(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    uint32_t *bucket = space_bucket_of(s, slot->key);
    slot->hash_next = *bucket;
    *bucket = id;
}

/* Unlink a slot from its chain; it must be in the index. */
static void index_remove(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    uint32_t *link = space_bucket_of(s, slot->key);
    while (*link != id)
        link = &space_slot_at(s, *link)->hash_next;
    *link = slot->hash_next;
}

/* ---- life ---- */

/* Make one bucket for each chunk of default size that fits: chains stay short, and never grow longer by resizing. */
static int buckets_init(struct space *s)
{
    uint64_t request = s->capacity / CHUNK_SIZE_DEFAULT, n = BUCKETS_MIN;
    while (n < request && n < UINT32_C(1) << 31)
        n *= 2;
    s->buckets = malloc(n * sizeof *s->buckets);
    if (!s->buckets)
        return error_no_memory();
    memset(s->buckets, 0xff, n * sizeof *s->buckets); /* SPACE_NONE */
    s->bucket_mask = (uint32_t)n - 1;
    return 0;
}

/* Add a directory with all slabs unbound, in an order in which the first slab is bound first. */
static int dir_init(struct space *s, unsigned dir, const struct cache_geometry *g, enum cache_media media)
{
    struct space_dir *d = &s->dirs[dir];
    d->geometry = *g;
    d->media = media;
    d->writable = true;
    d->first = s->slab_count;
    for (unsigned c = 0; c < CACHE_CLASSES; c++)
        evict_list_init(&d->free[c]);
    if (vec_reserve(&d->unbound, g->slab_count))
        return -ENOMEM;
    for (uint32_t i = g->slab_count; i-- > 0;) {
        d->unbound.items[d->unbound.len++] = i;
        s->slabs[d->first + i].dir = (uint8_t)dir;
    }
    s->slab_count += g->slab_count;
    return 0;
}

/* Allocate slabs, buckets, directories and the policy. What fails half way is released by space_init. */
static int init_parts(struct space *s, const struct space_config *config)
{
    uint64_t slabs = 0;
    for (size_t i = 0; i < config->dir_count; i++) {
        slabs += config->dirs[i].geometry.slab_count;
        s->capacity += cache_geometry_data_size(&config->dirs[i].geometry);
    }
    if (slabs > CACHE_SLABS_MAX)
        return error_set(-EINVAL, "cache: the directories are too large together; the most is 127 TiB");
    s->slabs = calloc(slabs ? slabs : 1, sizeof *s->slabs);
    int rc = s->slabs ? buckets_init(s) : error_no_memory();
    for (unsigned i = 0; !rc && i < config->dir_count; i++, s->dir_count++)
        rc = dir_init(s, i, &config->dirs[i].geometry, config->dirs[i].media);
    struct evict_config evict = {
        .policy = config->policy,
        .pools = (uint32_t)config->dir_count * CACHE_CLASSES * 2,
        .capacity = s->capacity / CHUNK_SIZE_DEFAULT,
        .node_at = space_node_at,
        .busy = space_busy_at,
        .arg = s,
    };
    return rc ? rc : evict_new(&evict, &s->evict);
}

int space_init(struct space *s, const struct space_config *config)
{
    assert(config->dir_count <= SPACE_DIRS_MAX);
    memset(s, 0, sizeof *s);
    int rc = init_parts(s, config);
    if (rc)
        space_release(s);
    return rc;
}

void space_release(struct space *s)
{
    for (uint32_t i = 0; i < s->slab_count; i++)
        free(s->slabs[i].slots);
    for (size_t i = 0; i < SPACE_DIRS_MAX; i++)
        vec_release(&s->dirs[i].unbound);
    evict_free(s->evict);
    free(s->slabs);
    free(s->buckets);
    memset(s, 0, sizeof *s);
}

void space_dir_writable(struct space *s, unsigned dir, bool writable)
{
    s->dirs[dir].writable = writable;
}

/* ---- reading ---- */

/* Mark a slot and its slab as used now. */
static void use_slot(struct space *s, uint32_t id)
{
    space_slab_of(s, id)->used = space_slot_at(s, id)->used = (uint32_t)s->clock;
}

static uint32_t pool_of(const struct space *s, uint32_t id)
{
    const struct slab *slab = space_slab_of(s, id);
    return space_pool(slab->dir, slab->class, space_slot_at(s, id)->flags & RECORD_META);
}

static uint64_t key_at(const struct space *s, uint32_t id)
{
    return space_slot_at(s, id)->key.word[1];
}

void space_describe(struct space *s, uint32_t id, struct space_slot *out)
{
    struct slab *slab = space_slab_of(s, id);
    struct slot *slot = space_slot_at(s, id);
    *out = (struct space_slot){
        .id = id,
        .dir = slab->dir,
        .place = {.slab = (id >> SPACE_SLOT_BITS) - s->dirs[slab->dir].first,
                  .slot = id & SPACE_SLOT_MASK,
                  .epoch = slab->epoch,
                  .class = slab->class},
        .plain_len = slot->plain_len,
        .stored_len = slot->stored_len,
        .flags = slot->flags,
        .pins = &slot->node.pins,
        .recorded = slot->recorded,
    };
}

bool space_can_pin(const struct space *s, uint32_t id)
{
    return atomic_load(&space_slot_at(s, id)->node.pins) < UINT16_MAX;
}

/* Is a ready slot in the eviction policy? A pinned one is not. */
static bool in_policy(const struct space *s, uint32_t id)
{
    return !(space_slot_at(s, id)->flags & RECORD_PINNED);
}

void space_pin_read(struct space *s, uint32_t id, uint32_t asked, struct space_slot *out)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_READY);
    assert(space_can_pin(s, id));
    atomic_fetch_add(&slot->node.pins, 1);
    use_slot(s, id);
    if (in_policy(s, id))
        evict_hit(s->evict, pool_of(s, id), id, key_at(s, id), evict_part(asked, slot->plain_len));
    space_describe(s, id, out);
}

void space_pin(struct space *s, uint32_t id, struct space_slot *out)
{
    space_pin_read(s, id, 0, out);
}

/* ---- changes of state ---- */

static uint32_t slot_size(const struct space *s, uint32_t id)
{
    return cache_class_slot_size(space_slab_of(s, id)->class);
}

/* Add a slot to the sums of metadata, pins and its quota (sign 1), or subtract it (-1). */
static void count_flags(struct space *s, uint32_t id, int sign)
{
    unsigned flags = space_slot_at(s, id)->flags;
    uint64_t bytes = sign > 0 ? slot_size(s, id) : -(uint64_t)slot_size(s, id);
    space_slab_of(s, id)->kept += space_kept(flags) ? (uint32_t)sign : 0;
    s->meta_bytes += flags & RECORD_META ? bytes : 0;
    s->pinned_bytes += flags & RECORD_PINNED ? bytes : 0;
    unsigned group = space_slot_at(s, id)->group;
    if (group && !(flags & RECORD_META))
        s->groups[group - 1].used += bytes;
}

void space_begin(struct space *s, uint32_t id, const struct space_request *request, enum slot_state state)
{
    struct slot *slot = space_slot_at(s, id);
    slot->key = space_key_of(&request->digest);
    slot->plain_len = request->plain_len;
    slot->stored_len = request->stored_len;
    slot->group = request->group;
    slot_set_flags(slot, request->flags);
    space_enter(s, id, state);
}

void space_enter(struct space *s, uint32_t id, enum slot_state state)
{
    space_slot_at(s, id)->state = (uint8_t)state;
    if (state != SLOT_MOVING)
        index_insert(s, id);
    count_flags(s, id, 1);
}

void space_leave(struct space *s, uint32_t id)
{
    if (space_slot_at(s, id)->state != SLOT_MOVING)
        index_remove(s, id);
    count_flags(s, id, -1);
}

void space_forget(struct space *s, uint32_t id)
{
    assert(space_slot_at(s, id)->state == SLOT_READY);
    if (in_policy(s, id))
        evict_remove(s->evict, pool_of(s, id), id, key_at(s, id));
    space_leave(s, id);
    s->entries--;
    s->used_bytes -= slot_size(s, id);
}

void space_make_free(struct space *s, uint32_t id)
{
    struct slab *slab = space_slab_of(s, id);
    space_slot_at(s, id)->state = SLOT_FREE;
    evict_list_push_tail(&s->dirs[slab->dir].free[slab->class], space_node_at, s, id);
}

void space_make_free_first(struct space *s, uint32_t id)
{
    struct slab *slab = space_slab_of(s, id);
    space_slot_at(s, id)->state = SLOT_FREE;
    evict_list_push_head(&s->dirs[slab->dir].free[slab->class], space_node_at, s, id);
}

void space_drop(struct space *s, uint32_t id)
{
    space_forget(s, id);
    if (space_record_flags(space_slot_at(s, id)->flags) & RECORD_PINNED)
        space_enter(s, id, SLOT_DAMAGED);
    else
        space_make_free(s, id);
}

void space_give_up(struct space *s, uint32_t id)
{
    assert(space_slot_at(s, id)->state == SLOT_DAMAGED);
    space_leave(s, id);
    space_make_free(s, id);
}

void space_retake(struct space *s, uint32_t id, struct space_slot *out)
{
    if (space_slot_at(s, id)->state == SLOT_DAMAGED)
        space_leave(s, id);
    else
        space_forget(s, id);
    struct slot *slot = space_slot_at(s, id);
    slot_set_flags(slot, slot->flags & ~(unsigned)(RECORD_PINNED | SPACE_SESSION_PINNED));
    space_enter(s, id, SLOT_FILLING);
    space_describe(s, id, out);
}

void space_abort(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_FILLING || slot->state == SLOT_MOVING);
    space_slab_of(s, id)->announced = false; /* writing its entry may be what failed: the next fill writes it again */
    if (slot->state == SLOT_FILLING && slot->flags & RECORD_PINNED) {
        slot->state = SLOT_DAMAGED;
        return;
    }
    space_leave(s, id);
    space_make_free(s, id);
}

/* Make a slot readable, and evictable unless it is pinned. */
static void become_ready(struct space *s, uint32_t id)
{
    space_slot_at(s, id)->state = SLOT_READY;
    if (in_policy(s, id))
        evict_insert(s->evict, pool_of(s, id), id, key_at(s, id));
    use_slot(s, id);
    s->entries++;
    s->used_bytes += slot_size(s, id);
}

void space_commit(struct space *s, uint32_t id)
{
    assert(space_slot_at(s, id)->state == SLOT_FILLING);
    become_ready(s, id);
}

/* Flags are compared because they were copied to the new slot: a pin that changed meanwhile must not be lost. */
bool space_commit_move(struct space *s, uint32_t old_id, uint32_t new_id)
{
    struct slot *slot = space_slot_at(s, new_id);
    assert(slot->state == SLOT_MOVING);
    bool there = space_find_key(s, slot->key) == old_id && space_slot_at(s, old_id)->state == SLOT_READY &&
                 space_slot_at(s, old_id)->flags == slot->flags;
    if (!there)
        return false;
    space_forget(s, old_id);
    space_enter(s, old_id, SLOT_MOVING);
    index_insert(s, new_id);
    become_ready(s, new_id);
    return true;
}

int space_set_pinned(struct space *s, uint32_t id, bool pinned)
{
    struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_READY);
    bool is_pinned = slot->flags & RECORD_PINNED;
    slot_set_flags(slot, slot->flags & ~(unsigned)SPACE_SESSION_PINNED);
    if (pinned == is_pinned)
        return 0;
    if (pinned && s->pinned_bytes + slot_size(s, id) > space_pin_limit(s))
        return -EDQUOT;
    if (pinned)
        evict_remove(s->evict, pool_of(s, id), id, key_at(s, id));
    count_flags(s, id, -1);
    slot->flags ^= RECORD_PINNED;
    count_flags(s, id, 1);
    if (!pinned)
        evict_insert(s->evict, pool_of(s, id), id, key_at(s, id));
    return 0;
}

int space_session_pin(struct space *s, uint32_t id)
{
    struct slot *slot = space_slot_at(s, id);
    if (slot->flags & RECORD_PINNED)
        return 0;
    int rc = space_set_pinned(s, id, true);
    if (!rc)
        slot->flags |= SPACE_SESSION_PINNED;
    return rc;
}

void space_session_unpin(struct space *s, uint32_t id)
{
    bool held = space_slot_at(s, id)->flags & SPACE_SESSION_PINNED;
    int rc = held ? space_set_pinned(s, id, false) : 0;
    assert(!rc); /* only pinning has a limit */
}

/* ---- the invariants ----
 *
 * The state table of space.h as assertions: every slot is where its state says, and every sum is the sum of its slots.
 * For tests, and for builds with GRANARY_CHECK.
 */

/* What a walk over all slots adds up, to be compared with the sums the space keeps. */
struct sums {
    uint64_t in_free[SPACE_DIRS_MAX][CACHE_CLASSES], slots, ready, used, meta, pinned, charged[SPACE_GROUPS_MAX];
};

static void check_slot(const struct space *s, const struct slab *slab, uint32_t id)
{
    const struct slot *slot = space_slot_at(s, id);
    if (slot->state == SLOT_FREE)
        return;
    uint32_t found = space_find_key(s, slot->key);
    assert((found == id) == (slot->state != SLOT_MOVING)); /* in the index, once */
    assert(cache_class_of(slot->stored_len) == slab->class);
    assert(slot->flags & RECORD_ZSTD ? slot->stored_len < slot->plain_len : slot->stored_len == slot->plain_len);
}

/* Check every slot of a slab, add them to the sums, and compare the slab's own count. */
static void check_slab(const struct space *s, uint32_t number, struct sums *sums)
{
    const struct slab *slab = &s->slabs[number];
    uint32_t size = cache_class_slot_size(slab->class), kept = 0;
    sums->slots += slab->slot_count;
    for (uint32_t k = 0; k < slab->slot_count; k++) {
        uint32_t id = number << SPACE_SLOT_BITS | k;
        const struct slot *slot = space_slot_at(s, id);
        bool taken = slot->state != SLOT_FREE;
        check_slot(s, slab, id);
        sums->in_free[slab->dir][slab->class] += !taken;
        sums->ready += slot->state == SLOT_READY;
        sums->used += slot->state == SLOT_READY ? size : 0;
        sums->meta += taken && slot->flags & RECORD_META ? size : 0;
        if (taken && slot->group && !(slot->flags & RECORD_META))
            sums->charged[slot->group - 1] += size;
        sums->pinned += taken && slot->flags & RECORD_PINNED ? size : 0;
        kept += taken && space_kept(slot->flags);
    }
    assert(kept == slab->kept);
}

/* Walk a free list, check its links, and return its length. */
static uint32_t free_length(const struct space *s, unsigned dir, unsigned class)
{
    const struct evict_list *list = &s->dirs[dir].free[class];
    uint32_t n = 0, prev = SPACE_NONE;
    for (uint32_t id = list->head; id != SPACE_NONE; id = space_slot_at(s, id)->node.next) {
        const struct slot *slot = space_slot_at(s, id);
        assert(slot->state == SLOT_FREE && slot->node.prev == prev);
        assert(space_slab_of(s, id)->class == class && space_slab_of(s, id)->dir == dir);
        prev = id;
        n++;
    }
    assert(list->tail == prev);
    return n;
}

/* A slab without slots is either in its directory's list of unbound slabs or yielded. */
static void check_unbound(const struct space *s)
{
    for (size_t i = 0; i < s->dir_count; i++) {
        const struct space_dir *d = &s->dirs[i];
        uint32_t without_slots = 0, yielded = 0;
        for (uint32_t k = 0; k < d->geometry.slab_count; k++) {
            without_slots += !s->slabs[d->first + k].slots;
            yielded += s->slabs[d->first + k].yielded;
            assert(!s->slabs[d->first + k].yielded || !s->slabs[d->first + k].slots);
        }
        assert(yielded == d->yielded && without_slots == d->unbound.len + yielded);
        for (size_t k = 0; k < d->unbound.len; k++)
            assert(!s->slabs[d->first + d->unbound.items[k]].slots &&
                   !s->slabs[d->first + d->unbound.items[k]].yielded);
    }
}

/* Check everything; return the number of slots. */
static uint64_t space_check_all(const struct space *s)
{
    struct sums sums = {0};
    for (uint32_t i = 0; i < s->slab_count; i++)
        check_slab(s, i, &sums);
    for (unsigned d = 0; d < s->dir_count; d++)
        for (unsigned c = 0; c < CACHE_CLASSES; c++)
            assert(free_length(s, d, c) == sums.in_free[d][c]);
    check_unbound(s);
    assert(sums.ready == s->entries);
    assert(sums.used == s->used_bytes);
    assert(sums.meta == s->meta_bytes);
    assert(sums.pinned == s->pinned_bytes);
    for (size_t i = 0; i < s->group_count; i++)
        assert(sums.charged[i] == s->groups[i].used);
    return sums.slots;
}

void space_check(const struct space *s)
{
    space_check_all(s);
}

#ifdef GRANARY_CHECK
void space_assert(struct space *s)
{
    if (s->unchecked-- == 0)
        s->unchecked = space_check_all(s) / SPACE_CHECK_SLOTS;
}
#endif
