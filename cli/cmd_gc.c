/* granary gc STORE */
#include "base/error.h"
#include "base/text.h"
#include "cli/open.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/verbs.h"
#include "store/gc.h"

struct gc_values {
    uint64_t grace_s, keep_last;
    struct open_access access;
    bool dry_run, json;
};

#define AT(field) offsetof(struct gc_values, field), 0, 0

static const struct gc_values defaults = {.grace_s = GC_GRACE_DEFAULT_S};

static const struct option_row rows[] = {
    {OPTION_DURATION, 0, "grace", "DURATION", AT(grace_s),
     "how long unneeded objects stay, e.g. 12h, 14d (default 14d)"},
    {OPTION_NUMBER, 0, "keep-last", "N", offsetof(struct gc_values, keep_last), 1, 1000000,
     "first remove all but the newest N build tags of each image"},
    {OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run), "change nothing, only count"},
    STORE_ROWS(struct gc_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

#define INTEGER(field) json_integer((json_int_t)(field))

static int print_result_json(const struct gc_values *v, const struct image_ref *ref, const struct gc_result *r)
{
    return print_json(json_pack("{s:s,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "store", ref->store, "dry_run",
                                v->dry_run, "images", INTEGER(r->images), "objects", INTEGER(r->objects), "kept",
                                INTEGER(r->kept), "marked", INTEGER(r->marked), "marked_bytes",
                                INTEGER(r->marked_bytes), "unmarked", INTEGER(r->unmarked), "swept", INTEGER(r->swept),
                                "swept_bytes", INTEGER(r->swept_bytes), "tags_removed", INTEGER(r->tags_removed),
                                "live_leases", INTEGER(r->live_leases)));
}

static int run(const struct invocation *inv)
{
    const struct gc_values *v = inv->values;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    if (image_ref_parse_store(inv->operands[0], &ref) || open_check_writable(&ref))
        return CLI_USAGE;
    int rc = open_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    struct gc_options options = {
        .grace_s = (int64_t)v->grace_s, .keep_last = (unsigned)v->keep_last, .dry_run = v->dry_run};
    struct gc_result r = {0};
    rc = gc_run(store, &options, &r);
    if (rc)
        return rc;
    if (v->json)
        return print_result_json(v, &ref, &r);
    char marked[TEXT_SIZE_MAX], swept[TEXT_SIZE_MAX];
    printf("%llu images, %llu objects, %llu of them needed, younger than the grace period, or marked already\n",
           (unsigned long long)r.images, (unsigned long long)r.objects, (unsigned long long)r.kept);
    if (r.tags_removed)
        printf("%s %llu tags\n", v->dry_run ? "would remove" : "removed", (unsigned long long)r.tags_removed);
    printf("%s %llu (%s), %llu needed again, %s %llu (%s)\n", v->dry_run ? "would mark" : "marked",
           (unsigned long long)r.marked, text_format_size(r.marked_bytes, marked), (unsigned long long)r.unmarked,
           v->dry_run ? "would remove" : "removed", (unsigned long long)r.swept,
           text_format_size(r.swept_bytes, swept));
    if (r.live_leases)
        printf("nothing is removed: %llu builds are running, or left a lease or a checkpoint within the grace period\n",
               (unsigned long long)r.live_leases);
    return 0;
}

const struct verb verb_gc = {
    .name = "gc",
    .operands = "STORE",
    .min_operands = 1,
    .max_operands = 1,
    .summary = "Reclaim what no image of a store needs",
    .details = "Works in two steps: an object that nothing needs is marked, and removed by a later gc, after the\n"
               "grace period, if nothing needs it still. Objects younger than the grace period are never marked,\n"
               "and nothing is removed while a build or a copy is running.",
    .options = rows,
    .values_size = sizeof(struct gc_values),
    .defaults = &defaults,
    .run = run,
};
