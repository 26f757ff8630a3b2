/* Shared cache proxies that are fakes: the list names their URLs. */
#ifndef GRANARY_FAKE_L2_FAKE_H
#define GRANARY_FAKE_L2_FAKE_H

#include "store/store.h"

/* Put the n stores, by their URLs, as proxies in front of origin. Takes all of them, also on failure. out_proxies: to
 * be closed with store_proxies_close; may be NULL. Errors of store_proxies_open. */
GR_MUST_CHECK int l2_fake_open(struct store *origin, struct store *const *proxies, size_t n, struct store **out,
                               struct store_proxies **out_proxies);

#endif
