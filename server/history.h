/* What the exports of a server were read a few seconds ago, for their rates now: a thread takes a sample of their sums
 * every HISTORY_EVERY_MS, of which the last HISTORY_SAMPLES are kept. */
#ifndef GRANARY_SERVER_HISTORY_H
#define GRANARY_SERVER_HISTORY_H

#include "base/vec.h"
#include "stack.h"

enum { HISTORY_EVERY_MS = 2000, HISTORY_SAMPLES = 5 };

enum history_sum {
    HISTORY_READS,
    HISTORY_READ_BYTES,
    HISTORY_MEMORY_BYTES,
    HISTORY_DISK_BYTES,
    HISTORY_TIER_BYTES,
    HISTORY_STORE_BYTES,
    HISTORY_SUMS,
};
/* Their names in /status. */
extern const char *const history_names[HISTORY_SUMS];

struct history_row {
    uint64_t number; /* stack_export_number */
    uint64_t sums[HISTORY_SUMS];
};
struct history_sample {
    uint64_t at_us; /* clock_now_us */
    VEC(struct history_row) rows;
};
void history_sample_release(struct history_sample *sample);
#define CLEANUP_HISTORY_SAMPLE CLEANUP(history_sample_release) struct history_sample

/* Of one export, now. */
void history_sums(const struct stack_export *e, uint64_t out[HISTORY_SUMS]);
/* What is added a second since the sample. Of an export that was not there then, all it has, over the same time. */
void history_rates(const struct history_sample *then, uint64_t number, const uint64_t now[HISTORY_SUMS],
                   uint64_t now_us, double out[HISTORY_SUMS]);

struct history;
/* The stack is not owned. Makes no thread; the first sample is taken here. */
GR_MUST_CHECK int history_new(struct stack *stack, struct history **out);
GR_MUST_CHECK int history_start(struct history *h);
/* A copy of the oldest sample: *out, zeroed before, history_sample_release. Any thread. */
GR_MUST_CHECK int history_oldest(struct history *h, struct history_sample *out);
/* Ends the thread. NULL is allowed. */
void history_free(struct history *h);

#endif
