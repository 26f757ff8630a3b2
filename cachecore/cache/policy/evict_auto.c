/* auto: a panel of small caches, one a policy, each run by the real code on the same sample of keys
 * (by hash: one in 2^shift of all chunks, in a cache 2^shift times smaller, behaves like the whole).
 * The big cache follows the member that has hit most.
 *
 * Another is followed when it is ahead by more than chance explains: of the asks where the two
 * differed it won by three standard deviations. What was long ago counts less: both sums are halved
 * every five times the seats. The panel begins with the first ask, so it has an opinion when the
 * cache gets full.
 *
 * The seats' table is no map of base/map.h: a panel is one block of fixed size, and nothing is allocated, and so
 * nothing can fail, while the cache's lock is held.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "cache/policy/evict_internal.h"

enum { MEMBERS = 5, SEATS_MAX = 2048, SEATS_MIN = 8, LEAD_MIN = 16, DEVIATIONS = 3, MEMORY = 5 };

struct seat {
    uint64_t key;
    struct evict_node node;
    uint32_t hash_next; /* or the next free one */
};

struct member {
    struct evict *e;
    int64_t ahead, differed; /* of the one followed, and from it; of late, in half asks */
    uint32_t held, used;     /* seats taken now; that ever were */
    uint32_t free;           /* chain of those given back */
    uint32_t buckets[SEATS_MAX];
    struct seat seats[SEATS_MAX];
};

struct panel {
    struct evict_panel base;
    unsigned shift, followed;
    uint64_t asked; /* since the sums were halved */
    struct member members[MEMBERS];
};

/* The first is followed until another proves better. */
static const struct evict_ops *const followable[MEMBERS] = {
    &evict_lfu_firm, &evict_lfu, &evict_s3fifo, &evict_lru, &evict_parts,
};

static struct evict_node *seat_node(void *arg, uint32_t seat)
{
    struct member *m = arg;
    return &m->seats[seat].node;
}

static bool seat_busy(void *arg, uint32_t seat)
{
    (void)arg;
    (void)seat;
    return false;
}

/* ---- one member ---- */

static uint32_t *bucket_of(struct member *m, uint64_t key)
{
    return &m->buckets[(key >> 32) % SEATS_MAX];
}

static uint32_t find(struct member *m, uint64_t key)
{
    uint32_t seat = *bucket_of(m, key);
    while (seat != EVICT_NONE && m->seats[seat].key != key)
        seat = m->seats[seat].hash_next;
    return seat;
}

static void leave(struct member *m)
{
    uint32_t seat = evict_victim(m->e, 0);
    uint64_t key = m->seats[seat].key;
    evict_remove(m->e, 0, seat, key);
    uint32_t *link = bucket_of(m, key);
    while (*link != seat)
        link = &m->seats[*link].hash_next;
    *link = m->seats[seat].hash_next;
    m->seats[seat].hash_next = m->free;
    m->free = seat;
    m->held--;
}

static void enter(struct member *m, uint64_t key)
{
    uint32_t seat = m->free, *bucket = bucket_of(m, key);
    if (seat != EVICT_NONE)
        m->free = m->seats[seat].hash_next;
    else
        seat = m->used++;
    m->seats[seat].key = key;
    m->seats[seat].hash_next = *bucket;
    *bucket = seat;
    evict_insert(m->e, 0, seat, key);
    m->held++;
}

/* true: a hit. */
static bool member_ask(struct member *m, uint64_t key, unsigned part, uint32_t seats)
{
    while (m->held > seats)
        leave(m);
    uint32_t seat = find(m, key);
    if (seat != EVICT_NONE) {
        evict_hit(m->e, 0, seat, key, part);
        return true;
    }
    evict_miss(m->e, 0, key, part);
    bool full = m->held == seats;
    if (full && !evict_admit(m->e, 0, key))
        return false;
    if (full)
        leave(m);
    enter(m, key);
    return false;
}

static int member_init(struct member *m, const struct evict_ops *ops)
{
    m->free = EVICT_NONE;
    for (unsigned i = 0; i < SEATS_MAX; i++)
        m->buckets[i] = EVICT_NONE;
    struct evict_config config = {.pools = 1, .capacity = SEATS_MAX, .node_at = seat_node, .busy = seat_busy, .arg = m};
    return evict_new_ops(&config, ops, &m->e);
}

/* ---- the panel ---- */

static void panel_free(struct evict_panel *base)
{
    struct panel *panel = (struct panel *)base;
    for (unsigned i = 0; i < MEMBERS; i++)
        evict_free(panel->members[i].e);
    free(panel);
}

static void follow(struct panel *panel, unsigned which)
{
    panel->followed = which;
    panel->asked = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        panel->members[i].ahead = panel->members[i].differed = 0;
}

static void judge(struct panel *panel, const bool hit[MEMBERS], uint32_t seats)
{
    unsigned best = panel->followed;
    bool halve = ++panel->asked >= (uint64_t)MEMORY * seats;
    for (unsigned i = 0; i < MEMBERS; i++) {
        struct member *m = &panel->members[i];
        m->ahead += 2 * (hit[i] - hit[panel->followed]);
        m->differed += 2 * (hit[i] != hit[panel->followed]);
        if (halve) {
            m->ahead /= 2;
            m->differed /= 2;
        }
        if (m->ahead > panel->members[best].ahead)
            best = i;
    }
    if (halve)
        panel->asked = 0;
    const struct member *m = &panel->members[best];
    if (m->ahead > 2 * LEAD_MIN && m->ahead * m->ahead > 2 * DEVIATIONS * DEVIATIONS * m->differed)
        follow(panel, best);
}

static bool is_sampled(const struct panel *panel, uint64_t key)
{
    return (key & ((UINT64_C(1) << panel->shift) - 1)) == 0;
}

static void panel_more(struct evict_panel *base, uint64_t key, unsigned part)
{
    struct panel *panel = (struct panel *)base;
    for (unsigned i = 0; is_sampled(panel, key) && i < MEMBERS; i++) {
        struct member *m = &panel->members[i];
        uint32_t seat = find(m, key);
        if (seat != EVICT_NONE)
            evict_more(m->e, seat, part);
        else
            evict_missed_more(m->e, key, part);
    }
}

static const struct evict_ops *panel_ask(struct evict_panel *base, uint64_t key, unsigned part, uint64_t held)
{
    struct panel *panel = (struct panel *)base;
    if (is_sampled(panel, key)) {
        uint64_t share = GR_MIN(GR_MAX(held >> panel->shift, (uint64_t)SEATS_MIN), (uint64_t)SEATS_MAX);
        uint32_t seats = held ? (uint32_t)share : SEATS_MAX;
        bool hit[MEMBERS];
        for (unsigned i = 0; i < MEMBERS; i++)
            hit[i] = member_ask(&panel->members[i], key, part, seats);
        if (held)
            judge(panel, hit, seats);
    }
    return followable[panel->followed];
}

int panel_new(uint64_t capacity, struct evict_panel **out)
{
    _Static_assert(sizeof(struct panel) < 296 << 10, "evict.h and docs/internals/cache.md state the memory");
    struct panel *panel = calloc(1, sizeof *panel);
    if (!panel)
        return -ENOMEM;
    while (capacity >> panel->shift > SEATS_MAX)
        panel->shift++;
    for (unsigned i = 0; i < MEMBERS; i++)
        if (member_init(&panel->members[i], followable[i])) {
            panel_free(&panel->base);
            return -ENOMEM;
        }
    panel->base = (struct evict_panel){.ask = panel_ask, .more = panel_more, .free = panel_free};
    *out = &panel->base;
    return 0;
}
