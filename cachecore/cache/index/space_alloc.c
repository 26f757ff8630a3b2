/* Finding a slot for a chunk.
 *
 * A chunk's home directory follows from its digest, in proportion to the sizes of the writable directories of one
 * medium. So an evicted chunk returns to the pool whose policy still remembers it. The search goes
 *
 *    1. home directory:       a free slot of the class, or an unbound slab
 *    2. the others of the medium: the same
 *    3. the slower medium:    the same
 *    4. evict:                on the slower medium if there is one; metadata on the faster one
 *
 * A slab is bound to a size class when the class first needs one. A full class evicts within itself. Every
 * REBIND_PERIOD-th time it takes a cold slab of another class instead, if everything in that slab was used longer ago
 * than its own next victim: so space follows a workload that moves from one chunk size to another. A class without
 * any slab takes a cold one at once. A slab with a slot that is kept is never taken. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cache/index/space_internal.h"

enum {
    REBIND_PERIOD = 32,
    META_SHARE = 4,  /* metadata may take a quarter of the capacity from data */
    COLD_LOOKS = 64, /* slabs visited in one search for a cold one */
    OWN_LOOKS = 512, /* slots visited in one search for a victim of a quota */
    OWN_TRIES = 8,   /* victims of a full quota that make room for one chunk */
    COLD_TRIES = 4,  /* of those visited, the coldest ones, whose slots are then checked for being busy */
};

/* ---- slabs ---- */

int space_bind_slab(struct space *s, uint32_t number, unsigned class, uint32_t epoch)
{
    struct slab *slab = &s->slabs[number];
    uint32_t count = cache_class_slots(&s->dirs[slab->dir].geometry, class);
    slab->slots = calloc(count, sizeof *slab->slots);
    if (!slab->slots)
        return -ENOMEM;
    slab->slot_count = count;
    slab->kept = 0;
    slab->class = (uint8_t) class;
    slab->epoch = epoch;
    slab->announced = false;
    slab->used = (uint32_t)s->clock;
    return 0;
}

/* Bind a slab and put its slots into the free list. */
static int bind_free(struct space *s, uint32_t number, unsigned class, uint32_t epoch)
{
    int rc = space_bind_slab(s, number, class, epoch);
    for (uint32_t i = 0; !rc && i < s->slabs[number].slot_count; i++)
        space_make_free(s, number << SPACE_SLOT_BITS | i);
    return rc;
}

/* Is any slot of the slab being written, moved or read? */
static bool slab_busy(const struct slab *slab)
{
    for (uint32_t i = 0; i < slab->slot_count; i++)
        if (slab->slots[i].state == SLOT_FILLING || slab->slots[i].state == SLOT_MOVING ||
            atomic_load(&slab->slots[i].node.pins))
            return true;
    return false;
}

