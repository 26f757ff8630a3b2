/* granary status [TARGET]: what the server says of itself on its control socket. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "attach/control_client.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/control_target.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/verbs.h"

enum { STATUS_MAX = 64 << 20 };

struct status_values {
    bool json;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct status_values, json), 0, 0,
     "print the server's answer as one JSON object"},
    {0},
};

static uint64_t counter_value(json_t *status, const char *name)
{
    return (uint64_t)json_integer_value(json_object_get(json_object_get(status, "counters"), name));
}

static void print_exports(json_t *status)
{
    size_t i;
    json_t *export;
    json_array_foreach(json_object_get(status, "exports"), i, export)
    {
        char size[TEXT_SIZE_MAX];
        const char *digest = json_string_value(json_object_get(export, "digest"));
        const char *name = json_string_value(json_object_get(export, "name"));
        text_format_size((uint64_t)json_integer_value(json_object_get(export, "size")), size);
        printf("  %-20s %s, %s\n", name ? name : "", size, digest ? digest : "");
    }
}

static const char *string_of(json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    return text ? text : "?";
}

static void print_directories(json_t *status)
{
    size_t i;
    json_t *dir, *dirs = json_object_get(status, "cache_directories");
    if (json_array_size(dirs))
        printf("cache directories\n");
    json_array_foreach(dirs, i, dir)
    {
        char size[TEXT_SIZE_MAX];
        text_format_size((uint64_t)json_integer_value(json_object_get(dir, "size")), size);
        printf("  %-20s %s, reading %s, writing %s%s\n", string_of(dir, "path"), size, string_of(dir, "reading"),
               string_of(dir, "writing"), json_is_true(json_object_get(dir, "deleted")) ? ", deleted" : "");
    }
}

/* Counters of bytes are shown as sizes too. */
static void print_counters(json_t *status)
{
    const char *name;
    json_t *value;
    json_object_foreach(json_object_get(status, "counters"), name, value)
    {
        uint64_t n = (uint64_t)json_integer_value(value);
        char size[TEXT_SIZE_MAX];
        if (!n)
            continue;
        if (strstr(name, "_bytes"))
            printf("  %-44s %llu (%s)\n", name, (unsigned long long)n, text_format_size(n, size));
        else
            printf("  %-44s %llu\n", name, (unsigned long long)n);
    }
}

static void print_status(json_t *status)
{
    const char *version = json_string_value(json_object_get(status, "version"));
    printf("granary %s, process %lld\n", version ? version : "?",
           (long long)json_integer_value(json_object_get(status, "pid")));
    printf("exports\n");
    print_exports(status);
    print_directories(status);
    printf("hits %llu, misses %llu, hit ratio %.1f %%\n",
           (unsigned long long)counter_value(status, "granary_cache_hits_total"),
           (unsigned long long)counter_value(status, "granary_cache_misses_total"),
           100 * json_number_value(json_object_get(status, "hit_ratio")));
    printf("counters that are not zero\n");
    print_counters(status);
}

static int run(const struct invocation *inv)
{
    const struct status_values *v = inv->values;
    char control[PATH_MAX];
    CLEANUP_BYTES text = BYTES_INIT(STATUS_MAX);
    int rc = control_target_find(inv->operand_count ? inv->operands[0] : NULL, control, sizeof control);
    if (!rc)
        rc = control_get(control, "/status", &text);
    if (rc)
        return rc;
    json_t *status = json_loadb((const char *)text.data, text.len, 0, NULL);
    if (!json_is_object(status)) {
        json_decref(status);
        return error_set(-EIO, "the server on the control socket %s answers with something else than its status",
                         control);
    }
    if (v->json)
        return print_json(status);
    print_status(status);
    json_decref(status);
    return 0;
}

const struct verb verb_status = {
    .name = "status",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Show a server's exports, hits and misses",
    .details = "TARGET is a mount point or a server's control socket; the default is that of 'granary serve'.",
    .options = rows,
    .values_size = sizeof(struct status_values),
    .run = run,
};
