/* What the files of the control socket share: HTTP over a unix socket, answered by its own thread.
 *
 *    GET /metrics   every counter, in Prometheus' text form
 *    GET /status    one JSON object: version, pid, exports, cache directories, health, counters, hit ratio
 *    GET /cache?export=NAME&glob=G            what is cached of an image, or of some of its files; known=1 in
 *                                             place of glob: use only cached index nodes, no store
 *    POST /cache/evict?export=NAME&glob=G     drop it (pinned=1: pinned chunks too);
 *                                             all=1: everything in the cache
 *    POST /cache/pin, /cache/unpin            pin it, or undo that, with the same parameters; glob may be left
 *                                             out, for GET export too
 *    POST /warm?export=NAME&what=WHAT         fetch into the cache an image's metadata, all of it, or the files, globs
 *                                             or trace in the request's body; dry=1: only report what is missing
 *    POST /resident?export=NAME               write the whole image beside the cache, for mounts without a server
 *    GET /trace?export=NAME                   stream the chunks read from now on, in the order of first touch
 *    POST /trace/end?export=NAME              end that recording
 *    PUT /exports/NAME?image=REF              add an export; DELETE removes one that was added. A body with S3
 *                                             keys gives the export these keys, or replaces those that it has
 *    PUT /followed?dir=DIR&versions=N&switches=N&behind=SECONDS
 *                                             what the follower of a directory reports; DELETE /followed?dir=DIR
 *                                             forgets it
 *    PUT /kept?device=DEV&pid=N&reconnects=N&failed=SECONDS&error=SENTENCE
 *                                             the same of the reconnect daemon of a device
 *    POST /leave                              {leaving}: the other nodes take over what this one keeps for them
 *    POST /quiesce                            cache nothing more, and report {unwritten_bytes}: 202 while chunks
 *                                             wait to be written to the cache, 200 when none does
 *
 *    control.c --> control_routes.c --> a document: metrics.c, control_status.c (rates: history.c)
 *                         `--> a job, control_job.c: control_cache.c, control_warm.c, control_trace.c,
 *                                                    control_exports.c, control_resident.c
 */
#ifndef GRANARY_SERVER_CONTROL_INTERNAL_H
#define GRANARY_SERVER_CONTROL_INTERNAL_H

#include <errno.h>
#include <jansson.h>
#include <microhttpd.h>
#include <stdbool.h>
#include <string.h>

#include "base/error.h"
#include "base/vec.h"
#include "format/json_name.h"
#include "server/server_internal.h"

/* ---- jobs: control_job.c ---- */

/* Requests that take long. Each runs in its own thread and its answer is sent line by line, as the lines are made, so
 * that the thread that serves the control socket never waits. A line is one JSON object with one member, whose name
 * says what the line is. The last line is {"result": {"ok": true}} or {"error": sentence}.
 *
 * Each kind of job has three functions. KIND_prepare checks a request, whose parameters are text that lives only while
 * it is answered (NULL: not given), and makes what the other two take; -EINVAL: a parameter is wrong or does not fit
 * the others; -ENOENT: no such export; -ENOMEM. KIND_run is the control_work; its comment lists the lines that it
 * sends. KIND_free is the control_free. */
enum { CONTROL_JOBS_MAX = 4 };
/* Jobs that wait for no store have CONTROL_JOBS_MAX slots, the jobs of each store as many, and those of all stores
 * CONTROL_JOBS_OF_STORES_MAX. So a store that does not answer holds up only its own jobs until there are seven such
 * stores. Together they are fewer than the control socket's connections, which jobs keep. */
enum { CONTROL_JOBS_OF_STORES_MAX = 28, CONTROL_JOBS_OF_ALL_MAX = CONTROL_JOBS_OF_STORES_MAX + CONTROL_JOBS_MAX };

struct control_jobs;
struct control_job;

/* Runs in the job's thread; a control_free frees arg afterwards. -ECANCELED ends the answer without a last line. */
typedef int control_work(struct control_job *job, void *arg);
typedef void control_free(void *arg);

GR_MUST_CHECK int control_jobs_new(struct control_jobs **out);
/* Cancel and join the running jobs. Call it before the daemon is stopped, since libmicrohttpd refuses to stop while a
 * connection is suspended. No job starts afterwards. NULL is allowed. */
void control_jobs_stop(struct control_jobs *jobs);
/* Call it after the daemon was stopped. NULL is allowed. */
void control_jobs_free(struct control_jobs *jobs);

