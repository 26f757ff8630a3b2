/* A store behind shared tiers: HTTP servers, usually caching proxies in front of that same store, each of which
 * answers GET URL/KEY with ranges. Rendezvous hashing of the key spreads packs and index nodes over the tiers. So all
 * nodes that are given the same URLs fetch an object from the same tier, and when a tier goes away only its own keys
 * move. All other keys, and gets that a tier fails, go to the store.
 *
 * Tiers are not trusted. The reader verifies each chunk, fetches a wrong one again, in the end from store_origin(),
 * and reports the tier by store_report_bad(). */
#ifndef GRANARY_STORE_STORE_TIERS_H
#define GRANARY_STORE_STORE_TIERS_H

#include "store/store.h"

enum { STORE_TIERS_MAX = 16 };

/* One tier's state and counts since it was opened. */
struct store_tier_report {
    const char *url; /* lives as long as the store */
    bool down;       /* skipped, except for a trial request now and then */
    uint64_t requests, bytes;
    uint64_t failures; /* gets that it did not answer in full */
    uint64_t wrong;    /* chunks with wrong bytes from this tier that a second get corrected */
};

/* Put the tiers (1 to STORE_TIERS_MAX) in front of origin. origin retries failures itself (store_retry); the tiers do
 * not, so that a get they fail goes to origin at once. A tier is known by its URL: -EINVAL if two are alike; -ENOMEM.
 * Takes ownership of origin and tiers, also on failure. The caller closes *out with store_close. */
GR_MUST_CHECK int store_tiers_open(struct store *origin, struct store *const *tiers, size_t n, struct store **out);

/* The same with the HTTP servers at these URLs. Connecting may take 2 s, and a tier that sends nothing for 5 s has
 * failed. Of the store's options they share rate and cancel, and slots or else `connections` (for each tier). */
GR_MUST_CHECK int store_tiers_open_urls(struct store *origin, const char *const *urls, size_t n,
                                        const struct store_options *of_store, struct store **out);

/* Fill in a report for each tier of s, which store_tiers_open made, and return their number. */
size_t store_tiers_reports(struct store *s, struct store_tier_report out[STORE_TIERS_MAX]);

#endif
