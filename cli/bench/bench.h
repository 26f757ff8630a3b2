/* The measurements of `granary bench`: what a store, a disk or a mount gives, next to what Granary reaches on it. They
 * end in time, also when what they measure is slow, and with -ECANCELED once a signal has come (cli/interrupt.h).
 * `granary doctor` uses the shorter of them. One thread calls; they start threads of their own. */
#ifndef GRANARY_CLI_BENCH_BENCH_H
#define GRANARY_CLI_BENCH_BENCH_H

#include <jansson.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/compiler.h"
#include "cli/open.h"
#include "format/object.h"

/* ---- the report (bench.c) ---- */

enum bench_unit { BENCH_US, BENCH_PER_S, BENCH_BYTES_PER_S, BENCH_BYTES };

enum { BENCH_FIGURES_MAX = 16, BENCH_IMAGE_MAX = 1408 /* bytes of a reference, with its NUL */ };

/* What was measured, in the order of the table. */
struct bench_report {
    const char *kind, *target;   /* "store", "dir" or "mount"; the operand */
    char image[BENCH_IMAGE_MAX]; /* that was read; empty: none */
    struct bench_figure {
        const char *name, *what; /* for JSON, for people */
        enum bench_unit unit;
        double raw, granary; /* negative: not measured */
    } figures[BENCH_FIGURES_MAX];
    size_t count;
    json_t *notes; /* of strings: what is to be known with the figures */
};

#define BENCH_NONE (-1.0)

/* Add a figure: a row of the table. name: stable for scripts. */
void bench_add(struct bench_report *r, const char *name, const char *what, enum bench_unit unit, double raw,
               double granary);
void bench_note(struct bench_report *r, const char *fmt, ...) GR_PRINTF(2, 3);
/* Print the table. */
void bench_print(const struct bench_report *r);
/* Return the report as `granary bench --json` prints it. NULL: out of memory. */
json_t *bench_json(const struct bench_report *r, double seconds);

/* ---- the three kinds; ms: how long to measure, all parts together. With a sentence on failure. ---- */

GR_MUST_CHECK int bench_store(struct bench_report *r, const char *store, const struct open_access *access, uint64_t ms);
GR_MUST_CHECK int bench_dir(struct bench_report *r, const char *dir, uint64_t ms);
GR_MUST_CHECK int bench_mount(struct bench_report *r, const char *dir, uint64_t ms);

/* ---- parts ---- */

enum { BENCH_DONE = 1 }; /* what an item returns to end the work early, without an error */

/* Work that ends in time. */
struct bench_work {
    unsigned threads;
    uint64_t ms;
    int (*item)(void *arg, size_t i); /* called for i = 0, 1, 2, ... until ms have passed */
    void *arg;
    /* Set BENCH_GRACE_MS after the end, or by a signal, if items are still at work then; NULL: they end by themselves.
     * What they return then is no failure. */
    volatile int *cancel;
};
enum { BENCH_GRACE_MS = 2000 };
/* *out_us: how long it took. The first failure of an item; -ECANCELED: a signal came. */
GR_MUST_CHECK int bench_run(const struct bench_work *work, uint64_t *out_us);
/* Return how many a second; the time may be 0. */
double bench_rate(uint64_t n, uint64_t us);

/* Times of requests, at most BENCH_TIMES_MAX. */
enum { BENCH_TIMES_MAX = 2000 };
struct bench_times {
    size_t count;
    uint64_t us[BENCH_TIMES_MAX];
};
/* Return the time within which this share of the requests ended; sorts. BENCH_NONE: there were none. */
double bench_percentile(struct bench_times *t, unsigned percent);

/* The way to a store, measured by ranges of an image's packs, which a server reads too (bench_link.c). Nothing is
 * written. */
enum { BENCH_PACKS_MAX = 16, BENCH_LINK_MANY = 16 /* connections */ };
struct bench_link {
    struct store *store;
    struct bench_pack {
        char key[OBJECT_KEY_MAX];
        uint64_t size;
    } packs[BENCH_PACKS_MAX];
    size_t count; /* 0: the image has no data */
    _Atomic uint64_t bytes;
    uint64_t until_ms, most;
};
/* Find the first packs of an image, which must outlive *out. */
GR_MUST_CHECK int bench_link_init(struct bench_link *out, const struct open_image *image);
/* Measure requests for len bytes, one after the other, at most `most`. */
GR_MUST_CHECK int bench_link_latency(const struct bench_link *l, uint32_t len, size_t most, uint64_t ms,
                                     struct bench_times *out);
/* Measure bytes a second over N connections, until `most` bytes have come at the latest. */
GR_MUST_CHECK int bench_link_speed(struct bench_link *l, unsigned connections, uint64_t ms, uint64_t most, double *out);

/* A file without a name on a disk (bench_disk.c). */
enum { BENCH_PIECE = 1 << 20 /* bytes of a sequential read or write */ };
struct bench_disk {
    const char *dir;
    int fd;
    bool direct; /* O_DIRECT: its filesystem has it */
    uint64_t size;
    _Atomic uint64_t written; /* bytes from the start that were written so far */
    _Atomic uint64_t ops;
    uint32_t len; /* of an operation */
    bool writes;
};
/* Make a file of `size` bytes, reserved as a server reserves a cache. dir must outlive it. bench_disk_release it in any
 * case. -EOPNOTSUPP: the filesystem cannot reserve space, or has no unnamed files; -ENOSPC, -EACCES and others of open.
 */
GR_MUST_CHECK int bench_disk_init(struct bench_disk *out, const char *dir, uint64_t size);
void bench_disk_release(struct bench_disk *d);
#define CLEANUP_BENCH_DISK CLEANUP(bench_disk_release) struct bench_disk
/* Write the file from its start, at most once, and sync it; bytes a second. */
GR_MUST_CHECK int bench_disk_fill(struct bench_disk *d, unsigned threads, uint64_t ms, double *out);
/* Read or write len bytes at a time (a multiple of 4096) in what was filled: one place after the other if that is
 * BENCH_PIECE, else at random places; operations a second. */
GR_MUST_CHECK int bench_disk_run(struct bench_disk *d, bool writes, uint32_t len, unsigned threads, uint64_t ms,
                                 double *out);

/* What the cache reaches in a directory (bench_cache.c): a cache of `size` bytes below it, filled by a store that makes
 * its chunks up, then read; removed at the end. What a killed one has left is removed first. The directory must be safe
 * (base/safe_dir.h). -EBUSY: another bench is at work there. */
struct bench_cache_figures {
    double fill, read;        /* bytes a second; read: of 16 neighbouring chunks at a time */
    double read_4k, read_64k; /* reads a second */
};
GR_MUST_CHECK int bench_cache(const char *dir, uint64_t size, uint64_t ms, struct bench_cache_figures *out);

#endif
