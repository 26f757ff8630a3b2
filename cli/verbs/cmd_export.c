/* granary export IMAGE FILE: writes an image to a file or to standard output, for a disk or a loop device.
 *
 * A file is written under a temporary name, sparse, and renamed when it is complete. Standard output is written in
 * order, holes as zeros. Every chunk is verified on the way (upkeep/).
 */
#include <string.h>
#include <unistd.h>

#include "cli/server_options.h"
#include "cli/verbs/verbs.h"
#include "upkeep/upkeep.h"

struct export_values {
    uint64_t jobs;
    struct option_list trust;
    struct open_access access;
    bool json, quiet;
};

#define AT(field) offsetof(struct export_values, field), 0, 0

static const struct export_values defaults = {.jobs = 8};

static const struct option_row rows[] = {
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct export_values, jobs), 1, 256,
     "ranges read at the same time (default 8)"},
    {OPTION_LIST, 0, "trust", "KEY", AT(trust),
     "only an image that this key has signed, as for serve; may be repeated"},
    STORE_ROWS(struct export_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object; not with FILE -"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

static void export_on_progress(void *arg, uint64_t done, uint64_t total)
{
    progress_update(arg, &(struct progress_state){.phase = "reading", .bytes_done = done, .bytes_total = total});
}

/* Chunks are read by several threads and written in the order of their addresses. */
static int cmd_export_run(const struct invocation *inv)
{
    const struct export_values *v = inv->values;
    const char *path = inv->operands[1];
    bool to_stdout = !strcmp(path, "-");
    if (to_stdout && v->json)
        return options_wrong("--json and FILE - would both write to standard output");
    if (to_stdout && isatty(STDOUT_FILENO))
        return options_wrong("standard output is a terminal; redirect it, or give a file name");
    struct trust trust = {.count = 0};
    if (server_options_trust(&v->trust, &trust))
        return CLI_USAGE;
    CLEANUP_OPEN_IMAGE image;
    int rc = open_image(inv->operands[0], &v->access, &image);
    if (!rc)
        rc = open_check_trust(&image, &trust);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "export", v->quiet);
    const struct export_options options = {.threads = (unsigned)v->jobs,
                                           .progress = export_on_progress,
                                           .progress_arg = &progress,
                                           .cancel = interrupt_watch()};
    if (to_stdout) /* a pipe cannot leave holes: every byte is written */
        rc = export_stream(image.store, &image.manifest, STDOUT_FILENO, "standard output", &options);
    else
        rc = export_file(image.store, &image.manifest, path, &options);
    progress_end(&progress);
    if (rc || !v->json)
        return rc;
    json_t *result =
        json_pack("{s:o,s:I}", "digest", print_json_digest(&image.digest), "size", (json_int_t)image.manifest.size);
    if (result)
        json_object_set_new(result, "file", json_lossy(path));
    return print_json(result);
}

const struct verb verb_export = {
    .name = "export",
    .operands = "IMAGE FILE",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Write an image out as one file, verified on the way",
    .details = "The file is sparse and appears under its name when it is whole. FILE - is standard output.",
    .interrupted = "FILE was not written, and a file that was there is as it was; a stream is incomplete",
    .options = rows,
    .values_size = sizeof(struct export_values),
    .defaults = &defaults,
    .run = cmd_export_run,
};
