/* Peak memory, temporary space, time and CPU of a build of very many files: a source that makes up its listing, so that
 * no such tree need exist. Names and versions look like those of a bucket; they come in no order at all; one file in a
 * thousand has 1,000 bytes, the others none (file data costs the same memory, whatever the number of files).
 *
 * build-synthetic FILES STORE TMPDIR
 */
#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/text.h"
#include "imagebuild/build.h"

enum { DIRECTORY = 1000, BODY = 1000, EVERY = 1000 };

struct synthetic {
    struct source source;
    uint64_t files;
};

static int entry(source_visit *visit, void *arg, uint64_t i)
{
    char path[64], validator[64];
    struct source_entry e = {.path = path, .mode = S_IFREG | 0644, .mtime = 1700000000 + (int64_t)(i % 1000)};
    e.path_len = (size_t)snprintf(path, sizeof path, "train/class-%06llu/image-%09llu.jpg",
                                  (unsigned long long)(i / DIRECTORY), (unsigned long long)i);
    e.validator = validator;
    e.validator_len =
        (size_t)snprintf(validator, sizeof validator, "\"%032llx\"", (unsigned long long)(i * 0x9E3779B97F4A7C15u));
    e.size = i % EVERY ? 0 : BODY;
    return visit(arg, &e);
}

static int build_synthetic_list(struct source *s, source_visit *visit, void *arg)
{
    uint64_t files = ((struct synthetic *)s)->files;
    const uint64_t stride = 7919; /* a prime: every file once unless it divides their number */
    int rc = 0;
    for (uint64_t n = 0, i = 0; n < files && !rc; n++, i = (i + stride) % files)
        rc = entry(visit, arg, i);
    return rc;
}

static int read_data(struct source *s, const struct source_read *r)
{
    for (uint64_t i = 0; i < r->len; i++)
        r->dst[i] = (uint8_t)(r->path[r->path_len - 5 - i % 9] + i * r->offset);
    return 0;
}

static const struct source_ops ops = {.list = build_synthetic_list, .read = read_data};

/* ------------------------------------------------------------------ what it takes */

/* A line of /proc/self/status in MiB. */
static double status_mib(const char *field)
{
    char line[256];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field)))
            kib = strtol(line + strlen(field), NULL, 10);
    if (f)
        fclose(f);
    return (double)kib / 1024;
}

/* Blocks of this process's unlinked files, in MiB. */
static double temporary_mib(void)
{
    uint64_t blocks = 0;
    DIR *d = opendir("/proc/self/fd");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!fstatat(dirfd(d), e->d_name, &st, 0) && S_ISREG(st.st_mode) && !st.st_nlink)
            blocks += (uint64_t)st.st_blocks;
    }
    if (d)
        closedir(d);
    return (double)blocks / 2048;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

struct watch {
    uint64_t started_ms;
    const char *phase;
    atomic_bool over;
    double temporary; /* most so far; the watcher's until it ended */
};

static void *watch_files(void *arg)
{
    struct watch *w = arg;
    while (!w->over) {
        double temporary = temporary_mib();
        if (temporary > w->temporary)
            w->temporary = temporary;
        usleep(50000);
    }
    return NULL;
}

static void on_progress(void *arg, const struct build_progress *p)
{
    struct watch *w = arg;
    if (w->phase && !strcmp(w->phase, p->phase))
        return;
    w->phase = p->phase;
    printf("%7.1f s  %6.1f s of CPU  %-10s  memory %5.0f MiB (most so far %5.0f), temporary files %6.0f MiB\n",
           (double)(clock_now_ms() - w->started_ms) / 1000, cpu_seconds(), p->phase, status_mib("VmRSS:"),
           status_mib("VmHWM:"), temporary_mib());
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct synthetic s = {.source = {.ops = &ops, .url = "synthetic"}};
    struct watch watch = {.started_ms = clock_now_ms()};
    struct build_options options = {.zstd_level = 3, .progress = on_progress, .progress_arg = &watch};
    struct build_result result;
    struct image_ref ref;
    struct store *store;
    if (argc != 4 || text_parse_uint("FILES", argv[1], 1, UINT32_MAX, &s.files) || s.files % 7919 == 0) {
        fprintf(stderr, "usage: build-synthetic FILES STORE TMPDIR (FILES no multiple of 7919)\n");
        return 2;
    }
    char image[4096];
    pthread_t watcher;
    pthread_create(&watcher, NULL, watch_files, &watch);
    options.tmpdir = argv[3];
    snprintf(image, sizeof image, "%s/synthetic", argv[2]);
    int rc = image_ref_parse(image, &ref);
    if (!rc)
        rc = store_open(ref.store, &(struct store_options){0}, &store);
    if (!rc)
        rc = build_run(&s.source, store, &ref, &options, &result);
    if (rc) {
        fprintf(stderr, "build-synthetic: %s\n", error_text());
        return 1;
    }
    watch.over = true;
    pthread_join(watcher, NULL);
    printf("%llu files: %.1f s, %.1f s of CPU, memory at most %.0f MiB, temporary files at most %.0f MiB "
           "(%.0f bytes a file), uploaded %.0f MiB\n",
           (unsigned long long)s.files, result.seconds, cpu_seconds(), status_mib("VmHWM:"), watch.temporary,
           watch.temporary * 1048576 / (double)s.files, (double)result.bytes_uploaded / 1048576);
    store_close(store);
    return 0;
}
