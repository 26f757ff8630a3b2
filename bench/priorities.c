/* priorities URI read THREADS SECONDS
 *     random reads of 64 KiB, none twice, each thread over a connection of its own: prints reads, median and 99th
 *     percentile in ms, MB/s. The first second, in which connections are made and the index is read, is not counted
 * priorities URI again THREADS SECONDS RATE
 *     the same reads over and over, RATE a second (0: as fast as they go); each is timed from when it was due
 * priorities URI cache THREADS SECONDS RATE
 *     has the export cached from its front on, RATE bytes a second (0: no limit)
 */
#include <libnbd.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { READ = 64 << 10, CACHE = 2 << 20, READS_MAX = 1 << 20, SKIPPED_S = 1 };

static struct {
    const char *uri;
    double seconds, rate;
    bool again;
    double ms[READS_MAX]; /* 0: of the first second */
    uint32_t *order;      /* of the reads */
    uint32_t parts;
    _Atomic uint32_t next;
    _Atomic uint64_t bytes;
    double began;
} run;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void priorities_check(bool good)
{
    if (good)
        return;
    fprintf(stderr, "priorities: %s\n", nbd_get_error() ? nbd_get_error() : "out of memory");
    exit(1);
}

static struct nbd_handle *priorities_connect_to(void)
{
    struct nbd_handle *nbd = nbd_create();
    priorities_check(nbd && nbd_connect_uri(nbd, run.uri) == 0);
    return nbd;
}

/* Wait until step i is due, `units` to each. Returns when that was; now, where there is no rate. */
static double wait_due(uint32_t i, double units)
{
    if (!run.rate)
        return now();
    double due = run.began + i * units / run.rate, wait = due - now();
    if (wait > 0)
        nanosleep(&(struct timespec){.tv_sec = (time_t)wait, .tv_nsec = (long)((wait - (time_t)wait) * 1e9)}, NULL);
    return due;
}

static void *read_some(void *arg)
{
    static _Thread_local uint8_t buf[READ];
    struct nbd_handle *nbd = priorities_connect_to();
    uint32_t i, most = run.again ? READS_MAX : run.parts;
    while (now() - run.began < run.seconds && (i = atomic_fetch_add(&run.next, 1)) < most) {
        double began = wait_due(i, 1);
        priorities_check(nbd_pread(nbd, buf, READ, (uint64_t)run.order[i % run.parts] * READ, 0) == 0);
        run.ms[i] = began < run.began + SKIPPED_S ? 0 : (now() - began) * 1e3;
    }
    nbd_close(nbd);
    return NULL;
}

static void *cache_some(void *arg)
{
    struct nbd_handle *nbd = priorities_connect_to();
    uint32_t i;
    while (now() - run.began < run.seconds && (i = atomic_fetch_add(&run.next, 1)) < run.parts) {
        wait_due(i, CACHE);
        priorities_check(nbd_cache(nbd, CACHE, (uint64_t)i * CACHE, 0) == 0);
        atomic_fetch_add(&run.bytes, CACHE);
    }
    nbd_close(nbd);
    return NULL;
}

static int by_time(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void shuffle(void)
{
    uint64_t seed = 88172645463325252u;
    run.order = malloc(run.parts * sizeof *run.order);
    priorities_check(run.order);
    for (uint32_t i = 0; i < run.parts; i++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        uint32_t k = (uint32_t)(seed % (i + 1));
        run.order[i] = run.order[k];
        run.order[k] = i;
    }
}

int main(int argc, char **argv)
{
    if (argc < 5)
        return 2;
    run.again = !strcmp(argv[2], "again");
    bool reads = run.again || !strcmp(argv[2], "read");
    unsigned threads = (unsigned)strtoul(argv[3], NULL, 10);
    run.uri = argv[1];
    run.seconds = strtod(argv[4], NULL);
    run.rate = argc > 5 ? strtod(argv[5], NULL) : 0;
    struct nbd_handle *nbd = priorities_connect_to();
    run.parts = (uint32_t)(nbd_get_size(nbd) / (reads ? READ : CACHE));
    run.parts = run.parts > READS_MAX ? READS_MAX : run.parts;
    nbd_close(nbd);
    shuffle();
    pthread_t *ids = calloc(threads, sizeof *ids);
    priorities_check(ids);
    run.began = now();
    for (unsigned i = 0; i < threads; i++)
        pthread_create(&ids[i], NULL, reads ? read_some : cache_some, NULL);
    for (unsigned i = 0; i < threads; i++)
        pthread_join(ids[i], NULL);
    double took = now() - run.began;
    if (reads) {
        uint32_t most = run.again ? READS_MAX : run.parts, all = run.next < most ? run.next : most, first = 0;
        qsort(run.ms, all, sizeof *run.ms, by_time);
        while (first < all && !run.ms[first])
            first++;
        const double *ms = run.ms + first;
        uint32_t n = all - first;
        priorities_check(n > 0);
        printf("%u %.1f %.1f %.1f\n", n, ms[n / 2], ms[n * 99ull / 100], n * (double)READ / (took - SKIPPED_S) / 1e6);
    } else {
        printf("%.1f\n", (double)run.bytes / took / 1e6);
    }
    return 0;
}
