/* nbdprobe URI compare FILE    random reads of every kind of length are FILE's bytes
 *                              prints how long the slowest of them took, in ms
 * nbdprobe URI cache OFF LEN   NBD_CMD_CACHE; LEN 0: to the end
 * nbdprobe URI read OFF LEN    these bytes to standard output
 * nbdprobe URI scan LEN        the whole export by reads of LEN: "N of M failed"
 * nbdprobe URI whole LEN FILE  the same, and what did not fail is FILE's bytes: "N of M failed, slowest T ms"; where a
 *                              read failed goes to standard error
 * nbdprobe URI again OFF LEN N the same read N times: "N of M failed"
 * nbdprobe URI crowd N LEN OFF SECONDS
 *                              N reads of LEN at a time at random places from OFF on: "N of M failed"
 * Exits 0 when the server did it, 1 when not. */
#include <errno.h>
#include <libnbd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { READS = 300, READ_MAX = 1000003, CACHE_MAX = 1 << 30 /* a request's length has 32 bits */ };

static int failed(void)
{
    fprintf(stderr, "nbdprobe: %s\n", nbd_get_error());
    return 1;
}

static long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static int compare(struct nbd_handle *nbd, const char *path)
{
    static const size_t lengths[] = {1, 511, 512, 4096, 131072, READ_MAX};
    static char got[READ_MAX], want[READ_MAX];
    FILE *f = fopen(path, "r");
    int64_t size = nbd_get_size(nbd);
    if (!f || size <= 0)
        return failed();
    long slowest = 0;
    srand(1);
    for (int i = 0; i < READS; i++) {
        int64_t off = rand() % size;
        size_t len = lengths[(size_t)rand() % 6];
        if ((int64_t)len > size - off)
            len = (size_t)(size - off);
        long started = now_ms();
        if (nbd_pread(nbd, got, len, (uint64_t)off, 0) < 0)
            return failed();
        long took = now_ms() - started;
        slowest = took > slowest ? took : slowest;
        if (fseek(f, (long)off, SEEK_SET) || fread(want, 1, len, f) != len || memcmp(got, want, len) != 0) {
            fprintf(stderr, "nbdprobe: %zu bytes at %lld differ\n", len, (long long)off);
            return 1;
        }
    }
    fclose(f);
    printf("%ld\n", slowest);
    return 0;
}

static int scan(struct nbd_handle *nbd, uint64_t len)
{
    uint64_t size = (uint64_t)nbd_get_size(nbd), reads = 0, bad = 0;
    char *data = malloc(len);
    for (uint64_t off = 0; data && len && off < size; off += len, reads++)
        bad += nbd_pread(nbd, data, size - off < len ? size - off : len, off, 0) < 0;
    free(data);
    printf("%llu of %llu failed\n", (unsigned long long)bad, (unsigned long long)reads);
    return 0;
}

/* One read of the export at off, whose bytes are f's. -1: it failed; 0: other bytes; 1: right. */
static int read_and_compare(struct nbd_handle *nbd, FILE *f, uint64_t off, size_t len)
{
    static char got[READ_MAX], want[READ_MAX];
    if (nbd_pread(nbd, got, len, off, 0) < 0) {
        fprintf(stderr, "failed at %llu\n", (unsigned long long)off);
        return -1;
    }
    bool same = !fseek(f, (long)off, SEEK_SET) && fread(want, 1, len, f) == len && memcmp(got, want, len) == 0;
    if (!same)
        fprintf(stderr, "nbdprobe: %zu bytes at %llu differ\n", len, (unsigned long long)off);
    return same;
}

static int whole(struct nbd_handle *nbd, size_t len, const char *path)
{
    FILE *f = fopen(path, "r");
    uint64_t size = (uint64_t)nbd_get_size(nbd), reads = 0, bad = 0, wrong = 0;
    long slowest = 0;
    if (!f || !len || len > READ_MAX)
        return failed();
    for (uint64_t off = 0; off < size; off += len, reads++) {
        long started = now_ms();
        int right = read_and_compare(nbd, f, off, size - off < len ? size - off : len);
        long took = now_ms() - started;
        slowest = took > slowest ? took : slowest;
        bad += right < 0;
        wrong += right == 0;
    }
    fclose(f);
    printf("%llu of %llu failed, slowest %ld ms\n", (unsigned long long)bad, (unsigned long long)reads, slowest);
    return wrong != 0;
}

