/* Walks the chunks of an image, all of them or those of chosen files, and looks them up in the cache in batches.
 *
 * With a glob the catalog is walked first. The chunks of matching files become a set of bits, which is walked
 * afterwards: chunks that several files share are then counted once, and the index is read in its own order.
 *
 * The catalog, and index nodes that are not cached, come through a store handle that belongs to the request. It gives
 * up after STORE_TIMEOUT_MS and when the request is cancelled; the image's own handle, which readers use, must not. */
#include "server/control_internal.h"

#include <errno.h>
#include <string.h>

#include "format/json_name.h"
#include "image/warm/warm_run.h"
#include "repository/read/catalog_glob.h"

enum { BATCH = 64, STORE_TIMEOUT_MS = 10000, TICKS = 256 /* steps between looks at the clock */ };

/* A checked request. */
struct control_task {
    struct stack *stack;
    enum control_bulk_operation operation;
    bool all;
    bool pinned;         /* evict pinned chunks too */
    bool known;          /* use no store */
    char *export, *glob; /* owned; NULL: all */
};

/* What a walk counts. changed: chunks evicted, pinned or unpinned; refused: chunks that the cache would not change;
 * unknown: chunks below an index node that could not be read. */
struct tally {
    uint64_t files, chunks, bytes, cached, cached_bytes, stored_bytes, pinned;
    uint64_t changed, changed_bytes, refused, unknown;
    uint64_t metadata, metadata_cached, metadata_held; /* chunks of the filesystem's metadata, without unknown ones */
};

/* A walk over one image. */
struct walk {
    const struct control_task *task;
    struct control_job *job;
    struct cache *cache;
    struct image *img;
    struct image_cursor cursor;
    struct chunk_set set; /* the chunks of matching files; with a glob */
    uint64_t files;       /* matching ones seen so far */
    unsigned ticks;       /* steps so far; the clock is read every TICKS */
};

/* ---- requests ---- */

void control_cache_free(void *arg)
{
    struct control_task *task = arg;
    free(task->export);
    free(task->glob);
    free(task);
}
DEFINE_CLEANUP(task, struct control_task *, control_cache_free)

/* Check that the parameters fit the operation and each other, and that the export exists. The strings are copied:
 * libmicrohttpd's live only while the request is answered. */
int control_cache_prepare(struct stack *stack, const struct control_request *r, struct control_task **out)
{
    if (r->export && strlen(r->export) > CONTROL_EXPORT_MAX)
        return error_set(-EINVAL, "the name of an export has at most %d bytes", CONTROL_EXPORT_MAX);
    if (r->glob && (!*r->glob || strlen(r->glob) > CATALOG_GLOB_MAX))
        return error_set(-EINVAL, "a path glob has 1 to %d bytes", CATALOG_GLOB_MAX);
    if (r->glob && !r->export)
        return error_set(-EINVAL, "glob= needs export=: paths are those of one image");
    if (r->pinned && (r->operation != CONTROL_EVICT || strcmp(r->pinned, "1") != 0))
        return error_set(-EINVAL, "pinned=1 is for evict only; there is no other value");
    if (r->known && (r->operation != CONTROL_LS || r->glob || strcmp(r->known, "1") != 0))
        return error_set(-EINVAL,
                         "known=1 is for a list of whole images (GET /cache without glob=); there is no other value");
    if (r->all && (r->operation == CONTROL_LS || r->export || strcmp(r->all, "1") != 0))
        return error_set(-EINVAL, "all=1 is for evict, pin and unpin, instead of export=; there is no other value");
    if (r->operation != CONTROL_LS && !r->export && !r->all)
        return error_set(-EINVAL, "give export= or all=1");
    CLEANUP(cleanup_stack_export) struct stack_export *export = NULL;
    int rc = r->export ? control_export_find(stack, r->export, NULL, &export) : 0;
    if (rc)
        return rc;
    CLEANUP(cleanup_task) struct control_task *task = calloc(1, sizeof *task);
    if (!task)
        return error_no_memory();
    *task = (struct control_task){.stack = stack,
                                  .operation = r->operation,
                                  .all = r->all,
                                  .pinned = r->pinned,
                                  .known = r->known,
                                  .export = r->export ? strdup(r->export) : NULL,
                                  .glob = r->glob ? strdup(r->glob) : NULL};
    if ((r->export && !task->export) || (r->glob && !task->glob))
        return error_no_memory();
    *out = steal_ptr(&task);
    return 0;
}

/* ---- progress ---- */

/* Called at every step; sends progress now and then. files: files so far, or 0 for progress by chunk. -ECANCELED. */
static int control_cache_tick(struct walk *w, uint64_t files, uint64_t chunk)
{
    if (w->ticks++ % TICKS)
        return 0;
    int rc = control_job_check(w->job);
    if (rc || !control_job_due(w->job))
        return rc;
    const struct manifest *m = image_manifest(w->img);
    uint64_t done = chunk * m->chunk_size;
    return control_job_send(
        w->job, "progress",
        files ? json_pack("{s:I}", "files_done", (json_int_t)files)
              : json_pack("{s:I,s:I}", "bytes_done", (json_int_t)done, "bytes_total", (json_int_t)m->size));
}