/* Was `a` used before `b`? By difference, since the clock's 32 bits wrap. */
static bool older(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

/* The coldest slabs of a search so far. */
struct candidates {
    uint32_t slabs[COLD_TRIES]; /* the one used longest ago first */
    unsigned n;
};

/* Insert a slab in the order of use; the warmest candidate drops out. */
static void add_candidate(const struct space *s, struct candidates *c, uint32_t number)
{
    unsigned at = c->n < COLD_TRIES ? c->n++ : COLD_TRIES;
    for (; at > 0 && older(s->slabs[number].used, s->slabs[c->slabs[at - 1]].used); at--)
        if (at < COLD_TRIES)
            c->slabs[at] = c->slabs[at - 1];
    if (at < COLD_TRIES)
        c->slabs[at] = number;
}

/* Return a slab of another class that is cold and not busy, or SPACE_NONE: of COLD_LOOKS slabs, from where the last
 * search ended, the one used longest ago, and before *limit if there is one. Without a limit the search goes on until
 * it finds a candidate: otherwise the caller would wait for readers and writers that have nothing to do with
 * unvisited slabs.
 */
static uint32_t cold_slab(struct space *s, unsigned dir, unsigned class, const uint32_t *limit)
{
    struct space_dir *d = &s->dirs[dir];
    struct candidates c = {.n = 0};
    for (uint32_t i = 0; i < d->geometry.slab_count && (i < COLD_LOOKS || (!limit && !c.n)); i++) {
        d->hand = d->hand + 1 < d->geometry.slab_count ? d->hand + 1 : 0;
        const struct slab *slab = &s->slabs[d->first + d->hand];
        if (slab->slots && slab->class != class && !slab->kept && (!limit || older(slab->used, *limit)))
            add_candidate(s, &c, d->first + d->hand);
    }
    for (unsigned i = 0; i < c.n; i++)
        if (!slab_busy(&s->slabs[c.slabs[i]]))
            return c.slabs[i];
    return SPACE_NONE;
}

/* Return the epoch of the slab's next binding; 0 is never used. */
static uint32_t next_epoch(const struct slab *slab)
{
    return slab->epoch + 1 ? slab->epoch + 1 : 1;
}

/* Evict everything in a slab that is not busy, and unbind it. */
static void empty_slab(struct space *s, uint32_t number)
{
    struct slab *slab = &s->slabs[number];
    struct space_dir *d = &s->dirs[slab->dir];
    for (uint32_t i = 0; i < slab->slot_count; i++) {
        uint32_t id = number << SPACE_SLOT_BITS | i;
        if (slab->slots[i].state == SLOT_READY) {
            space_forget(s, id);
            s->evictions++;
        } else {
            evict_list_remove(&d->free[slab->class], space_node_at, s, id);
        }
    }
    free(slab->slots);
    slab->slots = NULL;
    slab->slot_count = 0;
}

/* Bind a slab of another class to this class, its chunks evicted. */
static int take_slab(struct space *s, uint32_t number, unsigned class)
{
    struct slab *slab = &s->slabs[number];
    struct space_dir *d = &s->dirs[slab->dir];
    empty_slab(s, number);
    uint32_t epoch = next_epoch(slab);
    int rc = bind_free(s, number, class, epoch);
    if (rc) { /* no memory for its slots: it becomes unbound, and keeps the epoch already used */
        slab->epoch = epoch;
        d->unbound.items[d->unbound.len++] = number - d->first;
    }
    return rc;
}

/* An unbound slab costs no chunk, so it goes first. */
uint32_t space_yield(struct space *s, unsigned dir)
{
    struct space_dir *d = &s->dirs[dir];
    uint32_t number;
    if (d->unbound.len) {
        number = d->first + d->unbound.items[--d->unbound.len];
    } else {
        number = cold_slab(s, dir, CACHE_CLASSES /* of none */, NULL);
        if (number == SPACE_NONE)
            return number;
        empty_slab(s, number);
    }
    s->slabs[number].yielded = true;
    d->yielded++;
    return number - d->first;
}

uint32_t space_yielded(const struct space *s, unsigned dir)
{
    const struct space_dir *d = &s->dirs[dir];
    for (uint32_t i = 0; d->yielded && i < d->geometry.slab_count; i++)
        if (s->slabs[d->first + i].yielded)
            return i;
    return SPACE_NONE;
}

void space_regain(struct space *s, unsigned dir, uint32_t slab)
{
    struct space_dir *d = &s->dirs[dir];
    assert(s->slabs[d->first + slab].yielded);
    s->slabs[d->first + slab].yielded = false;
    d->yielded--;
    d->unbound.items[d->unbound.len++] = slab; /* its capacity is for all slabs */
}

/* ---- in one directory ---- */

/* Take the first free slot that no reader of an old chunk still has pinned. */
static uint32_t pop_free(struct space *s, unsigned dir, unsigned class)
{
    struct evict_list *list = &s->dirs[dir].free[class];
    uint32_t id = list->head;
    while (id != SPACE_NONE && space_busy_at(s, id))
        id = space_slot_at(s, id)->node.next;
    if (id != SPACE_NONE)
        evict_list_remove(list, space_node_at, s, id);
    return id;
}

/* Take a free slot, if need be from an unbound slab. -EAGAIN: there is neither; -ENOMEM. */
static int take_free(struct space *s, unsigned dir, unsigned class, bool meta, uint32_t *out_id)
{
    (void)meta;
    struct space_dir *d = &s->dirs[dir];
    *out_id = pop_free(s, dir, class);
    if (*out_id != SPACE_NONE)
        return 0;
    if (!d->unbound.len)
        return -EAGAIN;
    uint32_t number = d->first + d->unbound.items[d->unbound.len - 1];
    int rc = bind_free(s, number, class, next_epoch(&s->slabs[number]));
    if (rc)
        return rc;
    d->unbound.len--;
    *out_id = pop_free(s, dir, class);
    return 0;
}

/* Return the next victim of a class, or SPACE_NONE. Data evicts data. Metadata evicts data up to its share of the
 * capacity, and other metadata above it, as far as there is some in the pool. */
static uint32_t victim(struct space *s, unsigned dir, unsigned class, bool meta)
{
    uint32_t data_pool = space_pool(dir, class, false), meta_pool = space_pool(dir, class, true);
    if (!meta)
        return evict_victim(s->evict, data_pool);
    bool over = s->meta_bytes + cache_class_slot_size(class) > s->capacity / META_SHARE;
    uint32_t id = evict_victim(s->evict, over ? meta_pool : data_pool);
    return id != SPACE_NONE ? id : evict_victim(s->evict, over ? data_pool : meta_pool);
}

/* Take a slot by evicting its chunk, or by rebinding a cold slab. -EAGAIN: all are busy; -ENOMEM. */
static int take_used(struct space *s, unsigned dir, unsigned class, bool meta, uint32_t *out_id)
{
    struct space_dir *d = &s->dirs[dir];
    uint32_t id = victim(s, dir, class, meta), cold = SPACE_NONE;
    if (id == SPACE_NONE) {
        cold = cold_slab(s, dir, class, NULL);
    } else if (++d->full_allocs[class] >= REBIND_PERIOD) {
        uint32_t oldest = evict_oldest(s->evict, space_pool(dir, class, meta));
        d->full_allocs[class] = 0;
        cold = cold_slab(s, dir, class, &space_slot_at(s, oldest != SPACE_NONE ? oldest : id)->used);
    }
    if (cold != SPACE_NONE) {
        int rc = take_slab(s, cold, class);
        *out_id = rc ? SPACE_NONE : pop_free(s, dir, class);
        return rc;
    }
    *out_id = id;
    if (id == SPACE_NONE)
        return -EAGAIN;
    space_forget(s, id);
    s->evictions++;
    return 0;
}

/* ---- over the directories ---- */

static bool eligible(const struct space *s, unsigned dir, enum cache_media media)
{
    return s->dirs[dir].writable && s->dirs[dir].media == media;
}

/* The directory's share when homes are chosen: its size in 4 KiB units; 0: not eligible. */
static uint64_t weight(const struct space *s, unsigned dir, enum cache_media media)
{
    return eligible(s, dir, media) ? cache_geometry_data_size(&s->dirs[dir].geometry) >> 12 : 0;
}

/* Return the chunk's home directory among those of the medium; SPACE_NONE: none is writable. */
static uint32_t home_of(const struct space *s, const struct digest *digest, enum cache_media media)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < s->dir_count; i++)
        total += weight(s, i, media);
    uint64_t spot = (space_key_of(digest).word[0] >> 44) * total >> 20;
    for (unsigned i = 0; i < s->dir_count; i++) {
        if (spot < weight(s, i, media))
            return i;
        spot -= weight(s, i, media);
    }
    return SPACE_NONE;
}

