/* The map against a model: growth, keys of one hash, removal in any order, and no memory. */
#include "unit/cmocka_all.h"

#include <errno.h>
#include <stdlib.h>

#include "base/map.h"
#include "unit/counts.h"

struct entry {
    uint64_t hash;
    uint32_t key, value;
};

static bool entry_is(const void *entry, const void *key)
{
    return ((const struct entry *)entry)->key == *(const uint32_t *)key;
}

static const struct map_type entries = {.size = sizeof(struct entry), .is = entry_is};

static bool no_memory;

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
    return no_memory ? NULL : __real_calloc(n, size);
}

static void put(struct map *m, uint64_t hash, uint32_t key, uint32_t value)
{
    const struct entry entry = {.hash = hash, .key = key, .value = value};
    assert_int_equal(map_reserve(m, &entries, 1), 0);
    assert_memory_equal(map_put(m, &entries, &entry), &entry, sizeof entry);
}

static struct entry *find(const struct map *m, uint64_t hash, uint32_t key)
{
    return map_find(m, &entries, hash, &key);
}

static void test_map__holds_what_was_put(void **state)
{
    enum { N = 100000 };
    struct map m = {0};
    assert_null(find(&m, 1, 1));
    assert_null(map_next(&m, &entries, NULL));
    for (uint32_t i = 0; i < N; i++) {
        assert_null(find(&m, i, i));
        put(&m, i, i, i + 7);
    }
    assert_int_equal(m.count, N);
    assert_true(m.capacity <= 2 * N * 4 / 3);
    for (uint32_t i = 0; i < N; i++)
        assert_int_equal(find(&m, i, i)->value, i + 7);
    assert_null(find(&m, N, N));
    map_release(&m);
    assert_null(find(&m, 1, 1));
}

/* Of hash 0 too, where only what follows tells an entry from a free slot. */
static void test_map__tells_keys_of_one_hash_apart(void **state)
{
    enum { N = 50 };
    for (uint64_t hash = 0; hash < 2; hash++) {
        struct map m = {0};
        for (uint32_t i = 1; i <= N; i++)
            put(&m, hash, i, i);
        for (uint32_t i = 1; i <= N; i++) {
            uint32_t gone = i * 7 % (N + 1);
            map_remove(&m, &entries, find(&m, hash, gone));
            assert_null(find(&m, hash, gone));
            assert_int_equal(m.count, N - i);
            for (uint32_t k = i + 1; k <= N; k++)
                assert_int_equal(find(&m, hash, k * 7 % (N + 1))->value, k * 7 % (N + 1));
        }
        map_release(&m);
    }
}

/* Few keys, so that the table is small and often wraps around, and few hashes. */
enum { KEYS = 40 };

static void expect_model(const struct map *m, const uint32_t model[KEYS], uint32_t hashes)
{
    uint64_t seen = 0;
    size_t count = 0;
    for (const struct entry *e = NULL; (e = map_next(m, &entries, e)); count++) {
        assert_true(e->value && model[e->key] == e->value && !(seen & 1ull << e->key));
        seen |= 1ull << e->key;
    }
    assert_int_equal(count, m->count);
    for (uint32_t k = 0; k < KEYS; k++) {
        const struct entry *e = find(m, k % hashes, k);
        assert_int_equal(e ? e->value : 0, model[k]);
        assert_int_equal(!!(seen & 1ull << k), !!model[k]);
    }
}

static void test_map__does_what_a_model_does(void **state)
{
    unsigned rounds = full_or(400, 100);
    for (unsigned round = 0; round < rounds; round++) {
        struct map m = {0};
        uint32_t model[KEYS] = {0}, hashes = 1 + round % KEYS;
        srand(round);
        for (uint32_t step = 1; step <= 500; step++) {
            uint32_t key = (uint32_t)rand() % KEYS;
            struct entry *there = find(&m, key % hashes, key);
            if (there && rand() % 4 == 0)
                there->value = model[key] = step;
            else if (there) {
                map_remove(&m, &entries, there);
                model[key] = 0;
            } else {
                put(&m, key % hashes, key, step);
                model[key] = step;
            }
            expect_model(&m, model, hashes);
        }
        map_release(&m);
    }
}

static void test_map__is_as_before_without_memory(void **state)
{
    struct map m = {0};
    no_memory = true;
    assert_int_equal(map_reserve(&m, &entries, 1), -ENOMEM);
    no_memory = false;
    for (uint32_t i = 0; i < 12; i++)
        put(&m, i, i, 1);
    no_memory = true;
    assert_int_equal(map_reserve(&m, &entries, 1), -ENOMEM);
    no_memory = false;
    for (uint32_t i = 0; i < 12; i++)
        assert_non_null(find(&m, i, i));
    assert_null(find(&m, 12, 12));
    assert_int_equal(map_reserve(&m, &entries, 1000), 0);
    no_memory = true;
    for (uint32_t i = 12; i < 1012; i++)
        put(&m, i, i, 1);
    no_memory = false;
    for (uint32_t i = 0; i < 1012; i++)
        assert_non_null(find(&m, i, i));
    map_release(&m);
}

static void test_digest_map__holds_what_was_added(void **state)
{
    CLEANUP_DIGEST_MAP map = {0};
    enum { N = 50000 };
    struct digest absent = digest_of("absent", 6);
    assert_null(digest_map_find(&map, &absent));
    for (int i = 0; i < N; i++) {
        struct digest d = digest_of(&i, sizeof i);
        assert_int_equal(digest_map_add(&map, &d, i), 1);
        assert_int_equal(digest_map_add(&map, &d, -1), 0);
    }
    assert_int_equal(map.map.count, N);
    for (int i = 0; i < N; i++) {
        struct digest d = digest_of(&i, sizeof i);
        assert_int_equal(digest_map_find(&map, &d)->value, i);
    }
    assert_null(digest_map_find(&map, &absent));
    uint64_t sum = 0;
    for (const struct digest_slot *slot = NULL; (slot = digest_map_next(&map, slot));)
        sum += (uint64_t)slot->value;
    assert_int_equal(sum, (uint64_t)N * (N - 1) / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map__holds_what_was_put),
        cmocka_unit_test(test_map__tells_keys_of_one_hash_apart),
        cmocka_unit_test(test_map__does_what_a_model_does),
        cmocka_unit_test(test_map__is_as_before_without_memory),
        cmocka_unit_test(test_digest_map__holds_what_was_added),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
