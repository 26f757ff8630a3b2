/* granary status [TARGET]: what the server says of itself on its control socket. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/control_client.h"
#include "attach/mount.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/options.h"
#include "cli/pin.h"
#include "cli/print.h"
#include "cli/verbs.h"

enum { STATUS_MAX = 4 << 20 };

struct status_values {
    bool json;
};

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "json", NULL, offsetof(struct status_values, json), 0, 0,
     "print the server's answer as one JSON object"},
    {0},
};

/* TARGET is a control socket, a server's socket with its control socket beside it, or a mount point. */
static int find_control(const char *target, char *out, size_t size)
{
    struct stat st;
    struct mount_state state;
    int rc = stat(target, &st) ? -errno : 0;
    if (!rc && S_ISSOCK(st.st_mode)) {
        char beside[PATH_MAX];
        snprintf(beside, sizeof beside, "%s.control", target);
        bool have = !stat(beside, &st) && S_ISSOCK(st.st_mode);
        snprintf(out, size, "%s", have ? beside : target);
        return 0;
    }
    if (rc == -ENOENT)
        return error_set(rc, "no server and no mount at %s; give a control socket or a mount point", target);
    rc = mount_find(target, &state);
    if (rc)
        return rc;
    if (!*state.control)
        return error_set(-ENOENT, "%s is served by %s, which has no control socket beside it", target, state.socket);
    snprintf(out, size, "%s", state.control);
    return 0;
}

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

/* A counter whose name ends in _bytes_total is shown as a size too. */
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
    int rc = find_control(inv->operand_count ? inv->operands[0] : PIN_CONTROL, control, sizeof control);
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
