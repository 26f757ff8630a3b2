/* In four steps: the chunks that are wanted, from the catalog (warm_plan); which of them are missing, by one walk over
 * the index in its own order; batches of missing and cached ones alike through image_prefetch_chunks, by threads, which
 * also keeps the index nodes on the way; what is missing now. Only the last step says whether it was a success: what
 * was evicted meanwhile is no success.
 *
 * Catalog and index come through a store handle of the request's own, as in control_cache.c; chunks as any reader's, so
 * that a request that is cancelled ends when the chunks in the air have come, or have failed.
 */
#include "plugin/control_warm.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/parallel.h"
#include "format/json_name.h"
#include "image/warm_files.h"
#include "image/warm_plan.h"

enum { STORE_TIMEOUT_MS = 30000, TELL_EVERY_MS = 500, TICKS = 256, FRONT_MIN = 4096 /* the superblock */ };

enum what { WARM_METADATA, WARM_ALL, WARM_FILES, WARM_GLOBS, WARM_WHATS };
static const char *const whats[WARM_WHATS] = {"metadata", "all", "files", "globs"};

struct sums {
    uint64_t chunks, bytes, missing, missing_bytes, fetch_bytes;
};

struct control_warm {
    struct stack *stack;
    size_t export;
    enum what what;
    bool dry;
    struct bytes names;

    /* of the run */
    struct control_job *job;
    struct image *img;
    struct store *store;
    struct warm_plan plan;
    struct chunk_set missing; /* at the beginning, then at the end */
    uint64_t absent, failed;  /* names that are not in the image; files that are not cached */
    uint64_t told_ms;
    unsigned ticks;
    pthread_mutex_t lock; /* plan's progress and these, while threads work */
    uint64_t bytes_done, bytes_total, failed_chunks;
    struct error error; /* of the first chunk that could not be had, or what ended the warming */
};

/* ---- requests ---- */

static int find_export(const struct stack *stack, const struct control_warm_request *r, size_t *out)
{
    size_t count = stack_image_count(stack);
    if (!r->export && !r->digest && count > 1)
        return error_set(-EINVAL, "this server has %zu exports; say which (granary status names them)", count);
    for (*out = 0; *out < count; (*out)++) {
        char hex[DIGEST_HEX_SIZE];
        digest_hex(image_digest(stack_image_at(stack, *out)), hex);
        bool named = !r->export || !strcmp(r->export, stack_export_name(stack, *out));
        if (named && (!r->digest || (!strncmp(r->digest, "sha256:", 7) && !strcmp(r->digest + 7, hex))))
            return 0;
    }
    return error_set(-ENOENT, "there is no export '%.100s' here", r->export ? r->export : r->digest);
}

static int find_what(const char *text, enum what *out)
{
    for (int i = 0; i < WARM_WHATS; i++)
        if (text && !strcmp(text, whats[i])) {
            *out = (enum what)i;
            return 0;
        }
    return error_set(-EINVAL, "what= is metadata, all, files or globs");
}

void control_warm_free(void *arg)
{
    struct control_warm *w = arg;
    if (!w)
        return;
    bytes_release(&w->names);
    free(w);
}
DEFINE_CLEANUP(control_warm, struct control_warm *, control_warm_free)

int control_warm_prepare(struct stack *stack, const struct control_warm_request *request, struct bytes *names,
                         struct control_warm **out)
{
    CLEANUP(cleanup_control_warm) struct control_warm *w = calloc(1, sizeof *w);
    if (!w)
        return error_set(-ENOMEM, "control: out of memory");
    w->stack = stack;
    w->dry = request->dry;
    int rc = find_what(request->what, &w->what);
    if (!rc)
        rc = find_export(stack, request, &w->export);
    if (!rc && request->dry && strcmp(request->dry, "1") != 0)
        rc = error_set(-EINVAL, "dry= is 1 or left out");
    if (!rc && (w->what >= WARM_FILES) != (names->len > 0))
        rc = error_set(-EINVAL, "files and globs need names in the request's body, the others have none");
    if (rc)
        return rc;
    w->names = *names;
    *names = (struct bytes)BYTES_INIT(0);
    *out = steal_ptr(&w);
    return 0;
}

