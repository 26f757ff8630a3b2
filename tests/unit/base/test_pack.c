/* What is packed comes back, whatever came before it. */
#include "base/spill/pack.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "unit/cmocka_all.h"

static void test_pack__numbers_come_back(void **state)
{
    static const uint32_t numbers[] = {0, 1, 127, 128, 16383, 16384, 1 << 21, 1 << 28, UINT32_MAX - 1, UINT32_MAX};
    for (size_t i = 0; i < GR_ARRAY_SIZE(numbers); i++) {
        uint8_t packed[PACK_NUMBER_MAX];
        uint32_t got;
        uint8_t *end = pack_number(packed, numbers[i]);
        assert_in_range(end - packed, 1, PACK_NUMBER_MAX);
        assert_ptr_equal(unpack_number(packed, &got), end);
        assert_int_equal(got, numbers[i]);
    }
}

/* Records of all lengths after records of all lengths; about half of the bytes stay. */
static void test_pack__changes_come_back(void **state)
{
    enum { LONGEST = 150 };
    uint8_t before[LONGEST], now[LONGEST], got[LONGEST], packed[LONGEST * 2];
    srand(5);
    for (size_t before_len = 0; before_len <= LONGEST; before_len++) {
        for (size_t len = 0; len <= LONGEST; len++) {
            for (size_t i = 0; i < LONGEST; i++) {
                before[i] = (uint8_t)rand();
                now[i] = rand() % 16 ? before[i] : (uint8_t)rand();
            }
            memcpy(got, before, sizeof got);
            memset(got + before_len, 0xee, LONGEST - before_len);
            uint8_t *end = pack_changes(packed, now, len, before, before_len);
            assert_true((size_t)(end - packed) <= pack_changes_max(len));
            assert_ptr_equal(unpack_changes(packed, got, len, before_len), end);
            assert_memory_equal(got, now, len);
        }
    }
}

static void test_pack__what_is_the_same_takes_bits(void **state)
{
    uint8_t record[640] = "the same", packed[700];
    assert_int_equal(pack_changes(packed, record, sizeof record, record, sizeof record) - packed, 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pack__numbers_come_back),
        cmocka_unit_test(test_pack__changes_come_back),
        cmocka_unit_test(test_pack__what_is_the_same_takes_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