/* ---- chunks ---- */

/* Chunks that are looked up together, under one lock of the cache. */
struct batch {
    size_t n;
    struct digest digests[BATCH];
    uint32_t lens[BATCH];
    bool metadata[BATCH];
};

/* Evict, pin or unpin one cached chunk. -ENOENT means that it was evicted since the lookup. */
static void act(struct walk *w, struct tally *t, const struct digest *digest, const struct cache_chunk *chunk)
{
    int rc = 0;
    switch (w->task->operation) {
    case CONTROL_LS:
        return;
    case CONTROL_EVICT:
        rc = cache_evict(w->cache, digest, w->task->pinned);
        break;
    case CONTROL_PIN:
    case CONTROL_UNPIN:
        if (chunk->pinned == (w->task->operation == CONTROL_PIN))
            return;
        rc = cache_pin(w->cache, digest, w->task->operation == CONTROL_PIN);
        break;
    }
    t->changed += !rc;
    t->changed_bytes += rc ? 0 : chunk->stored_bytes;
    t->refused += rc && rc != -ENOENT;
}

/* Look up the batch, count it, and act on what is cached. */
static void control_cache_flush(struct walk *w, struct batch *b, struct tally *t)
{
    struct cache_chunk chunks[BATCH];
    cache_query(w->cache, b->digests, b->n, chunks);
    for (size_t i = 0; i < b->n; i++) {
        t->chunks++;
        t->bytes += b->lens[i];
        t->metadata += b->metadata[i];
        if (!chunks[i].cached)
            continue;
        t->metadata_cached += b->metadata[i];
        t->metadata_held += b->metadata[i] && (chunks[i].held || chunks[i].pinned);
        t->cached++;
        t->cached_bytes += b->lens[i];
        t->stored_bytes += chunks[i].stored_bytes;
        t->pinned += chunks[i].pinned;
        act(w, t, &b->digests[i], &chunks[i]);
    }
    b->n = 0;
}

/* Add a chunk to the batch. *out_run: the length of the run of chunks, up to end, that share its fate: more than 1 in a
 * hole or below an unknown index node. */
static int add_chunk(struct walk *w, struct batch *b, struct tally *t, uint64_t chunk, uint64_t end, uint64_t *out_run)
{
    const struct chunk_ref *ref;
    int rc = image_cursor_at(&w->cursor, chunk, &ref, out_run);
    if (rc)
        return rc;
    *out_run = GR_MIN(*out_run, end - chunk);
    if (w->cursor.unknown)
        t->unknown += *out_run;
    if (!ref)
        return 0;
    b->digests[b->n] = ref->digest;
    b->metadata[b->n] = warm_is_metadata(image_manifest(w->img), chunk);
    b->lens[b->n++] = ref->plain_len;
    if (b->n == BATCH)
        control_cache_flush(w, b, t);
    return 0;
}

/* Return the first chunk to walk, from that one on; with a glob, the next one in the set. */
static uint64_t next_chunk(const struct walk *w, uint64_t from)
{
    return w->task->glob ? chunk_set_next(&w->set, from) : from;
}

/* Walk all chunks of the image, or those in the set. In an image, holes and unknown regions are skipped as runs. */
static int walk_chunks(struct walk *w, struct tally *t)
{
    struct batch b = {0};
    uint64_t total = manifest_chunk_count(image_manifest(w->img)), run = 1;
    int rc = 0;
    for (uint64_t i = next_chunk(w, 0); !rc && i < total; i = next_chunk(w, i + run)) {
        rc = add_chunk(w, &b, t, i, w->task->glob ? i + 1 : total, &run);
        if (!rc)
            rc = control_cache_tick(w, 0, i);
    }
    control_cache_flush(w, &b, t);
    return rc;
}

/* ---- files ---- */

/* Send a file's line. */
static int send_file(struct walk *w, const struct catalog_entry *e, const struct tally *t)
{
    json_t *file = json_object();
    const struct control_sum sums[] = {{"size", e->size},
                                       {"chunks", t->chunks},
                                       {"cached_chunks", t->cached},
                                       {"pinned_chunks", t->pinned},
                                       {"unknown_chunks", t->unknown}};
    json_name_set(file, "path", e->path, e->path_len);
    control_json_add(file, sums, GR_ARRAY_SIZE(sums));
    return control_job_send(w->job, "file", file);
}

