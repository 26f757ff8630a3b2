/* granary cache evict NAME[:GLOB] | NAME GLOB | --all: the server drops the chunks (cli/cache_call.h); readers fetch
 * them again. Pinned chunks stay unless --pinned is given; how many did is reported. */
#include "attach/attach.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cache_call.h"
#include "cli/verbs/verbs.h"

struct evict_values {
    struct cache_call_values call;
    bool all, pinned;
};

#define AT(field) offsetof(struct evict_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "all", NULL, AT(all), "every chunk in the cache, whatever image it belongs to"},
    {OPTION_FLAG, 0, "pinned", NULL, AT(pinned), "pinned chunks, too"},
    CACHE_CALL_ROWS(struct evict_values),
    {0},
};

/* The callback for an image, or with --all for the cache, which has no name. */
static void print_image(json_t *image)
{
    const char *name = json_string_value(json_object_get(image, "export"));
    char bytes[TEXT_SIZE_MAX];
    printf("%s%s%llu chunks evicted, %s on disk", name ? name : "", name ? ": " : "",
           (unsigned long long)control_number(image, "changed_chunks"),
           text_format_size(control_number(image, "changed_bytes"), bytes));
    if (control_number(image, "refused_chunks"))
        printf("; %llu pinned ones stay", (unsigned long long)control_number(image, "refused_chunks"));
    putchar('\n');
}

/* Everything is evicted only by --all, never by leaving the name out. */
static int cmd_cache_evict_run(const struct invocation *inv)
{
    const struct evict_values *v = inv->values;
    if (v->all == (inv->operand_count > 0)) {
        (void)error_set(0, "give NAME, NAME:GLOB or --all");
        return CLI_USAGE;
    }
    const struct cache_call call = {.values = &v->call,
                                    .what = "cache evict",
                                    .method = "POST",
                                    .path = "/cache/evict",
                                    .params = {"all", v->all ? "1" : NULL, "pinned", v->pinned ? "1" : NULL},
                                    .image = print_image};
    return cache_call(&call, inv, NULL);
}

const struct verb verb_cache_evict = {
    .name = "cache evict",
    .operands = "NAME[:GLOB] | NAME GLOB | --all",
    .max_operands = 2,
    .summary = "Drop chunks from a server's cache while it runs",
    .details = "NAME is an export or a mount point. With a GLOB the chunks of its files whose full paths match are "
               "dropped; * also\n"
               "matches /. A chunk that holds parts of several files is dropped when any of them matches. Reads go on\n"
               "meanwhile; what they need is fetched again.",
    .options = rows,
    .values_size = sizeof(struct evict_values),
    .run = cmd_cache_evict_run,
};
