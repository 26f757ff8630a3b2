/* granary gc STORE: reclaims what no image needs, in two steps (cachecore/upkeep): an object is marked, and a later run
 * sweeps it after the grace period. In between, an object that is needed again is unmarked.
 *
 * This file only parses and prints.
 */
#include "base/text.h"
#include "cli/verbs/verbs.h"
#include "upkeep/upkeep.h"

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
    {OPTION_FLAG, 'n', "dry-run", NULL, AT(dry_run), "change nothing, only say what would be freed and marked"},
    STORE_ROWS(struct gc_values),
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object"},
    {0},
};

/* Print what was or would be freed, then what waits for its grace period, then what remains. */
static void cmd_gc_print_result(bool dry, const struct gc_result *r)
{
    char n[TEXT_COUNT_MAX], size[TEXT_SIZE_MAX], images[TEXT_COUNT_MAX];
    printf("%s %s in %s", dry ? "would free" : "freed", text_format_size(r->swept_bytes, size),
           text_format_count(r->swept, "object", n));
    if (r->tags_removed)
        printf(", %s %s", dry ? "would remove" : "removed", text_format_count(r->tags_removed, "tag", n));
    printf("\n%s %s in %s for a later gc, after the grace period", dry ? "would mark" : "marked",
           text_format_size(r->marked_bytes, size), text_format_count(r->marked, "object", n));
    if (r->unmarked)
        printf("; %s needed again", text_format_count(r->unmarked, "marked object", n));
    printf("\n%s, %s: %llu needed, %llu younger than the grace period, %llu marked before\n",
           text_format_count(r->images, "image", images), text_format_count(r->objects, "object", n),
           (unsigned long long)r->needed, (unsigned long long)r->young, (unsigned long long)r->waiting);
    if (r->live_leases)
        printf("nothing is freed: %s %s running, or left a lease or a checkpoint within the grace period\n",
               text_format_count(r->live_leases, "build", n), r->live_leases == 1 ? "is" : "are");
}

/* A store that can only be read is refused before it is opened. */
static int cmd_gc_run(const struct invocation *inv)
{
    const struct gc_values *v = inv->values;
    struct image_ref ref;
    CLEANUP(cleanup_store) struct store *store = NULL;
    if (image_ref_parse_store(inv->operands[0], &ref) || open_check_writable(&ref))
        return CLI_USAGE;
    int rc = open_store(inv->operands[0], &v->access, &ref, &store);
    if (rc)
        return rc;
    struct gc_options options = {.grace_s = (int64_t)v->grace_s,
                                 .keep_last = (unsigned)v->keep_last,
                                 .dry_run = v->dry_run,
                                 .cancel = interrupt_watch()};
    struct gc_result r = {0};
    rc = gc_run(store, &options, &r);
    if (rc)
        return rc;
    if (v->json)
        return print_json(json_pack(
            "{s:o,s:b,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "store", json_lossy(ref.store), "dry_run",
            v->dry_run, "images", INTEGER(r.images), "objects", INTEGER(r.objects), "needed", INTEGER(r.needed),
            "young", INTEGER(r.young), "waiting", INTEGER(r.waiting), "marked", INTEGER(r.marked), "marked_bytes",
            INTEGER(r.marked_bytes), "unmarked", INTEGER(r.unmarked), "swept", INTEGER(r.swept), "swept_bytes",
            INTEGER(r.swept_bytes), "tags_removed", INTEGER(r.tags_removed), "live_leases", INTEGER(r.live_leases)));
    cmd_gc_print_result(v->dry_run, &r);
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
               "and nothing is removed while a build, a copy or a repair is running.",
    .options = rows,
    .values_size = sizeof(struct gc_values),
    .defaults = &defaults,
    .run = cmd_gc_run,
};
