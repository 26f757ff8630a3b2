/* The shared part of the `granary cache` commands that talk to a server. The server answers with one JSON object a line
 * (server/control_internal.h). Progress is drawn, files and images are printed as they arrive, and a result or an error
 * ends the answer.
 */
#include "cli/cache_call.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "cli/control_target.h"
#include "cli/print.h"
#include "cli/progress.h"

/* What the answer's lines have reported so far. */
struct answer {
    const struct cache_call *call;
    struct progress progress;
    uint64_t refused, unknown;
    bool of_files, found; /* a glob was given; some file matches it */
    bool ended;
    char why_unknown[ERROR_TEXT_MAX];
};

static void cache_call_draw(struct answer *a, const json_t *p)
{
    struct progress_state state = {.phase = "reading the catalog", .files_done = control_number(p, "files_done")};
    if (!state.files_done)
        state = (struct progress_state){.phase = "looking",
                                        .bytes_done = control_number(p, "bytes_done"),
                                        .bytes_total = control_number(p, "bytes_total")};
    progress_update(&a->progress, &state);
}

/* Print an object by its callback, or unchanged with --json. */
static int show(struct answer *a, json_t *object, void (*print)(json_t *))
{
    progress_end(&a->progress);
    if (a->call->values->json)
        return print_json(json_incref(object));
    if (print)
        print(object);
    return ferror(stdout) ? -EPIPE : 0;
}

/* Sum up what decides the exit status, then show the image. */
static int take_image(struct answer *a, json_t *image)
{
    a->refused += control_number(image, "refused_chunks");
    a->unknown += control_number(image, "unknown_chunks");
    a->found |= control_number(image, "files") > 0;
    const char *why = json_string_value(json_object_get(image, "store_error"));
    if (why && *why)
        snprintf(a->why_unknown, sizeof a->why_unknown, "%s", why);
    return show(a, image, a->call->image);
}

/* Handle one line of the answer by the member it has. */
static int cache_call_take_line(void *arg, const char *line, size_t len)
{
    struct answer *a = arg;
    json_t *object;
    int rc = control_object(line, len, &object);
    json_t *file = json_object_get(object, "file"), *image = json_object_get(object, "image");
    image = image ? image : json_object_get(object, "cache");
    json_t *progress = json_object_get(object, "progress");
    if (progress)
        cache_call_draw(a, progress);
    else if (file)
        rc = show(a, file, a->call->file);
    else if (image)
        rc = take_image(a, image);
    else if (json_object_get(object, "result"))
        a->ended = true;
    json_decref(object);
    return rc;
}

/* Split the operands "NAME", "NAME:GLOB" or "NAME GLOB". free *out_name. */
static int cache_call_split(const struct invocation *inv, char **out_name, const char **out_glob)
{
    *out_name = NULL;
    *out_glob = inv->operand_count > 1 ? inv->operands[1] : NULL;
    if (!inv->operand_count)
        return 0;
    const char *name = inv->operands[0];
    size_t len = *out_glob ? strlen(name) : strcspn(name, ":");
    if (name[len])
        *out_glob = name + len + 1;
    *out_name = strndup(name, len);
    return *out_name ? 0 : error_no_memory();
}

/* What the operand NAME and --control mean. */
struct aim {
    const char *target;          /* the server; NULL: control_target_find's default */
    const char *export;          /* NULL: all exports */
    char mounted[STATE_REF_MAX]; /* the export of a mount point */
};

/* Find the server and the export. A path, or any name without --control, may be a mount point, which stands for both;
 * else name is an export of the server. */
static int take_aim(const struct cache_call *call, const char *name, struct aim *out)
{
    *out = (struct aim){.target = call->values->control, .export = name};
    bool path = name && (*name == '/' || *name == '.' || !out->target);
    if (!path || !control_target_export(name, out->mounted, sizeof out->mounted))
        return 0;
    if (out->target)
        return options_exclude("--control", name, "a mount point says which server");
    out->target = name;
    out->export = out->mounted;
    return 0;
}

/* The errors come after all output: the answer is complete, and parts of it may have failed. */
int cache_call(const struct cache_call *call, const struct invocation *inv, uint64_t *out_refused)
{
    struct answer a = {.call = call};
    CLEANUP_FREE char *name = NULL;
    const char *glob;
    char control[PATH_MAX];
    int rc = cache_call_split(inv, &name, &glob);
    struct aim aim;
    if (!rc)
        rc = take_aim(call, name, &aim);
    if (!rc)
        rc = control_target_find(aim.target, control, sizeof control);
    if (rc)
        return rc;
    a.of_files = glob;
    const char *const *more = call->params;
    const char *params[] = {"export", aim.export, "glob", glob, more[0], more[1], more[2], more[3], NULL};
    progress_init(&a.progress, call->what, call->values->quiet);
    rc = control_call(control, call->method, call->path, params, cache_call_take_line, &a);
    progress_end(&a.progress);
    if (rc == -EPIPE && ferror(stdout))
        return 0; /* main reports a failed output */
    if (out_refused)
        *out_refused = a.refused;
    if (!rc && !a.ended)
        rc = error_set(-EIO, "the answer of the server on %s ended early", control);
    if (!rc && a.of_files && !a.found)
        rc = error_set(-ENOENT, "no file of %s matches '%s'; 'granary ls' shows their paths", name, glob);
    if (!rc && a.unknown)
        rc = error_set(-EIO, "%llu chunks were left out: their index is not cached, and %s",
                       (unsigned long long)a.unknown, a.why_unknown);
    return rc;
}