static int again(struct nbd_handle *nbd, uint64_t off, size_t len, uint64_t times)
{
    uint64_t bad = 0;
    char *data = malloc(len + 1);
    for (uint64_t i = 0; data && i < times; i++)
        bad += nbd_pread(nbd, data, len, off, 0) < 0;
    free(data);
    printf("%llu of %llu failed\n", (unsigned long long)bad, (unsigned long long)times);
    return 0;
}

/* How it went with one of the crowd's reads. */
struct crowd {
    uint64_t reads, bad;
    char *data; /* for all of them: nobody looks */
};

static int crowd_read_done(void *arg, int *error)
{
    struct crowd *c = arg;
    c->reads++;
    c->bad += *error != 0;
    return 1; /* retire it */
}

static int crowd(struct nbd_handle *nbd, char **args)
{
    uint64_t n = strtoull(args[0], NULL, 10), len = strtoull(args[1], NULL, 10), from = strtoull(args[2], NULL, 10);
    uint64_t places = ((uint64_t)nbd_get_size(nbd) - from) / len;
    long end = now_ms() + 1000 * strtol(args[3], NULL, 10);
    struct crowd c = {.data = malloc(len)};
    while (now_ms() < end || nbd_aio_in_flight(nbd) > 0) {
        while (now_ms() < end && nbd_aio_in_flight(nbd) < (int)n) {
            uint64_t off = from + (uint64_t)rand() % places * len;
            nbd_completion_callback done = {.callback = crowd_read_done, .user_data = &c};
            if (nbd_aio_pread(nbd, c.data, len, off, done, 0) < 0)
                return failed();
        }
        if (nbd_poll(nbd, 100) < 0)
            return failed();
    }
    free(c.data);
    printf("%llu of %llu failed\n", (unsigned long long)c.bad, (unsigned long long)c.reads);
    return 0;
}

static int cache(struct nbd_handle *nbd, uint64_t off, uint64_t len)
{
    if (!len)
        len = (uint64_t)nbd_get_size(nbd) - off;
    for (uint64_t n; len; off += n, len -= n) {
        n = len < CACHE_MAX ? len : CACHE_MAX;
        if (nbd_cache(nbd, n, off, 0) < 0)
            return failed();
    }
    return 0;
}

static int read_out(struct nbd_handle *nbd, uint64_t off, uint64_t len)
{
    char *data = malloc(len + 1);
    int rc = !data || nbd_pread(nbd, data, len, off, 0) < 0 ? failed() : fwrite(data, 1, len, stdout) != len;
    free(data);
    return rc;
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr,
                "usage: nbdprobe URI compare FILE | cache OFF LEN | read OFF LEN | scan LEN | whole LEN FILE |\n"
                "       again OFF LEN N | crowd N LEN OFF SECONDS\n");
        return 2;
    }
    struct nbd_handle *nbd = nbd_create();
    if (!nbd || nbd_connect_uri(nbd, argv[1]) < 0)
        return failed();
    int rc = 2;
    if (!strcmp(argv[2], "compare"))
        rc = compare(nbd, argv[3]);
    else if (argc == 5 && !strcmp(argv[2], "cache"))
        rc = cache(nbd, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    else if (argc == 5 && !strcmp(argv[2], "read"))
        rc = read_out(nbd, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10));
    else if (!strcmp(argv[2], "scan"))
        rc = scan(nbd, strtoull(argv[3], NULL, 10));
    else if (argc == 5 && !strcmp(argv[2], "whole"))
        rc = whole(nbd, strtoull(argv[3], NULL, 10), argv[4]);
    else if (argc == 6 && !strcmp(argv[2], "again"))
        rc = again(nbd, strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10), strtoull(argv[5], NULL, 10));
    else if (argc == 7 && !strcmp(argv[2], "crowd"))
        rc = crowd(nbd, argv + 3);
    nbd_shutdown(nbd, 0);
    nbd_close(nbd);
    return rc;
}