/* The medium on which a request may evict. Data without a wish evicts on the slower one, if there is one. */
static enum cache_media media_of_last_resort(const struct space *s, const struct space_request *request)
{
    if (request->media != CACHE_MEDIA_ANY)
        return request->media;
    bool slow = !(request->flags & RECORD_META) && home_of(s, &request->digest, CACHE_MEDIA_HDD) != SPACE_NONE;
    return slow || home_of(s, &request->digest, CACHE_MEDIA_SSD) == SPACE_NONE ? CACHE_MEDIA_HDD : CACHE_MEDIA_SSD;
}

/* Could waiting for readers and writers free a slot? Not where everything is kept. */
static bool worth_waiting(const struct space *s, const struct space_request *request, unsigned class)
{
    for (uint32_t i = 0; i < s->slab_count; i++) {
        const struct slab *slab = &s->slabs[i];
        const struct space_dir *d = &s->dirs[slab->dir];
        if (d->writable && !slab->yielded && (request->media == CACHE_MEDIA_ANY || request->media == d->media) &&
            slab->kept < (slab->class == class ? slab->slot_count : 1))
            return true;
    }
    return false;
}

typedef int take_in_dir(struct space *s, unsigned dir, unsigned class, bool meta, uint32_t *out_id);

/* Take a slot at home, else in another directory of the medium. -EAGAIN: nowhere; -ENODEV: none is writable;
 * -ENOMEM. */