/* Run work in a new thread, and send its lines as the answer to connection, whose daemon allows suspending. Takes arg,
 * also when it fails. store: the URL of the store that the work waits for; "": of none, or of any. -EBUSY, with a
 * sentence: CONTROL_JOBS_MAX jobs of that store run already, or CONTROL_JOBS_OF_STORES_MAX of all, or the server stops.
 * Without one: -ENOMEM; -EIO: the answer could not be queued. */
GR_MUST_CHECK int control_jobs_start(struct control_jobs *jobs, struct MHD_Connection *connection, const char *store,
                                     control_work *work, void *arg, control_free *free_arg);

/* For the work: send the line {name: value}. Takes value; NULL is -ENOMEM. Waits while the client reads slower than
 * lines are made. -ECANCELED: the client is gone or the server stops. */
GR_MUST_CHECK int control_job_send(struct control_job *job, const char *name, json_t *value);
/* Whether a line of progress is due, at most twice a second. Call it in the job's thread. */
bool control_job_due(struct control_job *job);
/* -ECANCELED: the job should end soon. */
GR_MUST_CHECK int control_job_check(const struct control_job *job);
/* The flag itself, for code that polls a flag (store_options.cancel). */
const volatile int *control_job_cancel(const struct control_job *job);

/* JSON that several answers share. Each of these functions returns NULL when memory is short; control_job_send and
 * json_object_set_new accept that NULL. */

/* A number; the counters fit into a signed 64-bit integer. */
json_t *control_json_integer(uint64_t n);
/* "sha256:<hex>" */
json_t *control_json_digest(const struct digest *digest);

/* Return the start of what is reported about an export: {export, digest of its image}. */
json_t *control_json_export(const struct stack_export *export);

/* One named number of an answer. */
struct control_sum {
    const char *key;
    uint64_t value;
};
/* Add the n sums to object, in order. */
void control_json_add(json_t *object, const struct control_sum *sums, size_t n);

/* Find an export by name, by its image ("sha256:<hex>"), or by both; with neither, the server's only export. *out:
 * stack_put it. -EINVAL: neither was given and there are several; -ENOENT: no export matches. */
GR_MUST_CHECK int control_export_find(struct stack *stack, const char *name, const char *digest,
                                      struct stack_export **out);

/* ---- the cache: control_cache.c ---- */

/* List, evict and pin chunks, by image and path. */
enum control_bulk_operation { CONTROL_LS, CONTROL_EVICT, CONTROL_PIN, CONTROL_UNPIN };

enum { CONTROL_EXPORT_MAX = STACK_EXPORT_NAME_MAX };

struct control_request {
    enum control_bulk_operation operation;
    const char *export;
    const char *glob;   /* over the image's paths; needs export */
    const char *all;    /* "1": everything in the cache, instead of an export */
    const char *pinned; /* "1": evict pinned chunks too */
    const char *known;  /* "1": use no store: below an uncached index node, chunks are unknown */
};

struct control_task;

GR_MUST_CHECK int control_cache_prepare(struct stack *stack, const struct control_request *r,
                                        struct control_task **out);
/* Lines:
 *   progress  {bytes_done, bytes_total} of the image or cache; {files_done} while the catalog is read
 *   file      ls with a glob: {path, size, chunks, cached_chunks, pinned_chunks, unknown_chunks}
 *   image     after each image: {export, digest, files, chunks, bytes, cached_chunks, cached_bytes,
 *             stored_bytes, pinned_chunks, changed_chunks, changed_bytes, refused_chunks,
 *             unknown_chunks, metadata_chunks, metadata_cached_chunks,
 *             metadata_pinned_chunks (by the user or the session), store_error}
 *   cache     with all=1: {changed_chunks, changed_bytes, refused_chunks}
 */
int control_cache_run(struct control_job *job, void *task);
void control_cache_free(void *task);

/* ---- warming: control_warm.c ---- */

/* Fetch an image, or some of its files, into the cache before they are read: the server's side of `granary warm`. */
enum {
    CONTROL_WARM_BODY_MAX = 64 << 20, /* bytes of a request's names, or of its trace */
    CONTROL_WARM_FAILED_MAX = 100,    /* failed files that are named; further ones are only counted */
};

struct control_warm_request {
    const char *export;
    const char *digest;  /* "sha256:<hex>" instead of export; with neither: the only export */
    const char *what;    /* "metadata", "all", "changes", "trace", "files", "globs" */
    const char *since;   /* for changes: the digest of the earlier image, which is served here too */
    const char *bwlimit; /* a rate (base/rate.h) for the chunks fetched for this request */
    const char *dry;     /* "1": only report what is missing */
    const char *cluster; /* "1": only what this node keeps for all nodes, and metadata */
};

struct control_warm;

