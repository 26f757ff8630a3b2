/* A request to warm: its parameters and its progress as lines of JSON. warm_run does the work. Catalog and index nodes
 * come through a separate store handle, as in control_cache.c, so that a cancelled request ends when the chunks in
 * flight have come or failed. */
#include "server/control_internal.h"

#include <errno.h>
#include <string.h>

#include "base/rate.h"
#include "format/json_name.h"
#include "image/warm/warm_run.h"

enum { STORE_TIMEOUT_MS = 30000 }; /* for catalog and index */

static const char *const whats[] = {"metadata", "all",   "changes",
                                    "trace",    "files", "globs"}; /* in the order of enum warm_what */

/* A checked request, and its progress while it runs. */
struct control_warm {
    struct stack *stack;
    struct stack_export *export; /* a reference */
    struct stack_export *since;  /* a reference; NULL: changes are not asked for */
    enum warm_what what;
    bool dry, own;
    uint64_t bwlimit;  /* bytes per second; 0: no limit */
    struct bytes list; /* the request's body */

    /* set by control_warm_run */
    struct control_job *job;
    unsigned named;          /* failed files seen; the first CONTROL_WARM_FAILED_MAX are sent */
    struct warm_report sent; /* the last progress that was sent */
};

/* ---- requests ---- */

void control_warm_free(void *arg)
{
    struct control_warm *w = arg;
    if (!w)
        return;
    bytes_release(&w->list);
    stack_put(w->export);
    stack_put(w->since);
    free(w);
}
DEFINE_CLEANUP(control_warm, struct control_warm *, control_warm_free)

int control_warm_prepare(struct stack *stack, const struct control_warm_request *request, struct bytes *body,
                         struct control_warm **out)
{
    CLEANUP(cleanup_control_warm) struct control_warm *w = calloc(1, sizeof *w);
    if (!w)
        return error_no_memory();
    w->stack = stack;
    w->dry = request->dry;
    w->own = request->cluster;
    unsigned what = 0;
    while (what < GR_ARRAY_SIZE(whats) && (!request->what || strcmp(request->what, whats[what]) != 0))
        what++;
    w->what = (enum warm_what)what;
    int rc =
        what < GR_ARRAY_SIZE(whats) ? 0 : error_set(-EINVAL, "what= is metadata, all, changes, trace, files or globs");
    if (!rc)
        rc = control_export_find(stack, request->export, request->digest, &w->export);
    if (!rc && (w->what == WARM_CHANGES) != !!request->since)
        rc = error_set(-EINVAL, "changes need since=, the digest of an earlier image here, and the others have none");
    if (!rc && request->since)
        rc = control_export_find(stack, NULL, request->since, &w->since);
    if (!rc)
        rc = control_flag("dry", request->dry);
    if (!rc)
        rc = control_flag("cluster", request->cluster);
    if (!rc && request->cluster && !stack_is_node(stack))
        rc = error_set(-EINVAL, "this server shares the work with no other: it was started without peer-listen; leave "
                                "--cluster out");
    if (!rc && request->bwlimit)
        rc = rate_parse("bwlimit", request->bwlimit, &w->bwlimit);
    if (!rc && (w->what >= WARM_TRACE) != (body->len > 0))
        rc = error_set(-EINVAL, "files, globs and trace need a list in the request's body, the others have none");
    if (rc)
        return rc;
    w->list = *body; /* moved, not copied: a body may have 64 MiB */
    *body = (struct bytes)BYTES_INIT(0);
    *out = steal_ptr(&w);
    return 0;
}

/* ---- lines of the answer ---- */

/* Send progress when it is due, and at once when every chunk has come or failed, so that the client sees the final
 * figures, but these once. -ECANCELED ends the warming. */
static int control_warm_tell(void *arg, const struct warm_report *t)
{
    struct control_warm *w = arg;
    bool complete = t->bytes_total && t->bytes_done + t->failed_bytes == t->bytes_total;
    bool news = t->bytes_done + t->failed_bytes != w->sent.bytes_done + w->sent.failed_bytes ||
                t->files_done != w->sent.files_done;
    int rc = control_job_check(w->job);
    if (rc || (!control_job_due(w->job) && !(complete && news)))
        return rc;
    w->sent = *t;
    json_t *progress = json_pack("{s:s}", "phase", t->phase);
    const struct control_sum sums[] = {
        {"bytes_done", t->bytes_done},   {"bytes_total", t->bytes_total},     {"files_done", t->files_done},
        {"files_total", t->files_total}, {"failed_chunks", t->failed_chunks}, {"failed_bytes", t->failed_bytes},
    };
    control_json_add(progress, sums, GR_ARRAY_SIZE(sums));
    return control_job_send(w->job, "progress", progress);
}

/* Send a file that failed, if not too many were sent already. */
static int send_failed(void *arg, const char *path, size_t len, const char *why)
{
    struct control_warm *w = arg;
    if (w->named++ >= CONTROL_WARM_FAILED_MAX)
        return 0;
    json_t *failed = json_object();
    json_name_set(failed, "path", path, len);
    json_object_set_new(failed, "why", json_lossy(why));
    return control_job_send(w->job, "failed", failed);
}

/* Send the line with the result. */
static int send_sums(struct control_warm *w, const struct warm_result *r)
{
    const char *why = r->error.code ? r->error.text : "";
    json_t *warm = control_json_export(w->export);
    const struct control_sum sums[] = {
        {"files", r->files},
        {"absent_files", r->absent},
        {"traced_chunks", r->traced},
        {"absent_chunks", r->traced_absent},
        {"chunks", r->after.chunks},
        {"bytes", r->after.bytes},
        {"needed_chunks", r->before.missing},
        {"needed_bytes", r->before.missing_bytes},
        {"fetch_bytes", r->before.fetch_bytes},
        {"cached_chunks", r->after.chunks - r->after.missing},
        {"cached_bytes", r->after.bytes - r->after.missing_bytes},
        {"failed_files", r->failed_files},
        {"warmed_bytes", r->warmed_bytes},
        {"bytes_per_s", r->warmed_bytes * 1000 / GR_MAX(r->warming_ms, (uint64_t)1)},
        {"unpinned_chunks", r->unheld},
    };
    control_json_add(warm, sums, GR_ARRAY_SIZE(sums));
    json_object_set_new(warm, "seconds", json_real((double)r->warming_ms / 1000));
    json_object_set_new(warm, "error", json_lossy(why));
    return control_job_send(w->job, "warm", warm);
}

int control_warm_run(struct control_job *job, void *arg)
{
    struct control_warm *w = arg;
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct warm_result result;
    w->job = job;
    int rc = stack_open_store(w->stack, w->export, STORE_TIMEOUT_MS, control_job_cancel(job), &store);
    const struct warm_config config = {.img = stack_export_image(w->export),
                                       .store = store,
                                       .what = w->what,
                                       .since = w->since ? stack_export_image(w->since) : NULL,
                                       .list = &w->list,
                                       .own = w->own,
                                       .dry = w->dry,
                                       .bwlimit = w->bwlimit,
                                       .tell = control_warm_tell,
                                       .failed = send_failed,
                                       .arg = w};
    if (!rc)
        rc = warm_run(&config, &result);
    return rc ? rc : send_sums(w, &result);
}
