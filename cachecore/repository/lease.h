/* A build's lease in the store: gc sweeps nothing, and unnest takes no store apart, while a lease is live. lease_renew
 * renews it at least every minute of work, lease_end removes it. A lease that was not renewed for the grace period (at
 * least LEASE_LIFE_MIN_S) is dead.
 *
 * The counterpart is trash/sweeping, a document of the same form that exists while gc or unnest sweeps. Each side
 * writes first and then looks for the other:
 *
 *   build:        write lease             then wait while trash/sweeping is there
 *   gc, unnest:   write trash/sweeping    then stop if a lease is there
 *
 * Whichever writes second sees the first, so the two never run together: the sweep gives way, and the build waits for
 * that. An unnest that has ended leaves no store, so after each wait the build looks whether there still is one. */
#ifndef GRANARY_REPOSITORY_LEASE_H
#define GRANARY_REPOSITORY_LEASE_H

#include "store/store.h"

/* A lease is renewed ten times within its shortest life, so a stalled process or a slow store does not lose it at
 * once. */
enum {
    LEASE_RENEW_MS = 60 * 1000,
    LEASE_LIFE_MIN_S = 10 * 60,
    LEASE_SWEEP_DEAD_S = 10 * 60, /* a sweep that was not renewed for this long has died; equal to a build's limit */
};

struct lease_handle;
struct nesting;

#define LEASE_SWEEP_KEY "trash/sweeping"

/* Write a lease for a build of `image`, then wait while gc or unnest is sweeping, and check that s is a store
 * (nesting_check_again). A sweep without a renewal for LEASE_SWEEP_DEAD_S counts as dead. A wait of more than a second
 * is logged; cancel (may be NULL) ends it and is asked in later waits too. -ETIMEDOUT: the sweep does not end;
 * -ECANCELED: *cancel was set; -ESTALE: s is no store any more. A handle is used by one thread at a time; store, place
 * and cancel must outlive it. The caller ends it with lease_end. */
GR_MUST_CHECK int lease_begin(struct store *s, const struct nesting *place, const char *image,
                              const volatile int *cancel, struct lease_handle **out);
/* Renew the lease if the last renewal is over a minute old. A build's lease that was not renewed for LEASE_LIFE_MIN_S
 * (the machine slept, the process was stopped, the store was silent) has lapsed: it is written again, which may wait
 * and fail like lease_begin, and lease_lapses counts it. -EAGAIN: a sweep has lapsed and must end. */
GR_MUST_CHECK int lease_renew(struct lease_handle *l);
/* The same at a given time of clock_boot_ms. */
GR_MUST_CHECK int lease_renew_at(struct lease_handle *l, uint64_t now_ms);
/* Return how often the lease has lapsed. Each time gc may have taken it for dead: even objects that the owner put may
 * be gone, and what the owner found in the store before counts for nothing. So a check of what an image needs holds
 * only if this number, read before it, is the same after a renewal that follows the last put. */
unsigned lease_lapses(const struct lease_handle *l);
/* Check, after a renewal, that the lease has not lapsed since lease_lapses was `lapses`. -EAGAIN: it has, so that what
 * a tag was put for may be gone. */
GR_MUST_CHECK int lease_check_held(const struct lease_handle *l, unsigned lapses);
/* Was the last renewal less than LEASE_LIFE_MIN_S ago? Any thread, also while another one renews: what works under a
 * sweep asks before each removal. */
bool lease_is_live(const struct lease_handle *l);
/* Remove the lease and free l. A failure is logged, and the thread's sentence stays what it was; gc removes the lease
 * later. NULL is allowed. */
void lease_end(struct lease_handle *l);
DEFINE_CLEANUP(lease_handle, struct lease_handle *, lease_end)
/* Free l and leave its document in the store, as if the process had been killed. NULL is allowed. */
void lease_abandon(struct lease_handle *l);

/* Announce that gc or unnest sweeps; renewed and ended like a lease. -EAGAIN: another one is sweeping, or was killed
 * while sweeping less than LEASE_SWEEP_DEAD_S ago. -EEXIST: a store around this one has a tag there. On a store that
 * does not honour conditional puts, two that begin at the same moment may both succeed. */
GR_MUST_CHECK int lease_begin_sweep(struct store *s, struct lease_handle **out);

/* Set *out to the number of leases that are live at `now` (seconds since the epoch): those renewed less than grace_s
 * (at least LEASE_LIFE_MIN_S) ago. The time of renewal is the later of the lease's own and the store's; a lease that
 * cannot be decoded has only the store's. forget_dead: remove the other leases. */
GR_MUST_CHECK int lease_count_live(struct store *s, int64_t now, int64_t grace_s, bool forget_dead, uint64_t *out);

#endif
