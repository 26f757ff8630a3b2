/* granary cache COMMAND. The commands ls, evict and pin talk to a server, and are here; fsck, resident and simulate,
 * which need none, have their own files.
 *
 *   NAME[:GLOB] | NAME GLOB   an export of the server of --control;
 *                             or a mount point: that says the server, too
 *
 * The server answers with one JSON object per line (server/control_cache.c). Progress is drawn, files and images are
 * printed as they arrive (with --json unchanged), and a result or an error ends the answer.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"

/* The options of all three commands. */
struct cache_values {
    const char *control;
    bool json, quiet, all, pinned, off;
};

#define AT(field) offsetof(struct cache_values, field), 0, 0

/* clang-format off */
#define CALL_ROWS                                                                                                      \
    {OPTION_TEXT, 0, "control", "TARGET", AT(control), "the server: a mount point, its socket or its control socket"}, \
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object per line"},                                        \
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},                                                       \
    {0}
/* clang-format on */

/* ---- the request and its answer ---- */

/* A command's request, and how to print its answer. */
struct cache_call {
    const char *what; /* the command's name, for progress */
    const char *method, *path;
    const char *params[4]; /* more parameters: key, value, key, value */
    const char *change;    /* the word for what was done; NULL: nothing is changed */
    /* Print a file (NULL: none are expected) or an image. */
    void (*file)(json_t *file, const char *change);
    void (*image)(json_t *image, const char *change);
};

/* What the answer's lines have reported so far. */
struct answer {
    const struct cache_call *call;
    bool json;
    struct progress progress;
    uint64_t refused, unknown; /* chunks that the cache would not change; that have no known index */
    bool found, ended;         /* some file matches the glob; the last line has arrived */
    char why_unknown[ERROR_TEXT_MAX];
};

static void cmd_cache_draw(struct answer *a, const json_t *p)
{
    struct progress_state state = {.phase = "reading the catalog", .files_done = control_number(p, "files_done")};
    if (!state.files_done)
        state = (struct progress_state){.phase = "looking",
                                        .bytes_done = control_number(p, "bytes_done"),
                                        .bytes_total = control_number(p, "bytes_total")};
    progress_update(&a->progress, &state);
}

