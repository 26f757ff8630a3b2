/* What base/pages.h promises: pieces of one's own, memory that goes back to the kernel however it was taken and given
 * back, and a bound on what is kept. */
#include "base/pages.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/compiler.h"
#include "base/thread.h"
#include "unit/cmocka_all.h"
#include "unit/threads.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* resident memory is its own affair */
#else
#define SANITIZED 0
#endif

#if defined(__SANITIZE_ADDRESS__)
#define KEPT_MAX 0 /* pieces come from the heap */
#else
#define KEPT_MAX PAGES_KEPT_MAX
#endif

enum { CHUNK = 64 << 10, CHUNKS = 2000, STEP = 20, STAY = 20000, THREADS = 4, ROUNDS = 3000, HELD = 16 };
enum { SMALLEST = 2 * PAGES_KEPT_MAX / PAGES_ALIGN }; /* pieces, twice as many as are kept */

static size_t resident(void)
{
    char line[128];
    size_t kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    assert_non_null(f);
    while (!kib && fgets(line, sizeof line, f))
        sscanf(line, "VmRSS: %zu", &kib);
    fclose(f);
    assert_true(kib > 0);
    return kib << 10;
}

static void test_pages__are_aligned_and_of_any_size(void **state)
{
    static const size_t sizes[] = {0, 1, 4095, 4096, 4097, 65536, 65537, 4 << 20, (4 << 20) + 1, 9 << 20};
    void *pieces[GR_ARRAY_SIZE(sizes)];
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < GR_ARRAY_SIZE(sizes); i++) {
            pieces[i] = pages_get(sizes[i]);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % PAGES_ALIGN, 0);
            memset(pieces[i], (int)i + 1, sizes[i]);
        }
        for (size_t i = 0; i < GR_ARRAY_SIZE(sizes); i++) {
            const uint8_t *bytes = pieces[i];
            assert_true(!sizes[i] || (bytes[0] == i + 1 && bytes[sizes[i] - 1] == i + 1));
            pages_put(pieces[i], sizes[i]);
        }
    }
    assert_null(pages_get(SIZE_MAX));
    pages_put(NULL, 1);
}

/* Behind every few buffers an allocation that stays, too long for a gap: a heap could give back nothing of what lies
 * below the last one. */
static void test_pages__of_buffers_go_back_to_the_kernel(void **state)
{
    static struct buf *bufs[CHUNKS];
    void *stay[CHUNKS / STEP];
    size_t before = resident();
    for (size_t i = 0; i < CHUNKS; i++) {
        bufs[i] = buf_new(CHUNK);
        assert_non_null(bufs[i]);
        memset(bufs[i]->data, 1, CHUNK);
        if (i % STEP == STEP - 1)
            stay[i / STEP] = malloc(STAY);
    }
    for (size_t i = 0; i < CHUNKS; i++)
        buf_unref(bufs[i]);
    assert_true(SANITIZED || resident() < before + PAGES_KEPT_MAX + (8 << 20));
    pages_trim();
    assert_true(SANITIZED || resident() < before + (8 << 20));
    for (size_t i = 0; i < CHUNKS / STEP; i++)
        free(stay[i]);
}

/* Bytes of the pieces that are mapped, as the kernel counts them. */
static size_t mapped(void *const *pieces)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = 0;
    for (size_t i = 0; i < SMALLEST; i++)
        n += KEPT_MAX && !msync(pieces[i], page, MS_ASYNC); /* ENOMEM: not mapped */
    return n * page;
}

/* Where the kernel maps 64 KiB at least, as on some arm64 kernels, the bound must not count less: flow/arm64 runs this
 * with such pages. */
static void expect_the_bound(void)
{
    static void *pieces[SMALLEST];
    pages_trim();
    for (size_t i = 0; i < SMALLEST; i++)
        assert_non_null(pieces[i] = pages_get(1));
    for (size_t i = 0; i < SMALLEST; i++)
        pages_put(pieces[i], 1);
    assert_int_equal(mapped(pieces), KEPT_MAX);
    pages_trim();
    assert_int_equal(mapped(pieces), 0);
}

static void test_pages__are_kept_up_to_the_bound_until_trimmed(void **state)
{
    expect_the_bound();
}

struct held {
    uint8_t *data;
    size_t len;
};

static void drop(struct held *h, uint8_t mark)
{
    must(!h->data || (h->data[0] == mark && h->data[h->len - 1] == mark), "a piece is another thread's too");
    pages_put(h->data, h->len);
    h->data = NULL;
}

static void *take_and_give(void *arg)
{
    uint8_t mark = (uint8_t)(uintptr_t)arg;
    struct held held[HELD] = {0};
    uint32_t random = mark;
    for (int i = 0; i < ROUNDS; i++) {
        random = random * 1664525 + 1013904223;
        struct held *h = &held[random >> 28];
        drop(h, mark);
        h->len = 1 + (random >> 8) % ((size_t)1 << (random >> 4) % 18);
        h->data = pages_get(h->len);
        must(h->data, "out of memory");
        h->data[0] = h->data[h->len - 1] = mark;
        if (i % 500 == 0)
            pages_trim();
    }
    for (int i = 0; i < HELD; i++)
        drop(&held[i], mark);
    return NULL;
}

static void test_pages__of_threads_are_their_own(void **state)
{
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&threads[i], take_and_give, (void *)(i + 1)), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    expect_the_bound(); /* no thread has miscounted */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pages__are_aligned_and_of_any_size),
        cmocka_unit_test(test_pages__of_buffers_go_back_to_the_kernel),
        cmocka_unit_test(test_pages__are_kept_up_to_the_bound_until_trimmed),
        cmocka_unit_test(test_pages__of_threads_are_their_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
