/* granary cache ls [NAME[:GLOB] | NAME GLOB]: prints what the server reports as cached (cli/cache_call.h). One line per
 * file with a glob, then one line per image. With --json, cache_call prints the server's objects unchanged. */
#include <string.h>

#include "attach/attach.h"
#include "base/text.h"
#include "cli/cache_call.h"
#include "cli/print.h"
#include "cli/verbs/verbs.h"

struct ls_values {
    struct cache_call_values call;
};

static const struct option_row rows[] = {CACHE_CALL_ROWS(struct ls_values), {0}};

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* The callback for a file: how much of it is cached. An empty file has no chunks and counts as cached. */
static void print_file(json_t *file)
{
    const char *path = json_string_value(json_object_get(file, "path"));
    uint64_t chunks = control_number(file, "chunks"), cached = control_number(file, "cached_chunks");
    char size[TEXT_SIZE_MAX];
    printf("%6.1f %% %8llu of %8llu  %10s%s  ", chunks ? percent(cached, chunks) : 100, (unsigned long long)cached,
           (unsigned long long)chunks, text_format_size(control_number(file, "size"), size),
           control_number(file, "pinned_chunks") ? "  pinned" : "");
    print_name(stdout, path ? path : "", path ? strlen(path) : 0, print_escapes(stdout));
    putchar('\n');
}

/* The callback for an image: its sums. */
static void print_image(json_t *image)
{
    const char *name = json_string_value(json_object_get(image, "export"));
    uint64_t bytes = control_number(image, "bytes"), cached = control_number(image, "cached_bytes");
    char all[TEXT_SIZE_MAX], part[TEXT_SIZE_MAX];
    printf("%-20s %5.1f %% cached: %llu of %llu chunks, %s of %s, %llu pinned\n", name ? name : "",
           percent(cached, bytes), (unsigned long long)control_number(image, "cached_chunks"),
           (unsigned long long)control_number(image, "chunks"), text_format_size(cached, part),
           text_format_size(bytes, all), (unsigned long long)control_number(image, "pinned_chunks"));
}

static int cmd_cache_ls_run(const struct invocation *inv)
{
    const struct ls_values *v = inv->values;
    const struct cache_call call = {.values = &v->call,
                                    .what = "cache ls",
                                    .method = "GET",
                                    .path = "/cache",
                                    .file = print_file,
                                    .image = print_image};
    return cache_call(&call, inv, NULL);
}

const struct verb verb_cache_ls = {
    .name = "cache ls",
    .operands = "[NAME[:GLOB] | NAME GLOB]",
    .max_operands = 2,
    .summary = "Show how much of its images a server has cached",
    .details = "NAME is an export or a mount point. With a GLOB its files whose full paths match are listed first; * "
               "also matches /, and\n"
               "a directory that matches stands for all that is below it. Chunks that files share are counted once\n"
               "in the sum.",
    .options = rows,
    .values_size = sizeof(struct ls_values),
    .run = cmd_cache_ls_run,
};
