/* The checks of `granary doctor`. Each check adds findings to a report, which prints them as they come: OK, WARN or
 * FAIL, what was found, and for the last two the remedy. One thread. */
#ifndef GRANARY_CLI_DOCTOR_DOCTOR_H
#define GRANARY_CLI_DOCTOR_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/compiler.h"
#include "cli/open.h"

enum doctor_level { DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL, DOCTOR_LEVELS };

struct doctor_report {
    json_t *findings; /* of {level, check, text, remedy} */
    bool quiet;       /* do not print each finding as a line */
    unsigned counts[DOCTOR_LEVELS];
};

/* Add a finding. check: a short name, stable for scripts; remedy: what to do, NULL for OK, or if the text says it. */
void doctor_add(struct doctor_report *r, enum doctor_level level, const char *check, const char *remedy,
                const char *fmt, ...) GR_PRINTF(5, 6);

/* Return the report as `granary doctor --json` prints it. NULL: out of memory. */
json_t *doctor_json(const struct doctor_report *r);

/* Call check(r, arg) in a child process, and take over its findings and its result. -ETIMEDOUT: it did not return in
 * time; no finding of it was added. Only while this process has one thread. */
GR_MUST_CHECK int doctor_within(struct doctor_report *r, int (*check)(struct doctor_report *r, const void *arg),
                                const void *arg, uint64_t ms);

/* Run a program to its end, for 10 seconds at most (doctor_node.c). *out_fd: its output and its errors, a file in
 * memory that the caller closes; *out_status: as of waitpid. -ENOENT: there is no such program; -ETIMEDOUT: it was
 * killed. */
GR_MUST_CHECK int doctor_run(const char *const *argv, int *out_fd, int *out_status);

/* ---- this node (doctor_node.c): nothing here needs a store ---- */

/* Kernel modules and devices, programs and their versions, and doctor_check_limits. */
void doctor_check_node(struct doctor_report *r);
/* Limits of processes, io_uring, the clock (doctor_limits.c). root: where /proc and /sys are, "" but for tests. */
void doctor_check_limits(struct doctor_report *r, const char *root);
/* The configuration file, and the cache directories that it or the environment names, or else the default one: owner,
 * room, direct I/O, speed (doctor_cache.c). Writes a file without a name for a second. */
void doctor_check_caches(struct doctor_report *r);
/* The same for one directory. false: there is none of that name, and nothing was checked. */
bool doctor_check_directory(struct doctor_report *r, const char *dir);
/* What mounts and devices killed processes have left, and whether servers answer and devices are kept. */
void doctor_check_mounts(struct doctor_report *r);

/* ---- one image and its store (doctor_store.c) ---- */

/* Credentials, tag, manifest, a verified chunk; the server's clock; latency, and speed over one connection and over
 * many. writes: try conditional puts, too, by a few small objects that are removed again. */
void doctor_check_image(struct doctor_report *r, const char *image, const struct open_access *access, bool writes);

/* ---- for a bug report (doctor_bundle.c) ---- */

/* Write a .tar.gz with the report, versions, settings, mounts, state files, each server's status, metrics and log, and
 * of the journal the lines of Granary's units and those of the kernel about nbd and erofs (of logs and the journal the
 * last MiB each). Granary writes no secret into these, but logs and journal have lines of others, too: in them, what
 * looks like a secret is replaced. Mode 0600. What cannot be read is left out and named in the report.
 * -EEXIST: the file is there already; errors of open and write; -ENOMEM; with a sentence. */
GR_MUST_CHECK int doctor_bundle(struct doctor_report *r, const char *file);

/* Replace what looks like a secret in lines of a log by '*' (doctor_redact.c). */
void doctor_redact(struct bytes *text);

#endif
