/* How long a full cache takes to open, and the memory it takes then. The records of a directory of SIZE
 * bytes, all of its slots filled with chunks of LEN bytes, are written to a file; then they are loaded
 * as at a start, once with the page cache as it is and once with the file dropped from it. The data
 * file is not needed: a start never reads it. So 1 TiB takes 1.3 GB of disk here.
 *
 * cache-restart FILE SIZE LEN
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/text.h"
#include "cache/disk/cache_dir.h"

static int cache_restart_fail(void)
{
    fprintf(stderr, "cache-restart: %s\n", error_text());
    return 1;
}

/* Every slot of slab number `slab`; fills in no order at all. */
static int write_slab(int fd, const struct cache_geometry *g, uint32_t slab, uint32_t len, uint8_t *region)
{
    struct cache_place place = {.slab = slab, .epoch = 1, .class = cache_class_of(len)};
    uint8_t entry[CACHE_META_SLAB_SIZE];
    uint32_t stride = cache_class_record_size(place.class), slots = cache_class_slots(g, place.class);
    for (; place.slot < slots; place.slot++) {
        uint64_t number = (uint64_t)slab * slots + place.slot + 1;
        struct cache_record r = {.seq = number * 0x9E3779B97F4A7C15u >> 36, .plain_len = len, .stored_len = len};
        r.digest = digest_of(&number, sizeof number);
        cache_meta_record_seal(g, &place, &r, region + (size_t)place.slot * stride);
    }
    place.slot = 0;
    cache_meta_slab_encode(g, &place, entry);
    int rc = io_pwrite_full(fd, region, (size_t)slots * stride, cache_place_record_offset(g, &place));
    return rc ? rc : io_pwrite_full(fd, entry, sizeof entry, cache_slab_entry_offset(g, slab));
}

static int write_records(int fd, const struct cache_geometry *g, uint32_t len)
{
    uint8_t *region = calloc(1, CACHE_REGION_MAX);
    if (!region || ftruncate(fd, (off_t)cache_geometry_record_file_size(g)))
        return error_set(-EIO, "no file or memory");
    for (uint32_t i = 0; i < g->slab_count; i++)
        if (write_slab(fd, g, i, len, region))
            return error_set(-EIO, "cannot write the records");
    free(region);
    return fsync(fd) ? error_set(-EIO, "cannot sync the records") : 0;
}

/* Kilobytes of this process that are in memory: now, and at most so far. */
static long resident(const char *field)
{
    char line[128];
    long kb = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, field, strlen(field)) == 0)
            kb = strtol(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static int cache_restart_load(int fd, const struct cache_geometry *g, const char *what)
{
    struct cache_dir dir = {.path = (char *)"bench", .geometry = *g, .lock_fd = -1, .data_fd = -1, .record_fd = fd};
    struct space_config config = {.dirs = {{.geometry = *g}}, .dir_count = 1};
    struct space space;
    static const struct io_calls calls;
    struct cache_load loaded = {.space = &space, .calls = &calls, .timeout_ms = 600000};
    long before = resident("VmRSS:");
    uint64_t start = clock_now_ms();
    if (space_init(&space, &config) || cache_dir_load(&dir, 0, &loaded))
        return cache_restart_fail();
    uint64_t read = clock_now_ms();
    if (space_load_finish(&space, &loaded.slots))
        return cache_restart_fail();
    uint64_t end = clock_now_ms();
    printf("%-22s %8llu chunks  %6.2f s (reading %.2f s)  %4ld MiB in memory, %4ld at most\n", what,
           (unsigned long long)space.entries, (double)(end - start) / 1e3, (double)(read - start) / 1e3,
           (resident("VmRSS:") - before) >> 10, (resident("VmHWM:") - before) >> 10);
    space_release(&space);
    return 0;
}

/* In a process of its own, for its memory. */
static int load_apart(int fd, const struct cache_geometry *g, const char *what)
{
    int status = 1;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        exit(cache_restart_load(fd, g, what));
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct cache_geometry g = {.id = 1};
    uint64_t size, len;
    if (argc != 4) {
        fputs("usage: cache-restart FILE SIZE LEN\n", stderr);
        return 2;
    }
    if (text_parse_size("SIZE", argv[2], &size) || text_parse_size("LEN", argv[3], &len) ||
        cache_geometry_plan(size, &g))
        return cache_restart_fail();
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write_records(fd, &g, (uint32_t)len))
        return cache_restart_fail();
    int rc = load_apart(fd, &g, "in the page cache");
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    rc |= load_apart(fd, &g, "from disk");
    unlink(argv[1]);
    return rc;
}