/* ---- progress ---- */

#define INTEGER(n) json_integer((json_int_t)(n))

struct told {
    const char *phase;
    uint64_t bytes_done, bytes_total, files_done, files_total, failed_chunks;
};

static int tell(struct control_warm *w, const struct told *t)
{
    if (control_job_cancelled(w->job))
        return error_set(-ECANCELED, "interrupted");
    uint64_t now = clock_now_ms();
    if (now - w->told_ms < TELL_EVERY_MS)
        return 0;
    w->told_ms = now;
    return control_job_send(w->job,
                            json_pack("{s:{s:s,s:o,s:o,s:o,s:o,s:o}}", "progress", "phase", t->phase, "bytes_done",
                                      INTEGER(t->bytes_done), "bytes_total", INTEGER(t->bytes_total), "files_done",
                                      INTEGER(t->files_done), "files_total", INTEGER(t->files_total), "failed_chunks",
                                      INTEGER(t->failed_chunks)));
}

/* At every step of what has no end in sight: it looks at the clock now and then. */
static int tick(struct control_warm *w, const struct told *t)
{
    return w->ticks++ % TICKS ? 0 : tell(w, t);
}

static int send_failed(struct control_warm *w, const char *path, size_t len, const char *why)
{
    if (w->absent + w->failed > CONTROL_WARM_FAILED_MAX)
        return 0;
    json_t *failed = json_object();
    json_name_set(failed, "path", path, len);
    json_object_set_new(failed, "why", json_name(why, strlen(why)));
    return control_job_send(w->job, json_pack("{s:o}", "failed", failed));
}

/* ---- what is wanted ---- */

/* What a list names, to be put into the order of the list. */
struct listed {
    size_t number;
    uint64_t first, end;
    bool last; /* of its file */
};

struct choosing {
    struct control_warm *w;
    VEC(struct listed) listed;
};

static int add_file(struct control_warm *w, const struct catalog_entry *e)
{
    int rc = 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        uint64_t first, end;
        rc = select_extent(w->img, e, i, &first, &end);
        if (!rc)
            rc = warm_plan_add(&w->plan, first, end);
    }
    warm_plan_end_file(&w->plan);
    return rc;
}

static int list_file(struct choosing *c, size_t number, const struct catalog_entry *e)
{
    struct listed piece = {.number = number, .last = !e->extent_count};
    int rc = piece.last && vec_push(&c->listed, piece) ? -ENOMEM : 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        rc = select_extent(c->w->img, e, i, &piece.first, &piece.end);
        piece.last = i + 1 == e->extent_count;
        if (!rc && vec_push(&c->listed, piece))
            rc = -ENOMEM;
    }
    return rc == -ENOMEM ? error_set(rc, "control: out of memory") : rc;
}

static int choose_file(void *arg, const struct catalog_path *name, const struct catalog_entry *e)
{
    struct choosing *c = arg;
    struct control_warm *w = c->w;
    if (!e) {
        w->absent++;
        return send_failed(w, name->path, name->len,
                           w->what == WARM_GLOBS ? "no file in the image matches" : "not in the image");
    }
    int rc = tick(w, &(struct told){.phase = "catalog", .files_done = w->plan.files + c->listed.len});
    if (rc)
        return rc;
    return w->what == WARM_GLOBS ? add_file(w, e) : list_file(c, name->number, e);
}

static int by_number(const void *a, const void *b)
{
    const struct listed *x = a, *y = b;
    if (x->number != y->number)
        return x->number < y->number ? -1 : 1;
    if (x->last != y->last)
        return x->last - y->last; /* a file ends behind all of its pieces */
    return x->first < y->first ? -1 : x->first > y->first;
}

