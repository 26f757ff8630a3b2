/* granary cache pin [--off] NAME[:GLOB] | NAME GLOB | --all: pins cached chunks, so that they are never evicted, or
 * unpins them. It fetches nothing: what is not cached is not pinned, and reported. */
#include <errno.h>

#include "attach/attach.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/cache_call.h"
#include "cli/verbs/verbs.h"

struct pin_values {
    struct cache_call_values call;
    bool all, off;
};

#define AT(field) offsetof(struct pin_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "off", NULL, AT(off), "unpin"},
    {OPTION_FLAG, 0, "all", NULL, AT(all), "every chunk in the cache, whatever image it belongs to"},
    CACHE_CALL_ROWS(struct pin_values),
    {0},
};

/* Print what changed. Chunks that are not cached were not pinned: warm them first. */
static void print_change(json_t *image, const char *what)
{
    const char *name = json_string_value(json_object_get(image, "export"));
    uint64_t missing = control_number(image, "chunks") - control_number(image, "cached_chunks");
    char bytes[TEXT_SIZE_MAX];
    printf("%s%s%llu chunks %s, %s on disk", name ? name : "", name ? ": " : "",
           (unsigned long long)control_number(image, "changed_chunks"), what,
           text_format_size(control_number(image, "changed_bytes"), bytes));
    if (missing)
        printf("; %llu are not cached", (unsigned long long)missing);
    putchar('\n');
}

static void print_pinned(json_t *image)
{
    print_change(image, "pinned");
}

static void print_unpinned(json_t *image)
{
    print_change(image, "unpinned");
}

/* Chunks beyond the pin limit are refused one by one; the rest stays pinned, and the exit status is 1. */
static int cmd_cache_pin_run(const struct invocation *inv)
{
    const struct pin_values *v = inv->values;
    if (v->all == (inv->operand_count > 0)) {
        (void)error_set(0, "give NAME, NAME:GLOB or --all");
        return CLI_USAGE;
    }
    const struct cache_call call = {.values = &v->call,
                                    .what = "cache pin",
                                    .method = "POST",
                                    .path = v->off ? "/cache/unpin" : "/cache/pin",
                                    .params = {"all", v->all ? "1" : NULL},
                                    .image = v->off ? print_unpinned : print_pinned};
    uint64_t refused = 0;
    int rc = cache_call(&call, inv, &refused);
    if (!rc && refused)
        rc = error_set(-EDQUOT, "%llu chunks could not be pinned; pins take at most three quarters of the cache",
                       (unsigned long long)refused);
    return rc;
}

const struct verb verb_cache_pin = {
    .name = "cache pin",
    .operands = "NAME[:GLOB] | NAME GLOB | --all",
    .max_operands = 2,
    .summary = "Have chunks stay in a server's cache until they are unpinned",
    .details = "NAME is an export or a mount point. With a GLOB the chunks of its files whose full paths match are "
               "pinned; * also\n"
               "matches /. Only what is cached now is pinned: read or warm it first. Pins outlive restarts and take\n"
               "at most three quarters of the cache.",
    .options = rows,
    .values_size = sizeof(struct pin_values),
    .run = cmd_cache_pin_run,
};
