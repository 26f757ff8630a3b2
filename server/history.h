/* The exports' read rates. A thread samples the sums of every export each HISTORY_EVERY_MS and keeps the last
 * HISTORY_SAMPLES samples; a rate is the difference to the oldest one, so it covers about ten seconds. */
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

/* One export's sums at one moment. */
struct history_row {
    uint64_t number; /* stack_export_number */
    uint64_t sums[HISTORY_SUMS];
};
/* The sums of every export at one moment; rows ascend by number. */
struct history_sample {
    uint64_t at_us; /* clock_now_us */
    VEC(struct history_row) rows;
};
void history_sample_release(struct history_sample *sample);
#define CLEANUP_HISTORY_SAMPLE CLEANUP(history_sample_release) struct history_sample

/* Read one export's sums as they are now. */
void history_sums(const struct stack_export *e, uint64_t out[HISTORY_SUMS]);
/* Compute an export's rates per second from the sample until now. An export added after the sample counts from zero,
 * over the same time. */
void history_rates(const struct history_sample *then, uint64_t number, const uint64_t now[HISTORY_SUMS],
                   uint64_t now_us, double out[HISTORY_SUMS]);

struct history;
/* Take the first sample; make no thread. The stack is not owned and outlives it. -ENOMEM. */
GR_MUST_CHECK int history_new(struct stack *stack, struct history **out);
/* Start the thread that takes samples. -ENOMEM or -EAGAIN. */
GR_MUST_CHECK int history_start(struct history *h);
/* Copy the oldest sample into *out, which is zeroed before; history_sample_release it, after a failure too. -ENOMEM.
 * Any thread. */
GR_MUST_CHECK int history_oldest(struct history *h, struct history_sample *out);
/* End the thread and free all samples. NULL is allowed. */
void history_free(struct history *h);

#endif
