/* A bitmap of blocks; the blocks of a chunk are 16 to 1,024 neighbouring bits. Beside it, a cost for each chunk.
 *
 *   address:  | chunk 0   | chunk 1   | chunk 2   | ...
 *   bits:     | 0000      | 1101      | 0000      |          (drawn with 4 blocks a chunk) chunk 2 is free
 *   cost:     | 0         | 3         | 0         |
 *
 * Both tables come zeroed from the kernel, which provides a page of memory only when it is written. An address space
 * of holes costs nothing.
 */
#include "imagebuild/rebuild/live_map.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/error.h"

enum { WORD = 64 };

struct live_map {
    uint32_t chunk_size;
    uint64_t size;      /* bytes */
    uint64_t words;     /* of `bits`; covers a whole number of chunks */
    uint64_t chunks;    /* covers a whole number of words */
    uint64_t live;      /* blocks */
    uint64_t low, high; /* blocks: all live ones are in [low, high) */
    uint64_t *bits;
    uint32_t *cost; /* by chunk (live_map_cost) */
};

int live_map_new(uint64_t size, uint32_t chunk_size, struct live_map **out)
{
    CLEANUP(cleanup_live_map) struct live_map *l = calloc(1, sizeof *l);
    /* round up to whole chunks and whole words, so that no loop needs a special case at the end */
    uint64_t unit = GR_MAX((uint64_t)chunk_size, (uint64_t)WORD * LIVE_BLOCK);
    if (!l)
        return error_no_memory();
    l->chunk_size = chunk_size;
    l->size = size;
    l->words = (size + unit - 1) / unit * (unit / LIVE_BLOCK / WORD);
    l->chunks = (size + unit - 1) / unit * (unit / chunk_size);
    l->low = UINT64_MAX;
    l->bits = calloc(l->words, sizeof *l->bits);
    l->cost = calloc(l->chunks, sizeof *l->cost);
    if (!l->bits || !l->cost)
        return error_set(-ENOMEM, "build: no memory for a map of the parent's %llu bytes; --parent none does without",
                         (unsigned long long)size);
    *out = steal_ptr(&l);
    return 0;
}

void live_map_free(struct live_map *l)
{
    if (!l)
        return;
    free(l->bits);
    free(l->cost);
    free(l);
}

bool live_map_fits(const struct live_map *l, uint64_t address, uint64_t len)
{
    return address % LIVE_BLOCK == 0 && address >= l->chunk_size && address < l->size && len <= l->size - address;
}

/* ------------------------------------------------------------------ bits */

/* Return the block after the last one of these bytes. */
static uint64_t end_block(uint64_t address, uint64_t len)
{
    return (address + len + LIVE_BLOCK - 1) / LIVE_BLOCK;
}

/* Return the bits of word w that stand for blocks [from, to). */
static uint64_t mask_of(uint64_t w, uint64_t from, uint64_t to)
{
    uint64_t mask = UINT64_MAX;
    if (from > w * WORD)
        mask &= UINT64_MAX << (from - w * WORD);
    if (to < (w + 1) * WORD)
        mask &= UINT64_MAX >> ((w + 1) * WORD - to);
    return mask;
}

/* Return the number of live blocks in [from, to). */
static uint64_t count_bits(const struct live_map *l, uint64_t from, uint64_t to)
{
    uint64_t n = 0;
    for (uint64_t w = from / WORD; w * WORD < to; w++)
        n += (uint64_t)__builtin_popcountll(l->bits[w] & mask_of(w, from, to));
    return n;
}

/* Add to the cost of a chunk, which saturates. */
static void add_cost(struct live_map *l, uint64_t chunk, uint64_t blocks)
{
    uint32_t *cost = &l->cost[chunk];
    *cost = (uint32_t)GR_MIN(*cost + blocks, (uint64_t)UINT32_MAX);
}

