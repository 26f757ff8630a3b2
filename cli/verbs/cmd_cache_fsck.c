/* granary cache fsck DIR... [--repair]: checks cache directories that no server uses. cache_fsck takes the directory's
 * lock, so a directory in use is refused.
 *
 * Problems are printed as they are found; the directory's summary follows. The exit status is 1 if any chunk was bad,
 * also if --repair removed it.
 */
#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "cache/cache_tools.h"
#include "cli/verbs/verbs.h"

struct fsck_values {
    bool repair, json, quiet;
    uint64_t jobs;
};

#define AT(field) offsetof(struct fsck_values, field), 0, 0

static const struct fsck_values defaults = {.jobs = CACHE_FSCK_THREADS};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "repair", NULL, AT(repair), "forget the chunks that are bad; without it nothing is changed"},
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct fsck_values, jobs), 1, CACHE_FSCK_THREADS_MAX,
     "slots read at the same time (default 8)"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* Problems are printed on standard error as they are found, and listed in the JSON result: the first ones of both. */
enum { PROBLEMS_NAMED = 100 }; /* bounds the output for a disk that is bad as a whole */

/* What the callbacks report into, for one directory. */
struct reporting {
    const char *dir;
    struct progress progress;
    json_t *problems;
    uint64_t count;
};

/* Report a bad chunk. With --repair it is forgotten, so a server fetches it again. */
static void on_bad(void *arg, const struct cache_fsck_bad *bad)
{
    struct reporting *r = arg;
    char digest[PRINT_DIGEST_MAX];
    if (r->count++ >= PROBLEMS_NAMED)
        return;
    print_digest(bad->digest, digest);
    progress_end(&r->progress);
    fprintf(stderr, "granary: cache fsck: %s: slab %u, slot %u, chunk %s: %s%s\n", r->dir, bad->place->slab,
            bad->place->slot, digest, bad->why, bad->repaired ? "; forgotten" : "");
    json_array_append_new(r->problems,
                          json_pack("{s:s,s:I,s:I,s:s,s:b}", "digest", digest, "slab", (json_int_t)bad->place->slab,
                                    "slot", (json_int_t)bad->place->slot, "why", bad->why, "repaired", bad->repaired));
}

static void fsck_on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct reporting *r = arg;
    progress_update(&r->progress,
                    &(struct progress_state){.phase = "checking", .bytes_done = done, .bytes_total = total});
}

/* Check one directory. *bad counts the problems; results collects the JSON, NULL for text. */
static int cmd_cache_fsck_check_dir(const char *dir, const struct fsck_values *v, json_t *results, uint64_t *bad)
{
    struct reporting reporting = {.dir = dir, .problems = json_array()};
    progress_init(&reporting.progress, "cache fsck", v->quiet);
    const struct cache_fsck_options options = {.threads = (unsigned)v->jobs,
                                               .repair = v->repair,
                                               .bad = on_bad,
                                               .progress = fsck_on_progress,
                                               .arg = &reporting,
                                               .cancel = interrupt_watch()};
    struct cache_fsck_result r;
    int rc = cache_fsck(dir, &options, &r);
    progress_end(&reporting.progress);
    *bad += rc ? 0 : r.bad;
    if (!rc && results) {
        json_array_append_new(
            results, json_pack("{s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O}", "directory", json_lossy(dir),
                               "ok", !r.bad, "slabs", INTEGER(r.slabs), "slabs_bound", INTEGER(r.bound), "slots",
                               INTEGER(r.slots), "good", INTEGER(r.good), "empty", INTEGER(r.empty), "stale",
                               INTEGER(r.stale), "bad", INTEGER(r.bad), "repaired", INTEGER(r.repaired), "pinned",
                               INTEGER(r.pinned), "bytes", INTEGER(r.bytes), "problems", reporting.problems));
    } else if (!rc) {
        char bytes[TEXT_SIZE_MAX];
        printf("%s: %s\n", dir, r.bad ? "NOT sound" : "sound");
        printf("  %llu good chunks of %s; %llu slots empty, %llu stale\n", (unsigned long long)r.good,
               text_format_size(r.bytes, bytes), (unsigned long long)r.empty, (unsigned long long)r.stale);
        if (r.bad)
            printf("  %llu bad chunks, %llu of them forgotten\n", (unsigned long long)r.bad,
                   (unsigned long long)r.repaired);
    }
    json_decref(reporting.problems);
    return rc;
}

/* A directory that cannot be checked ends the run: its error is not a finding. */
static int cmd_cache_fsck_run(const struct invocation *inv)
{
    const struct fsck_values *v = inv->values;
    json_t *results = v->json ? json_array() : NULL;
    uint64_t bad = 0;
    int rc = 0;
    for (size_t i = 0; !rc && i < inv->operand_count; i++)
        rc = cmd_cache_fsck_check_dir(inv->operands[i], v, results, &bad);
    if (!rc && v->json)
        rc = print_json(json_pack("{s:b,s:O}", "ok", !bad, "directories", results));
    json_decref(results);
    if (!rc && bad)
        rc = error_set(-EBADMSG, "%llu chunk%s bad%s", (unsigned long long)bad, bad == 1 ? " was" : "s were",
                       v->repair ? "" : "; --repair forgets them, a server does so when it reads them");
    return rc;
}

const struct verb verb_cache_fsck = {
    .name = "cache fsck",
    .operands = "DIR...",
    .min_operands = 1,
    .max_operands = 16,
    .summary = "Check every chunk in cache directories that no server uses",
    .details = "Reads every record and every byte it describes, and compares the checksums and the SHA-256. A chunk\n"
               "that is bad does no harm: a server finds it out at the first read and fetches it again. After a power\n"
               "loss some may be. Exit code 0 when none was found, 1 when any was, also when --repair forgot it.",
    .options = rows,
    .values_size = sizeof(struct fsck_values),
    .defaults = &defaults,
    .run = cmd_cache_fsck_run,
};
