/* A store behind shared tiers: HTTP servers, usually caching proxies in front of that very store, each of which
 * answers GET URL/KEY with ranges. Packs and index nodes are spread over them by rendezvous hashing of the key, so that
 * every node that names the same URLs asks the same tier for the same object, and a tier that goes moves its own keys
 * alone. Everything else, and what a tier fails to give, is asked of the store.
 *
 * Tiers are not trusted: what they give is verified by whoever reads chunks, who asks again for what was wrong, at last
 * store_origin(), and tells store_report_bad().
 */
#ifndef GRANARY_STORE_STORE_TIERS_H
#define GRANARY_STORE_STORE_TIERS_H

#include "store/store.h"

enum { STORE_TIERS_MAX = 16 };

/* What one tier has done so far. */
struct store_tier_report {
    const char *url; /* lives as long as the store */
    bool down;       /* passed over but for a request now and then */
    uint64_t requests, bytes;
    uint64_t failures; /* gets that it did not answer whole */
    uint64_t wrong;    /* chunks whose bytes from it were wrong, and right when they were asked for again */
};

/* tiers[0..n), 1 to STORE_TIERS_MAX of them, in front of origin, which repeats failures itself (store_retry); the tiers
 * do not: what they fail goes to origin at once. Their URLs are their names: -EINVAL for two alike. Takes ownership of
 * origin and tiers, also on failure. *out: store_close. */
GR_MUST_CHECK int store_tiers_open(struct store *origin, struct store *const *tiers, size_t n, struct store **out);

/* The same with HTTP servers at these URLs: 2 s to connect, and one that gives nothing for 5 s has failed. Of the
 * options of the store, connections (to each at a time) or places, rate and cancel are theirs too. */
GR_MUST_CHECK int store_tiers_open_urls(struct store *origin, const char *const *urls, size_t n,
                                        const struct store_options *of_store, struct store **out);

/* s: what store_tiers_open made. Returns how many there are. */
size_t store_tiers_reports(struct store *s, struct store_tier_report out[STORE_TIERS_MAX]);

#endif
