/* The cache with many readers at a time: eviction under them, its budget, directories that share the load, and the ways
 * of reading a disk.
 */
#include "unit/cache_world.h"
#include "unit/counts.h"

#include <dirent.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define K 1024u
static const uint32_t mixed_lens[] = {128 * K, 64 * K, 300 * K, 5000, 1, 32 * K, 4096, 100 * K + 7, 1024 * K};
#define MIXED mixed_lens, GR_ARRAY_SIZE(mixed_lens)
static const uint32_t even_lens[] = {128 * K};
#define EVEN even_lens, 1

static void read_at_random(struct world *w, int rounds)
{
    uint64_t seed = 0x9E3779B97F4A7C15u * (1 + atomic_fetch_add(&w->readers, 1));
    CLEANUP_FREE uint8_t *dst = malloc(8 * 1024 * K);
    for (int i = 0; i < rounds; i++) {
        struct cache_piece pieces[8];
        unsigned n = 1 + world_random(&seed) % 8, chunks[8];
        for (unsigned k = 0; k < n; k++) {
            chunks[k] = world_random(&seed) % w->count;
            uint32_t off = world_random(&seed) % w->refs[chunks[k]].plain_len;
            uint32_t len = 1 + world_random(&seed) % (w->refs[chunks[k]].plain_len - off);
            pieces[k] = world_piece(w, chunks[k], off, len, dst + (size_t)k * 1024 * K);
        }
        assert_int_equal(cache_read(w->cache, pieces, n, NULL, 0, PRIORITY_DEMAND), 0);
        for (unsigned k = 0; k < n; k++)
            assert_true(memcmp(pieces[k].dst, w->plain[chunks[k]] + pieces[k].offset, pieces[k].len) == 0);
    }
}

/* At random, few chunks are hit twice before they are evicted. So some small ones are read again and again between. */
static void *read_much(void *arg)
{
    enum { HOT_FIRST = 3, HOT = 4 };
    int rounds = (int)full_or(30, 10);
    for (int i = 0; i < rounds; i++) {
        read_at_random(arg, 1);
        world_expect(arg, HOT_FIRST + (unsigned)i % HOT);
    }
    return NULL;
}

static void run_readers(struct world *w, int readers, void *(*body)(void *))
{
    pthread_t threads[128];
    for (int i = 0; i < readers; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, w), 0);
    for (int i = 0; i < readers; i++)
        pthread_join(threads[i], NULL);
}

/* Were there enough evictions, and hits with their records on disk and in memory? */
static bool is_enough(struct world *w)
{
    return count_of(w, "evictions_total") > 10 && count_of(w, "hits_total") > 10 &&
           count_of(w, "record_hits_total") > 10;
}

static void test_cache_readers__sixteen_readers_of_more_than_fits_read_right(void **state)
{
    struct world w;
    world_init(&w, 270, MIXED, 20 << 20);
    world_open(&w);
    for (int i = 0; i < 20 && !is_enough(&w); i++) {
        run_readers(&w, 16, read_much);
        world_settle(&w);
    }
    assert_true(is_enough(&w));
    assert_int_equal(count_of(&w, "crc_errors_total"), 0);
    assert_int_equal(count_of(&w, "read_errors_total"), 0);
    world_check(&w);
    world_release(&w);
}

static uint64_t disk_usage(const char *path)
{
    struct stat s;
    assert_int_equal(stat(path, &s), 0);
    uint64_t sum = (uint64_t)s.st_blocks * 512;
    DIR *d = opendir(path);
    for (struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') {
            assert_int_equal(fstatat(dirfd(d), e->d_name, &s, 0), 0);
            sum += (uint64_t)s.st_blocks * 512;
        }
    closedir(d);
    return sum;
}

/* The budget test reads until there were this many misses: several times what the budget holds. */
static unsigned misses(void)
{
    return full_or(500, 200);
}

