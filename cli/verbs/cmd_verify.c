/* granary verify IMAGE [--deep] [--against SOURCE [--repair]]
 *
 *     check the image -> (--repair) rebuild the bad packs from SOURCE, check again -> (--against) compare files
 *
 * Problems are printed on standard error as they are found; the first ones are also in the JSON result. */
#include <errno.h>

#include "base/error.h"
#include "base/map.h"
#include "base/text.h"
#include "cli/build_source.h"
#include "cli/verbs/verbs.h"
#include "imagebuild/imagebuild.h"
#include "upkeep/upkeep.h"

struct verify_values {
    bool deep, all, repair, json, quiet;
    uint64_t jobs, sample; /* sample 0: not given */
    const char *against, *hdfs_token_file, *http_token_file;
    struct open_access access;
    struct build_source_values source;
};

#define AT(field) offsetof(struct verify_values, field), 0, 0

static const struct verify_values defaults = {.jobs = 8};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "deep", NULL, AT(deep), "read and hash every chunk and compare every file's digest"},
    {OPTION_TEXT, 0, "against", "SOURCE", AT(against), "compare files of SOURCE with the digests in the catalog"},
    {OPTION_NUMBER, 0, "sample", "N", offsetof(struct verify_values, sample), 1, UINT32_MAX,
     "about N files of it (default 300)"},
    {OPTION_FLAG, 0, "all", NULL, AT(all), "all files of it"},
    {OPTION_FLAG, 0, "repair", NULL, AT(repair),
     "rebuild damaged and missing packs from SOURCE; reads everything, like --deep"},
    {OPTION_LIST, 0, "add", "DIR=SOURCE", AT(source.add), "another source, as the image was built with"},
    {OPTION_TEXT, 0, "prefix-strip", "PATH", AT(source.prefix_strip), "as the image was built with"},
    {OPTION_TEXT, 0, "hdfs-token-file", "FILE", AT(hdfs_token_file), "delegation token for HDFS"},
    {OPTION_TEXT, 0, "http-token-file", "FILE", AT(http_token_file), "bearer token for the web server of SOURCE"},
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct verify_values, jobs), 1, 256,
     "objects looked at, or files read, at the same time (default 8)"},
    STORE_ROWS(struct verify_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

enum { PROBLEMS_NAMED = 100 }; /* printed and listed; the others are only counted */

/* One run. */
struct verifying {
    const struct verify_values *values;
    struct open_image image;
    struct build_source source;
    struct progress progress;
    const volatile int *cancel;
    json_t *problems;
    uint64_t named;              /* problems found; the first PROBLEMS_NAMED are printed */
    struct digest_map bad_packs; /* collected for --repair */
    int collect_rc;              /* the first failure to collect a bad pack */
    struct verify_result result;
    struct verify_source_result against;
    struct repair_result repair;
    bool compared;           /* against is filled in */
    bool nothing_to_compare; /* the image has files, and none of those looked at has its version: one problem */
};

static void cmd_verify_release(struct verifying *v)
{
    open_image_release(&v->image);
    build_source_release(&v->source);
    json_decref(v->problems);
    digest_map_release(&v->bad_packs);
}

/* The progress line is cleared first, so that it does not mix with the sentence. */
static void on_problem(void *arg, const char *sentence)
{
    struct verifying *v = arg;
    if (v->named++ >= PROBLEMS_NAMED)
        return;
    progress_end(&v->progress);
    fprintf(stderr, "granary: verify: %s\n", sentence);
    json_array_append_new(v->problems, json_lossy(sentence));
}

/* Called in one thread at a time. The failure is kept, as a callback cannot return it. */
static void on_bad_pack(void *arg, const struct digest *pack)
{
    struct verifying *v = arg;
    int rc = digest_map_add(&v->bad_packs, pack, 0);
    if (rc < 0)
        v->collect_rc = rc;
}

static void verify_on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct verifying *v = arg;
    progress_update(&v->progress,
                    &(struct progress_state){.phase = "reading", .bytes_done = done, .bytes_total = total});
}

/* Progress of comparing; verify_on_progress: of checking. */
static void on_compared(void *arg, uint64_t files, uint64_t files_total, uint64_t bytes)
{
    struct verifying *v = arg;
    progress_update(&v->progress,
                    &(struct progress_state){
                        .phase = "comparing", .files_done = files, .files_total = files_total, .bytes_done = bytes});
}

/* ------------------------------------------------------------------ the result */

