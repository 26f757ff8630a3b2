/* What the files of warming share:
 *
 *   warm_run.c      the order of a run, and fetching
 *   warm_choose.c   which chunks it wants, by path
 *   warm_changes.c  the same, by comparing with an earlier image
 *   warm_trace.c    the same, by a trace
 *   warm_pin.c      the metadata's pins
 *   warm_plan.c     the wanted chunks, in order, in batches
 *   warm_index.c    the index nodes above them, and which of them are missing
 *   warm_take.c     what this node inherits from nodes that leave
 *   warm_note.c     how far it is, for those who ask (image_internal.h)
 *   warm_turn.c     whose turn it is (image_internal.h)
 *   select.c        files by glob, sets of chunks, chunks by number
 */
#ifndef GRANARY_IMAGE_WARM_WARM_INTERNAL_H
#define GRANARY_IMAGE_WARM_WARM_INTERNAL_H

#include <pthread.h>

#include "base/rate.h"
#include "base/step.h"
#include "base/vec.h"
#include "format/trace.h"
#include "image/image_internal.h"
#include "image/warm/warm_run.h"
#include "repository/read/catalog_read.h"

/* ---- warm_plan.c ---- */

/* Which chunks of an image are to be cached, and in which order: each chunk once, where it was first wanted, cut into
 * batches that threads work on. It also counts what is done.
 *
 * Memory: one bit for each chunk of the image, 24 bytes for each run of chunks, 5 bytes for each batch, whatever the
 * number of files.
 */

enum { WARM_BATCH = 16 /* chunks; as many as cache_ensure has in flight for a thread */ };

/* A run of consecutive chunks in the plan. */
struct warm_run {
    uint64_t first, count, at; /* first chunk and count; number of chunks before them in the plan */
};

/* The plan. The caller serializes changes; warm_plan_batch may run beside them. */
struct warm_plan {
    struct chunk_set chosen;
    VEC(struct warm_run) runs;
    VEC(uint32_t) ends; /* for each batch: how many files have their last chunk in it */
    uint64_t chunks, files;
    bool *done;    /* for each batch; NULL before the first one is done */
    size_t prefix; /* how many batches, from the first on, are done without a gap */
    uint64_t files_done;
};

/* Make an empty plan. Call warm_plan_release in every case. -ENOMEM. */
GR_MUST_CHECK int warm_plan_init(struct warm_plan *p, const struct image *img);
void warm_plan_release(struct warm_plan *p);

/* Add chunks [first, end) that are not in the plan yet. -ENOMEM. */
GR_MUST_CHECK int warm_plan_add(struct warm_plan *p, uint64_t first, uint64_t end);
/* Say that all chunks of a file have been added. */
void warm_plan_end_file(struct warm_plan *p);

/* Count a file whose last chunk is the one before `end` (0: it has none). May be called while batches are being done,
 * by one thread at a time; for plans of few runs, which it searches. */
void warm_plan_end_file_at(struct warm_plan *p, uint64_t end);

/* Return the number of batches. From the first call on nothing more may be added. */
size_t warm_plan_batches(const struct warm_plan *p);
/* Get the chunks of batch i, in order; returns how many. Any thread. */
size_t warm_plan_batch(const struct warm_plan *p, size_t i, uint64_t out[WARM_BATCH]);
/* Note that batch i is done, and update p->files_done: a file counts when its batch and all before it are done. One
 * thread at a time. -ENOMEM at the first call. */
GR_MUST_CHECK int warm_plan_done(struct warm_plan *p, size_t i);

/* ---- a run ---- */

/* One run. Its `lock` guards the progress while threads work; everything else is set before they start. */
struct warming {
    const struct warm_config *c;
    struct warm_result *out;
    struct warm_plan plan;
    struct chunk_set missing; /* missing chunks, at the beginning, then at the end */
    unsigned ticks;
    bool count_files;      /* count the finished files while warming */
    bool turn;             /* this run has the image's turn (warm_turn.c) */
    uint64_t leaves;       /* leaves of the index to fetch along */
    uint64_t chosen_bytes; /* of index nodes that the choice has fetched */
    volatile int ended;    /* set when tell ended the run */
    unsigned note;         /* this run's number in the image's note */
    struct rate rate;      /* used if the config has a limit */
    pthread_mutex_t lock;  /* guards the plan's progress and the next members while threads work */
    uint64_t bytes_done, bytes_total, failed_chunks, failed_bytes;
};

