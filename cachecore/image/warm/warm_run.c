/* A run has five steps:
 *
 *    1. choose   the wanted chunks, by path, trace or comparison     warm_choose.c, ..., warm_plan.c
 *    2. index    fetch the nodes that describe them                  warm_index.c, by turns: warm_turn.c
 *    3. look     which are missing: one walk in the index's order    warm_index.c
 *    4. warm     batches through image_prefetch_chunks, by threads, and the rest of the index beside them
 *    5. look     what is missing now; name the files
 *
 * Batches hold missing and cached chunks alike. A chunk that was evicted meanwhile counts as missing.
 */
#include "image/warm/warm_internal.h"

#include <errno.h>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/parallel.h"

/* Under a bandwidth limit chunks are requested a few at a time: what was paid for at once arrives as fast as the link
 * allows. */
enum { LIMITED_STEP = 4 };

/* ---- what is missing ---- */

/* Report the phase "looking"; also while the run waits for its turn. */
static int tell_looking(void *arg)
{
    struct warming *w = arg;
    return w->c->tell(w->c->arg, &(struct warm_report){.phase = "looking", .bytes_total = w->c->img->manifest.size});
}

/* Look up what is missing of the plan. store NULL: without fetching index nodes. */
static int look_for_missing(struct warming *w, struct store *store, warm_step *step, struct missing_sums *sums)
{
    chunk_set_release(&w->missing);
    return warm_missing(w->c->img, store, &w->plan.chosen, w->c->own, step, w, &w->missing, sums);
}

/* End this run's turn, with its result for those that wait. */
static void give_turn(struct warming *w, int rc)
{
    if (w->turn)
        warm_turn_give(&w->c->img->warm_turns, rc);
    w->turn = false;
}

/* Steps 2 and 3. A dry run keeps nothing: the look then fetches the nodes itself. A run of metadata alone keeps its
 * turn to the end, so that a second one finds everything cached. */
static int look_first(struct warming *w)
{
    const struct step step = {.call = tell_looking, .arg = w};
    uint64_t fetched = 0;
    int rc = 0;
    if (!w->c->dry) {
        rc = warm_turn_take(&w->c->img->warm_turns, &step);
        if (rc)
            return rc;
        w->turn = true;
        rc = warm_index_of(w->c->img, w->c->store, &w->plan.chosen, &step, &fetched);
        if (rc || w->c->what != WARM_METADATA)
            give_turn(w, rc);
    }
    if (!rc)
        rc = look_for_missing(w, w->c->store, warm_on_look, &w->out->before);
    w->out->before.fetch_bytes += fetched + w->chosen_bytes;
    return rc;
}

/* ---- warming ---- */

/* Did tell end the run? */
static bool is_ended(const struct warming *w)
{
    return cancel_asked(&w->ended);
}

/* Return the bytes of those chunks that were missing at the first look. */
static uint64_t missing_bytes(const struct warming *w, const uint64_t *chunks, size_t n)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        if (chunk_set_meets(&w->missing, chunks[i], chunks[i] + 1))
            bytes += image_chunk_len(w->c->img, chunks[i]);
    return bytes;
}

/* Wait until the limit allows these chunks. Their stored length is estimated from the average of all missing chunks.
 * -ECANCELED: the run is to end. */
static int pay(struct warming *w, uint64_t bytes)
{
    const struct missing_sums *all = &w->out->before;
    bool ended = is_ended(w);
    if (!ended && w->c->bwlimit && bytes)
        ended = !rate_take(&w->rate, (uint64_t)((double)bytes * (double)all->fetch_bytes / (double)all->missing_bytes),
                           &w->ended);
    return ended ? error_set(-ECANCELED, "interrupted") : 0;
}

/* Prefetch n chunks, and count what came. */
static int prefetch(struct warming *w, const uint64_t *chunks, size_t n)
{
    uint64_t bytes = missing_bytes(w, chunks, n);
    int rc = pay(w, bytes);
    if (!rc)
        rc = image_prefetch_chunks(w->c->img, chunks, n);
    if (rc)
        return rc;
    SCOPED_LOCK(&w->lock);
    w->bytes_done += bytes;
    return 0;
}

/* Count a chunk that could not be fetched; the first error is kept for the result. */
static void count_failed(struct warming *w, uint64_t chunk, int rc)
{
    SCOPED_LOCK(&w->lock);
    w->failed_chunks++;
    w->failed_bytes += missing_bytes(w, &chunk, 1);
    if (!w->out->error.code)
        error_take(&w->out->error, rc);
}