/* Print an object by its callback, or unchanged with --json. */
static int show(struct answer *a, json_t *object, void (*print)(json_t *, const char *))
{
    progress_end(&a->progress);
    if (a->json)
        return print_json(json_incref(object));
    if (print)
        print(object, a->call->change);
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
static int cmd_cache_take_line(void *arg, const char *line, size_t len)
{
    struct answer *a = arg;
    json_t *object;
    int rc = control_object(line, len, &object);
    json_t *file = json_object_get(object, "file"), *image = json_object_get(object, "image");
    image = image ? image : json_object_get(object, "cache");
    json_t *progress = json_object_get(object, "progress");
    if (progress)
        cmd_cache_draw(a, progress);
    else if (file)
        rc = show(a, file, a->call->file);
    else if (image)
        rc = take_image(a, image);
    else if (json_object_get(object, "result"))
        a->ended = true;
    json_decref(object);
    return rc;
}

/* What --control and the operands mean. */
struct aim {
    const char *target;          /* the server; NULL: control_target_find's default */
    const char *export, *glob;   /* NULL: all exports, all chunks */
    char *name;                  /* the operand without its glob; owned */
    char mounted[STATE_REF_MAX]; /* the export of a mount point */
};

/* Find the server and the export. A path, or any name without --control, may be a mount point, which stands for both;
 * else name is an export of the server. Free out->name in any case. */
static int take_aim(const struct invocation *inv, struct aim *out)
{
    const char *control = ((const struct cache_values *)inv->values)->control;
    *out = (struct aim){.target = control, .glob = inv->operand_count > 1 ? inv->operands[1] : NULL};
    if (!inv->operand_count)
        return 0;
    const char *word = inv->operands[0];
    size_t len = out->glob ? strlen(word) : strcspn(word, ":");
    if (word[len])
        out->glob = word + len + 1;
    char *name = strndup(word, len);
    if (!name)
        return error_no_memory();
    out->export = out->name = name;
    bool path = *name == '/' || *name == '.' || !control;
    if (!path || !control_target_export(name, out->mounted, sizeof out->mounted))
        return 0;
    if (control)
        return options_exclude("--control", name, "a mount point says which server");
    out->target = name;
    out->export = out->mounted;
    return 0;
}

/* Send the request for the operands, and print the answer. The errors come after all output: the answer is complete,
 * and parts of it may have failed. *out_refused (may be NULL): chunks that the cache would not change. Returns 0,
 * -errno, or CLI_USAGE. */
static int cache_call(const struct cache_call *call, const struct invocation *inv, uint64_t *out_refused)
{
    const struct cache_values *v = inv->values;
    struct answer a = {.call = call, .json = v->json};
    char control[PATH_MAX];
    struct aim aim;
    int rc = take_aim(inv, &aim);
    CLEANUP_FREE char *name = aim.name;
    if (!rc)
        rc = control_target_find(aim.target, control, sizeof control);
    if (rc)
        return rc;
    const char *const *more = call->params;
    const char *params[] = {"export", aim.export, "glob", aim.glob, more[0], more[1], more[2], more[3], NULL};
    progress_init(&a.progress, call->what, v->quiet);
    rc = control_call(control, call->method, call->path, params, cmd_cache_take_line, &a);
    progress_end(&a.progress);
    if (rc == -EPIPE && ferror(stdout))
        return 0; /* main reports a failed output */
    if (out_refused)
        *out_refused = a.refused;
    if (!rc && !a.ended)
        rc = error_set(-EIO, "the answer of the server on %s ended early", control);
    if (!rc && aim.glob && !a.found)
        rc = error_set(-ENOENT, "no file of %s matches '%s'; 'granary ls' shows their paths", name, aim.glob);
    if (!rc && a.unknown)
        rc = error_set(-EIO, "%llu chunks were left out: their index is not cached, and %s",
                       (unsigned long long)a.unknown, a.why_unknown);
    return rc;
}

/* A change of everything must be asked for by --all; it never follows from leaving the name out. */
static int check_name_or_all(const struct invocation *inv)
{
    if (((const struct cache_values *)inv->values)->all != (inv->operand_count > 0))
        return 0;
    return options_wrong("give NAME, NAME:GLOB or --all");
}

/* ---- ls ---- */

static const struct option_row ls_rows[] = {CALL_ROWS};

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100 * (double)part / (double)whole : 0;
}

/* Print how much of a file is cached. An empty file has no chunks and counts as cached. */
static void print_file(json_t *file, const char *change)
{
    uint64_t chunks = control_number(file, "chunks"), cached = control_number(file, "cached_chunks");
    char size[TEXT_SIZE_MAX];
    printf("%6.1f %% %8llu of %8llu  %10s%s  ", chunks ? percent(cached, chunks) : 100, (unsigned long long)cached,
           (unsigned long long)chunks, text_format_size(control_number(file, "size"), size),
           control_number(file, "pinned_chunks") ? "  pinned" : "");
    print_text(json_string_value(json_object_get(file, "path")));
    putchar('\n');
}

static void print_sums(json_t *image, const char *change)
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
    const struct cache_call call = {
        .what = "cache ls", .method = "GET", .path = "/cache", .file = print_file, .image = print_sums};
    return cache_call(&call, inv, NULL);
}

static const struct verb verb_cache_ls = {
    .name = "cache ls",
    .operands = "[NAME[:GLOB] | NAME GLOB]",
    .max_operands = 2,
    .summary = "Show how much of its images a server has cached",
    .details = "NAME is an export or a mount point. With a GLOB its files whose full paths match are listed first; * "
               "also matches /, and\n"
               "a directory that matches stands for all that is below it. Chunks that files share are counted once\n"
               "in the sum.",
    .options = ls_rows,
    .values_size = sizeof(struct cache_values),
    .run = cmd_cache_ls_run,
};

/* ---- evict ---- */

static const struct option_row evict_rows[] = {
    {OPTION_FLAG, 0, "all", NULL, AT(all), "every chunk in the cache, whatever image it belongs to"},
    {OPTION_FLAG, 0, "pinned", NULL, AT(pinned), "pinned chunks, too"},
    CALL_ROWS,
};

/* Begin the line of an image, or of the cache, which has no name, with what changed. */
static void print_changed(json_t *image, const char *change)
{
    const char *name = json_string_value(json_object_get(image, "export"));
    char bytes[TEXT_SIZE_MAX];
    printf("%s%s%llu chunks %s, %s on disk", name ? name : "", name ? ": " : "",
           (unsigned long long)control_number(image, "changed_chunks"), change,
           text_format_size(control_number(image, "changed_bytes"), bytes));
}