static int try_dirs(struct space *s, enum cache_media media, const struct space_request *request, take_in_dir *take,
                    uint32_t *out_id)
{
    unsigned class = cache_class_of(request->stored_len);
    bool meta = request->flags & RECORD_META;
    uint32_t home = home_of(s, &request->digest, media);
    if (home == SPACE_NONE)
        return -ENODEV;
    int rc = take(s, home, class, meta, out_id);
    for (unsigned i = 0; rc == -EAGAIN && i < s->dir_count; i++)
        if (i != home && eligible(s, i, media))
            rc = take(s, i, class, meta, out_id);
    return rc;
}

/* The pool in which the policy would put the chunk: that of its home. */
static uint32_t pool_of_request(const struct space *s, const struct space_request *request, enum cache_media media)
{
    return space_pool(home_of(s, &request->digest, media), cache_class_of(request->stored_len),
                      request->flags & RECORD_META);
}

/* Does the policy let the chunk evict another one? It always does for metadata, and when forced. */
static bool policy_admits(const struct space *s, const struct space_request *request, enum cache_media media)
{
    uint64_t key = space_key_of(&request->digest).word[1];
    if (request->force)
        evict_force(s->evict, key);
    return request->force || request->flags & RECORD_META ||
           evict_admit(s->evict, pool_of_request(s, request, media), key);
}

bool space_admits(const struct space *s, const struct space_request *request)
{
    enum cache_media last = media_of_last_resort(s, request);
    for (unsigned i = 0; i < s->dir_count; i++)
        if ((request->media == CACHE_MEDIA_ANY || request->media == s->dirs[i].media) && s->dirs[i].writable &&
            (s->dirs[i].unbound.len || s->dirs[i].free[cache_class_of(request->stored_len)].head != SPACE_NONE))
            return true;
    return home_of(s, &request->digest, last) != SPACE_NONE && policy_admits(s, request, last);
}

/* Evict on the medium of last resort, else on the other one. -EDQUOT: the policy refuses, or nothing can ever be
 * evicted. */
static int space_alloc_make_room(struct space *s, const struct space_request *request, uint32_t *out_id)
{
    enum cache_media media = media_of_last_resort(s, request);
    if (home_of(s, &request->digest, media) == SPACE_NONE)
        return -ENODEV;
    if (!policy_admits(s, request, media))
        return -EDQUOT;
    int rc = try_dirs(s, media, request, take_used, out_id);
    if (rc == -EAGAIN && request->media == CACHE_MEDIA_ANY) {
        enum cache_media other = media == CACHE_MEDIA_SSD ? CACHE_MEDIA_HDD : CACHE_MEDIA_SSD;
        if (try_dirs(s, other, request, take_used, out_id) == 0)
            return 0;
    }
    return rc == -EAGAIN && !worth_waiting(s, request, cache_class_of(request->stored_len)) ? -EDQUOT : rc;
}

