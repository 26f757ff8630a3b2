/* A sorter's order is that of qsort over everything, stable, whatever the memory. */
#include "base/spill/sorter.h"

#include <dirent.h>
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "unit/cmocka_all.h"
#include "unit/scratch.h"

static struct sorter *make(size_t memory)
{
    struct sorter *s = NULL;
    assert_int_equal(sorter_new(&(struct sorter_config){.memory = memory}, &s), 0);
    return s;
}

struct item {
    char key[24];
    uint32_t key_len, number;
};

static int item_order(const void *a, const void *b)
{
    const struct item *x = a, *y = b;
    int order = memcmp(x->key, y->key, GR_MIN(x->key_len, y->key_len));
    if (order)
        return order;
    if (x->key_len != y->key_len)
        return x->key_len < y->key_len ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

/* Few letters and short: many equal keys and many prefixes of others. */
static void random_item(struct item *item, uint32_t number)
{
    item->number = number;
    item->key_len = (uint32_t)rand() % 8;
    memset(item->key, 0, sizeof item->key);
    for (uint32_t j = 0; j < item->key_len; j++)
        item->key[j] = "a\xff\0b"[rand() % 4];
    if (number % 2) { /* and long ones that share a beginning */
        memmove(item->key + 12, item->key, 8);
        memcpy(item->key, "beginning/of", 12);
        item->key_len += 12;
    }
}

enum { ITEMS = 30000 };

static void check_against_qsort(size_t memory, bool beginnings_only)
{
    static struct item items[ITEMS];
    static uint8_t value[3000];
    CLEANUP(cleanup_sorter) struct sorter *s = make(memory);
    srand(3);
    for (uint32_t i = 0; i < ITEMS; i++) {
        random_item(&items[i], beginnings_only ? i * 2 + 1 : i);
        size_t len = sizeof(uint32_t) + (i % 100 ? i % 30 : i % sizeof value % 2900);
        memset(value, (int)items[i].number, sizeof value);
        memcpy(value, &items[i].number, sizeof(uint32_t));
        assert_int_equal(sorter_add(s, items[i].key, items[i].key_len, value, len), 0);
    }
    qsort(items, ITEMS, sizeof *items, item_order);
    assert_int_equal(sorter_sort(s), 0);
    for (uint32_t i = 0; i < ITEMS; i++) {
        struct sorter_record r;
        assert_int_equal(sorter_next(s, &r), 1);
        assert_int_equal(r.key_len, items[i].key_len);
        assert_memory_equal(r.key, items[i].key, r.key_len);
        uint32_t number;
        memcpy(&number, r.value, sizeof number);
        assert_int_equal(number, items[i].number);
        for (size_t j = sizeof number; j < r.value_len; j++)
            assert_int_equal(r.value[j], (uint8_t)number);
    }
    struct sorter_record r;
    assert_int_equal(sorter_next(s, &r), 0);
    assert_int_equal(sorter_next(s, &r), 0);
}

static void test_sorter__sorts_in_memory(void **state)
{
    check_against_qsort(0, false);
    check_against_qsort(0, true);
}

static void test_sorter__sorts_in_runs(void **state)
{
    check_against_qsort(500000, false);
    check_against_qsort(500000, true);
}

/* A fan of 2 and hundreds of runs: many passes. */
static void test_sorter__more_runs_than_windows(void **state)
{
    check_against_qsort(10000, false);
    check_against_qsort(1, true); /* every record a run */
}

static void test_sorter__the_largest_record(void **state)
{
    CLEANUP_FREE uint8_t *big = malloc(SORTER_RECORD_MAX);
    assert_non_null(big);
    CLEANUP(cleanup_sorter) struct sorter *s = make(100000);
    for (int i = 9; i >= 0; i--) {
        memset(big, i, SORTER_RECORD_MAX);
        assert_int_equal(sorter_add(s, big, 10, big + 10, SORTER_RECORD_MAX - 10), 0);
        assert_int_equal(sorter_add(s, big, 9, NULL, 0), 0);
    }
    assert_int_equal(sorter_add(s, big, 11, big, SORTER_RECORD_MAX - 10), -EINVAL);
    assert_int_equal(sorter_sort(s), 0);
    struct sorter_record r;
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sorter_next(s, &r), 1);
        assert_int_equal(r.key_len, 9);
        assert_int_equal(r.value_len, 0);
        assert_int_equal(sorter_next(s, &r), 1);
        assert_int_equal(r.value_len, SORTER_RECORD_MAX - 10);
        memset(big, i, SORTER_RECORD_MAX);
        assert_memory_equal(r.value, big, r.value_len);
    }
    assert_int_equal(sorter_next(s, &r), 0);
}

