/* What all operations that are tried again have in common: pauses of random length, what the other side asked for, and
 * a few lines in the log. When to try again, and for how long, is theirs. Any thread. */
#ifndef GRANARY_BASE_RETRY_H
#define GRANARY_BASE_RETRY_H

#include <stdint.h>

/* Return a random number from 0 to `most` (below 2^32 - 1), so that operations that failed together are not repeated
 * together. Not for secrets. */
uint64_t retry_jitter(uint64_t most);

/* Return how many milliseconds the other side asked to wait (error_retry_after_s), a minute at most. */
uint64_t retry_asked_ms(void);

/* Log the thread's error sentence after `prefix`, if the operation that began at begin_ms (clock_now_ms) has been
 * failing for seconds; its tries end after timeout_ms. At most one line in half a minute for all operations that share
 * *warned_ms, which is 0 at first. */
void retry_warn(_Atomic uint64_t *warned_ms, uint64_t begin_ms, uint64_t timeout_ms, const char *prefix);

#endif
