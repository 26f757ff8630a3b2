/* Garbage collection in two steps: mark what no image needs (trash/<digest>), and remove it a grace period later if it
 * is still not needed. Removes nothing while a lease younger than the grace period exists, and marks no object younger
 * than the grace period. docs/reference/format-store.md, "Garbage collection". */
#ifndef GRANARY_UPKEEP_GC_H
#define GRANARY_UPKEEP_GC_H

#include "store/store.h"

enum { GC_GRACE_DEFAULT_S = 14 * 24 * 3600 };

/* Options of gc_run. All zero would collect without a grace period. */
struct gc_options {
    int64_t grace_s;    /* grace period in seconds; GC_GRACE_DEFAULT_S unless the user says otherwise */
    unsigned keep_last; /* 0: keep every tag; else remove all but the newest N build tags of each image name (latest and
                           tags given by users stay) */
    bool dry_run;       /* write and remove nothing; the result tells what would happen */
    int64_t now;        /* seconds since the epoch; 0: the current time */
    const volatile int *cancel; /* set asynchronously: ends with -ECANCELED; may be NULL */
};

/* What a run did, or in a dry run would do. Counts are objects unless named otherwise. */
struct gc_result {
    uint64_t images;       /* images with a tag */
    uint64_t objects;      /* packs, index nodes, catalog pages and manifests listed */
    uint64_t kept;         /* of those: needed, too young, or marked and not due */
    uint64_t marked;       /* of those: marked by this run */
    uint64_t unmarked;     /* marked before, and kept because needed again */
    uint64_t swept;        /* of those: removed */
    uint64_t tags_removed; /* tags that keep_last removed */
    uint64_t swept_bytes, marked_bytes;
    uint64_t live_leases; /* above 0: objects that were due were kept for running builds */
};

/* Run once. In doubt nothing is removed: a tag or manifest that cannot be read or decoded, a tag without its manifest,
 * or a damaged index or catalog ends the run (-EBADMSG) before anything is marked, removed or untagged. -EAGAIN:
 * another gc is sweeping; -EINVAL: a negative grace period; -ENOENT: not a Granary store; -ECANCELED: what was marked
 * or removed so far stays so; else the store's errors.
 * Memory: 54 to 107 bytes for each object that is needed or marked. */
GR_MUST_CHECK int gc_run(struct store *s, const struct gc_options *options, struct gc_result *out);

#endif
