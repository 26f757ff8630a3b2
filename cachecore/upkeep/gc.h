/* Garbage collection in two steps: mark what no manifest needs (trash/<digest>), sweep it after the
 * grace period if it is still unneeded. Never sweeps while a lease younger than the grace period
 * exists; never marks an object younger than grace. docs/reference/format-store.md, "Garbage collection".
 */
#ifndef GRANARY_UPKEEP_GC_H
#define GRANARY_UPKEEP_GC_H

#include "store/store.h"

enum { GC_GRACE_DEFAULT_S = 14 * 24 * 3600 };

struct gc_options {
    int64_t grace_s;    /* default 14 days */
    unsigned keep_last; /* 0: keep every tag; else remove all but the newest N build tags of an
                           image (latest and tags given by people stay) */
    bool dry_run;       /* write and remove nothing; the result says what would happen */
    int64_t now;        /* seconds since the epoch; 0: the clock's */
};

struct gc_result {
    uint64_t images;       /* that a tag names */
    uint64_t objects;      /* packs, index nodes, catalog pages and manifests listed */
    uint64_t kept;         /* of those: needed, too young, or marked and waiting */
    uint64_t marked;       /* of those: marked by this run */
    uint64_t unmarked;     /* marked before, now needed again (kept) */
    uint64_t swept;        /* of those: removed */
    uint64_t tags_removed; /* by keep_last */
    uint64_t swept_bytes, marked_bytes;
    uint64_t live_leases; /* above 0: nothing was swept */
};

/* Nothing is removed on doubt: a tag or manifest that cannot be read or decoded, a tag whose
 * manifest is missing, a damaged index or catalog ends the run before anything is marked, swept or
 * untagged. Memory: 54 to 107 bytes for each object that is needed or marked. */
GR_MUST_CHECK int gc_run(struct store *s, const struct gc_options *options, struct gc_result *out);

#endif