static int choose_files(struct control_warm *w)
{
    const struct warm_names names = {
        .text = (const char *)w->names.data, .len = w->names.len, .globs = w->what == WARM_GLOBS};
    struct choosing c = {.w = w};
    int rc = warm_files(w->img, w->store, &names, choose_file, &c);
    if (c.listed.len)
        qsort(c.listed.items, c.listed.len, sizeof *c.listed.items, by_number);
    for (size_t i = 0; !rc && i < c.listed.len; i++) {
        rc = warm_plan_add(&w->plan, c.listed.items[i].first, c.listed.items[i].end);
        if (c.listed.items[i].last)
            warm_plan_end_file(&w->plan);
    }
    vec_release(&c.listed);
    return rc;
}

static int choose(struct control_warm *w)
{
    const struct manifest *m = image_manifest(w->img);
    uint64_t front = GR_MIN(GR_MAX(m->front_len, (uint64_t)FRONT_MIN), m->size), total = manifest_chunk_count(m);
    uint64_t end = m->metadata_len ? (m->metadata_offset + m->metadata_len - 1) / m->chunk_size + 1 : 0;
    int rc = warm_plan_add(&w->plan, 0, (front + m->chunk_size - 1) / m->chunk_size);
    if (!rc)
        rc = warm_plan_add(&w->plan, m->metadata_offset / m->chunk_size, GR_MIN(end, total));
    if (!rc && w->what == WARM_ALL)
        rc = warm_plan_add(&w->plan, 0, total);
    return rc || w->what < WARM_FILES ? rc : choose_files(w);
}

/* ---- what is missing ---- */

struct looking {
    size_t n;
    uint64_t chunks[WARM_BATCH];
    struct digest digests[WARM_BATCH];
    uint32_t lens[WARM_BATCH], stored[WARM_BATCH];
};

static void look(struct control_warm *w, struct looking *l, struct sums *sums)
{
    struct cache_chunk found[WARM_BATCH];
    cache_query(stack_cache(w->stack), l->digests, l->n, found);
    for (size_t i = 0; i < l->n; i++) {
        sums->chunks++;
        sums->bytes += l->lens[i];
        if (found[i].cached)
            continue;
        chunk_set_add(&w->missing, l->chunks[i]);
        sums->missing++;
        sums->missing_bytes += l->lens[i];
        sums->fetch_bytes += l->stored[i];
    }
    l->n = 0;
}

/* A chunk of which the index node is not at hand is as good as missing. */
static void look_unknown(struct control_warm *w, uint64_t chunk, struct sums *sums)
{
    const struct manifest *m = image_manifest(w->img);
    uint64_t len = GR_MIN(m->size - chunk * m->chunk_size, (uint64_t)m->chunk_size);
    chunk_set_add(&w->missing, chunk);
    sums->chunks++;
    sums->missing++;
    sums->bytes += len;
    sums->missing_bytes += len;
}

static int look_all(struct control_warm *w, struct image_cursor *cursor, struct sums *sums)
{
    struct looking l = {0};
    const struct manifest *m = image_manifest(w->img);
    uint64_t run = 1;
    int rc = 0;
    for (uint64_t i = chunk_set_next(&w->plan.chosen, 0); !rc && i != UINT64_MAX;
         i = chunk_set_next(&w->plan.chosen, i + run)) {
        const struct chunk_ref *ref;
        rc = image_cursor_at(cursor, i, &ref, &run);
        if (!rc && cursor->store_error.code)
            rc = error_restore(&cursor->store_error);
        if (rc)
            break;
        if (cursor->unknown) {
            run = 1;
            look_unknown(w, i, sums);
        } else if (ref) {
            l.chunks[l.n] = i;
            l.digests[l.n] = ref->digest;
            l.lens[l.n] = ref->plain_len;
            l.stored[l.n++] = ref->stored_len;
        }
        if (l.n == WARM_BATCH)
            look(w, &l, sums);
        rc = tick(w, &(struct told){"looking", .bytes_done = i * m->chunk_size, .bytes_total = m->size});
    }
    look(w, &l, sums);
    return rc;
}

