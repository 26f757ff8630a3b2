/* Kept pieces form one stack per size, linked through their first words. The most recently used piece, whose memory is
 * likely still in the CPU's caches, goes out first. A piece that would exceed the bound is unmapped at once, so no
 * background work is needed.
 *
 *   kept[0]   4 KiB    piece -> piece -> NULL
 *   kept[1]   8 KiB    NULL
 *   ...
 *   kept[10]  4 MiB    piece -> NULL
 *
 * A kernel whose pages are larger (16 or 64 KiB, on arm64) maps whole ones: the sizes below its page stay unused.
 */
#include "base/pages.h"

#include <malloc.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/compiler.h"

#if defined(__SANITIZE_ADDRESS__)
#define PAGES_OF_HEAP 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define PAGES_OF_HEAP 1
#endif
#endif

enum {
    SHIFT = 12,                 /* log2 of the smallest size */
    HEAP_BLOCK_MAX = 128 << 10, /* bytes; larger blocks of malloc are mapped (pages_limit_heap) */
    SIZES = 11,                 /* sizes that are kept: 4 KiB to 4 MiB */
};

/* The first word of a kept piece. */
struct piece {
    struct piece *next;
};

static struct {
    pthread_mutex_t lock; /* guards the rest */
    struct piece *kept[SIZES];
    size_t bytes; /* of all kept pieces */
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Return the least k with len <= 4096 << k and a whole page of the kernel. */
static unsigned size_class(size_t len)
{
    len = GR_MAX(len, (size_t)sysconf(_SC_PAGESIZE));
    return len <= PAGES_ALIGN ? 0 : 64 - SHIFT - (unsigned)__builtin_clzll(len - 1);
}

static size_t class_bytes(unsigned k)
{
    return (size_t)PAGES_ALIGN << k;
}

static struct piece *take_kept(unsigned k)
{
    SCOPED_LOCK(&pool.lock);
    struct piece *p = pool.kept[k];
    if (p) {
        pool.kept[k] = p->next;
        pool.bytes -= class_bytes(k);
    }
    return p;
}

/* Keep a piece of class k for reuse; false: the pool is full, the caller unmaps it. */
static bool pages_keep(struct piece *p, unsigned k)
{
    SCOPED_LOCK(&pool.lock);
    if (pool.bytes + class_bytes(k) > PAGES_KEPT_MAX)
        return false;
    p->next = pool.kept[k];
    pool.kept[k] = p;
    pool.bytes += class_bytes(k);
    return true;
}

void *pages_get(size_t len)
{
    if (len > SIZE_MAX / 4) /* rounding up to a power of two must not overflow */
        return NULL;
    unsigned k = size_class(len);
#ifdef PAGES_OF_HEAP
    return aligned_alloc(PAGES_ALIGN, GR_ALIGN_UP(GR_MAX(len, (size_t)1), (size_t)PAGES_ALIGN));
#endif
    struct piece *kept = k < SIZES ? take_kept(k) : NULL;
    if (kept)
        return kept;
    void *map = mmap(NULL, class_bytes(k), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return map == MAP_FAILED ? NULL : map;
}

void pages_put(void *p, size_t len)
{
    if (!p)
        return;
#ifdef PAGES_OF_HEAP
    free(p);
    return;
#endif
    unsigned k = size_class(len);
    if (k >= SIZES || !pages_keep(p, k))
        munmap(p, class_bytes(k));
}

void pages_trim(void)
{
    for (unsigned k = 0; k < SIZES; k++)
        for (struct piece *p; (p = take_kept(k));)
            munmap(p, class_bytes(k));
}

void pages_limit_heap(void)
{
    mallopt(M_MMAP_THRESHOLD, HEAP_BLOCK_MAX);
}