/* Find a slot by steps 1 to 4 (top of the file). The slot is in no list afterwards. */
static int find_room(struct space *s, const struct space_request *request, uint32_t *out_id)
{
    int rc = -EAGAIN;
    for (enum cache_media media = CACHE_MEDIA_SSD; media < CACHE_MEDIA_ANY && rc && rc != -ENOMEM; media++) {
        if (request->media != CACHE_MEDIA_ANY && request->media != media)
            continue;
        if (media == CACHE_MEDIA_HDD && request->media == CACHE_MEDIA_ANY && request->flags & RECORD_META &&
            rc != -ENODEV)
            break; /* metadata makes room on the faster medium first */
        rc = try_dirs(s, media, request, take_free, out_id);
    }
    return rc && rc != -ENOMEM ? space_alloc_make_room(s, request, out_id) : rc;
}

void space_miss(struct space *s, const struct space_request *request)
{
    enum cache_media media = media_of_last_resort(s, request);
    if (home_of(s, &request->digest, media) != SPACE_NONE)
        evict_miss(s->evict, pool_of_request(s, request, media), space_key_of(&request->digest).word[1],
                   evict_part(request->asked, request->plain_len));
}

/* Give a slot to its writer: state, sequence number, and whether its slab's table entry and an old record need
 * writing. */
static void hand_out(struct space *s, uint32_t id, const struct space_request *request, enum slot_state state,
                     struct space_slot *out)
{
    space_begin(s, id, request, state);
    space_describe(s, id, out);
    struct slab *slab = space_slab_of(s, id);
    out->seq = ++s->clock;
    out->owner = request->group ? s->groups[request->group - 1].quota.owner : 0;
    out->slab_bound = !slab->announced;
    slab->announced = true;
    space_slot_at(s, id)->recorded = true;
}

/* ---- quotas ---- */

/* Return the owner's group; 0: it has none. */
static unsigned find_group(const struct space *s, uint64_t owner)
{
    for (size_t i = 0; i < s->group_count; i++)
        if (s->groups[i].quota.owner == owner)
            return (unsigned)i + 1;
    return 0;
}

unsigned space_group_of(struct space *s, uint64_t owner, size_t most)
{
    unsigned group = find_group(s, owner);
    if (group || s->group_count >= most)
        return group;
    s->groups[s->group_count++].quota = (struct space_quota){.owner = owner, .limit = SPACE_NO_LIMIT};
    return (unsigned)s->group_count;
}

unsigned space_set_limit(struct space *s, uint64_t owner, uint64_t limit)
{
    unsigned group = space_group_of(s, owner, SPACE_GROUPS_MAX);
    for (size_t i = 0; !group && i < s->group_count; i++)
        if (!s->groups[i].used && s->groups[i].quota.limit == SPACE_NO_LIMIT) {
            s->groups[i].quota.owner = owner;
            group = (unsigned)i + 1;
        }
    if (group)
        s->groups[group - 1].quota.limit = limit;
    return group;
}

unsigned space_limited(const struct space *s, uint64_t owner)
{
    unsigned group = find_group(s, owner);
    return group && s->groups[group - 1].quota.limit != SPACE_NO_LIMIT ? group : 0;
}

/* Return the slot of a quota that was used longest ago, among those met in a bounded search from where the last one
 * ended, but for the n that are chosen already; SPACE_NONE: none that may be evicted. */
static uint32_t own_victim(struct space *s, unsigned group, const uint32_t *chosen, unsigned n)
{
    struct space_group *g = &s->groups[group - 1];
    uint32_t best = SPACE_NONE;
    for (unsigned looks = 0; looks < OWN_LOOKS; looks++) {
        if (g->slot >= s->slabs[g->slab].slot_count) {
            g->slab = g->slab + 1 < s->slab_count ? g->slab + 1 : 0;
            g->slot = 0;
            continue;
        }
        uint32_t id = g->slab << SPACE_SLOT_BITS | g->slot++;
        const struct slot *slot = space_slot_at(s, id);
        bool taken = false;
        for (unsigned i = 0; i < n; i++)
            taken |= chosen[i] == id;
        if (!taken && slot->group == group && slot->state == SLOT_READY && !space_kept(slot->flags) &&
            !space_busy_at(s, id) && (best == SPACE_NONE || older(slot->used, space_slot_at(s, best)->used)))
            best = id;
    }
    return best;
}