/* body holds the names of files or globs, each ended by NUL, or the file of a trace; on success its bytes are taken and
 * *body is left empty. -EINVAL also: a body is missing or not expected. */
GR_MUST_CHECK int control_warm_prepare(struct stack *stack, const struct control_warm_request *request,
                                       struct bytes *body, struct control_warm **out);
/* Lines:
 *   progress  {phase, bytes_done, bytes_total, files_done, files_total, failed_chunks, failed_bytes}:
 *             struct warm_report, twice a second, and when every chunk has come or failed
 *   failed    {path, why}: a file that is not all cached at the end, or not in the image
 *   warm      at the end: {export, digest, files, absent_files, traced_chunks,
 *             absent_chunks (listed by the trace, but not in the image), chunks, bytes, needed_chunks, needed_bytes,
 *             fetch_bytes (needed_bytes as stored, and the index), cached_chunks, cached_bytes, failed_files,
 *             warmed_bytes, seconds, bytes_per_s (what the warming fetched, in that time),
 *             unpinned_chunks (metadata for which the cache has no room for more pins), error}; without dry,
 *             needed_... is what was missing at the beginning and cached_... what is there at the end
 */
int control_warm_run(struct control_job *job, void *warm);
void control_warm_free(void *warm);

/* ---- whole images: control_resident.c ---- */

/* Write an export's whole image to a file beside the cache, which `granary mount --direct` mounts (cache/resident.h).
 */
struct control_resident;

/* The export is found as control_export_find does. */
GR_MUST_CHECK int control_resident_prepare(struct stack *stack, const char *export, const char *digest,
                                           struct control_resident **out);
/* Lines:
 *   progress  {bytes_done, bytes_total} of the image
 *   resident  at the end: {export, digest, directory, size, bytes (written now; 0: it was there), shared (of these,
 *             bytes taken from another version's file, by reflink)}
 */
int control_resident_run(struct control_job *job, void *resident);
void control_resident_free(void *resident);

/* ---- recording: control_trace.c ---- */

/* Stream which chunks of an export are read while a job runs: the server's side of `granary trace record`. */
struct control_trace;

/* The export is found as control_export_find does. -E2BIG also: the image has more chunks than a trace can number. */
GR_MUST_CHECK int control_trace_prepare(struct stack *stack, const char *export, const char *digest,
                                        struct control_trace **out);
/* Records until control_trace_end, until TRACE_CHUNKS_MAX chunks are listed, or until the client is gone. Lines:
 *   image     first, once reads are recorded: {export, digest, content_root, size, chunk_size}
 *   entries   entries as trace_entry_put writes them, concatenated, in hexadecimal
 *   trace     twice a second, and at the end: {chunks, dropped}: chunks listed so far, and chunks not listed because
 *             the client was behind
 * -EBUSY, sent as an error line: the export is being recorded already. */
int control_trace_run(struct control_job *job, void *trace);
void control_trace_free(void *trace);

/* Have a recording send what was read until now, and end. -ENOENT: the export is not being recorded; or as
 * control_export_find. */
GR_MUST_CHECK int control_trace_end(struct stack *stack, const char *export, const char *digest);

/* ---- changes of exports: control_exports.c ---- */

struct control_exports_request {
    const char *name;
    const char *image;        /* a reference, as the parameter image= has it; PUT only */
    const char *mount;        /* "1": for mounts (enum added_for) */
    const char *fence;        /* PUT: "warmed", for cache-only mode; "none" or NULL: as the server is */
    const char *quota;        /* PUT: a size, for the quota of its image; NULL: none of its own */
    const char *warm;         /* PUT: "none", if the server does not warm its metadata by itself; "metadata" or NULL */
    const struct bytes *keys; /* PUT: s3_keys_parse's text, for keys of the export's own; empty: none */
};

struct control_exports;

/* put: add an export, else remove one. added NULL is -EINVAL, with a sentence that exports do not change here. */
GR_MUST_CHECK int control_exports_prepare(struct added_exports *added, const struct control_exports_request *r,
                                          bool put, struct control_exports **out);
/* The URL of the store that it waits for; "": of none, an export is removed. Valid as long as request. */
const char *control_exports_store(const struct control_exports *request);
/* Lines:
 *   export    {export, digest, content_root, size} of the export that is served now
 *   removed   {removed}: false only when a mount's export stays because others need it
 */
int control_exports_run(struct control_job *job, void *request);
void control_exports_free(void *request);

/* ---- read rates: history.c ---- */

/* The exports' read rates. A thread samples the sums of every export each HISTORY_EVERY_MS and keeps the last
 * HISTORY_SAMPLES samples; a rate is the difference to the oldest one, so it covers about ten seconds. */