/* After a failure fetch chunk by chunk, each paid for again, to find the one that fails. */
static int prefetch_singly(struct warming *w, const uint64_t *chunks, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int rc = prefetch(w, &chunks[i], 1);
        if (rc && !error_of_one_thing(rc))
            return rc;
        if (rc)
            count_failed(w, chunks[i], rc);
    }
    return 0;
}

/* Keep those of the chunks that were missing at the first look: what is another node's was not looked at. */
static size_t keep_missing(const struct warming *w, uint64_t *chunks, size_t n)
{
    size_t kept = 0;
    for (size_t i = 0; i < n; i++)
        if (chunk_set_meets(&w->missing, chunks[i], chunks[i] + 1))
            chunks[kept++] = chunks[i];
    return kept;
}

/* Fetch one batch of the plan. Only failures that concern a single chunk are survived. */
static int warm_batch(struct warming *w, size_t i)
{
    uint64_t chunks[WARM_BATCH];
    size_t n = warm_plan_batch(&w->plan, i, chunks), step = w->c->bwlimit ? LIMITED_STEP : WARM_BATCH;
    int rc = 0;
    if (w->c->own)
        n = keep_missing(w, chunks, n);
    for (size_t at = 0; !rc && at < n; at += step) {
        size_t count = GR_MIN(step, n - at);
        rc = prefetch(w, chunks + at, count);
        if (error_of_one_thing(rc))
            rc = prefetch_singly(w, chunks + at, count);
    }
    if (rc)
        return rc;
    SCOPED_LOCK(&w->lock);
    return warm_plan_done(&w->plan, i);
}

/* Is every batch done? */
static bool all_done_locked(const struct warming *w)
{
    return w->plan.prefix == warm_plan_batches(&w->plan);
}

/* Count where files end while everything is warmed: the plan is then made of chunks, not of files. */
static int count_file(void *arg, const struct catalog_entry *e)
{
    struct warming *w = arg;
    uint64_t first, end, last = 0;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < e->extent_count; i++) {
        rc = select_extent(w->c->img, e, i, &first, &end);
        last = rc ? last : GR_MAX(last, end);
    }
    if (rc || e->hard_link)
        return rc;
    SCOPED_LOCK(&w->lock);
    warm_plan_end_file_at(&w->plan, last);
    return is_ended(w) || all_done_locked(w) ? -ECANCELED : 0;
}

/* Has any chunk failed? Then the rest of the index is left to readers. */
static bool has_failed(struct warming *w)
{
    SCOPED_LOCK(&w->lock);
    return w->out->error.code;
}

/* One item of step 4: a batch, a leaf of the index, or, as item 0, the count of files. */
static int warm_item(void *arg, size_t i)
{
    struct warming *w = arg;
    if (w->count_files && !i) {
        (void)!select_files(w->c->img, w->c->store, "*", count_file, w); /* without a catalog no files are counted */
        return 0;
    }
    size_t batch = i - w->count_files, batches = warm_plan_batches(&w->plan);
    if (batch < batches)
        return warm_batch(w, batch);
    if (!is_ended(w) && !has_failed(w) && warm_index_leaf(w->c->img, batch - batches))
        log_debug("image: an index node was not cached: %s", error_text());
    return 0;
}

/* The progress of warming. */
static struct warm_report report_locked(const struct warming *w)
{
    return (struct warm_report){
        .phase = "warming",
        .bytes_done = w->bytes_done,
        .bytes_total = w->bytes_total,
        .files_done = all_done_locked(w) ? w->plan.files : w->plan.files_done,
        .files_total = w->plan.files,
        .failed_chunks = w->failed_chunks,
        .failed_bytes = w->failed_bytes,
    };
}

/* Report the progress; called now and then while the items run. */
static int warm_run_watch(void *arg)
{
    struct warming *w = arg;
    struct warm_report t;
    {
        SCOPED_LOCK(&w->lock);
        t = report_locked(w);
    }
    warm_note_done(&w->c->img->warm_note, w->note, t.bytes_done);
    int rc = w->c->tell(w->c->arg, &t);
    if (rc)
        __atomic_store_n(&w->ended, 1, __ATOMIC_RELAXED);
    return rc;
}

