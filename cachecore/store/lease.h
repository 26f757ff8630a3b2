/* A build's lease in the store: gc sweeps nothing while one is live. Renewed by lease_renew at
 * least every minute of work; removed by lease_end. A lease not renewed for the grace period is
 * dead.
 */
#ifndef GRANARY_STORE_LEASE_H
#define GRANARY_STORE_LEASE_H

#include "store/store.h"

struct lease_handle;

GR_MUST_CHECK int lease_begin(struct store *s, const char *image, struct lease_handle **out);
/* Writes only when the last renewal is over a minute old. */
GR_MUST_CHECK int lease_renew(struct lease_handle *l);
/* Removes the lease and frees l; failures are warned of (gc forgets it later). NULL is allowed. */
void lease_end(struct lease_handle *l);

#endif
