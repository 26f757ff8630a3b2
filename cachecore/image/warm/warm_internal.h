/* A run of warm_run, shared by its parts: choosing chunks (warm_choose.c) and fetching them (warm_run.c). */
#ifndef GRANARY_IMAGE_WARM_WARM_INTERNAL_H
#define GRANARY_IMAGE_WARM_WARM_INTERNAL_H

#include <pthread.h>

#include "base/rate.h"
#include "image/warm/warm_files.h"
#include "image/warm/warm_plan.h"
#include "image/warm/warm_run.h"

/* One run. Its `lock` guards the progress while threads work; everything else is set before they start. */
struct warming {
    const struct warm_config *c;
    struct warm_result *out;
    struct warm_plan plan;
    struct chunk_set missing; /* missing chunks, at the beginning, then at the end */
    unsigned ticks;
    bool count_files;     /* count the finished files while warming */
    bool turn;            /* this run has the image's turn (warm_turn.h) */
    uint64_t leaves;      /* leaves of the index to fetch along */
    volatile int ended;   /* set when tell ended the run */
    struct rate rate;     /* used if the config has a limit */
    pthread_mutex_t lock; /* guards the plan's progress and the next members while threads work */
    uint64_t bytes_done, bytes_total, failed_chunks, failed_bytes;
};

/* Call tell at every 256th call; for steps of a walk. Not 0: the run is to end. */
GR_MUST_CHECK int warm_tick(struct warming *w, const struct warm_report *t);
/* A missing_step whose argument is a struct warming. */
GR_MUST_CHECK int warm_on_look(void *warming, uint64_t chunk);

/* The chunks [first, end) of the superblock and what else is in front, and of the metadata's region. */
struct warm_part {
    uint64_t first, end;
};
void warm_metadata_parts(const struct manifest *m, struct warm_part out[2]);

/* The names in the config's list. */
struct warm_names warm_names_of(const struct warming *w);

/* Put the wanted chunks into w->plan. */
GR_MUST_CHECK int warm_choose(struct warming *w);

#endif
