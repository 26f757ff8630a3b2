/* granary trace record TARGET FILE, the only command of granary trace. The server streams which chunks of an export are
 * read (server/control_trace.c), and this collects them until an interrupt, --for, or the maximum of a trace.
 * Everything is held in memory, at most TRACE_FILE_MAX.
 *
 * FILE is written twice: without entries at the beginning, so that a bad path is reported before the job has run, and
 * as a whole at the end. An end is requested by a second request, POST /trace/end, so that what was read until then is
 * still sent.
 */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "attach/attach.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/io.h"
#include "base/log.h"
#include "base/text.h"
#include "cli/servers.h"
#include "cli/verbs/verbs.h"
#include "format/trace.h"

struct record_values {
    const char *export;
    uint64_t for_s;
    bool json, quiet;
};

#define AT(field) offsetof(struct record_values, field), 0, 0

static const struct option_row rows[] = {
    {OPTION_TEXT, 0, "export", "NAME", AT(export), "which export, when the server has several"},
    {OPTION_DURATION, 0, "for", "TIME", AT(for_s), "end after this time, e.g. 90s, 5m (default: at an interrupt)"},
    {OPTION_FLAG, 0, "json", NULL, AT(json), "print what was recorded as one JSON object"},
    {OPTION_FLAG, 'q', "quiet", NULL, AT(quiet), "no progress"},
    {0},
};

/* A recording. */
struct recording {
    const struct record_values *v;
    const char *control, *file;
    const char *params[5];
    const volatile int *interrupted;
    uint64_t until_ms; /* clock_now_ms; 0: no end */
    struct progress progress;
    struct trace trace;   /* its entries are: */
    struct bytes entries; /* as in the file: TRACE_ENTRY_SIZE bytes each */
    json_t *image;        /* the server's description; NULL: not yet */
    bool end_asked;       /* the server was asked to end */
    bool ended;           /* the server has sent everything */
    bool own_failed;      /* the last line's error was ours, not the server's */
};

/* ---- the file ---- */

/* Write the trace with the entries so far. */
static int cmd_trace_save(struct recording *r)
{
    CLEANUP_BYTES file = BYTES_INIT(TRACE_FILE_MAX);
    r->trace.entries = r->entries.data;
    r->trace.count = (uint32_t)(r->entries.len / TRACE_ENTRY_SIZE);
    int rc = trace_encode(&r->trace, &file);
    if (rc) /* the entries are as many as a trace may have, so only memory can be short */
        return error_no_memory();
    return io_write_file_atomic(r->file, file.data, file.len, true);
}

/* ---- what the server says ---- */

static int not_understood(const struct recording *r)
{
    return error_set(-EIO, "the server on %s answers with something else than what is read", r->control);
}

static bool get_digest(const json_t *image, const char *key, struct digest *out)
{
    const char *text = json_string_value(json_object_get(image, key));
    return text && !strncmp(text, "sha256:", 7) && !digest_parse(text + 7, strlen(text + 7), out);
}

