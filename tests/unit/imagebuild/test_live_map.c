/* The map of what is kept of a parent, against a plain array of blocks. */
#include "unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "imagebuild/rebuild/live_map.h"

enum { BLOCKS = 4096, BLOCK = LIVE_BLOCK };

struct model {
    unsigned files[BLOCKS]; /* that use the block */
    uint64_t cost[BLOCKS];
    uint32_t per_chunk;
};

static void check(const struct model *m, struct live_map *l)
{
    uint64_t live = 0, low = 0, high = 0, chunks = 0;
    for (uint64_t b = 0; b < BLOCKS; b++) {
        assert_int_equal(live_map_is_block(l, b), m->files[b] > 0);
        if (!m->files[b])
            continue;
        low = live++ ? low : b;
        high = b + 1;
    }
    assert_int_equal(live_map_bytes(l), live * BLOCK);
    assert_int_equal(live_map_begin(l), low * BLOCK);
    assert_int_equal(live_map_chunk_end(l), (high + m->per_chunk - 1) / m->per_chunk);
    uint64_t run_first = 0, run_count = 0, next = 0;
    bool run = live_map_next_free(l, 0, &run_first, &run_count);
    for (uint64_t c = 0; c < BLOCKS / m->per_chunk; c++) {
        uint32_t n = 0;
        for (uint32_t i = 0; i < m->per_chunk; i++)
            n += m->files[c * m->per_chunk + i] > 0;
        assert_int_equal(live_map_blocks(l, c), n);
        assert_int_equal(live_map_kept(l, c), n > 0);
        assert_true(live_map_cost(l, c) == m->cost[c]);
        chunks += n > 0;
        bool is_free = !n && c * m->per_chunk < high;
        if (run && c == run_first + run_count) {
            next = c;
            run = live_map_next_free(l, next, &run_first, &run_count);
        }
        assert_int_equal(is_free, run && c >= run_first && c < run_first + run_count);
    }
    assert_int_equal(live_map_dead_bytes(l), (chunks * m->per_chunk - live) * BLOCK);
    assert_int_equal(live_map_blocks(l, BLOCKS), 0);
}

static void count(struct model *m, uint64_t from, uint64_t blocks, int by)
{
    for (uint64_t i = from; i < from + blocks; i++)
        m->files[i] = by < 0 ? 0 : m->files[i] + 1;
    if (by < 0)
        return;
    uint64_t first = from / m->per_chunk, last = (from + blocks - 1) / m->per_chunk;
    m->cost[first] += blocks;
    if (last != first)
        m->cost[last] += blocks;
}

static void test_live_map__agrees_with_a_plain_array(void **state)
{
    static const uint32_t sizes[] = {64 << 10, 128 << 10, 1 << 20, 4 << 20};
    for (size_t s = 0; s < GR_ARRAY_SIZE(sizes); s++) {
        CLEANUP(cleanup_live_map) struct live_map *l = NULL;
        struct model m = {.per_chunk = sizes[s] / BLOCK};
        struct {
            uint64_t from, blocks;
        } bodies[60];
        size_t n = 0;
        srand((unsigned)s + 1);
        assert_int_equal(live_map_new((uint64_t)BLOCKS * BLOCK, sizes[s], &l), 0);
        check(&m, l);
        for (uint64_t at = m.per_chunk; n < GR_ARRAY_SIZE(bodies);) {
            uint64_t blocks = 1 + (uint64_t)rand() % (rand() % 4 ? 8 : 100);
            at += (uint64_t)rand() % (rand() % 3 ? 2 : 60);
            if (at + blocks > BLOCKS)
                break;
            bodies[n].from = at;
            bodies[n++].blocks = blocks;
            live_map_add(l, at * BLOCK, blocks * BLOCK - (uint64_t)rand() % BLOCK);
            count(&m, at, blocks, 1);
            at += blocks;
        }
        check(&m, l);
        live_map_add(l, bodies[3].from * BLOCK, bodies[3].blocks * BLOCK); /* shared by another file */
        count(&m, bodies[3].from, bodies[3].blocks, 1);
        check(&m, l);
        for (size_t left = n; left--;) {
            size_t i = (size_t)rand() % n;
            live_map_remove(l, bodies[i].from * BLOCK, bodies[i].blocks * BLOCK);
            count(&m, bodies[i].from, bodies[i].blocks, -1);
            check(&m, l);
        }
    }
}

static void test_live_map__bodies_lie_within_the_image(void **state)
{
    CLEANUP(cleanup_live_map) struct live_map *l = NULL;
    const uint64_t chunk = 64 << 10, size = 10 * chunk + BLOCK;
    assert_int_equal(live_map_new(size, (uint32_t)chunk, &l), 0);
    assert_true(live_map_fits(l, chunk, size - chunk));
    assert_false(live_map_fits(l, chunk, size - chunk + 1));
    assert_false(live_map_fits(l, chunk, UINT64_MAX));
    assert_false(live_map_fits(l, chunk + 512, 1));
    assert_false(live_map_fits(l, chunk - BLOCK, 1)); /* the filesystem's front */
    assert_false(live_map_fits(l, size, 1));
    assert_true(live_map_fits(l, size - BLOCK, BLOCK));
    live_map_add(l, size - BLOCK, 1);
    assert_int_equal(live_map_chunk_end(l), 11);
    assert_true(live_map_kept_all(l, 10, 1));
    assert_false(live_map_kept_all(l, 9, 2));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_live_map__agrees_with_a_plain_array),
        cmocka_unit_test(test_live_map__bodies_lie_within_the_image),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
