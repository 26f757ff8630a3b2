/* Which chunks of an image are to be cached, and in which order: each chunk once, where it was first wanted, cut into
 * batches that threads work on. It also counts what is done.
 *
 * Memory: one bit for each chunk of the image, 24 bytes for each run of chunks, 5 bytes for each batch, whatever the
 * number of files.
 */
#ifndef GRANARY_IMAGE_WARM_WARM_PLAN_H
#define GRANARY_IMAGE_WARM_WARM_PLAN_H

#include "base/vec.h"
#include "image/warm/select.h"

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

#endif