/* store NULL: what can be read without one. */
static int look_for_missing(struct control_warm *w, struct store *store, struct sums *sums)
{
    struct image_cursor cursor;
    *sums = (struct sums){0};
    chunk_set_release(&w->missing);
    int rc = chunk_set_init(&w->missing, w->img);
    image_cursor_init(&cursor, w->img, store);
    if (!rc)
        rc = look_all(w, &cursor, sums);
    image_cursor_release(&cursor);
    return rc;
}

/* ---- warming ---- */

static bool is_missing(const struct control_warm *w, uint64_t chunk)
{
    return chunk_set_next(&w->missing, chunk) == chunk;
}

static bool for_that_chunk_alone(int rc)
{
    return rc == -ENOENT || rc == -EBADMSG;
}

/* After a failure: chunk by chunk. *out_failed: those that cannot be had. */
static int warm_singly(struct control_warm *w, const uint64_t *chunks, size_t n, uint64_t *out_failed)
{
    for (size_t i = 0; i < n; i++) {
        int rc = control_job_cancelled(w->job) ? error_set(-ECANCELED, "interrupted")
                                               : image_prefetch_chunks(w->img, &chunks[i], 1);
        if (rc && !for_that_chunk_alone(rc))
            return rc;
        if (!rc)
            continue;
        (*out_failed)++;
        SCOPED_LOCK(&w->lock);
        if (!w->error.code)
            error_take(&w->error, rc);
    }
    return 0;
}

static int warm_batch(void *arg, size_t i)
{
    struct control_warm *w = arg;
    const struct manifest *m = image_manifest(w->img);
    uint64_t chunks[WARM_BATCH], failed = 0, bytes = 0;
    size_t n = warm_plan_batch(&w->plan, i, chunks);
    int rc = image_prefetch_chunks(w->img, chunks, n);
    if (for_that_chunk_alone(rc))
        rc = warm_singly(w, chunks, n, &failed);
    if (rc)
        return rc;
    for (size_t k = 0; k < n; k++)
        if (is_missing(w, chunks[k]))
            bytes += GR_MIN(m->size - chunks[k] * m->chunk_size, (uint64_t)m->chunk_size);
    SCOPED_LOCK(&w->lock);
    w->bytes_done += bytes - GR_MIN(bytes, failed * m->chunk_size);
    w->failed_chunks += failed;
    return warm_plan_done(&w->plan, i);
}

static int watch(void *arg)
{
    struct control_warm *w = arg;
    struct told t = {.phase = "warming", .bytes_total = w->bytes_total, .files_total = w->plan.files};
    {
        SCOPED_LOCK(&w->lock);
        t.bytes_done = w->bytes_done;
        t.files_done = w->plan.files_done;
        t.failed_chunks = w->failed_chunks;
    }
    return tell(w, &t);
}

/* -ECANCELED alone ends the request: what else ends the warming is said with what was reached. */
static int warm(struct control_warm *w, const struct sums *before)
{
    w->bytes_total = before->bytes;
    w->bytes_done = before->bytes - before->missing_bytes;
    const struct parallel work = {.count = warm_plan_batches(&w->plan),
                                  .threads = CONTROL_WARM_THREADS,
                                  .item = warm_batch,
                                  .step = watch,
                                  .arg = w};
    pthread_mutex_init(&w->lock, NULL);
    int rc = parallel_run(&work);
    pthread_mutex_destroy(&w->lock);
    if (rc && rc != -ECANCELED) {
        error_take(&w->error, rc);
        rc = 0;
    }
    return rc;
}

/* ---- the end ---- */

