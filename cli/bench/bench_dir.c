/* granary bench DIR: a cache disk. Threads that each wait for their own operation keep as many in flight as a server's
 * readers do, over the raw disk and over a cache on it. */
#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/bench/bench.h"

enum {
    SIZE = 256 << 20, /* bytes of the cache, and then of the file */
    LEAST = 2 * SIZE, /* bytes that must be free */
    WRITERS = 4,      /* threads that fill the file; as many fill the cache */
    THREADS = 16,     /* of all else */
    PARTS = 10        /* of the time; the cache has four */
};

/* The raw disk's figures: bytes a second; operations a second. */
struct raw {
    double write, read, read_4k, read_64k, write_4k, write_64k;
    bool direct;
};

static int measure_raw(const char *dir, uint64_t ms, struct raw *out)
{
    CLEANUP_BENCH_DISK disk;
    const struct {
        double *out;
        bool writes;
        uint32_t len;
    } runs[] = {{&out->read, false, BENCH_PIECE},
                {&out->read_4k, false, 4 << 10},
                {&out->read_64k, false, 64 << 10},
                {&out->write_4k, true, 4 << 10},
                {&out->write_64k, true, 64 << 10}};
    int rc = bench_disk_init(&disk, dir, SIZE);
    if (!rc)
        rc = bench_disk_fill(&disk, WRITERS, ms / PARTS, &out->write);
    for (size_t i = 0; !rc && i < GR_ARRAY_SIZE(runs); i++)
        rc = bench_disk_run(&disk, runs[i].writes, runs[i].len, THREADS, ms / PARTS, runs[i].out);
    out->read *= BENCH_PIECE;
    out->direct = disk.direct;
    return rc;
}

static int check_room(const char *dir)
{
    struct statvfs fs;
    char has[TEXT_SIZE_MAX], needs[TEXT_SIZE_MAX];
    if (statvfs(dir, &fs))
        return error_set(-errno, "%s: %s", dir, strerror(errno));
    uint64_t room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room >= LEAST)
        return 0;
    return error_set(-ENOSPC, "%s has %s free, and the measurement needs %s: free space, or name another directory",
                     dir, text_format_size(room, has), text_format_size(LEAST, needs));
}

int bench_dir(struct bench_report *r, const char *dir, uint64_t ms)
{
    struct raw raw = {0};
    struct bench_cache_figures cache = {0};
    int rc = check_room(dir);
    if (!rc)
        rc = bench_cache(dir, SIZE, ms * 4 / PARTS, &cache);
    if (!rc)
        rc = measure_raw(dir, ms, &raw);
    if (rc)
        return rc;
    bench_add(r, "write", "write, 1 MiB at a time; fill the cache", BENCH_BYTES_PER_S, raw.write, cache.fill);
    bench_add(r, "read", "read, 1 MiB at a time", BENCH_BYTES_PER_S, raw.read, cache.read);
    bench_add(r, "read_4k", "random reads of 4 KiB", BENCH_PER_S, raw.read_4k, cache.read_4k);
    bench_add(r, "read_64k", "random reads of 64 KiB", BENCH_PER_S, raw.read_64k, cache.read_64k);
    bench_add(r, "write_4k", "random writes of 4 KiB", BENCH_PER_S, raw.write_4k, BENCH_NONE);
    bench_add(r, "write_64k", "random writes of 64 KiB", BENCH_PER_S, raw.write_64k, BENCH_NONE);
    if (!raw.direct)
        bench_note(r, "the filesystem has no direct I/O: these are speeds of memory; use ext4 or XFS on an SSD");
    return 0;
}
