/* feed: readers feed simulated accelerators, as in MLPerf Storage: an accelerator takes a batch of BATCH files, which
 * have been read, and sleeps for STEP_MS in place of the computing; its utilisation (AU) is the time of its steps in
 * that of the run (Submission_guidelines.md of https://github.com/mlcommons/storage):
 *
 *   AU = total_compute_time / total_benchmark_running_time, without the input of the first step
 *
 * As a PyTorch DataLoader has it, a reader takes the next whole batch of the shuffled files, and the readers are at
 * most two batches each ahead of the accelerators (prefetch_factor). As many batches as there are accelerators are the
 * first step; the clock starts when they have been read, and runs for SECONDS or until the files have all been read
 * once. If the first step takes longer than SECONDS, AU is 0. No file is read twice.
 *
 * FILE_MS: a file takes at least so long, so that the largest number of accelerators is known beforehand.
 */
#include "reader.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AHEAD = 2, STEPS_MIN = 5 };

/* What all processes share. */
struct feeding {
    const struct file *files;
    int dir;
    size_t batch, batches; /* files a batch; how many of these there are: a rest of files is left out */
    size_t accelerators;
    double step_ms, most_ms, file_ms;
    double start;              /* of the run: before the clock starts */
    double clock;              /* when it started; 0: not yet */
    size_t begun, read, taken; /* batches */
    size_t files_read, errors; /* files */
    uint64_t bytes;
    bool stop;
    sem_t room, ready;    /* batches that may be begun; that are read and not taken */
    double utilisation[]; /* an accelerator */
};

static struct timespec at_ms(double ms)
{
    struct timespec t = {.tv_sec = (time_t)(ms / 1e3)};
    t.tv_nsec = (long)((ms - (double)t.tv_sec * 1e3) * 1e6);
    return t;
}

static void sleep_until(double ms)
{
    struct timespec t = at_ms(ms);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

static double clock_of(struct feeding *f)
{
    double clock;
    __atomic_load(&f->clock, &clock, __ATOMIC_ACQUIRE);
    return clock;
}

static double deadline(struct feeding *f)
{
    double clock = clock_of(f);
    return (clock > 0 ? clock : f->start) + f->most_ms;
}

static void read_batches(struct feeding *f)
{
    unsigned char *block = malloc(BLOCK);
    if (!block)
        die("reader");
    for (;;) {
        while (sem_wait(&f->room))
            ;
        size_t batch = __atomic_fetch_add(&f->begun, 1, __ATOMIC_RELAXED);
        if (batch >= f->batches)
            break;
        for (size_t i = batch * f->batch; i < (batch + 1) * f->batch; i++) {
            double start = now_ms();
            if (__atomic_load_n(&f->stop, __ATOMIC_RELAXED))
                goto out;
            read_and_compare(f->dir, &f->files[i], block, &f->errors);
            __atomic_fetch_add(&f->files_read, 1, __ATOMIC_RELAXED);
            __atomic_fetch_add(&f->bytes, f->files[i].size, __ATOMIC_RELAXED);
            if (f->file_ms > 0)
                sleep_until(start + f->file_ms);
        }
        if (__atomic_add_fetch(&f->read, 1, __ATOMIC_ACQ_REL) == f->accelerators) {
            double now = now_ms();
            __atomic_store(&f->clock, &now, __ATOMIC_RELEASE);
        }
        sem_post(&f->ready);
    }
out:
    free(block);
}

/* Returns false when the time is over. */
static bool take_batch(struct feeding *f)
{
    for (double end; now_ms() < (end = deadline(f));) {
        struct timespec t = at_ms(end);
        if (!sem_clockwait(&f->ready, CLOCK_MONOTONIC, &t))
            return sem_post(&f->room) == 0;
    }
    return false;
}

/* Returns the utilisation of one accelerator. What it computes before the clock starts does not count. */
static double compute(struct feeding *f)
{
    double busy = 0, clock;
    while (__atomic_fetch_add(&f->taken, 1, __ATOMIC_RELAXED) < f->batches) {
        if (!take_batch(f))
            return (clock = clock_of(f)) > 0 ? busy / f->most_ms : 0;
        double begin = now_ms(), end = begin + f->step_ms;
        sleep_until(end);
        if ((clock = clock_of(f)) <= 0 || end <= clock)
            continue;
        if (end >= clock + f->most_ms)
            return (busy + clock + f->most_ms - (begin > clock ? begin : clock)) / f->most_ms;
        busy += end - (begin > clock ? begin : clock);
    }
    return busy / (now_ms() - clock_of(f));
}

static pid_t start(struct feeding *f, double *utilisation)
{
    pid_t pid = fork();
    if (pid < 0)
        die("fork");
    if (pid)
        return pid;
    if (utilisation)
        *utilisation = compute(f);
    else
        read_batches(f);
    _exit(0);
}

static void run(struct feeding *f, long readers)
{
    pid_t *pids = calloc(f->accelerators, sizeof *pids);
    if (!pids)
        die("reader");
    f->start = now_ms();
    for (size_t i = 0; i < f->accelerators; i++)
        pids[i] = start(f, &f->utilisation[i]);
    for (long i = 0; i < readers; i++)
        start(f, NULL);
    for (size_t i = 0; i < f->accelerators; i++)
        waitpid(pids[i], NULL, 0);
    __atomic_store_n(&f->stop, true, __ATOMIC_RELAXED);
    for (long i = 0; i < readers; i++)
        sem_post(&f->room);
    while (wait(NULL) > 0)
        ;
    free(pids);
}

static int report(struct feeding *f)
{
    double seconds = f->clock > 0 ? (now_ms() - f->clock) / 1e3 : 0, au = 0;
    for (size_t i = 0; i < f->accelerators; i++)
        au += f->utilisation[i] / (double)f->accelerators;
    printf("{\"accelerators\":%zu,\"au\":%.4f,\"files\":%zu,\"bytes\":%" PRIu64 ",\"errors\":%zu,\"seconds\":%.3f,"
           "\"reader_cpu\":%.2f}\n",
           f->accelerators, au, f->files_read, f->bytes, f->errors, seconds, children_cpu());
    return f->errors != 0;
}

int feed(const struct file *files, size_t count, const char *top, long readers, int argc, char **argv)
{
    size_t accelerators = argc > 0 ? strtoull(argv[0], NULL, 10) : 0,
           batch = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
    if (argc < 4 || !accelerators || !batch || readers < 1) {
        fprintf(stderr, "reader: feed takes READERS ORDER ACCELERATORS BATCH STEP_MS SECONDS, none of them 0\n");
        return 2;
    }
    if (count / batch < accelerators * STEPS_MIN) {
        fprintf(stderr, "reader: %zu files are less than %d steps of %zu accelerators\n", count, STEPS_MIN,
                accelerators);
        return 2;
    }
    size_t size = sizeof(struct feeding) + accelerators * sizeof(double);
    struct feeding *f = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f == MAP_FAILED)
        die("reader");
    f->files = files;
    f->batch = batch;
    f->batches = count / batch;
    f->accelerators = accelerators;
    f->step_ms = strtod(argv[2], NULL);
    f->most_ms = strtod(argv[3], NULL) * 1e3;
    f->file_ms = argc > 4 ? strtod(argv[4], NULL) : 0;
    f->dir = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f->dir < 0 || sem_init(&f->room, 1, (unsigned)(AHEAD * readers)) || sem_init(&f->ready, 1, 0))
        die(top);
    run(f, readers);
    return report(f);
}