static int name_failed(void *arg, const struct catalog_path *name, const struct catalog_entry *e)
{
    struct control_warm *w = arg;
    bool failed = false;
    if (w->what < WARM_FILES && name->number) /* a hard link's first name, which is named among all */
        return 0;
    for (uint32_t i = 0; e && !failed && i < e->extent_count; i++) {
        uint64_t first, end;
        int rc = select_extent(w->img, e, i, &first, &end);
        if (rc)
            return rc;
        failed = chunk_set_next(&w->missing, first) < end;
    }
    if (!failed)
        return tick(w, &(struct told){.phase = "catalog", .files_done = w->failed});
    w->failed++;
    return send_failed(w, e->path, e->path_len,
                       w->error.code ? w->error.text : "it was dropped again: the cache is too small for all of this");
}

/* What is not cached, by name. The catalog was there a while ago; if it is not now, there are still the numbers. */
static int name_all_failed(struct control_warm *w)
{
    static const char everything[] = "*";
    const struct warm_names names = {.text = w->what < WARM_FILES ? everything : (const char *)w->names.data,
                                     .len = w->what < WARM_FILES ? 1 : w->names.len,
                                     .globs = w->what != WARM_FILES};
    int rc = warm_files(w->img, w->store, &names, name_failed, w);
    if (rc && rc != -ECANCELED && !w->error.code)
        error_take(&w->error, rc);
    return rc == -ECANCELED ? rc : 0;
}

static int send_sums(struct control_warm *w, const struct sums *before, const struct sums *after)
{
    const char *name = stack_export_name(w->stack, w->export), *why = w->error.code ? w->error.text : "";
    char hex[DIGEST_HEX_SIZE];
    json_t *warm = json_object();
    json_name_set(warm, "export", name, strlen(name));
    json_object_set_new(warm, "digest", json_sprintf("sha256:%s", digest_hex(image_digest(w->img), hex)));
    const struct {
        const char *key;
        uint64_t value;
    } rows[] = {
        {"files", w->plan.files},
        {"absent_files", w->absent},
        {"chunks", after->chunks},
        {"bytes", after->bytes},
        {"needed_chunks", before->missing},
        {"needed_bytes", before->missing_bytes},
        {"fetch_bytes", before->fetch_bytes},
        {"cached_chunks", after->chunks - after->missing},
        {"cached_bytes", after->bytes - after->missing_bytes},
        {"failed_files", w->failed},
    };
    for (size_t i = 0; i < GR_ARRAY_SIZE(rows); i++)
        json_object_set_new(warm, rows[i].key, INTEGER(rows[i].value));
    json_object_set_new(warm, "error", json_name(why, strlen(why)));
    return control_job_send(w->job, json_pack("{s:o}", "warm", warm));
}

static int run(struct control_warm *w)
{
    struct sums before, after;
    int rc = warm_plan_init(&w->plan, w->img);
    if (!rc)
        rc = choose(w);
    if (!rc)
        rc = look_for_missing(w, w->store, &before);
    after = before;
    if (!rc && !w->dry)
        rc = warm(w, &before);
    if (!rc && !w->dry)
        rc = look_for_missing(w, NULL, &after);
    if (!rc && !w->dry && after.missing)
        rc = name_all_failed(w);
    if (!rc)
        rc = send_sums(w, &before, &after);
    return rc ? rc : control_job_send(w->job, json_pack("{s:{s:b}}", "result", "ok", 1));
}

int control_warm_run(struct control_job *job, void *arg)
{
    struct control_warm *w = arg;
    CLEANUP(cleanup_store) struct store *store = NULL;
    w->job = job;
    w->img = stack_image_at(w->stack, w->export);
    w->told_ms = clock_now_ms();
    int rc = stack_open_store(w->stack, w->export, STORE_TIMEOUT_MS, control_job_cancel(job), &store);
    w->store = store;
    if (!rc)
        rc = run(w);
    chunk_set_release(&w->missing);
    warm_plan_release(&w->plan);
    return rc;
}