enum { HISTORY_EVERY_MS = 2000, HISTORY_SAMPLES = 5 };

enum history_sum {
    HISTORY_READS,
    HISTORY_READ_BYTES,
    HISTORY_MEMORY_BYTES,
    HISTORY_DISK_BYTES,
    HISTORY_PEER_BYTES,
    HISTORY_L2_BYTES,
    HISTORY_STORE_BYTES,
    HISTORY_SUMS,
};
/* Their names in /status. */
extern const char *const history_names[HISTORY_SUMS];

/* One export's sums at one moment. */
struct history_row {
    uint64_t number; /* stack_export_number */
    uint64_t sums[HISTORY_SUMS];
};
/* The sums of every export at one moment; rows ascend by number. */
struct history_sample {
    uint64_t at_us; /* clock_now_us */
    VEC(struct history_row) rows;
};
void history_sample_release(struct history_sample *sample);
/* Sample every export of a stack, now. The caller releases *out; on failure (-ENOMEM) it holds nothing. */
GR_MUST_CHECK int history_take(struct stack *stack, struct history_sample *out);

/* Take the sums from an export's traffic. */
void history_sums(const struct image_traffic *traffic, uint64_t out[HISTORY_SUMS]);
/* Compute an export's rates per second from the sample until now. An export added after the sample counts from zero,
 * over the same time. */
void history_rates(const struct history_sample *then, uint64_t number, const uint64_t now[HISTORY_SUMS],
                   uint64_t now_us, double out[HISTORY_SUMS]);

struct history;
/* Take the first sample; make no thread. The stack is not owned and outlives it. -ENOMEM. */
GR_MUST_CHECK int history_new(struct stack *stack, struct history **out);
/* Start the thread that takes samples. -ENOMEM or -EAGAIN. */
GR_MUST_CHECK int history_start(struct history *h);
/* Copy the oldest sample into *out, which is zeroed before; history_sample_release it, after a failure too. -ENOMEM.
 * Any thread. */
GR_MUST_CHECK int history_oldest(struct history *h, struct history_sample *out);
/* End the thread and free all samples. NULL is allowed. */
void history_free(struct history *h);

/* ---- status: control_status.c ---- */

/* What the document of /status is made of. All is borrowed. */
struct status_view {
    struct stack *stack;
    struct added_exports *added;       /* may be NULL */
    struct reports *reports;           /* may be NULL */
    const struct history_sample *then; /* of the same stack: rates are since then; NULL: no rates */
    size_t exports_max;                /* exports that are described: the first ones added */
    /* Called for each of them, to add members to its object; NULL: not called. */
    void (*more)(void *arg, const struct stack_export *export, json_t *object);
    void *arg;
};
/* Make that document; the caller drops it. A member that memory is too short for is left out. NULL: out of memory. */
json_t *status_json(const struct status_view *view);

/* Append the document of /status to *out, of all exports. added and reports may be NULL. history must be of the same
 * stack; NULL leaves the rates out. -ENOMEM. */
GR_MUST_CHECK int control_status(struct stack *stack, struct added_exports *added, struct reports *reports,
                                 struct history *history, struct bytes *out);

/* ---- routes: control_routes.c ---- */

/* What the routes work on; all of it belongs to control.c. Only the daemon's thread uses it. */
struct control_routes {
    struct stack *stack;         /* not owned */
    struct added_exports *added; /* not owned; NULL: exports cannot be changed */
    struct reports *reports;     /* not owned; NULL: reports are refused */
    struct history *history;
    struct control_jobs *jobs;
    struct control_jobs *changes; /* add or remove exports: a mount need not wait for warming that takes hours */
    unsigned uploads;             /* request bodies being received */
};

/* The daemon's access handler. libmicrohttpd calls it once with the header, once for each part of the body, and once
 * more when the request is complete and an answer is due. Sets *out_by_job when a job answers, which may take long;
 * otherwise leaves it alone. */
enum MHD_Result control_routes_take(struct control_routes *r, struct MHD_Connection *connection, const char *url,
                                    const char *method, const char *data, size_t *data_len, void **state,
                                    bool *out_by_job);
/* Drop a request's state, after it was answered or its client went away. state: as control_routes_take left it; NULL is
 * allowed. */
void control_routes_done(struct control_routes *r, void *state);

/* Check a parameter that is 1 or left out. -EINVAL. */
static inline int control_flag(const char *name, const char *value)
{
    return !value || !strcmp(value, "1") ? 0 : error_set(-EINVAL, "%s= is 1 or left out", name);
}

#endif
