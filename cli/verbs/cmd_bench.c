/* granary bench STORE|DIR|MOUNT
 *
 *   operand -> store, mount or cache disk -> bench_store, bench_mount, bench_dir -> table or JSON
 *
 * An address is a store, and so is a directory with a store in it; either may also be an image in one. A directory
 * where an image is mounted, or which can only be read, is a mount. Any other directory stands for the disk of a cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/bench/bench.h"
#include "cli/verbs/verbs.h"

struct bench_values {
    struct open_access access;
    uint64_t seconds;
    bool json;
};

static const struct bench_values defaults = {.access.timeout_s = OPEN_LOOKUP_S, .seconds = 10};

static const struct option_row rows[] = {
    LOOKUP_ROWS(struct bench_values),
    {OPTION_NUMBER, 0, "seconds", "N", offsetof(struct bench_values, seconds), 1, 25,
     "how long to measure, at most 25 (default 10)"},
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct bench_values, json), 0, 0, "print one JSON object"},
    {0},
};

/* Whether a directory has the document that marks a store. */
static bool is_store(const char *path)
{
    CLEANUP_FREE char *mark = NULL;
    if (asprintf(&mark, "%s/granary.json", path) < 0)
        mark = NULL;
    return mark && !access(mark, F_OK);
}

static bool is_read_only(const char *path)
{
    struct statvfs fs;
    return !statvfs(path, &fs) && fs.f_flag & ST_RDONLY;
}

/* Find out what the operand is, and measure it. */
static int cmd_bench_measure(struct bench_report *r, const char *operand, const struct bench_values *v)
{
    uint64_t ms = v->seconds * 1000;
    struct mount_state state;
    struct stat st;
    if (strstr(operand, "://") || (*operand == '/' && access(operand, F_OK) && strchr(strrchr(operand, '/'), ':')))
        return bench_store(r, operand, &v->access, ms);
    CLEANUP_FREE char *path = realpath(operand, NULL);
    if (!path || stat(path, &st))
        return error_set(-errno, "%.200s: %s; give a store, a directory on a cache disk, or a mount", operand,
                         strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return error_set(-ENOTDIR, "%.200s is no directory; give a store, a directory on a cache disk, or a mount",
                         operand);
    bool mounted = !mount_find(path, &state);
    if (!mounted && is_store(path))
        return bench_store(r, path, &v->access, ms);
    return mounted || is_read_only(path) ? bench_mount(r, path, ms) : bench_dir(r, path, ms);
}

static int cmd_bench_run(const struct invocation *inv)
{
    const struct bench_values *v = inv->values;
    struct bench_report r = {.target = inv->operands[0], .notes = json_array()};
    uint64_t start = clock_now_ms();
    interrupt_watch();
    log_to(NULL, LOG_LEVEL_WARNING); /* nothing of the server that is measured */
    int rc = cmd_bench_measure(&r, inv->operands[0], v);
    if (!rc && v->json)
        rc = print_json(bench_json(&r, (double)(clock_now_ms() - start) / 1000));
    else if (!rc)
        bench_print(&r);
    json_decref(r.notes);
    return rc;
}

const struct verb verb_bench = {
    .name = "bench",
    .operands = "STORE|DIR|MOUNT",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Measure a store, a cache disk or a mount, beside what Granary reaches there",
    .details =
        "STORE: latency and speed of ranged gets of its newest image, or of an IMAGE; nothing is written.\n"
        "DIR: a cache disk: 256 MiB are written to a cache, which is removed, and then to a file without a name.\n"
        "MOUNT: files and bytes a second of a sample, read twice; for the device below it, run it as root.\n"
        "Each figure stands next to what Granary reaches on the same.",
    .options = rows,
    .values_size = sizeof(struct bench_values),
    .defaults = &defaults,
    .run = cmd_bench_run,
};