static json_t *cmd_verify_result_json(const struct verifying *v)
{
    const struct verify_result *r = &v->result;
    const struct verify_source_result *a = &v->against;
    json_t *against = json_null(), *repair = json_null();
    if (v->compared)
        against = json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "source", json_lossy(v->values->against), "files",
                            INTEGER(a->files), "bytes", INTEGER(a->bytes), "changed", INTEGER(a->changed), "gone",
                            INTEGER(a->removed), "damaged", INTEGER(a->damaged));
    if (v->values->repair)
        repair = json_pack("{s:o,s:o,s:o}", "packs", INTEGER(v->repair.packs), "repaired", INTEGER(v->repair.repaired),
                           "chunks", INTEGER(v->repair.chunks));
    return json_pack("{s:o,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O}", "digest",
                     print_json_digest(&v->image.digest), "deep", v->values->deep || v->values->repair, "ok",
                     r->problems == 0, "problem_count", INTEGER(r->problems), "packs", INTEGER(r->packs), "packs_bad",
                     INTEGER(r->packs_bad), "chunks", INTEGER(r->chunks), "holes", INTEGER(r->holes), "chunks_bad",
                     INTEGER(r->chunks_bad), "entries", INTEGER(r->entries), "files", INTEGER(r->files), "files_bad",
                     INTEGER(r->files_bad), "bytes", INTEGER(r->bytes), "against", against, "repair", repair,
                     "problems", v->problems);
}

/* Lines appear only for what was done: --deep, --against, --repair. */
static void cmd_verify_print_result(const struct verifying *v)
{
    const struct verify_result *r = &v->result;
    char digest[PRINT_DIGEST_MAX], bytes[TEXT_SIZE_MAX];
    char packs[TEXT_COUNT_MAX], chunks[TEXT_COUNT_MAX], paths[TEXT_COUNT_MAX];
    printf("%s: %s\n", print_digest(&v->image.digest, digest),
           r->problems > v->nothing_to_compare ? "NOT sound"
           : v->nothing_to_compare             ? "NOT compared"
                                               : "sound");
    printf("  %llu of %s there, %s, %llu of them holes, %s\n", (unsigned long long)(r->packs - r->packs_bad),
           text_format_count(r->packs, "pack", packs), text_format_count(r->chunks, "chunk", chunks),
           (unsigned long long)r->holes, text_format_count(r->entries, "path", paths));
    if (v->values->deep || v->values->repair)
        printf("  %s read and hashed, %llu files compared\n", text_format_size(r->bytes, bytes),
               (unsigned long long)r->files);
    if (v->compared)
        printf("  %llu files compared with the source, %s; %llu have changed there, %llu are gone\n",
               (unsigned long long)v->against.files, text_format_size(v->against.bytes, bytes),
               (unsigned long long)v->against.changed, (unsigned long long)v->against.removed);
    if (v->repair.packs)
        printf("  %llu of %llu damaged packs rebuilt\n", (unsigned long long)v->repair.repaired,
               (unsigned long long)v->repair.packs);
}

/* ------------------------------------------------------------------ the checks */

/* Check the options against each other; a store to be repaired must be writable. */
static int check_options(const struct verify_values *v, const char *image)
{
    struct image_ref ref;
    const char *alone = v->repair                ? "repair"
                        : v->all                 ? "all"
                        : v->sample              ? "sample"
                        : v->source.add.count    ? "add"
                        : v->source.prefix_strip ? "prefix-strip"
                        : v->hdfs_token_file     ? "hdfs-token-file"
                        : v->http_token_file     ? "http-token-file"
                                                 : NULL;
    if (alone && !v->against)
        return options_wrong("--%s needs --against SOURCE", alone);
    if (v->repair && (image_ref_parse(image, &ref) || open_check_writable(&ref)))
        return CLI_USAGE;
    if (v->all && v->sample)
        return options_exclude("--all", "--sample", "all files are compared, or some");
    return 0;
}

/* With --repair every byte is read (deep), because only that finds all bad packs. */
static int check_image(struct verifying *v)
{
    const struct verify_options options = {.deep = v->values->deep || v->values->repair,
                                           .threads = (unsigned)v->values->jobs,
                                           .problem = on_problem,
                                           .bad_pack = v->values->repair ? on_bad_pack : NULL,
                                           .progress = verify_on_progress,
                                           .arg = v,
                                           .cancel = v->cancel};
    int rc = verify_image(v->image.store, &v->image.manifest, &options, &v->result);
    return rc ? rc : v->collect_rc;
}