/* Take the description, and write FILE without entries, to find out now whether it can be written. */
static int take_image(struct recording *r, json_t *image)
{
    uint64_t chunk_size = control_number(image, "chunk_size");
    r->trace.size = control_number(image, "size");
    r->trace.chunk_size = (uint32_t)chunk_size;
    if (r->image || chunk_size > UINT32_MAX || !get_digest(image, "digest", &r->trace.image) ||
        !get_digest(image, "content_root", &r->trace.content_root))
        return not_understood(r);
    int rc = trace_check_geometry(r->trace.size, r->trace.chunk_size);
    if (!rc)
        rc = cmd_trace_save(r);
    if (!rc)
        r->image = json_incref(image);
    return rc;
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Append entries, which come in hexadecimal. */
static int take_entries(struct recording *r, const json_t *entries)
{
    const char *text = json_string_value(entries);
    size_t len = json_string_length(entries);
    uint8_t *p;
    if (!r->image || len % (2 * TRACE_ENTRY_SIZE))
        return not_understood(r);
    int rc = bytes_extend(&r->entries, len / 2, &p);
    for (size_t i = 0; !rc && i < len; i += 2) {
        int high = digit(text[i]), low = digit(text[i + 1]);
        if (high < 0 || low < 0)
            return not_understood(r);
        *p++ = (uint8_t)(high << 4 | low);
    }
    return rc == -EMSGSIZE ? not_understood(r) : rc ? error_no_memory() : 0;
}

static int ignore_line(void *arg, const char *line, size_t len)
{
    return 0;
}

/* Request the end once it is time; the server then sends the rest. If it does not answer, there is nothing to end.
 * Called at each line; the server sends one twice a second. */
static void ask_for_the_end(struct recording *r)
{
    bool now = *r->interrupted || (r->until_ms && clock_now_ms() >= r->until_ms);
    if (!now || r->end_asked || !r->image)
        return;
    r->end_asked = true;
    const struct bytes nothing = BYTES_INIT(0);
    if (control_post(r->control, "/trace/end", r->params, &nothing, ignore_line, NULL))
        log_warning("%s", error_text());
}

/* One line of the answer; its member decides what it is (server/control_trace.c). */
static int cmd_trace_take_line(void *arg, const char *line, size_t len)
{
    struct recording *r = arg;
    json_t *object;
    int rc = control_object(line, len, &object);
    json_t *image = json_object_get(object, "image"), *entries = json_object_get(object, "entries");
    json_t *count = json_object_get(object, "trace");
    if (image) {
        rc = take_image(r, image);
    } else if (entries) {
        rc = take_entries(r, entries);
    } else if (count) {
        const struct progress_state state = {.phase = "recording",
                                             .bytes_done = r->entries.len / TRACE_ENTRY_SIZE * r->trace.chunk_size};
        progress_update(&r->progress, &state);
        r->trace.dropped = control_number(count, "dropped");
    } else if (json_object_get(object, "result")) {
        r->ended = true;
    }
    json_decref(object);
    if (!rc)
        ask_for_the_end(r);
    r->own_failed = rc;
    return rc;
}

/* ---- the end ---- */

/* Return the word for the reason in the JSON result. */
static const char *why_ended(const struct recording *r)
{
    if (!r->ended)
        return "server";
    if (r->end_asked)
        return *r->interrupted ? "interrupt" : "time";
    return r->trace.count == TRACE_CHUNKS_MAX ? "full" : "asked";
}

/* Print what was recorded, with warnings about what is missing. */
static int print(const struct recording *r)
{
    uint64_t bytes = (uint64_t)r->trace.count * r->trace.chunk_size;
    const char *export = json_string_value(json_object_get(r->image, "export")), *why = why_ended(r);
    char size[TEXT_SIZE_MAX];
    if (r->v->json)
        return print_json(json_pack("{s:o,s:O,s:O,s:O,s:I,s:I,s:I,s:s}", "file", json_lossy(r->file), "export",
                                    json_object_get(r->image, "export"), "digest", json_object_get(r->image, "digest"),
                                    "content_root", json_object_get(r->image, "content_root"), "chunks",
                                    (json_int_t)r->trace.count, "bytes", (json_int_t)bytes, "dropped",
                                    (json_int_t)r->trace.dropped, "ended", why));
    printf("%s: %u chunks recorded, %s\n", export ? export : "", r->trace.count, text_format_size(bytes, size));
    if (!r->ended)
        fprintf(stderr, "granary: trace record: the server ended; what was read until then is recorded\n");
    if (!strcmp(why, "full"))
        fprintf(stderr,
                "granary: trace record: a trace has no more than %d chunks; what was read after them is not "
                "recorded\n",
                TRACE_CHUNKS_MAX);
    if (r->trace.dropped)
        fprintf(stderr,
                "granary: trace record: %llu reads were faster than they could be written down, and are not "
                "listed\n",
                (unsigned long long)r->trace.dropped);
    return 0;
}

/* A mount point is named to the server by its image's digest, and by its export as far as the mount knows that: several
 * exports may have the image. */
static int cmd_trace_run(const struct invocation *inv)
{
    const struct record_values *v = inv->values;
    const char *target = inv->operands[0];
    char control[PATH_MAX];
    struct control_mounted m;
    control_target_mounted(v->export ? NULL : target, &m);
    struct recording r = {
        .v = v,
        .control = control,
        .file = inv->operands[1],
        .params = {"export", *m.export ? m.export : v->export, "digest", *m.digest ? m.digest : NULL, NULL},
        .interrupted = interrupt_watch(),
        .until_ms = v->for_s ? clock_now_ms() + v->for_s * 1000 : 0,
        .entries = BYTES_INIT((size_t)TRACE_CHUNKS_MAX * TRACE_ENTRY_SIZE)};
    int rc = control_target_find(target, control, sizeof control);
    if (rc)
        return rc;
    progress_init(&r.progress, "trace record", v->quiet);
    rc = control_call(control, "GET", "/trace", r.params, cmd_trace_take_line, &r);
    progress_end(&r.progress);
    if (!r.image && !rc)
        rc = error_set(-EIO, "the answer of the server on %s ended early", control);
    if (r.image && !(rc && r.own_failed)) { /* save what came, also when the server ended early */
        rc = cmd_trace_save(&r);
        rc = rc ? rc : print(&r);
    }
    json_decref(r.image);
    bytes_release(&r.entries);
    return rc;
}

static const struct verb verb_trace_record = {
    .name = "trace record",
    .operands = "TARGET FILE",
    .min_operands = 2,
    .max_operands = 2,
    .summary = "Write down the chunks that are read from now on, each once, in their order",
    .details = "TARGET is a mount point, a server's socket or its control socket. Ends at an interrupt, after --for,\n"
               "or with the server; FILE is for 'granary warm --trace'. What the page cache has is not read again:\n"
               "begin before the job does.",
    .options = rows,
    .values_size = sizeof(struct record_values),
    .run = cmd_trace_run,
};

static const struct option_row no_rows[] = {{0}};

static const struct verb *const commands[] = {&verb_trace_record, NULL};

const struct verb verb_trace = {
    .name = "trace",
    .operands = "COMMAND ...",
    .max_operands = 64,
    .summary = "Record which chunks a job reads, for granary warm --trace",
    .options = no_rows,
    .commands = commands,
    .run = options_need_command,
};