void live_map_add(struct live_map *l, uint64_t address, uint64_t len)
{
    assert(live_map_fits(l, address, len) && len);
    uint64_t from = address / LIVE_BLOCK, to = end_block(address, len);
    for (uint64_t w = from / WORD; w * WORD < to; w++) {
        uint64_t mask = mask_of(w, from, to);
        l->live += (uint64_t)__builtin_popcountll(mask & ~l->bits[w]);
        l->bits[w] |= mask;
    }
    l->low = GR_MIN(l->low, from);
    l->high = GR_MAX(l->high, to);
    /* a file fills the chunks between its first and its last, which thus have no dead blocks */
    uint64_t first = address / l->chunk_size, last = (to * LIVE_BLOCK - 1) / l->chunk_size;
    add_cost(l, first, to - from);
    if (last != first)
        add_cost(l, last, to - from);
}

void live_map_remove(struct live_map *l, uint64_t address, uint64_t len)
{
    assert(live_map_fits(l, address, len) && len);
    uint64_t from = address / LIVE_BLOCK, to = end_block(address, len);
    for (uint64_t w = from / WORD; w * WORD < to; w++) {
        uint64_t mask = mask_of(w, from, to);
        l->live -= (uint64_t)__builtin_popcountll(mask & l->bits[w]);
        l->bits[w] &= ~mask;
    }
    if (!l->live) {
        l->low = UINT64_MAX;
        l->high = 0;
        return;
    }
    /* shrink [low, high) to the live blocks again; both loops end, because a block is live */
    while (!live_map_is_block(l, l->high - 1))
        l->high--;
    while (!live_map_is_block(l, l->low))
        l->low++;
}

bool live_map_is_block(const struct live_map *l, uint64_t block)
{
    return block / WORD < l->words && l->bits[block / WORD] >> block % WORD & 1;
}

/* ------------------------------------------------------------------ queries */

uint64_t live_map_begin(const struct live_map *l)
{
    return l->live ? l->low * LIVE_BLOCK : 0;
}

uint64_t live_map_bytes(const struct live_map *l)
{
    return l->live * LIVE_BLOCK;
}

uint32_t live_map_chunk_size(const struct live_map *l)
{
    return l->chunk_size;
}

uint64_t live_map_chunk_end(const struct live_map *l)
{
    return (l->high * LIVE_BLOCK + l->chunk_size - 1) / l->chunk_size;
}

uint32_t live_map_blocks(const struct live_map *l, uint64_t chunk)
{
    uint64_t per_chunk = l->chunk_size / LIVE_BLOCK;
    return chunk < l->chunks ? (uint32_t)count_bits(l, chunk * per_chunk, (chunk + 1) * per_chunk) : 0;
}

uint32_t live_map_cost(const struct live_map *l, uint64_t chunk)
{
    return chunk < l->chunks ? l->cost[chunk] : 0;
}

bool live_map_kept(void *arg, uint64_t chunk)
{
    return live_map_blocks(arg, chunk) > 0;
}

bool live_map_kept_all(void *arg, uint64_t first, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        if (!live_map_kept(arg, first + i))
            return false;
    return true;
}

bool live_map_next_free(const struct live_map *l, uint64_t from, uint64_t *out_first, uint64_t *out_count)
{
    uint64_t end = live_map_chunk_end(l), first = from;
    while (first < end && live_map_blocks(l, first))
        first++;
    if (first >= end)
        return false;
    uint64_t next = first + 1;
    while (!live_map_blocks(l, next)) /* the last chunk of the map's live range has live blocks */
        next++;
    *out_first = first;
    *out_count = next - first;
    return true;
}

uint64_t live_map_dead_bytes(const struct live_map *l)
{
    uint64_t chunks = 0, end = live_map_chunk_end(l);
    for (uint64_t i = live_map_begin(l) / l->chunk_size; i < end; i++)
        chunks += live_map_blocks(l, i) > 0;
    return chunks * l->chunk_size - live_map_bytes(l);
}
