/* The fetch scheduler: brings chunks from stores by ranged GETs. Each GET covers neighbouring chunks, and no chunk is
 * fetched twice at a time.
 *
 * An *in-flight fetch* (struct inflight) is the fetch of one chunk. A request for a chunk joins the in-flight fetch of
 * that chunk, or starts one if there is none (single flight). In-flight fetches are queued by priority. Worker threads
 * take *runs* of neighbours (same store, same object, gaps of at most gap_max, together at most run_max bytes), demand
 * before readahead before warming, and send one GET for each run. concurrency.c decides how many GETs run at a time.
 *
 * States of an in-flight fetch:
 *
 *   queued --worker takes it--> running --bytes or error--> landed --fetch_retire--> retired
 *                                                           waiters wake             not in the table
 *
 * A delta lands when its base is there too. The worker that fetched the delta takes the base from the cache, or
 * requests it from the store by itself, outside the queues: no worker ever waits for another one.
 *
 * Between landed and retired, a late request gets its bytes from the in-flight fetch. The cache writes the chunk in
 * that time (on_landed), so a chunk that is being written is not fetched again. A failed fetch is retired before its
 * waiters wake.
 *
 * Threads: every function may be called by any thread unless its comment says otherwise.
 */
#ifndef GRANARY_FETCH_FETCH_H
#define GRANARY_FETCH_FETCH_H

#include "base/buf.h"
#include "base/compiler.h"
#include "base/counter.h"
#include "format/chunk.h"
#include "store/store.h"

/* In the order in which fetches are taken. */
enum fetch_priority { PRIORITY_DEMAND, PRIORITY_READAHEAD, PRIORITY_WARM, PRIORITIES };

struct fetch;
struct inflight; /* the fetch of one chunk, and its result; reference-counted */

/* All fields are constant after fetch_new. */
struct fetch_config {
    unsigned workers;       /* threads, thus also the limit of concurrent GETs; 0: 64 */
    uint32_t gap_max;       /* bytes between two chunks that a run may skip; 0: 64 KiB */
    uint32_t run_max;       /* length of a run in bytes; 0: 4 MiB */
    size_t queue_max;       /* queued chunks without a waiter; further ones are dropped; 0: 4096 */
    uint64_t timeout_ms;    /* a chunk is not retried once a reader has waited this long for it; 0: 5 minutes */
    uint64_t silent_ms;     /* a store with GETs in flight that delivers nothing for this long is silent; 0: 2 s */
    unsigned hedge_percent; /* hedged requests allowed per hundred demand GETs; 0: none */
    bool keep_stored;       /* keep the stored bytes of compressed chunks as well (inflight_stored) */
    bool no_again;          /* a chunk whose bytes are wrong, or whose GET broke, is not requested a second time */
    /* Called by a worker for each in-flight fetch that landed with bytes, after its waiters woke. The callee must call
     * fetch_retire(f, inflight) exactly once, then or later, on any thread. NULL: retire at once. warm: a caller at
     * PRIORITY_WARM waits for it, even if a reader has raised its priority. */
    void (*on_landed)(void *arg, struct inflight *inflight, bool warm);
    /* Called by a worker for the base of a delta (format/chunk.h): return a reference to its plain bytes if they are
     * at hand, else NULL: it is requested from the store. May block for a disk, but not for a fetch. NULL: none is. */
    struct buf *(*find_base)(void *arg, struct store *store, const struct chunk_ref *base);
    void *arg;
};

/* Create a scheduler without threads: nbdkit forks between .get_ready and .after_fork, and threads do not survive a
 * fork. Defaults replace the zeros of *config. -ENOMEM. */
GR_MUST_CHECK int fetch_new(const struct fetch_config *config, struct fetch **out);
/* Start the workers; called once. On failure the threads started so far run, and fetch_free joins them. -ENOMEM, or the
 * negative errno of pthread_create. */
GR_MUST_CHECK int fetch_start_threads(struct fetch *f);
/* Fail queued fetches with -ECANCELED, wait for running GETs, join the threads and free f. NULL is allowed. No thread
 * may be in fetch_start. Every landed fetch must have been retired, or be retired within on_landed: the owner first
 * drains the fetches it holds, then retires each further one at once. */
void fetch_free(struct fetch *f);

