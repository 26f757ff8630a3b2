/* granary copy IMAGE STORE[/NAME:TAG]: copies an image into another store, under the same name unless another one is
 * given. The digest stays the same: objects are copied unchanged, verified on the way, and only those that the target
 * lacks. The tag is written last, so the image appears complete or not at all.
 */
#include <string.h>

#include "base/text.h"
#include "cli/verbs/verbs.h"
#include "repository/nesting.h"
#include "upkeep/upkeep.h"

struct copy_values {
    uint64_t jobs;
    const char *to_endpoint;
    struct open_access access;
    bool strict_tags, json, quiet;
};

#define AT(field) offsetof(struct copy_values, field), 0, 0

static const struct copy_values defaults = {.jobs = COPY_THREADS};

static const struct option_row rows[] = {
    {OPTION_NUMBER, 'j', "jobs", "N", offsetof(struct copy_values, jobs), 1, 256,
     "objects copied at the same time (default 8)"},
    {OPTION_FLAG, 0, "strict-tags", NULL, AT(strict_tags), "refuse a store that cannot replace a tag safely"},
    STORE_ROWS(struct copy_values),
    {OPTION_URL, 0, "to-endpoint", "URL", AT(to_endpoint),
     "S3 server of the store that is copied to (default: the same)"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print the result as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* The total is unknown until the target's objects were listed. */
static void copy_on_progress(void *arg, uint64_t done, uint64_t total)
{
    const struct progress_state state = {
        .phase = total ? "copying" : "looking", .bytes_done = done, .bytes_total = total};
    progress_update(arg, &state);
}

/* Whether the target names an image: it has a colon after the last slash. The colon of "hdfs://host:9870" stands
 * before one. */
static bool names_image(const char *text)
{
    const char *authority = strstr(text, "://"), *slash = strrchr(text, '/');
    if (authority && slash <= authority + 2)
        return false;
    return slash && strchr(slash, ':');
}

/* Find the copy's store, name and tag. Returns 0 or CLI_USAGE. */
static int parse_target(const char *text, const struct image_ref *from, struct image_ref *out)
{
    if (names_image(text)) {
        if (image_ref_parse(text, out))
            return CLI_USAGE;
        if (!out->by_digest)
            return 0;
        return options_wrong("%s: a copy is named by a tag, its digest follows from the image", text);
    }
    if (image_ref_parse_store(text, out))
        return CLI_USAGE;
    memcpy(out->name, from->name, sizeof out->name);
    memcpy(out->tag, from->tag, sizeof out->tag);
    if (out->tag[0])
        return 0;
    return options_wrong("the image is given by its digest, which is no name for a copy: say STORE/NAME:TAG");
}

static int cmd_copy_print_result(const struct open_image *image, const struct image_ref *to,
                                 const struct copy_result *r, bool json)
{
    char digest[PRINT_DIGEST_MAX], bytes[TEXT_SIZE_MAX], objects[TEXT_COUNT_MAX];
    if (json)
        return print_json(json_pack("{s:o,s:o,s:s,s:s,s:s,s:I,s:I,s:I,s:I}", "digest",
                                    print_json_digest(&image->digest), "store", json_lossy(to->store), "name", to->name,
                                    "tag", to->tag, "unique_tag", r->unique_tag, "objects", (json_int_t)r->objects,
                                    "objects_copied", (json_int_t)r->objects_copied, "bytes", (json_int_t)r->bytes,
                                    "bytes_copied", (json_int_t)r->bytes_copied));
    printf("%s/%s:%s is %s\n", to->store, to->name, to->tag, print_digest(&image->digest, digest));
    printf("  %llu of %s copied, %s%s\n", (unsigned long long)r->objects_copied,
           text_format_count(r->objects, "object", objects), text_format_size(r->bytes_copied, bytes),
           r->objects_copied < r->objects ? "; the rest was there" : "");
    return 0;
}

/* The copy's tag keeps the time and the parent of the original's. The target may have another endpoint (--to-endpoint),
 * for a copy between two S3 services. */
static int cmd_copy_run(const struct invocation *inv)
{
    const struct copy_values *v = inv->values;
    const volatile int *cancel = interrupt_watch();
    struct image_ref target;
    struct copy_result result;
    CLEANUP_OPEN_IMAGE image;
    CLEANUP(cleanup_store) struct store *to = NULL;
    int rc = open_image(inv->operands[0], &v->access, &image);
    if (!rc)
        rc = parse_target(inv->operands[1], &image.ref, &target);
    if (!rc)
        rc = open_check_writable(&target);
    if (rc)
        return rc;
    struct store_options store = {0};
    struct nesting place;
    open_store_options(&v->access, &store);
    store.endpoint = v->to_endpoint ? v->to_endpoint : store.endpoint;
    rc = store_open(target.store, &store, &to);
    if (!rc)
        rc = nesting_check(to, target.name, &store, &place);
    if (rc)
        return rc;
    struct progress progress;
    progress_init(&progress, "copy", v->quiet);
    const struct copy_options options = {.place = place,
                                         .threads = (unsigned)v->jobs,
                                         .strict_tags = v->strict_tags,
                                         .progress = copy_on_progress,
                                         .progress_arg = &progress,
                                         .cancel = cancel};
    bool renamed = strcmp(image.tag.name, target.name) != 0 || strcmp(image.tag.tag, target.tag) != 0;
    const struct copy_name name = {.name = target.name,
                                   .tag = target.tag,
                                   .created = image.tag.created,
                                   .parent = image.tag.parent,
                                   .source = image.tag.source,
                                   .signature = renamed ? NULL : image.tag.signature,
                                   .provenance = image.tag.provenance};
    rc = copy_image(image.store, &image.digest, to, &name, &options, &result);
    progress_end(&progress);
    return rc ? rc : cmd_copy_print_result(&image, &target, &result, v->json);
}

const struct verb verb_copy = {
    .name = "copy",
    .operands = "IMAGE STORE[/NAME:TAG]",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Copy an image into another store",
    .details = "Sends what the other store lacks, checked on the way, and then the tags: NAME and TAG are the image's\n"
               "own unless given. The copy has the same digest. An interrupted copy goes on when run again. A place\n"
               "that is empty becomes a store.",
    .interrupted = "what was copied stays, and the next run sends the rest",
    .options = rows,
    .values_size = sizeof(struct copy_values),
    .defaults = &defaults,
    .run = cmd_copy_run,
};
