/* What of an image is to be in the cache, in which order: each chunk once, where it was first asked for, cut into
 * batches that threads work on. And what of it is done.
 *
 * A bit a chunk of the image, 24 bytes a run of chunks, 5 bytes a batch, whatever the number of files.
 */
#ifndef GRANARY_IMAGE_WARM_WARM_PLAN_H
#define GRANARY_IMAGE_WARM_WARM_PLAN_H

#include "base/vec.h"
#include "image/warm/select.h"

enum { WARM_BATCH = 16 /* as many as a thread has in flight (cache_ensure) */ };

struct warm_run {
    uint64_t first, count, at; /* chunks; how many are before them in the plan */
};

struct warm_plan {
    struct chunk_set chosen;
    VEC(struct warm_run) runs;
    VEC(uint32_t) ends; /* of each batch: files whose last chunk is in it */
    uint64_t chunks, files;
    bool *done;    /* a batch */
    size_t prefix; /* batches from the first on that are done */
    uint64_t files_done;
};

/* In every case warm_plan_release. */
GR_MUST_CHECK int warm_plan_init(struct warm_plan *p, const struct image *img);
void warm_plan_release(struct warm_plan *p);

/* Chunks [first, end), those that are in the plan already left out. */
GR_MUST_CHECK int warm_plan_add(struct warm_plan *p, uint64_t first, uint64_t end);
/* The chunks of a file have been added. */
void warm_plan_end_file(struct warm_plan *p);

/* The last chunk of a file of the plan's is the one before `end` (0: it has none). Also while batches are done, one
 * thread at a time; for plans of few runs. */
void warm_plan_end_file_at(struct warm_plan *p, uint64_t end);

/* No more is added from the first call on. */
size_t warm_plan_batches(const struct warm_plan *p);
/* The chunks of batch i, in order; how many. Any thread. */
size_t warm_plan_batch(const struct warm_plan *p, size_t i, uint64_t out[WARM_BATCH]);
/* Batch i is done, which p->files_done takes into account: a file counts when it and all before it are. One thread at a
 * time. -ENOMEM at the first. */
GR_MUST_CHECK int warm_plan_done(struct warm_plan *p, size_t i);

#endif