/* ---- warm_choose.c ---- */

/* Called at every chunk of a walk over the index; a non-zero result ends the walk and is returned. */
typedef int warm_step(void *arg, uint64_t chunk);

/* Call tell at every 256th call; for steps of a walk. Not 0: the run is to end. */
GR_MUST_CHECK int warm_tick(struct warming *w, const struct warm_report *t);
/* A warm_step whose argument is a struct warming. */
GR_MUST_CHECK int warm_on_look(void *warming, uint64_t chunk);

/* The chunks [first, end) of the superblock and what else is in front, and of the metadata's region. */
struct warm_part {
    uint64_t first, end;
};
void warm_metadata_parts(const struct manifest *m, struct warm_part out[2]);

/* A list of names, each ended by NUL. */
struct warm_names {
    const char *text;
    size_t len;
    bool globs; /* globs as for select_files; else full paths without a leading slash */
};
/* The names in the config's list. */
struct warm_names warm_names_of(const struct warming *w);

/* Visit what the names stand for: paths in the catalog's order (name->number: its place in the list), the files of
 * globs glob by glob. entry NULL: no such path, or no file that matches the glob. A path may also be something other
 * than a regular file. For a hard link its first name is visited instead, after all others and with a number above
 * theirs. visit's non-zero result ends the walk and is returned. -E2BIG: the first names of hard links take too much
 * memory; else the error of reading the catalog. */
GR_MUST_CHECK int warm_files(struct image *img, struct store *store, const struct warm_names *names,
                             catalog_find_visit *visit, void *arg);

/* Put the wanted chunks into w->plan. */
GR_MUST_CHECK int warm_choose(struct warming *w);

/* ---- warm_changes.c ---- */

/* Add the chunks that the config's earlier image lacks to w->plan. Nodes of either index that are not cached
 * are fetched from the config's store; those of the image itself are then cached. Calls `step` with w at each node.
 * -ENOMEM; else a result of step, or the error of a node of the image. */
GR_MUST_CHECK int warm_changes(struct warming *w, warm_step *step);

/* ---- warm_trace.c ---- */

/* Add the chunks of a trace to the plan, in the trace's order. *out_absent: how many the image does not have. A trace
 * of the same content is followed by chunk numbers, any other by digests: that walks over the whole index, fetches
 * index nodes that are not cached from `store`, calls `step`, and takes 8 bytes of memory an entry. -EINVAL: the trace
 * is of chunks of another size; -ENOMEM; else the error of a node. */
GR_MUST_CHECK int warm_trace(struct image *img, struct store *store, const struct trace *t, warm_step *step, void *arg,
                             struct warm_plan *plan, uint64_t *out_absent);

/* ---- warm_index.c ---- */

/* Bring the index nodes that describe the chosen chunks into the cache, level by level, several of a level at a time.
 * Missing ones are fetched from `store`. Returns 0 or the error of a node or step. *out_fetched: bytes fetched. */
GR_MUST_CHECK int warm_index_of(struct image *img, struct store *store, const struct chunk_set *chosen,
                                const struct step *step, uint64_t *out_fetched);

/* Return how many leaves are worth fetching with the metadata: all of them, or 0 for an image whose nodes take more
 * than half of its index memory. */
uint64_t warm_index_leaves(const struct image *img);
/* Bring a leaf, and the nodes above it, into the cache and into memory. Any thread. */
GR_MUST_CHECK int warm_index_leaf(struct image *img, uint64_t leaf);

/* Look the chosen chunks up, in ascending order; reads no chunk. *out: the missing ones, and those whose index node
 * is not available; call chunk_set_release in every case. store: for index nodes that are not cached, whose errors
 * are returned; NULL: such nodes are not available. own: chunks that another node keeps are passed over, but for
 * metadata. -ENOMEM. */
GR_MUST_CHECK int warm_missing(struct image *img, struct store *store, const struct chunk_set *chosen, bool own,
                               warm_step *step, void *arg, struct chunk_set *out, struct missing_sums *sums);

#endif