static void test_sorter__nothing_is_sorted_too(void **state)
{
    CLEANUP(cleanup_sorter) struct sorter *s = make(0);
    struct sorter_record r;
    assert_int_equal(sorter_sort(s), 0);
    assert_int_equal(sorter_next(s, &r), 0);
    CLEANUP(cleanup_sorter) struct sorter *one = make(1);
    assert_int_equal(sorter_add(one, "", 0, "v", 1), 0);
    assert_int_equal(sorter_sort(one), 0);
    assert_int_equal(sorter_next(one, &r), 1);
    assert_int_equal(r.key_len, 0);
    assert_memory_equal(r.value, "v", 1);
    assert_int_equal(sorter_next(one, &r), 0);
}

static void test_sorter__no_room_is_an_error(void **state)
{
    CLEANUP(cleanup_sorter) struct sorter *s = make(64 << 10);
    const struct rlimit old = scratch_limit(100 << 10);
    int rc = 0;
    static char value[1000];
    for (uint32_t i = 0; !rc && i < 1000; i++) {
        memset(value, (int)i, sizeof value); /* a run has only what differs from record to record */
        rc = sorter_add(s, &i, sizeof i, value, sizeof value);
    }
    scratch_unlimit(&old);
    assert_int_equal(rc, -EFBIG);
    assert_non_null(strstr(error_text(), "--tmpdir"));
}

/* Disk space of this process's files without a name, in bytes. */
static uint64_t unnamed_bytes(void)
{
    uint64_t blocks = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        struct stat st;
        if (!fstatat(dirfd(d), e->d_name, &st, 0) && S_ISREG(st.st_mode) && !st.st_nlink)
            blocks += (uint64_t)st.st_blocks;
    }
    closedir(d);
    return blocks * 512;
}

/* Whether the directory of temporary files is on a filesystem that gives back parts of files (NFS, for one, does not).
 */
static bool can_give_back(void)
{
    static const char block[4096];
    const char *dir = getenv("TMPDIR");
    int fd = open(dir ? dir : "/var/tmp", O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    bool can = fd < 0 ||
               (write(fd, block, sizeof block) == sizeof block &&
                (!fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, sizeof block) || errno != EOPNOTSUPP));
    if (fd >= 0)
        close(fd);
    return can;
}

/* Runs so long that each is given back in several steps: what comes next is never given back with what was read. */
static void test_sorter__what_was_merged_is_given_back(void **state)
{
    enum { RECORDS = 24000 };
    if (!can_give_back())
        skip();
    CLEANUP(cleanup_sorter) struct sorter *s = make(8 << 20);
    uint8_t value[1000];
    for (uint32_t i = 0; i < RECORDS; i++) {
        uint32_t key = htobe32(i * 7919U % RECORDS);
        memset(value, (int)(i * 7919U % RECORDS % 255), sizeof value);
        assert_int_equal(sorter_add(s, &key, sizeof key, value, sizeof value), 0);
    }
    assert_int_equal(sorter_sort(s), 0);
    uint64_t most = unnamed_bytes();
    assert_true(most > RECORDS * sizeof value * 9 / 10);
    struct sorter_record r;
    for (uint32_t i = 0; i < RECORDS; i++) {
        uint32_t key = htobe32(i);
        assert_int_equal(sorter_next(s, &r), 1);
        assert_memory_equal(r.key, &key, sizeof key);
        memset(value, (int)(i % 255), sizeof value);
        assert_int_equal(r.value_len, sizeof value);
        assert_memory_equal(r.value, value, sizeof value);
    }
    assert_int_equal(sorter_next(s, &r), 0);
    assert_true(unnamed_bytes() < most / 2); /* each run keeps less than a step and a window */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sorter__sorts_in_memory),
        cmocka_unit_test(test_sorter__sorts_in_runs),
        cmocka_unit_test(test_sorter__more_runs_than_windows),
        cmocka_unit_test(test_sorter__the_largest_record),
        cmocka_unit_test(test_sorter__nothing_is_sorted_too),
        cmocka_unit_test(test_sorter__no_room_is_an_error),
        cmocka_unit_test(test_sorter__what_was_merged_is_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
