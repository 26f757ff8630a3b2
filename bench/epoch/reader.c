/* reader: reads the files of a dataset by several processes, compares what it reads, and says how long each file took.
 *
 *   reader make DIR                          a line "SUM SIZE PATH" for every file below DIR, in order of the paths
 *   reader read LIST DIR READERS ORDER [N]   ORDER: 0 as listed, else the seed of a shuffle; N: only N of them,
 *                                            spread evenly over the list, the same ones for every seed
 *   reader feed LIST DIR READERS ORDER ACCELERATORS BATCH STEP_MS SECONDS [FILE_MS]
 *                                            simulated accelerators, which the readers feed: accelerators.c
 *
 * Those of `read` take the next file of one common queue, as the workers of a data loader do, open it, read it to its
 * end 1 MiB at a time, and close it. The clock runs from the first open to the last close. One JSON object is printed;
 * exit 1 when a file could not be read, or its size or its sum is not the list's.
 */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPORTED_MAX = 5 };

/* What the readers share. */
struct tally {
    size_t next, errors;
    uint64_t bytes;
    float ms[]; /* a file */
};

struct sum {
    uint64_t a, b;
};

void die(const char *what)
{
    perror(what);
    exit(1);
}

double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Of whole words; the block is padded with zeros. */
static void sum_add(struct sum *sum, unsigned char *block, size_t len)
{
    for (; len % 8; len++)
        block[len] = 0;
    for (size_t i = 0; i < len; i += 8) {
        uint64_t word;
        memcpy(&word, block + i, 8);
        sum->a += word;
        sum->b += sum->a;
    }
}

/* Reads the file to its end, and sets its size and its sum. Returns 0 or a negative errno. */
static int read_file(int dir, struct file *file, unsigned char *block)
{
    struct sum sum = {0};
    size_t have = 0;
    ssize_t n;
    int fd = openat(dir, file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    file->size = 0;
    while ((n = read(fd, block + have, BLOCK - have)) > 0) {
        file->size += (uint64_t)n;
        have += (size_t)n;
        if (have == BLOCK) {
            sum_add(&sum, block, have);
            have = 0;
        }
    }
    int rc = n < 0 ? -errno : 0;
    close(fd);
    sum_add(&sum, block, have);
    file->sum = sum.a ^ (sum.b << 1 | sum.b >> 63);
    return rc;
}

static int by_name(const FTSENT **a, const FTSENT **b)
{
    return strcmp((*a)->fts_name, (*b)->fts_name);
}

static int make_list(char *top)
{
    unsigned char *block = malloc(BLOCK);
    FTS *walk = fts_open((char *[]){top, NULL}, FTS_PHYSICAL | FTS_NOCHDIR, by_name);
    if (!walk || !block)
        die(top);
    for (FTSENT *entry; (entry = fts_read(walk));) {
        struct file file = {.path = entry->fts_path};
        if (entry->fts_info != FTS_F)
            continue;
        if (read_file(AT_FDCWD, &file, block))
            die(file.path);
        printf("%016" PRIx64 " %" PRIu64 " %s\n", file.sum, file.size, file.path + strlen(top) + 1);
    }
    fts_close(walk);
    free(block);
    return 0;
}

/* Returns how many there are. */
static size_t load_list(const char *path, struct file **out)
{
    char line[8192];
    size_t count = 0, room = 0;
    FILE *list = fopen(path, "re");
    if (!list)
        die(path);
    while (fgets(line, sizeof line, list)) {
        if (count == room && !(*out = realloc(*out, (room = room ? 2 * room : 1024) * sizeof **out)))
            die(path);
        struct file *file = &(*out)[count++];
        int at;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%" SCNx64 " %" SCNu64 " %n", &file->sum, &file->size, &at) < 2 ||
            !(file->path = strdup(line + at)))
            die(path);
    }
    fclose(list);
    return count;
}

static void shuffle(struct file *files, size_t count, uint64_t seed)
{
    uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
    for (size_t i = count; seed && i-- > 1;) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        size_t other = state % (i + 1);
        struct file moved = files[i];
        files[i] = files[other];
        files[other] = moved;
    }
}

void read_and_compare(int dir, const struct file *file, unsigned char *block, size_t *errors)
{
    struct file got = *file;
    int rc = read_file(dir, &got, block);
    if (!rc && got.sum == file->sum && got.size == file->size)
        return;
    if (__atomic_fetch_add(errors, 1, __ATOMIC_RELAXED) < REPORTED_MAX)
        fprintf(stderr, "%s: %s\n", file->path, rc ? strerror(-rc) : "not what was made");
}

double children_cpu(void)
{
    struct rusage used;
    getrusage(RUSAGE_CHILDREN, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void read_queue(int dir, const struct file *files, size_t count, struct tally *tally)
{
    unsigned char *block = malloc(BLOCK);
    if (!block)
        die("reader");
    for (size_t i; (i = __atomic_fetch_add(&tally->next, 1, __ATOMIC_RELAXED)) < count;) {
        double start = now_ms();
        read_and_compare(dir, &files[i], block, &tally->errors);
        tally->ms[i] = (float)(now_ms() - start);
        __atomic_fetch_add(&tally->bytes, files[i].size, __ATOMIC_RELAXED);
    }
    free(block);
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static int read_all(const struct file *files, size_t count, const char *top, long readers)
{
    size_t size = sizeof(struct tally) + count * sizeof(float);
    struct tally *tally = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0 || tally == MAP_FAILED)
        die(top);
    double start = now_ms();
    for (long i = 0; i < readers; i++) {
        pid_t pid = fork();
        if (pid < 0)
            die("fork");
        if (!pid) {
            read_queue(dir, files, count, tally);
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        ;
    double seconds = (now_ms() - start) / 1e3;
    qsort(tally->ms, count, sizeof tally->ms[0], by_value);
    printf("{\"files\":%zu,\"bytes\":%" PRIu64 ",\"errors\":%zu,\"seconds\":%.3f,\"p50_ms\":%.2f,\"p99_ms\":%.2f,"
           "\"max_ms\":%.1f,\"reader_cpu\":%.2f}\n",
           count, tally->bytes, tally->errors, seconds, (double)tally->ms[count / 2],
           (double)tally->ms[count * 99 / 100], (double)tally->ms[count - 1], children_cpu());
    return tally->errors || tally->next < count;
}

int main(int argc, char **argv)
{
    if (argc == 3 && !strcmp(argv[1], "make"))
        return make_list(argv[2]);
    bool feeding = argc >= 6 && !strcmp(argv[1], "feed");
    if (argc < 6 || (!feeding && strcmp(argv[1], "read"))) {
        fprintf(stderr, "usage: reader make DIR | reader read LIST DIR READERS ORDER [N] | "
                        "reader feed LIST DIR READERS ORDER ACCELERATORS BATCH STEP_MS SECONDS [FILE_MS]\n");
        return 2;
    }
    struct file *files = NULL;
    size_t count = load_list(argv[2], &files), wanted = argc > 6 && !feeding ? strtoull(argv[6], NULL, 10) : count;
    if (wanted < count) {
        for (size_t i = 0; i < wanted; i++)
            files[i] = files[i * count / wanted];
        count = wanted;
    }
    if (!count) {
        fprintf(stderr, "reader: nothing to read\n");
        return 1;
    }
    shuffle(files, count, strtoull(argv[5], NULL, 10));
    if (feeding)
        return feed(files, count, argv[3], strtol(argv[4], NULL, 10), argc - 6, argv + 6);
    return read_all(files, count, argv[3], strtol(argv[4], NULL, 10));
}
