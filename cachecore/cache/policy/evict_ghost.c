/* A key belongs to one set of four cells, 16 bytes:
 *
 *   cell, 32 bits   | fingerprint 17 | evicted 1 | when 8 | count 6 |     0: empty
 *
 * A new key replaces the cell with the lowest count. If that count is above 1, it is decremented instead and the new
 * key is not stored. So a flood of chunks that are read once does not displace those that are read often.
 *
 * `when` is the number of evictions so far, in units of 1/32 of the window. It wraps after 8 windows: an entry that old
 * may pass for recent once, which costs a place in the wrong queue.
 */
#include "cache/policy/evict_internal.h"

#include <stdlib.h>

#include "base/error.h"

enum { WAYS = 4, TICKS = 32 };
enum { COUNT_MASK = 0x3f, WHEN_SHIFT = 6, WHEN_MASK = 0xff, LEFT = 1 << 14, PRINT_SHIFT = 15 };

int ghost_init(struct ghost *g, uint64_t keys, uint64_t window)
{
    uint64_t sets = GR_MIN(GR_MAX(keys / WAYS, UINT64_C(4)), UINT64_C(1) << 31);
    *g = (struct ghost){
        .cells = calloc(sets * WAYS, sizeof *g->cells), .sets = (uint32_t)sets, .window = GR_MAX(window, UINT64_C(1))};
    return g->cells ? 0 : error_no_memory();
}

void ghost_release(struct ghost *g)
{
    free(g->cells);
    *g = (struct ghost){0};
}

/* The low half of the key chooses the set, the top 17 bits are the fingerprint: independent parts of it. */
static uint32_t *set_of(const struct ghost *g, uint64_t key)
{
    return g->cells + (((key & UINT32_MAX) * g->sets) >> 32) * WAYS;
}

static uint32_t print_of(uint64_t key)
{
    return (uint32_t)(key >> 47);
}

static uint32_t *evict_ghost_find(const struct ghost *g, uint64_t key)
{
    uint32_t *set = set_of(g, key), print = print_of(key);
    for (unsigned i = 0; i < WAYS; i++)
        if (set[i] && set[i] >> PRINT_SHIFT == print)
            return &set[i];
    return NULL;
}

/* Return the current time as stored in cells. */
static uint32_t evict_ghost_tick(const struct ghost *g)
{
    return (uint32_t)(g->left * TICKS / g->window) & WHEN_MASK;
}

/* Modulo 256 ticks; see the top. */
static uint32_t age_of(const struct ghost *g, uint32_t cell)
{
    return (evict_ghost_tick(g) - (cell >> WHEN_SHIFT)) & WHEN_MASK;
}

/* Should a be replaced rather than b? The lower count, then the older entry. */
static bool lesser(const struct ghost *g, uint32_t a, uint32_t b)
{
    uint32_t x = a & COUNT_MASK, y = b & COUNT_MASK;
    return x < y || (x == y && age_of(g, a) > age_of(g, b));
}

/* Return the cell for a key that has none. NULL: its set has higher counts only, and `force` is not set. */
static uint32_t *evict_ghost_make_room(struct ghost *g, uint64_t key, bool force)
{
    uint32_t *set = set_of(g, key), *least = NULL;
    g->turn++;
    for (unsigned i = 0; i < WAYS; i++) {
        uint32_t *cell = &set[(g->turn + i) % WAYS];
        if (!*cell)
            return cell;
        if (!least || lesser(g, *cell, *least))
            least = cell;
    }
    if (force || (*least & COUNT_MASK) <= 1)
        return least;
    --*least;
    return NULL;
}

/* A key that is not stored, because its set is full of higher counts, has count 1 each time. */
unsigned ghost_ask(struct ghost *g, uint64_t key)
{
    uint32_t *cell = evict_ghost_find(g, key);
    if (cell) {
        *cell += (*cell & COUNT_MASK) < GHOST_COUNT_MAX;
        return *cell & COUNT_MASK;
    }
    cell = evict_ghost_make_room(g, key, false);
    if (cell)
        *cell = print_of(key) << PRINT_SHIFT | evict_ghost_tick(g) << WHEN_SHIFT | 1;
    return 1;
}

unsigned ghost_count(const struct ghost *g, uint64_t key)
{
    const uint32_t *cell = evict_ghost_find(g, key);
    return cell ? *cell & COUNT_MASK : 0;
}

void ghost_leave(struct ghost *g, uint64_t key, unsigned count)
{
    g->left++;
    uint32_t *cell = evict_ghost_find(g, key);
    if (!cell)
        cell = evict_ghost_make_room(g, key, true);
    if (cell)
        *cell = print_of(key) << PRINT_SHIFT | LEFT | evict_ghost_tick(g) << WHEN_SHIFT | count;
}

/* The cell is freed: the count continues in the slot's node. */
unsigned ghost_take(struct ghost *g, uint64_t key, bool *out_lately)
{
    uint32_t *cell = evict_ghost_find(g, key);
    *out_lately = false;
    if (!cell)
        return 0;
    *out_lately = (*cell & LEFT) && age_of(g, *cell) <= TICKS;
    unsigned count = *cell & COUNT_MASK;
    *cell = 0;
    return count;
}

bool ghost_age(struct ghost *g, uint32_t n)
{
    for (; n && g->hand < g->sets; n--, g->hand++)
        for (unsigned i = 0; i < WAYS; i++) {
            uint32_t *cell = &g->cells[(size_t)g->hand * WAYS + i];
            *cell = (*cell & ~(uint32_t)COUNT_MASK) | (*cell & COUNT_MASK) >> 1;
        }
    if (g->hand < g->sets)
        return false;
    g->hand = 0;
    return true;
}
