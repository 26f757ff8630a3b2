/* granary unnest STORE: repairs a mistyped path. If a component of a path was forgotten, a build creates a store inside
 * another store. This verb copies the images and tags of such a nested store into STORE, and then removes it (upkeep/).
 * A nested store is removed only after all its images and tags are in STORE, so an interrupted run loses nothing and
 * can be repeated.
 */
#include "base/error.h"
#include "base/text.h"
#include "cli/verbs/verbs.h"
#include "format/json_name.h"
#include "upkeep/upkeep.h"

struct unnest_values {
    uint64_t jobs;
    struct open_access access;
    bool strict_tags, dry_run, json, quiet;
};

#define AT(field) offsetof(struct unnest_values, field), 0, 0

static const struct unnest_values defaults = {.jobs = COPY_THREADS};

static const struct option_row rows[] = {
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct unnest_values, jobs), 1, 256,
     "objects copied or removed at the same time (default 8)"},
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    {OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run), "change nothing, only say what would be copied and removed"},
    STORE_ROWS(struct unnest_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* One run. */
struct work {
    const struct unnest_values *values;
    struct store *store;
    struct progress progress;
    struct unnest_options options;
    unsigned found;
    json_t *stores; /* the result for --json; NULL: print text */
};

static void unnest_on_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct progress_state state = {.phase = "unnesting", .bytes_done = done, .bytes_total = total};
    progress_update(arg, &state);
}

/* Print what was moved out of one nested store. */
static void cmd_unnest_print_result(const struct work *w, const char *dir, const struct unnest_result *r)
{
    char n[TEXT_COUNT_MAX], tags[TEXT_COUNT_MAX], size[TEXT_SIZE_MAX];
    bool dry = w->values->dry_run;
    printf("%s/%s is a store inside %s\n", w->store->url, dir, w->store->url);
    printf("  %s %s with %s into %s", dry ? "would copy" : "copied", text_format_count(r->images, "image", n),
           text_format_count(r->tags, "tag", tags), w->store->url);
    if (r->tags_there)
        printf("; %s there already", text_format_count(r->tags_there, "tag", n));
    printf("\n  %s %s in %s", dry ? "would remove" : "removed", text_format_size(r->removed_bytes, size),
           text_format_count(r->removed, "object", n));
    if (r->left)
        printf("; %s below it %s none of its and %s", text_format_count(r->left, "other object", n),
               r->left == 1 ? "is" : "are", r->left == 1 ? "stays" : "stay");
    printf("\n");
}

/* Move one nested store's images out; called for each that is found. */
static int unnest(void *arg, const char *dir)
{
    struct work *w = arg;
    struct unnest_result r;
    progress_init(&w->progress, "unnest", w->values->quiet);
    int rc = unnest_run(w->store, dir, &w->options, &r);
    progress_end(&w->progress);
    if (rc)
        return rc;
    w->found++;
    if (!w->stores) {
        cmd_unnest_print_result(w, dir, &r);
        return 0;
    }
    json_t *row = json_pack("{s:o,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "directory", json_lossy(dir), "images",
                            (json_int_t)r.images, "tags", (json_int_t)r.tags, "tags_there", (json_int_t)r.tags_there,
                            "objects_copied", (json_int_t)r.objects_sent, "bytes_copied", (json_int_t)r.bytes_sent,
                            "objects_removed", (json_int_t)r.removed, "bytes_removed", (json_int_t)r.removed_bytes,
                            "objects_left", (json_int_t)r.left);
    return json_array_append_new(w->stores, row) ? error_no_memory() : 0;
}

/* unnest_find calls unnest() for each nested store, one after the other. */
static int cmd_unnest_run(const struct invocation *inv)
{
    const struct unnest_values *v = inv->values;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    CLEANUP_JSON json_t *stores = v->json ? json_array() : NULL;
    if (image_ref_parse_store(inv->operands[0], &ref) || open_check_writable(&ref))
        return CLI_USAGE;
    int rc = open_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    struct store_options store_options = {0};
    open_store_options(&v->access, &store_options);
    struct work w = {.values = v, .store = store, .stores = stores};
    w.options = (struct unnest_options){.dry_run = v->dry_run,
                                        .copy = {.place = {.options = &store_options, .is_store = true},
                                                 .threads = (unsigned)v->jobs,
                                                 .strict_tags = v->strict_tags,
                                                 .progress = unnest_on_progress,
                                                 .progress_arg = &w.progress,
                                                 .cancel = interrupt_watch()}};
    rc = unnest_find(store, unnest, &w);
    if (rc)
        return rc;
    if (v->json)
        return print_json(
            json_pack("{s:o,s:b,s:O}", "store", json_lossy(ref.store), "dry_run", v->dry_run, "stores", stores));
    if (!w.found)
        printf("there is no store among the images of %s\n", store->url);
    return 0;
}

const struct verb verb_unnest = {
    .name = "unnest",
    .operands = "STORE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Move the images of a store made inside a store out of it",
    .details = "Where a component of a path was forgotten or was one too many, a store may stand among the images of\n"
               "another. Copies the images of the inner store, with their tags, into STORE, and then removes the\n"
               "inner store. First give the new address to everyone who builds into the inner store or\n"
               "reads from it.",
    .interrupted = "nothing is lost, and the next run goes on",
    .options = rows,
    .values_size = sizeof(struct unnest_values),
    .defaults = &defaults,
    .run = cmd_unnest_run,
};
