/* granary verify IMAGE [--deep] */
#include <errno.h>

#include "base/error.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/progress.h"
#include "cli/verbs.h"
#include "store/verify.h"

struct verify_values {
    bool deep, json, quiet;
    uint64_t jobs;
    const char *endpoint;
};

#define AT(field) offsetof(struct verify_values, field), 0, 0

static const struct verify_values defaults = {.jobs = 8};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "deep", NULL, AT(deep), "read and hash every chunk and compare every file's digest"},
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct verify_values, jobs), 1, 256,
     "objects looked at or read at the same time (default 8)"},
    ENDPOINT_ROW(struct verify_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* Problems are named on standard error as they are found, the first ones also in the JSON result. */
enum { PROBLEMS_NAMED = 100 };

struct reporting {
    struct progress progress;
    json_t *problems;
    uint64_t count;
};

static void on_problem(void *arg, const char *sentence)
{
    struct reporting *r = arg;
    if (r->count++ >= PROBLEMS_NAMED)
        return;
    progress_end(&r->progress);
    fprintf(stderr, "granary: verify: %s\n", sentence);
    json_array_append_new(r->problems, json_string(sentence));
}

static void on_progress(void *arg, uint64_t done, uint64_t total)
{
    struct reporting *r = arg;
    progress_update(&r->progress,
                    &(struct progress_state){.phase = "reading", .bytes_done = done, .bytes_total = total});
}

#define INTEGER(field) json_integer((json_int_t)(field))

static json_t *result_json(const struct open_image *image, bool deep, const struct verify_result *r, json_t *problems)
{
    return json_pack("{s:o,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:O}", "digest",
                     print_json_digest(&image->digest), "deep", deep, "ok", r->problems == 0, "problem_count",
                     INTEGER(r->problems), "packs", INTEGER(r->packs), "packs_bad", INTEGER(r->packs_bad), "chunks",
                     INTEGER(r->chunks), "holes", INTEGER(r->holes), "chunks_bad", INTEGER(r->chunks_bad), "entries",
                     INTEGER(r->entries), "files", INTEGER(r->files), "files_bad", INTEGER(r->files_bad), "bytes",
                     INTEGER(r->bytes), "problems", problems);
}

static void print_result(const struct open_image *image, bool deep, const struct verify_result *r)
{
    char digest[PRINT_DIGEST_MAX], bytes[TEXT_SIZE_MAX];
    printf("%s: %s\n", print_digest(&image->digest, digest), r->problems ? "NOT sound" : "sound");
    printf("  %llu packs there, %llu chunks, %llu of them holes, %llu paths\n",
           (unsigned long long)(r->packs - r->packs_bad), (unsigned long long)r->chunks, (unsigned long long)r->holes,
           (unsigned long long)r->entries);
    if (deep)
        printf("  %s read and hashed, %llu files compared\n", text_format_size(r->bytes, bytes),
               (unsigned long long)r->files);
}

static int run(const struct invocation *inv)
{
    const struct verify_values *v = inv->values;
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image(inv->operands[0], v->endpoint, &image);
    if (rc)
        return rc;
    struct reporting reporting = {.problems = json_array()};
    progress_init(&reporting.progress, "verify", v->quiet);
    const struct verify_options options = {.deep = v->deep,
                                           .threads = (unsigned)v->jobs,
                                           .problem = on_problem,
                                           .progress = on_progress,
                                           .arg = &reporting,
                                           .cancel = interrupt_watch()};
    struct verify_result result;
    rc = verify_image(image.store, &image.manifest, &options, &result);
    progress_end(&reporting.progress);
    if (!rc && v->json)
        rc = print_json(result_json(&image, v->deep, &result, reporting.problems));
    else if (!rc)
        print_result(&image, v->deep, &result);
    json_decref(reporting.problems);
    if (!rc && result.problems)
        rc = error_set(-EBADMSG, "%s has %llu problem%s", inv->operands[0], (unsigned long long)result.problems,
                       result.problems == 1 ? "" : "s");
    return rc;
}

const struct verb verb_verify = {
    .name = "verify",
    .operands = "IMAGE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Check that an image is whole and right in its store",
    .details = "Checks the manifest, the index and the catalog, and that every pack is there and long enough.\n"
               "With --deep every byte is read and hashed as well. Exit code 1 when anything is wrong.",
    .options = rows,
    .values_size = sizeof(struct verify_values),
    .defaults = &defaults,
    .run = run,
};
