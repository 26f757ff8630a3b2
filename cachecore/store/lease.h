/* A build's lease in the store: gc sweeps nothing while one is live. Renewed by lease_renew at
 * least every minute of work; removed by lease_end. A lease not renewed for the grace period (and
 * for LEASE_LIFE_MIN_S, however short the grace period) is dead.
 *
 * The other side of the same bargain: while gc sweeps, trash/sweeping holds a document of the same
 * form. A build writes its lease and then looks for that document; gc writes that document and then
 * looks for leases. Whoever comes second sees the first: gc gives way, the build waits until it
 * has.
 */
#ifndef GRANARY_STORE_LEASE_H
#define GRANARY_STORE_LEASE_H

#include "store/store.h"

enum {
    LEASE_RENEW_MS = 60 * 1000,
    LEASE_LIFE_MIN_S = 10 * 60,
    LEASE_SWEEP_DEAD_S = 10 * 60, /* a sweep not renewed for so long has died */
};

struct lease_handle;

/* Waits while gc is sweeping; one that shows no sign of life for LEASE_SWEEP_DEAD_S is taken for
 * dead. -ETIMEDOUT: it goes on and on. Used by one thread at a time. */
GR_MUST_CHECK int lease_begin(struct store *s, const char *image, struct lease_handle **out);
/* Writes only when the last renewal is over a minute old. A build's lease that was not renewed for LEASE_LIFE_MIN_S
 * (the machine slept, the process was stopped) has lapsed: it is begun anew, which may wait like lease_begin, and
 * lease_lapsed is true from then on. A sweep that lapsed must end: -EAGAIN. */
GR_MUST_CHECK int lease_renew(struct lease_handle *l);
/* The same with the time of clock_boot_ms given. */
GR_MUST_CHECK int lease_renew_at(struct lease_handle *l, uint64_t now_ms);
/* Was there a time in which gc could take the lease for dead, so that even what its owner put may be gone? */
bool lease_lapsed(const struct lease_handle *l);
/* Removes the lease and frees l; failures are warned of (gc forgets it later). NULL is allowed. */
void lease_end(struct lease_handle *l);
DEFINE_CLEANUP(lease_handle, struct lease_handle *, lease_end)

/* gc's announcement that it sweeps: renewed and ended like a lease. -EAGAIN: another gc sweeps, or did so less than
 * LEASE_SWEEP_DEAD_S ago and was killed. Where the store does not honour conditions, two that begin within the same
 * moment may both go on. */
GR_MUST_CHECK int lease_begin_sweep(struct store *s, struct lease_handle **out);

/* How many leases are live at `now` (seconds since the epoch): renewed, by their own word or by the
 * store's clock, less than grace_s (at least LEASE_LIFE_MIN_S) ago. A lease that cannot be decoded goes by the store's
 * clock alone. forget_dead: remove the others. */
GR_MUST_CHECK int lease_count_live(struct store *s, int64_t now, int64_t grace_s, bool forget_dead, uint64_t *out);

#endif
