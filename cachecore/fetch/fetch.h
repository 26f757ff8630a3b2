/* The fetch scheduler: chunks come in by ranged gets over neighbours, each chunk at most once at a
 * time.
 *
 * An *in-flight fetch* (struct inflight) is the fetch of one chunk: whoever asks for a chunk joins its in-flight fetch
 * or starts one (single-flight). Chunks started together are grouped into runs (same store, same object, gap
 * <= gap_max, at most run_max bytes) and queued by priority; threads take runs, demand before readahead before warm, as
 * many at a time as fill the link (concurrency.h).
 *
 * States of an in-flight fetch: queued -> landed (bytes or error; waiters wake) -> retired (out of the
 * table). Between landed and retired, late comers get the bytes from the in-flight fetch: the cache fills in
 * that time (on_landed), so that no chunk is fetched twice while it is being written.
 */
#ifndef GRANARY_FETCH_FETCH_H
#define GRANARY_FETCH_FETCH_H

#include "base/counter.h"
#include "base/histogram.h"
#include "fetch/inflight.h"
#include "format/chunk.h"
#include "store/store.h"

enum fetch_priority { PRIORITY_DEMAND, PRIORITY_READAHEAD, PRIORITY_WARM, PRIORITIES };

struct fetch;

struct fetch_config {
    unsigned workers;       /* threads, and gets at a time at most; 0: 64 */
    uint32_t gap_max;       /* skipped bytes allowed inside a run; 0: 64 KiB */
    uint32_t run_max;       /* stored bytes of a run; 0: 4 MiB */
    size_t queue_max;       /* queued chunks that nobody waits for; beyond it such starts are dropped; 0:
                               4096 */
    uint64_t timeout_ms;    /* nothing is tried again for a chunk that somebody has waited for so long; 0: 5 minutes */
    uint64_t silent_ms;     /* a store that has brought nothing for so long, though asked, is silent; 0: 2 s */
    unsigned hedge_percent; /* second gets in a hundred demand gets at most; 0: none */
    bool keep_stored;       /* in-flight fetches of compressed chunks carry their stored bytes too */
    /* Called on a worker for every in-flight fetch that landed with bytes, after its waiters woke. The
     * callee must call fetch_retire(f, flight) exactly once, now or later, from any thread. NULL:
     * retired at once. warm: a caller at PRIORITY_WARM waits for it, even if a reader has raised it. */
    void (*on_landed)(void *arg, struct inflight *inflight, bool warm);
    void *arg;
};

/* Makes no thread: fetch_start_threads does, after a fork (nbdkit forks between .get_ready and
 * .after_fork). */
GR_MUST_CHECK int fetch_new(const struct fetch_config *config, struct fetch **out);
GR_MUST_CHECK int fetch_start_threads(struct fetch *f);
/* Waits for running gets, fails what is queued with -ECANCELED, joins the threads. Nobody may be in
 * fetch_start; every landed fetch was retired or will be within on_landed (the owner drains what
 * it keeps first and from then on retires at once). */
void fetch_free(struct fetch *f);

/* Join or start an in-flight fetch for each of refs[0..wanted); out_inflights[i] gets a reference, inflight_unref.
 * An in-flight fetch is joined by chunk digest and store. One that failed is out of the table when its
 * waiters wake: asking again fetches again.
 * refs[wanted..n) are neighbours that nobody waits for. Those that come in the same run as a wanted
 * chunk that starts now ride at `priority`; the others go at readahead priority (or `priority`, if that is
 * lower), so that no demand read stands behind them. Neighbours that do not fit the queue are dropped
 * and counted.
 * tag is the caller's, kept in the in-flight fetches that start now (inflight_tag).
 * An in-flight fetch that is queued at a lower priority is raised, with what comes in the same get. No ref is a hole;
 * refs and what they point at are copied. -ENOMEM; then nothing was started. */
GR_MUST_CHECK int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n,
                              size_t wanted, enum fetch_priority priority, uint32_t tag,
                              struct inflight **out_inflights);

/* Take a landed fetch out of the table. */
void fetch_retire(struct fetch *f, struct inflight *inflight);

/* How long somebody has been waiting for a chunk of that store that has not come, the longest of all; 0: nobody waits.
 * It walks through what is in flight: for status and metrics, not for reads. */
uint64_t fetch_longest_wait_us(struct fetch *f, const struct store *store);

/* Bytes that warming should have on its way for the link to be full, as far as is known of the link now. */
uint64_t fetch_warm_window(struct fetch *f);

void fetch_counters(struct fetch *f, counter_visit *visit, void *arg);
/* Count a whole object that a caller has asked of a store himself, for warming. */
void fetch_count_object(struct fetch *f, uint64_t bytes);
void fetch_histograms(struct fetch *f, histogram_visit *visit, void *arg);

#endif