/* Make a quota that is full evict its own chunks, all that are needed or none. -EDQUOT: it cannot, or the policy keeps
 * what it has. One that was lowered below what it has evicts that in any case, a few chunks at a time. */
static int charge(struct space *s, const struct space_request *request)
{
    if (!request->group || request->flags & RECORD_META)
        return 0;
    const struct space_group *g = &s->groups[request->group - 1];
    uint32_t size = cache_class_slot_size(cache_class_of(request->stored_len));
    if (g->used + size <= g->quota.limit)
        return 0;
    enum cache_media media = media_of_last_resort(s, request);
    bool admitted = request->force || home_of(s, &request->digest, media) == SPACE_NONE ||
                    evict_admit(s->evict, pool_of_request(s, request, media), space_key_of(&request->digest).word[1]);
    uint32_t victims[OWN_TRIES];
    unsigned n = 0;
    uint64_t freed = 0;
    while (n < OWN_TRIES && g->used - freed + (admitted ? size : 0) > g->quota.limit) {
        victims[n] = own_victim(s, request->group, victims, n);
        if (victims[n] == SPACE_NONE)
            break;
        freed += cache_class_slot_size(space_slab_of(s, victims[n++])->class);
    }
    bool fits = admitted && g->used - freed + size <= g->quota.limit, over = g->used > g->quota.limit;
    for (unsigned i = 0; i < n && (fits || over); i++) {
        space_forget(s, victims[i]);
        space_make_free_first(s, victims[i]);
        s->evictions++;
    }
    s->quota_refusals += !fits;
    return fits ? 0 : -EDQUOT;
}

int space_alloc(struct space *s, const struct space_request *request, struct space_slot *out)
{
    uint32_t id;
    int rc = charge(s, request);
    if (!rc)
        rc = find_room(s, request, &id);
    if (!rc)
        hand_out(s, id, request, SLOT_FILLING, out);
    return rc;
}

int space_refill(struct space *s, uint32_t id, const struct space_request *request, struct space_slot *out)
{
    struct space_request pinned = *request;
    pinned.flags |= RECORD_PINNED;
    pinned.force = true;
    assert(space_slot_at(s, id)->state == SLOT_DAMAGED);
    if (!s->dirs[space_dir_of(s, id)].writable)
        return -ENODEV;
    if (space_busy_at(s, id))
        return -EAGAIN;
    if (cache_class_of(request->stored_len) == space_slab_of(s, id)->class) {
        space_leave(s, id);
        hand_out(s, id, &pinned, SLOT_FILLING, out);
        return 0;
    }
    /* Its stored length needs another class. The damaged slot keeps the pin until another one is found; its slab is
     * not taken for that, since something in it is kept. */
    uint32_t to;
    int rc = find_room(s, &pinned, &to);
    if (rc)
        return rc;
    space_give_up(s, id);
    hand_out(s, to, &pinned, SLOT_FILLING, out);
    return 0;
}

/* The request is made from the slot itself. The slot is pinned while room is searched. */
int space_alloc_move(struct space *s, uint32_t id, enum cache_media media, struct space_slot *out)
{
    const struct slot *slot = space_slot_at(s, id);
    assert(slot->state == SLOT_READY);
    struct space_request request = {
        .plain_len = slot->plain_len,
        .stored_len = slot->stored_len,
        .flags = slot->flags,
        .group = slot->group,
        .media = media,
    };
    le64_put(request.digest.b, slot->key.word[0]); /* the space knows only these 16 bytes */
    le64_put(request.digest.b + 8, slot->key.word[1]);
    uint32_t to;
    atomic_fetch_add(&space_slot_at(s, id)->node.pins, 1); /* so that it cannot become its own victim */
    int rc = find_room(s, &request, &to);
    space_unpin(&space_slot_at(s, id)->node.pins);
    if (!rc)
        hand_out(s, to, &request, SLOT_MOVING, out);
    return rc;
}