/* Step 4. Only a result of tell ends the run; anything else that ends the warming is reported with what was reached. */
static int warm(struct warming *w)
{
    const struct missing_sums *before = &w->out->before;
    w->bytes_total = before->bytes;
    w->bytes_done = before->bytes - before->missing_bytes;
    w->count_files = w->c->what == WARM_ALL && before->missing;
    /* The index goes along only if something is missing: then the store is needed anyway. Of what is not a change the
     * index stays as it was with the earlier image. */
    w->leaves = before->missing && w->c->what != WARM_CHANGES ? warm_index_leaves(w->c->img) : 0;
    const struct parallel work = {.count = warm_plan_batches(&w->plan) + w->count_files + w->leaves,
                                  .threads = WARM_THREADS + w->count_files,
                                  .item = warm_item,
                                  .step = warm_run_watch,
                                  .arg = w};
    uint64_t began_ms = clock_now_ms(), had = w->bytes_done;
    pthread_mutex_init(&w->lock, NULL);
    rate_init(&w->rate, GR_MAX(w->c->bwlimit, (uint64_t)1));
    w->note = warm_note_begin(&w->c->img->warm_note, had, w->bytes_total);
    int rc = parallel_run(&work);
    warm_note_end(&w->c->img->warm_note, w->note);
    rate_release(&w->rate);
    pthread_mutex_destroy(&w->lock);
    w->out->warming_ms = clock_now_ms() - began_ms;
    w->out->warmed_bytes = w->bytes_done - had;
    if (!rc || w->ended)
        return rc;
    error_take(&w->out->error, rc);
    return 0;
}

/* ---- the end ---- */

/* A tick of step 5: what is reported stays what the warming reached. */
static int end_tick(struct warming *w)
{
    const struct warm_report t = report_locked(w); /* the threads have ended */
    return warm_tick(w, &t);
}

static int on_last_look(void *arg, uint64_t chunk)
{
    return end_tick(arg);
}

/* Report a file that has a missing chunk. */
static int name_failed(void *arg, const struct catalog_path *name, const struct catalog_entry *e)
{
    struct warming *w = arg;
    const struct error *error = &w->out->error;
    bool failed = false;
    if (w->c->what < WARM_FILES && name->number) /* a hard link's first name, which comes up again among all files */
        return 0;
    for (uint32_t i = 0; e && !failed && i < e->extent_count; i++) {
        uint64_t first, end;
        int rc = select_extent(w->c->img, e, i, &first, &end);
        if (rc)
            return rc;
        failed = chunk_set_meets(&w->missing, first, end);
    }
    if (!failed)
        return end_tick(w);
    w->out->failed_files++;
    return w->c->failed(w->c->arg, e->path, e->path_len,
                        error->code
                            ? error->text
                            : "it was dropped again: the cache is too small for all of this, or somebody evicted it");
}

/* Report by name what is not cached. The catalog could be read before; if it cannot be now, the numbers remain. */
static int name_all_failed(struct warming *w)
{
    const struct warm_names all = {.text = "*", .len = 1, .globs = true};
    const struct warm_names names = w->c->what < WARM_FILES ? all : warm_names_of(w);
    int rc = warm_files(w->c->img, w->c->store, &names, name_failed, w);
    if (rc && rc != -ECANCELED && !w->out->error.code)
        error_take(&w->out->error, rc);
    return rc == -ECANCELED ? rc : 0;
}

/* All steps. A dry run ends after the first look. */
static int run(struct warming *w)
{
    struct warm_result *out = w->out;
    int rc = warm_plan_init(&w->plan, w->c->img);
    if (!rc)
        rc = warm_choose(w);
    if (!rc)
        rc = look_first(w);
    out->files = w->plan.files;
    out->after = out->before;
    if (rc || w->c->dry)
        return rc;
    rc = warm(w);
    if (!rc)
        rc = warm_pin_metadata(w->c->img, &out->unheld);
    if (out->unheld)
        log_warning("image: %llu chunks of a filesystem's metadata are not pinned: pins take three quarters of the "
                    "cache already",
                    (unsigned long long)out->unheld);
    if (!rc)
        rc = look_for_missing(w, NULL, on_last_look, &out->after);
    if (!rc && out->after.missing)
        rc = name_all_failed(w);
    return rc;
}

/* The turn is released here at the latest, also after a failure. */
int warm_run(const struct warm_config *config, struct warm_result *out)
{
    struct warming w = {.c = config, .out = out};
    *out = (struct warm_result){0};
    int rc = run(&w);
    give_turn(&w, rc);
    chunk_set_release(&w.missing);
    warm_plan_release(&w.plan);
    return rc;
}
