/* granary warm [TARGET] --metadata | --all | --files-from FILE | --path GLOB | --trace FILE
 *
 *   control socket   the server does the work (server/control_warm.c); this process prints the lines of its answer;
 *                    with --image, an export of that image is added first and removed afterwards
 *   NBD address      this process requests every byte (attach/device/nbd_warm.c): works from another machine, but
 *                    knows only offsets, so names and globs are not possible
 *
 * Success means that everything requested is cached at the end, not that the requests succeeded: a cache that is too
 * small evicts what was just warmed.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "attach/attach.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/rate.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "cli/verbs/warm_resident.h"
#include "format/image_ref.h"
#include "format/trace.h"
#include "imagebuild/imagebuild.h"

enum { LIST_MAX = 64 << 20 }; /* bytes of names, or of a trace */

struct warm_values {
    bool metadata, all, resident, nul, dry, cluster, json, quiet;
    const char *files_from, *trace, *image, *export, *bwlimit;
    struct option_list globs;
};

#define AT(field) offsetof(struct warm_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_FLAG, 0, "metadata", NULL, AT(metadata), "the filesystem's metadata alone"},
    {OPTION_FLAG, 0, "all", NULL, AT(all), "the whole image"},
    {OPTION_FLAG, 0, "resident", NULL, AT(resident),
     "write the whole image beside the cache, for mounts without a server"},
    {OPTION_TEXT, 0, "files-from", "FILE", AT(files_from), "the files FILE names, in that order; -: standard input"},
    {OPTION_FLAG, '0', NULL, NULL, AT(nul), "names in FILE end with NUL instead of a newline"},
    {OPTION_LIST, 0, "path", "GLOB", AT(globs), "the files whose full paths match; may be repeated"},
    {OPTION_TEXT, 0, "trace", "FILE", AT(trace), "what 'granary trace record' wrote to FILE, in that order"},
    {OPTION_TEXT, 0, "image", "IMAGE", AT(image),
     "this image, which the server serves meanwhile: nothing need mount it"},
    {OPTION_TEXT, 0, "export", "NAME", AT(export), "which export, when the server has several"},
    {OPTION_TEXT, 0, "bwlimit", "RATE", AT(bwlimit), "bytes a second fetched for this, e.g. 100M (default: no limit)"},
    {OPTION_FLAG, 0, "cluster", NULL, AT(cluster),
     "only the share of this node, where nodes are each other's cache: run it on all of them"},
    {OPTION_FLAG, 0, "dry-run", NULL, AT(dry), "only say what is missing"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print one JSON object per line"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* ---- what the server answers ---- */

/* What the answer's lines have reported so far. */
struct answer {
    const struct warm_values *v;
    struct progress progress;
    json_t *warm; /* the final sums; NULL: not yet */
    bool ended;   /* the last line has arrived */
};

/* Return the phase as a string constant, which progress needs. */
static const char *phase_of(json_t *p)
{
    const char *phase = server_status_text(p, "phase");
    return !strcmp(phase, "catalog")   ? "reading the catalog"
           : !strcmp(phase, "looking") ? "looking"
           : !strcmp(phase, "warming") ? "warming"
                                       : "working";
}

static void cmd_warm_draw(struct answer *a, json_t *p)
{
    const struct progress_state state = {.phase = phase_of(p),
                                         .bytes_done = control_number(p, "bytes_done"),
                                         .bytes_total = control_number(p, "bytes_total"),
                                         .files_done = control_number(p, "files_done"),
                                         .files_total = control_number(p, "files_total"),
                                         .failed = control_number(p, "failed_chunks"),
                                         .failed_bytes = control_number(p, "failed_bytes")};
    progress_update(&a->progress, &state);
}

/* A file that could not be cached: on standard error, or as one of the JSON objects. */
static int show_failed(struct answer *a, json_t *failed)
{
    const char *path = json_string_value(json_object_get(failed, "path"));
    const char *why = json_string_value(json_object_get(failed, "why"));
    progress_end(&a->progress);
    if (a->v->json)
        return print_json(json_incref(failed));
    fputs("granary: warm: not cached: ", stderr);
    print_name(stderr, path ? path : "", path ? strlen(path) : 0, true);
    fprintf(stderr, ": %s\n", why ? why : "?");
    return 0;
}

/* One line of the answer; its member decides what it is (server/control_internal.h). */
static int cmd_warm_take_line(void *arg, const char *line, size_t len)
{
    struct answer *a = arg;
    json_t *object;
    int rc = cancel_check(interrupt_flag());
    if (!rc)
        rc = control_object(line, len, &object);
    if (rc)
        return rc;
    json_t *progress = json_object_get(object, "progress"), *failed = json_object_get(object, "failed");
    if (progress)
        cmd_warm_draw(a, progress);
    else if (failed)
        rc = show_failed(a, failed);
    else if (json_object_get(object, "warm") && !a->warm)
        a->warm = json_incref(json_object_get(object, "warm"));
    else if (json_object_get(object, "result"))
        a->ended = true;
    json_decref(object);
    return rc;
}

/* ---- the result ---- */

/* The sums as text: what was requested, what was missing, what was fetched. */
static void print_warm(const struct warm_values *v, json_t *w)
{
    const char *name = json_string_value(json_object_get(w, "export"));
    uint64_t files = control_number(w, "files");
    char bytes[TEXT_SIZE_MAX], needed[TEXT_SIZE_MAX], fetched[TEXT_SIZE_MAX], cached[TEXT_SIZE_MAX];
    char n[TEXT_COUNT_MAX], missing[TEXT_COUNT_MAX], rate[TEXT_SIZE_MAX];
    text_format_size(control_number(w, "bytes"), bytes);
    text_format_size(control_number(w, "needed_bytes"), needed);
    text_format_size(control_number(w, "fetch_bytes"), fetched);
    text_format_size(control_number(w, "cached_bytes"), cached);
    printf("%s: ", name ? name : "");
    if (files)
        printf("%s, ", text_format_count(files, "file", n));
    if (v->trace)
        printf("%s of the trace, %llu not in this image, ",
               text_format_count(control_number(w, "traced_chunks"), "chunk", n),
               (unsigned long long)control_number(w, "absent_chunks"));
    if (v->dry) {
        printf("%s in %s; %s in %s missing, %s to be fetched\n", bytes,
               text_format_count(control_number(w, "chunks"), "chunk", n), needed,
               text_format_count(control_number(w, "needed_chunks"), "chunk", missing), fetched);
        return;
    }
    printf("%s of %s cached; %s was missing", cached, bytes, needed);
    if (control_number(w, "warmed_bytes"))
        printf(", %.1f s, %s/s", json_real_value(json_object_get(w, "seconds")),
               text_format_size(control_number(w, "bytes_per_s"), rate));
    putchar('\n');
}

/* Decide whether the run failed: it did if anything requested is not cached, or a name is not in the image. */
static int cmd_warm_judge(const struct warm_values *v, const json_t *w)
{
    uint64_t absent = control_number(w, "absent_files"), failed = control_number(w, "failed_files");
    uint64_t chunks = control_number(w, "chunks") - control_number(w, "cached_chunks");
    const char *why = json_string_value(json_object_get(w, "error"));
    char n[TEXT_COUNT_MAX], files[TEXT_COUNT_MAX];
    if (chunks && !v->dry)
        return error_set(-EIO, "%s of %s %s not cached%s%s; run it again to go on",
                         text_format_count(chunks, "chunk", n), text_format_count(failed, "file", files),
                         chunks == 1 ? "is" : "are", why && *why ? ": " : "", why ? why : "");
    uint64_t traced = control_number(w, "traced_chunks");
    if (traced && traced == control_number(w, "absent_chunks"))
        return error_set(-ENOENT, "none of the chunks that %s lists is in this image: it is of another one", v->trace);
    return absent ? error_set(-ENOENT, "%llu of the names given are not in the image", (unsigned long long)absent) : 0;
}

/* ---- an image that nothing has mounted ---- */

enum { EXPORT_MAX = IMAGE_NAME_MAX + IMAGE_TAG_MAX + DIGEST_HEX_SIZE };

/* Name the export of an image as "NAME@TAG": no mount names one so. */
static int name_export(const char *image, char out[EXPORT_MAX])
{
    struct image_ref ref;
    char hex[DIGEST_HEX_SIZE];
    int rc = image_ref_parse(image, &ref);
    if (!rc)
        snprintf(out, EXPORT_MAX, "%s@%s", ref.name, ref.by_digest ? digest_hex(&ref.digest, hex) : ref.tag);
    return rc;
}

/* Add the export of an image, or remove it for image NULL. It is added as mounts add theirs, so that one that a mount
 * uses by now is not removed. */
static int change_export(const char *control, const char *name, const char *image)
{
    char path[sizeof "/exports/" + EXPORT_MAX];
    const char *const params[] = {"mount", "1", "image", image, NULL};
    struct control_turn turn = {.cancel = image ? interrupt_flag() : NULL};
    int rc;
    snprintf(path, sizeof path, "/exports/%s", name);
    do
        rc = control_call(control, image ? "PUT" : "DELETE", path, params, control_check_line, NULL);
    while (control_turn(rc, &turn));
    return rc;
}

/* ---- asking ---- */

/* Append a name and a NUL. */
static int add_name(struct bytes *names, const char *name, size_t len)
{
    int rc = bytes_append(names, name, len);
    if (!rc)
        rc = bytes_append(names, "", 1);
    return rc ? error_set(rc, "the names take more than %d MiB; divide them", LIST_MAX >> 20) : 0;
}

/* Read a trace's file into out, and check that it is one. trace points into out. */
static int read_trace(const char *file, struct bytes *out, struct trace *trace)
{
    int rc = io_read_file(file, out);
    if (rc)
        return rc;
    rc = trace_decode(out->data, out->len, trace);
    return rc ? error_prefix(rc, "%s", file) : 0;
}

/* Make the request's body: names, globs, or a trace. */
static int make_list(const struct warm_values *v, struct bytes *out)
{
    const struct path_list_config config = {.file = v->files_from, .nul = v->nul};
    CLEANUP(cleanup_path_list) struct path_list *list = NULL;
    struct source_ask ask;
    struct trace trace;
    if (v->trace)
        return read_trace(v->trace, out, &trace);
    int rc = v->files_from ? path_list_open(&config, &list) : 0;
    while (!rc && list && (rc = path_list_next(list, &ask)) == 1)
        rc = add_name(out, ask.path, ask.path_len);
    if (!rc && list && !out->len)
        return error_set(-EINVAL, "%s names no file", !strcmp(v->files_from, "-") ? "standard input" : v->files_from);
    for (size_t i = 0; !rc && i < v->globs.count; i++)
        rc = add_name(out, v->globs.items[i], strlen(v->globs.items[i]));
    return rc;
}

/* Have the server warm an export, by its name or its image's digest or both, and print its progress. */
static int warm_export(const struct warm_values *v, const char *control, const char *export, const char *digest,
                       const struct bytes *list)
{
    struct answer a = {.v = v};
    const char *what = v->all          ? "all"
                       : v->metadata   ? "metadata"
                       : v->trace      ? "trace"
                       : v->files_from ? "files"
                                       : "globs";
    const char *const params[] = {"what",    what,       "export",  export,
                                  "digest",  digest,     "dry",     v->dry ? "1" : NULL,
                                  "bwlimit", v->bwlimit, "cluster", v->cluster ? "1" : NULL,
                                  NULL};
    progress_init(&a.progress, "warm", v->quiet);
    a.progress.json = v->json;
    int rc = control_post(control, "/warm", params, list, cmd_warm_take_line, &a);
    progress_end(&a.progress);
    if (rc == -ECONNRESET || (!rc && (!a.ended || !a.warm)))
        rc = error_set(-EIO, "the server on %s ended in the middle; what came is cached: run it again to go on",
                       control);
    if (!rc && v->json)
        rc = print_json(json_incref(a.warm));
    else if (!rc)
        print_warm(v, a.warm);
    if (!rc)
        rc = cmd_warm_judge(v, a.warm);
    json_decref(a.warm);
    return rc;
}

/* Warm an image by an export of its own, which an interrupt removes too. What a run that was killed left under the same
 * name is of an earlier image, perhaps, and goes first. */
static int warm_image(const struct warm_values *v, const char *control, const struct bytes *list)
{
    struct error first;
    char name[EXPORT_MAX];
    int rc = name_export(v->image, name);
    if (rc)
        return CLI_USAGE;
    (void)interrupt_watch();
    (void)change_export(control, name, NULL);
    rc = change_export(control, name, v->image);
    if (rc)
        return rc;
    rc = warm_export(v, control, name, NULL, list);
    error_take(&first, rc);
    if (change_export(control, name, NULL))
        log_warning("the server still serves the image as '%s': %s", name, error_text());
    return error_restore(&first);
}

/* ---- a mount without a server ---- */

static bool is_direct(const char *target, struct mount_state *out)
{
    return target && !follow_find_mount(target, out) && mount_is_direct(out) && mount_is_there(out);
}

/* The file has the whole image, so there is nothing left to warm. That is a success: a script that warms a mount need
 * not know how it was mounted. */
static int print_direct(const struct warm_values *v, const struct mount_state *s)
{
    char size[TEXT_SIZE_MAX], digest[PRINT_DIGEST_MAX];
    struct stat st;
    if (v->export)
        return error_set(-EINVAL, "%s is mounted without a server, and has no export %s", s->dir, v->export);
    if (stat(s->image_file, &st))
        return error_set(-errno, "cannot look at %s, which is mounted on %s: %s", s->image_file, s->dir,
                         strerror(errno));
    if (v->json)
        return print_json(json_pack("{s:b,s:o,s:s,s:I,s:I,s:I,s:I,s:I,s:I,s:o}", "direct", true, "dir",
                                    json_lossy(s->dir), "digest", print_digest(&s->digest, digest), "bytes",
                                    (json_int_t)st.st_size, "cached_bytes", (json_int_t)st.st_size, "needed_bytes",
                                    (json_int_t)0, "fetch_bytes", (json_int_t)0, "warmed_bytes", (json_int_t)0,
                                    "failed_files", (json_int_t)0, "file", json_lossy(s->image_file)));
    print_text(s->dir);
    printf(": all %s are on this disk: it is mounted without a server, from ",
           text_format_size((uint64_t)st.st_size, size));
    print_text(s->image_file);
    putchar('\n');
    return 0;
}

/* A mount point is named to the server by its image's digest, and by its export as far as the mount knows that: several
 * exports may have the image. */
static int warm_by_control(const struct warm_values *v, const char *target)
{
    CLEANUP_BYTES list = BYTES_INIT(LIST_MAX);
    char control[PATH_MAX];
    struct control_mounted m;
    struct mount_state state;
    int rc = make_list(v, &list);
    if (!rc && !v->image && is_direct(target, &state))
        return print_direct(v, &state);
    if (!rc)
        rc = control_target_find(target, control, sizeof control);
    if (rc)
        return rc;
    if (v->image)
        return warm_image(v, control, &list);
    control_target_mounted(v->export ? NULL : target, &m);
    const char *export = *m.export ? m.export : v->export, *digest = *m.digest ? m.digest : NULL;
    if (v->resident)
        return warm_resident(&(struct warm_resident){control, export, digest, v->quiet, v->json});
    return warm_export(v, control, export, digest, &list);
}

/* ---- by NBD ---- */

/* The URI schemes of libnbd. */
static bool is_nbd(const char *target)
{
    return target && (!strncmp(target, "nbd://", 6) || !strncmp(target, "nbds://", 7) || !strncmp(target, "nbd+", 4) ||
                      !strncmp(target, "nbds+", 5));
}

static void draw_nbd(void *arg, const struct nbd_warm_state *s)
{
    const struct progress_state state = {.phase = "warming",
                                         .bytes_done = s->bytes_done,
                                         .bytes_total = s->bytes_total,
                                         .failed = s->failed_chunks,
                                         .failed_bytes = s->failed_bytes};
    progress_update(arg, &state);
}

/* Print the result; failed chunks are known by their offsets only. */
static int print_nbd(const struct warm_values *v, const char *uri, const struct nbd_warm_state *s, uint64_t took_ms)
{
    char done[TEXT_SIZE_MAX], total[TEXT_SIZE_MAX], rate[TEXT_SIZE_MAX];
    uint64_t bytes_per_s = s->bytes_done * 1000 / GR_MAX(took_ms, (uint64_t)1);
    if (!v->json) {
        printf("%s: %s of %s cached, %.1f s, %s/s\n", uri, text_format_size(s->bytes_done, done),
               text_format_size(s->bytes_total, total), (double)took_ms / 1000, text_format_size(bytes_per_s, rate));
        return 0;
    }
    json_t *offsets = json_array();
    for (uint64_t i = 0; i < GR_MIN(s->failed_chunks, (uint64_t)NBD_WARM_NAMED); i++)
        json_array_append_new(offsets, json_integer((json_int_t)s->failed_at[i]));
    return print_json(json_pack("{s:o,s:I,s:I,s:f,s:I,s:I,s:o}", "uri", json_lossy(uri), "bytes",
                                (json_int_t)s->bytes_total, "cached_bytes", (json_int_t)s->bytes_done, "seconds",
                                (double)took_ms / 1000, "bytes_per_s", (json_int_t)bytes_per_s, "failed_chunks",
                                (json_int_t)s->failed_chunks, "failed_offsets", offsets));
}

/* Warm over NBD. bwlimit: bytes a second; 0: no limit. Names and globs are not possible: NBD has no catalog. */
static int warm_by_nbd(const struct warm_values *v, const char *uri, uint64_t bwlimit)
{
    struct progress progress;
    struct nbd_warm_state state;
    CLEANUP_BYTES file = BYTES_INIT(LIST_MAX);
    struct trace trace;
    const struct nbd_warm config = {.uri = uri,
                                    .bwlimit = bwlimit,
                                    .metadata = v->metadata,
                                    .trace = v->trace ? &trace : NULL,
                                    .progress = draw_nbd,
                                    .arg = &progress};
    if (v->files_from || v->globs.count || v->dry || v->cluster || v->export || v->image)
        return options_wrong(
            "by NBD there are only --metadata, --all and --trace; give a mount point or a control socket");
    int rc = v->trace ? read_trace(v->trace, &file, &trace) : 0;
    if (rc)
        return rc;
    progress_init(&progress, "warm", v->quiet);
    progress.json = v->json;
    uint64_t began_ms = clock_now_ms();
    rc = nbd_warm(&config, &state);
    progress_end(&progress);
    if (!rc)
        rc = print_nbd(v, uri, &state, clock_now_ms() - began_ms);
    if (!rc && state.failed_chunks)
        rc = error_set(-EIO,
                       "%llu chunks could not be cached, the first at offset %llu of the image, of which 'granary ls "
                       "IMAGE --at' names the file; the server's log says why",
                       (unsigned long long)state.failed_chunks, (unsigned long long)state.failed_at[0]);
    return rc;
}

/* An NBD address is warmed from here, anything else by the server itself. Exactly one kind of list must be given. */
static int cmd_warm_run(const struct invocation *inv)
{
    const struct warm_values *v = inv->values;
    const char *target = inv->operand_count ? inv->operands[0] : NULL;
    uint64_t bwlimit = 0;
    if (v->metadata + v->all + v->resident + (v->files_from != NULL) + (v->trace != NULL) + (v->globs.count > 0) != 1)
        return options_wrong("give one of --metadata, --all, --resident, --files-from, --path and --trace");
    if (v->bwlimit && rate_parse("--bwlimit", v->bwlimit, &bwlimit))
        return CLI_USAGE;
    if (v->nul && !v->files_from)
        return options_wrong("-0 goes with --files-from");
    if (v->resident && (v->image || v->dry || v->cluster || v->bwlimit || is_nbd(target)))
        return options_wrong("--resident is for an export of a server on this machine, without --image, --bwlimit, "
                             "--cluster and --dry-run");
    if (v->image && v->export)
        return options_exclude("--image", "--export", "the image gets an export of its own");
    return is_nbd(target) ? warm_by_nbd(v, target, bwlimit) : warm_by_control(v, target);
}

const struct verb verb_warm = {
    .name = "warm",
    .operands = "[TARGET]",
    .max_operands = 1,
    .summary = "Bring an image, or files of it, into a server's cache before they are read",
    .details = "TARGET is a mount point, a server's socket or its control socket\n"
               "(default: that of 'granary serve', else the only one), or an address of NBD (nbd://HOST/EXPORT) for "
               "--metadata,\n"
               "--all and --trace. The filesystem's metadata is warmed first, whatever is\n"
               "asked for. In a GLOB * also matches /; a directory that matches stands for all below it. What is\n"
               "cached already is not fetched again: after an interruption the same command goes on. Exit code 1 if\n"
               "anything asked for is not cached at the end; the first 100 such files are named.",
    .interrupted = "what came is cached, and the next run goes on",
    .options = rows,
    .values_size = sizeof(struct warm_values),
    .run = cmd_warm_run,
};