/* Join or start an in-flight fetch for each of refs[0..wanted). out_inflights[i] receives a reference, which the caller
 * drops with inflight_unref. Fetches are joined by store and chunk digest. After a failed fetch, the next request for
 * the chunk starts a new one.
 *
 * refs[wanted..n) are neighbours without a waiter. A neighbour in the same run as a wanted chunk that starts now gets
 * `priority`. Other neighbours get readahead priority, or `priority` if that is lower, so that they never delay a
 * demand read. Neighbours that exceed queue_max are dropped and counted.
 *
 * Joining a fetch that is queued at a lower priority raises it to `priority`, together with the rest of its run. tag is
 * stored in the fetches that start now (inflight_tag). refs must not contain holes; the chunk_refs are copied. store
 * must outlive f.
 *
 * -ENOMEM: nothing was started. */
GR_MUST_CHECK int fetch_start(struct fetch *f, struct store *store, const struct chunk_ref *const *refs, size_t n,
                              size_t wanted, enum fetch_priority priority, uint32_t tag,
                              struct inflight **out_inflights);

/* Return a reference to the fetch that runs or waits for a chunk of this digest in this very place of the store, or has
 * landed and is not retired; NULL: there is none. */
struct inflight *fetch_find(struct fetch *f, const struct store *store, const struct chunk_ref *chunk);

/* Remove a landed fetch from the table and drop the table's reference. */
void fetch_retire(struct fetch *f, struct inflight *inflight);

/* Say of each of n chunks of `store` whether it is being fetched now. No I/O. */
void fetch_look(struct fetch *f, const struct store *store, const struct chunk_ref *const *chunks, size_t n, bool *out);

/* Return how long a reader has been waiting for a chunk of `store` that has not landed: the longest such wait in
 * microseconds, 0 if nothing is waited for. Scans all in-flight fetches, so it is for status and metrics, not for the
 * read path. */
uint64_t fetch_longest_wait_us(struct fetch *f, const struct store *store);

/* Return how many bytes warming should keep in flight to fill the link, by the current estimate of its rate. */
uint64_t fetch_warm_window(struct fetch *f);

/* Visit all counters and gauges of f. */
void fetch_counters(struct fetch *f, counter_visit *visit, void *arg);
/* Count an object of `bytes` bytes that warming read from a store without fetch_start. */
void fetch_count_object(struct fetch *f, uint64_t bytes);
/* Visit the histograms: time in the queue, duration of GETs answered by stores and by shared cache proxies. */
void fetch_histograms(struct fetch *f, histogram_visit *visit, void *arg);

/* ---- one in-flight fetch ---- */

/* Drop a reference; frees on the last. NULL is allowed. The fetch itself continues. */
void inflight_unref(struct inflight *inflight);
/* Take another reference and return its argument. */
struct inflight *inflight_ref(struct inflight *inflight);

/* The chunk being fetched. Valid while the caller holds a reference. */
const struct chunk_ref *inflight_chunk(const struct inflight *inflight);

/* The tag passed to the fetch_start that started this fetch. */
uint32_t inflight_tag(const struct inflight *inflight);

/* Return a reference to the chunk's stored bytes, one zstd frame, or NULL: the chunk is stored uncompressed, has not
 * landed, was recovered by a refetch, or fetch_config.keep_stored is off (or memory was short). */
struct buf *inflight_stored(struct inflight *inflight);

/* Is this node the one that keeps the landed chunk: for all (store_is_own), or because its owner did not have it? */
bool inflight_is_own(struct inflight *inflight);

/* Where the time of a waiter went. */
struct inflight_times {
    uint64_t queued_us, get_us; /* until the GET was sent; in the GET, retries, decoding and verification included */
    unsigned tries;             /* attempts of the GET that delivered the chunk */
    bool from_l2;               /* the last attempt was sent to a shared cache proxy */
    bool from_node;             /* which is a node */
    char from[STORE_FROM_MAX];  /* URL of the server of the last attempt, perhaps cut; empty: none was sent */
};
/* Report the times of a landed fetch to a waiter that began to wait at since_us (clock_now_us). */
void inflight_times(struct inflight *inflight, uint64_t since_us, struct inflight_times *out);

/* Wait until the fetch lands. 0: *out is a reference to the verified uncompressed bytes. Otherwise the error of the
 * fetch with its sentence, or -ECANCELED if the client of the calling thread disconnected (base/client.h); the fetch
 * continues then. */
GR_MUST_CHECK int inflight_wait(struct inflight *inflight, struct buf **out);
/* Wait until the fetch is retired: what on_landed does with its bytes is done, or it failed. Returns earlier if the
 * client of the calling thread disconnected. */
void inflight_wait_retired(struct inflight *inflight);
/* inflight_wait for a caller that no client waits for: at most ms milliseconds, then -ETIMEDOUT. */
GR_MUST_CHECK int inflight_wait_ms(struct inflight *inflight, uint64_t ms, struct buf **out);

#endif
