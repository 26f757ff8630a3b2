/* A run of warm_run, between its parts: what is wanted (warm_choose.c), and having it (warm_run.c). */
#ifndef GRANARY_IMAGE_WARM_WARM_INTERNAL_H
#define GRANARY_IMAGE_WARM_WARM_INTERNAL_H

#include <pthread.h>

#include "base/rate.h"
#include "image/warm/warm_files.h"
#include "image/warm/warm_plan.h"
#include "image/warm/warm_run.h"

struct warming {
    const struct warm_config *c;
    struct warm_result *out;
    struct warm_plan plan;
    struct chunk_set missing; /* at the beginning, then at the end */
    unsigned ticks;
    bool count_files;     /* how many are done, beside the warming */
    bool turn;            /* no other run brings index nodes now */
    uint64_t leaves;      /* of the index, that come along */
    volatile int ended;   /* by tell */
    struct rate rate;     /* where the config has a limit */
    pthread_mutex_t lock; /* plan's progress and these, while threads work */
    uint64_t bytes_done, bytes_total, failed_chunks, failed_bytes;
};

/* Tell at every 256th call: for every step of what has no end in sight. Not 0: it is to end. */
GR_MUST_CHECK int warm_tick(struct warming *w, const struct warm_report *t);
/* A missing_step, of a struct warming. */
GR_MUST_CHECK int warm_on_look(void *warming, uint64_t chunk);

/* The superblock and what else is in front, and the metadata's region: chunks [first, end). */
struct warm_part {
    uint64_t first, end;
};
void warm_metadata_parts(const struct manifest *m, struct warm_part out[2]);

/* Of the list that files or globs come with. */
struct warm_names warm_names_of(const struct warming *w);

/* Put what the config asks for into w->plan. */
GR_MUST_CHECK int warm_choose(struct warming *w);

#endif
