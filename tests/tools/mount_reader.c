/* Readers of a mount while something is done to what it stands on, each read compared with a copy of the tree:
 *
 *   mount_reader DEVICE DEVICE_COPY MOUNT MOUNT_COPY LIST PROGRESS
 *
 * Two threads read the block device at random with O_DIRECT, two the files that LIST names (one relative path a line),
 * with their pages dropped first, so that every read comes from the device. PROGRESS tells, ever anew, how many reads
 * of each kind are done. SIGTERM ends it: it prints "direct READS ERRORS WRONG LONGEST_MS" and the same of "buffered",
 * and exits with 0 when nothing failed and nothing was wrong. A read that is still under way counts as one that failed.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EACH = 2, BLOCK = 4096, PIECE_MAX = 128 << 10, PATHS_MAX = 4096, STEP_US = 100000, TIMEOUT_MS = 120000 };

struct kind {
    const char *name;
    bool (*read_one)(unsigned *seed, char *got, char *want);
    atomic_ulong done, errors, wrong, longest_ms;
};

static const char *device, *device_copy, *mount_dir, *mount_copy;
static char *paths[PATHS_MAX];
static size_t path_count;
static off_t device_size;
static atomic_bool stop;
static atomic_int reading;
static struct kind kinds[2];

static unsigned long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (unsigned long)(t.tv_sec * 1000 + t.tv_nsec / 1000000);
}

static void die(const char *what)
{
    perror(what);
    exit(2);
}

/* The whole of n bytes at off, or an error; -1 with errno. */
static ssize_t read_at(const char *path, int flags, char *out, size_t n, off_t off)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | flags);
    ssize_t got = -1;
    if (fd >= 0) {
        posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        got = pread(fd, out, n, off);
    }
    int code = errno;
    if (fd >= 0)
        close(fd);
    errno = code;
    return got;
}

static bool same(struct kind *k, const char *path, ssize_t got_len, const char *got, ssize_t want_len, const char *want)
{
    if (want_len < 0)
        die("the copy");
    if (got_len < 0) {
        fprintf(stderr, "%s: %s: %s\n", k->name, path, strerror(errno));
        k->errors++;
    } else if (got_len != want_len || memcmp(got, want, (size_t)want_len)) {
        fprintf(stderr, "%s: %s: other bytes\n", k->name, path);
        k->wrong++;
    } else
        return true;
    return false;
}

static bool read_direct(unsigned *seed, char *got, char *want)
{
    size_t n = (size_t)(1 + rand_r(seed) % (PIECE_MAX / BLOCK)) * BLOCK;
    off_t off = (off_t)(rand_r(seed) % (unsigned)(device_size / BLOCK)) * BLOCK;
    ssize_t have = read_at(device, O_DIRECT, got, n, off);
    return same(&kinds[0], device, have, got, read_at(device_copy, 0, want, n, off), want);
}

static bool read_buffered(unsigned *seed, char *got, char *want)
{
    char path[2048], copy[2048];
    const char *name = paths[(size_t)rand_r(seed) % path_count];
    snprintf(path, sizeof path, "%s/%s", mount_dir, name);
    snprintf(copy, sizeof copy, "%s/%s", mount_copy, name);
    ssize_t have = read_at(path, 0, got, PIECE_MAX, 0);
    return same(&kinds[1], path, have, got, read_at(copy, 0, want, PIECE_MAX, 0), want);
}

static struct kind kinds[2] = {{.name = "direct", .read_one = read_direct},
                               {.name = "buffered", .read_one = read_buffered}};

static void *work(void *arg)
{
    struct kind *k = arg;
    static atomic_uint number;
    unsigned seed = 7919 * (1 + number++);
    void *got, *want;
    if (posix_memalign(&got, BLOCK, PIECE_MAX) || posix_memalign(&want, BLOCK, PIECE_MAX))
        die("memory");
    while (!stop) {
        unsigned long began = now_ms();
        reading++;
        bool good = k->read_one(&seed, got, want);
        reading--;
        unsigned long took = now_ms() - began, longest = k->longest_ms;
        while (took > longest && !atomic_compare_exchange_weak(&k->longest_ms, &longest, took))
            ;
        k->done++;
        if (!good)
            usleep(STEP_US);
    }
    return NULL;
}

static void on_term(int signal_number)
{
    stop = true;
}

static void read_list(const char *file)
{
    FILE *f = fopen(file, "r");
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    if (!f)
        die(file);
    while (path_count < PATHS_MAX && (n = getline(&line, &size, f)) > 0) {
        line[n - 1] = 0;
        paths[path_count++] = strdup(line);
    }
    fclose(f);
    if (!path_count)
        die(file);
}

static void tell_progress(int fd)
{
    char text[64];
    int n = snprintf(text, sizeof text, "%-20lu %-20lu\n", (unsigned long)kinds[0].done, (unsigned long)kinds[1].done);
    if (pwrite(fd, text, (size_t)n, 0) != n)
        die("progress");
}

int main(int argc, char **argv)
{
    if (argc != 7)
        return 2;
    device = argv[1], device_copy = argv[2], mount_dir = argv[3], mount_copy = argv[4];
    read_list(argv[5]);
    int copy = open(device_copy, O_RDONLY), progress = open(argv[6], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (copy < 0 || progress < 0 || (device_size = lseek(copy, 0, SEEK_END)) < BLOCK)
        die(device_copy);
    signal(SIGTERM, on_term);
    for (int i = 0; i < 2 * EACH; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, &kinds[i % 2]))
            die("thread");
    }
    while (!stop) {
        usleep(STEP_US);
        tell_progress(progress);
    }
    for (unsigned long end = now_ms() + TIMEOUT_MS; reading && now_ms() < end;)
        usleep(STEP_US);
    bool good = !reading;
    if (reading)
        printf("%d reads never ended\n", (int)reading);
    for (int i = 0; i < 2; i++) {
        struct kind *k = &kinds[i];
        printf("%s %lu %lu %lu %lu\n", k->name, (unsigned long)k->done, (unsigned long)k->errors,
               (unsigned long)k->wrong, (unsigned long)k->longest_ms);
        good = good && k->done && !k->errors && !k->wrong;
    }
    fflush(stdout);
    _exit(!good);
}