/* Collect a file's chunks into the set; for ls also look them up now and send the file's line. */
static int visit_file(void *arg, const struct catalog_entry *e)
{
    struct walk *w = arg;
    struct batch b = {0};
    struct tally t = {0};
    bool list = w->task->operation == CONTROL_LS;
    w->files++;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        uint64_t first, end, run = 1;
        rc = select_extent(w->img, e, i, &first, &end);
        for (uint64_t k = first; !rc && k < end; k += run) {
            if (list)
                rc = add_chunk(w, &b, &t, k, end, &run);
            for (uint64_t n = 0; n < run; n++)
                chunk_set_add(&w->set, k + n);
            if (!rc)
                rc = control_cache_tick(w, w->files, 0);
        }
    }
    control_cache_flush(w, &b, &t);
    if (!rc)
        rc = control_cache_tick(w, w->files, 0);
    return rc || !list ? rc : send_file(w, e, &t);
}

/* ---- images ---- */

/* Send the line with an image's sums. */
static int send_image(struct walk *w, const struct stack_export *export, const struct tally *t)
{
    json_t *image = control_json_export(export);
    const struct control_sum sums[] = {
        {"files", t->files},
        {"chunks", t->chunks},
        {"bytes", t->bytes},
        {"cached_chunks", t->cached},
        {"cached_bytes", t->cached_bytes},
        {"stored_bytes", t->stored_bytes},
        {"pinned_chunks", t->pinned},
        {"changed_chunks", t->changed},
        {"changed_bytes", t->changed_bytes},
        {"refused_chunks", t->refused},
        {"unknown_chunks", t->unknown},
        {"metadata_chunks", t->metadata},
        {"metadata_cached_chunks", t->metadata_cached},
        {"metadata_pinned_chunks", t->metadata_held},
    };
    control_json_add(image, sums, GR_ARRAY_SIZE(sums));
    const char *why = w->cursor.store_error.code ? w->cursor.store_error.text : "";
    json_object_set_new(image, "store_error", json_lossy(why));
    return control_job_send(w->job, "image", image);
}

/* Do the operation to one image; with a glob, walk the matching files, then their chunks. Each chunk is counted once,
 * however many files share it. Without a store, only a request for whole images can go on. */
static int walk_image(struct control_job *job, const struct control_task *task, const struct stack_export *export)
{
    CLEANUP(cleanup_store) struct store *store = NULL;
    struct walk w = {.task = task, .job = job, .cache = stack_cache(task->stack), .img = stack_export_image(export)};
    struct tally t = {0};
    int rc = task->known ? 0 : stack_open_store(task->stack, export, STORE_TIMEOUT_MS, control_job_cancel(job), &store);
    if (rc && task->glob)
        return rc;
    image_cursor_init(&w.cursor, w.img, store);
    if (rc) /* without a store, cached index nodes can still be walked; the answer's store_error says why */
        error_take(&w.cursor.store_error, rc);
    rc = task->glob ? chunk_set_init(&w.set, w.img) : 0;
    if (!rc && task->glob)
        rc = select_files(w.img, store, task->glob, visit_file, &w);
    t.files = w.files;
    if (!rc)
        rc = walk_chunks(&w, &t);
    if (!rc)
        rc = send_image(&w, export, &t);
    image_cursor_release(&w.cursor);
    chunk_set_release(&w.set);
    return rc;
}

/* ---- the whole cache ---- */

/* Apply the operation to everything in the cache, slab by slab, whether or not an export uses it. */
static int sweep(struct control_job *job, const struct control_task *task)
{
    struct cache_sweep s = {0};
    enum cache_bulk_operation operation = task->operation == CONTROL_PIN     ? CACHE_PIN
                                          : task->operation == CONTROL_UNPIN ? CACHE_UNPIN
                                          : task->pinned                     ? CACHE_EVICT_PINNED_TOO
                                                                             : CACHE_EVICT;
    int rc = 0;
    while (!rc && cache_sweep_next(stack_cache(task->stack), operation, &s)) {
        rc = control_job_check(job);
        if (!rc && control_job_due(job))
            rc = control_job_send(job, "progress",
                                  json_pack("{s:I,s:I}", "bytes_done", (json_int_t)s.bytes_done, "bytes_total",
                                            (json_int_t)s.bytes_total));
    }
    return rc ? rc
              : control_job_send(job, "cache",
                                 json_pack("{s:I,s:I,s:I}", "changed_chunks", (json_int_t)s.changed, "changed_bytes",
                                           (json_int_t)s.changed_bytes, "refused_chunks", (json_int_t)s.refused));
}

/* An image that several exports serve is walked once for each of them. */
int control_cache_run(struct control_job *job, void *arg)
{
    const struct control_task *task = arg;
    int rc = task->all ? sweep(job, task) : 0;
    CLEANUP(cleanup_stack_export) struct stack_export *e = NULL;
    while (!rc && !task->all && (e = stack_next(task->stack, e)))
        if (!task->export || !strcmp(task->export, stack_export_name(e)))
            rc = walk_image(job, task, e);
    return rc;
}