/* Rebuild the bad packs, then check the image anew: the first check's problems are obsolete. */
static int repair(struct verifying *v)
{
    const struct repair_options options = {
        .threads = (unsigned)v->values->jobs, .problem = on_problem, .arg = v, .cancel = v->cancel};
    CLEANUP_FREE struct digest *packs = calloc(v->bad_packs.map.count + 1, sizeof *packs);
    size_t n = 0;
    if (!packs)
        return error_no_memory();
    for (const struct digest_slot *slot = NULL; (slot = digest_map_next(&v->bad_packs, slot));)
        packs[n++] = slot->key;
    int rc = repair_packs(v->image.store, &v->image.manifest, v->source.source, packs, n, &options, &v->repair);
    if (rc || !v->repair.repaired)
        return rc;
    progress_end(&v->progress);
    fprintf(stderr, "granary: verify: %llu of %llu damaged packs rebuilt; checking again\n",
            (unsigned long long)v->repair.repaired, (unsigned long long)v->repair.packs);
    json_array_clear(v->problems);
    v->named = 0;
    return check_image(v);
}

/* A script that signs after this check must not take a comparison of nothing for one. */
static void report_nothing_compared(struct verifying *v)
{
    const struct verify_source_result *a = &v->against;
    v->nothing_to_compare = true;
    v->result.problems++;
    if (a->changed + a->removed)
        (void)error_set(-ESTALE, "nothing was compared: none of %llu files of %s is still the version that was built",
                        (unsigned long long)(a->changed + a->removed), v->values->against);
    else
        (void)error_set(-ESTALE, "nothing was compared: the sample has no file; choose a larger --sample, or --all");
    on_problem(v, error_text());
}

/* Compare files of SOURCE with the catalog's digests. A changed file is no problem of the image, a damaged one is. It
 * is a problem, too, if there was nothing to compare. */
static int compare_source(struct verifying *v)
{
    const struct verify_values *values = v->values;
    const struct verify_source_options options = {.sample = values->all      ? 0
                                                            : values->sample ? values->sample
                                                                             : VERIFY_SOURCE_SAMPLE,
                                                  .threads = (unsigned)values->jobs,
                                                  .problem = on_problem,
                                                  .progress = on_compared,
                                                  .arg = v,
                                                  .cancel = v->cancel};
    int rc = verify_source(v->image.store, &v->image.manifest, v->source.source, &options, &v->against);
    v->compared = true;
    v->result.problems += v->against.damaged;
    if (!rc && !v->against.files && v->image.manifest.counts.files)
        report_nothing_compared(v);
    return rc;
}

/* Do what was asked for, in the order at the top. After a repair files are compared only on request (--all, --sample).
 */
static int cmd_verify_check_all(struct verifying *v, const char *image)
{
    const struct verify_values *values = v->values;
    const struct source_options options = {.endpoint = values->access.endpoint,
                                           .timeout_ms = values->access.timeout_s * 1000,
                                           .connections = (unsigned)values->jobs,
                                           .hdfs = {.token_file = values->hdfs_token_file},
                                           .http_token_file = values->http_token_file,
                                           .cancel = v->cancel};
    int rc = open_image(image, &values->access, &v->image);
    if (!rc && values->against)
        rc = build_source_open(values->against, &values->source, &options, &v->source);
    if (!rc)
        rc = check_image(v);
    if (!rc && values->repair && v->bad_packs.map.count)
        rc = repair(v);
    if (!rc && values->against && (!values->repair || values->all || values->sample))
        rc = compare_source(v);
    progress_end(&v->progress);
    return rc;
}

/* The summary is printed before the exit status is decided, so it appears with problems too. */
static int cmd_verify_run(const struct invocation *inv)
{
    struct verifying v CLEANUP(cmd_verify_release) = {.values = inv->values, .problems = json_array()};
    if (check_options(v.values, inv->operands[0]))
        return CLI_USAGE;
    progress_init(&v.progress, "verify", v.values->quiet);
    v.cancel = interrupt_watch();
    int rc = cmd_verify_check_all(&v, inv->operands[0]);
    if (!rc && v.values->json)
        rc = print_json(cmd_verify_result_json(&v));
    else if (!rc)
        cmd_verify_print_result(&v);
    if (!rc && v.result.problems)
        rc = error_set(-EBADMSG, "%s has %llu problem%s", inv->operands[0], (unsigned long long)v.result.problems,
                       v.result.problems == 1 ? "" : "s");
    return rc;
}

const struct verb verb_verify = {
    .name = "verify",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Check that an image is whole and right in its store",
    .details = "Checks the manifest, the index and the catalog, and that every pack is there and long enough.\n"
               "With --deep every byte is read and hashed as well. Exit code 1 when anything is wrong.\n\n"
               "With --against SOURCE, files of the source are read and compared with the catalog: one that is the\n"
               "version of the image and has other bytes is a problem, one that has changed since is only counted.\n"
               "Exit code 1, too, when all of them have changed, as nothing was compared then.\n"
               "With --repair as well, packs that are damaged or missing are rebuilt from SOURCE.",
    .options = rows,
    .values_size = sizeof(struct verify_values),
    .defaults = &defaults,
    .run = cmd_verify_run,
};