static void print_evicted(json_t *image, const char *change)
{
    print_changed(image, change);
    if (control_number(image, "refused_chunks"))
        printf("; %llu pinned ones stay", (unsigned long long)control_number(image, "refused_chunks"));
    putchar('\n');
}

static int cmd_cache_evict_run(const struct invocation *inv)
{
    const struct cache_values *v = inv->values;
    const struct cache_call call = {.what = "cache evict",
                                    .method = "POST",
                                    .path = "/cache/evict",
                                    .params = {"all", v->all ? "1" : NULL, "pinned", v->pinned ? "1" : NULL},
                                    .change = "evicted",
                                    .image = print_evicted};
    int rc = check_name_or_all(inv);
    return rc ? rc : cache_call(&call, inv, NULL);
}

static const struct verb verb_cache_evict = {
    .name = "cache evict",
    .operands = "NAME[:GLOB] | NAME GLOB | --all",
    .max_operands = 2,
    .summary = "Drop chunks from a server's cache while it runs",
    .details = "NAME is an export or a mount point. With a GLOB the chunks of its files whose full paths match are "
               "dropped; * also\n"
               "matches /. A chunk that holds parts of several files is dropped when any of them matches. Reads go on\n"
               "meanwhile; what they need is fetched again.",
    .options = evict_rows,
    .values_size = sizeof(struct cache_values),
    .run = cmd_cache_evict_run,
};

/* ---- pin ---- */

static const struct option_row pin_rows[] = {
    {OPTION_FLAG, 0, "off", NULL, AT(off), "unpin"},
    {OPTION_FLAG, 0, "all", NULL, AT(all), "every chunk in the cache, whatever image it belongs to"},
    CALL_ROWS,
};

/* Nothing is fetched: chunks that are not cached were not pinned. */
static void print_pinned(json_t *image, const char *change)
{
    uint64_t missing = control_number(image, "chunks") - control_number(image, "cached_chunks");
    print_changed(image, change);
    if (missing)
        printf("; %llu are not cached", (unsigned long long)missing);
    putchar('\n');
}

/* Chunks beyond the pin limit are refused one by one; the rest stays pinned, and the exit status is 1. */
static int cmd_cache_pin_run(const struct invocation *inv)
{
    const struct cache_values *v = inv->values;
    const struct cache_call call = {.what = "cache pin",
                                    .method = "POST",
                                    .path = v->off ? "/cache/unpin" : "/cache/pin",
                                    .params = {"all", v->all ? "1" : NULL},
                                    .change = v->off ? "unpinned" : "pinned",
                                    .image = print_pinned};
    uint64_t refused = 0;
    int rc = check_name_or_all(inv);
    if (!rc)
        rc = cache_call(&call, inv, &refused);
    if (!rc && refused)
        rc = error_set(-EDQUOT, "%llu chunks could not be pinned; pins take at most three quarters of the cache",
                       (unsigned long long)refused);
    return rc;
}

static const struct verb verb_cache_pin = {
    .name = "cache pin",
    .operands = "NAME[:GLOB] | NAME GLOB | --all",
    .max_operands = 2,
    .summary = "Have chunks stay in a server's cache until they are unpinned",
    .details = "NAME is an export or a mount point. With a GLOB the chunks of its files whose full paths match are "
               "pinned; * also\n"
               "matches /. Only what is cached now is pinned: read or warm it first. Pins outlive restarts and take\n"
               "at most three quarters of the cache.",
    .options = pin_rows,
    .values_size = sizeof(struct cache_values),
    .run = cmd_cache_pin_run,
};

/* ---- the verb ---- */

static const struct option_row no_rows[] = {{0}};

static const struct verb *const commands[] = {&verb_cache_ls,
                                              &verb_cache_evict,
                                              &verb_cache_pin,
                                              &verb_cache_fsck,
                                              &verb_cache_resident,
                                              &verb_cache_simulate,
                                              NULL};

const struct verb verb_cache = {
    .name = "cache",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Show what a cache holds, check it, change what it holds",
    .options = no_rows,
    .commands = commands,
    .run = options_need_command,
};