static void *sample_usage(void *arg)
{
    struct world *w = arg;
    uint64_t peak = 0;
    do {
        uint64_t now = disk_usage(w->dir);
        peak = GR_MAX(peak, now);
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
    } while (count_of(w, "misses_total") < misses());
    assert_true(peak <= w->config.dirs[0].size);
    assert_true(peak > w->config.dirs[0].size * 9 / 10); /* it did look, and space is reserved, not sparse */
    return NULL;
}

static void *read_on(void *arg)
{
    struct world *w = arg;
    while (count_of(w, "misses_total") < misses())
        read_at_random(w, 4);
    return NULL;
}

static void test_cache_readers__its_budget_holds_at_every_moment(void **state)
{
    struct world w;
    pthread_t sampler;
    world_init(&w, 270, MIXED, 40 << 20);
    world_open(&w);
    assert_int_equal(pthread_create(&sampler, NULL, sample_usage, &w), 0);
    run_readers(&w, 4, read_on);
    pthread_join(sampler, NULL);
    world_release(&w);
}

static void test_cache_readers__two_directories_share_the_load(void **state)
{
    struct world w;
    char second[80];
    world_init(&w, 200, EVEN, 24 << 20);
    snprintf(second, sizeof second, "%s/second", w.dir);
    w.config.dirs[w.config.dir_count].path = second;
    w.config.dirs[w.config.dir_count++].size = 24 << 20;
    world_open(&w);
    world_warm(&w);
    world_close(&w);
    store_fake_set_dead(w.fake, -EIO);
    world_open(&w);
    world_expect_all(&w);
    uint64_t used = 0;
    for (unsigned i = 0; i < 2; i++)
        assert_true(w.cache->space.dirs[i].unbound.len <= w.cache->space.dirs[i].geometry.slab_count / 2);
    used = count_of(&w, "used_bytes");
    assert_int_equal(used, 200 * 128 * K);
    world_close(&w);
    for (int i = 0; i < 3; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/%s", second, (const char *[]){"lock", "data", "records"}[i]);
        unlink(path);
    }
    rmdir(second);
    world_release(&w);
}

static void test_cache_readers__more_readers_than_rings_share_them(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_open(&w);
    world_warm(&w);
    store_fake_set_dead(w.fake, -EIO);
    run_readers(&w, READERS_MAX + 16, read_much);
    assert_in_range(count_of(&w, "rings"), 1, READERS_MAX + WRITERS_MAX);
    assert_true(count_of(&w, "uring_reads_total") > 0);
    assert_int_equal(count_of(&w, "pread_reads_total"), 0);
    world_release(&w);
}

static void test_cache_readers__reads_by_pread_where_there_is_no_ring(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_open_with(&w, true);
    world_warm(&w);
    store_fake_set_dead(w.fake, -EIO);
    world_expect_all(&w);
    run_readers(&w, 4, read_much);
    assert_int_equal(count_of(&w, "uring_reads_total"), 0);
    assert_true(count_of(&w, "pread_reads_total") >= 45);
    world_release(&w);
}

static void refuse_io_uring(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = GR_ARRAY_SIZE(rules), .filter = rules};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    assert_int_equal(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static void test_cache_readers__reads_by_pread_where_the_container_forbids_io_uring(void **state)
{
    struct world w;
    world_init(&w, 45, MIXED, 64 << 20);
    world_in_child({
        refuse_io_uring();
        world_open(&w);
        world_warm(&w);
        store_fake_set_dead(w.fake, -EIO);
        world_expect_all(&w);
        assert_int_equal(count_of(&w, "rings"), 0);
        assert_int_equal(count_of(&w, "uring_reads_total"), 0);
    });
    world_release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache_readers__sixteen_readers_of_more_than_fits_read_right),
        cmocka_unit_test(test_cache_readers__its_budget_holds_at_every_moment),
        cmocka_unit_test(test_cache_readers__two_directories_share_the_load),
        cmocka_unit_test(test_cache_readers__more_readers_than_rings_share_them),
        cmocka_unit_test(test_cache_readers__reads_by_pread_where_there_is_no_ring),
        cmocka_unit_test(test_cache_readers__reads_by_pread_where_the_container_forbids_io_uring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
