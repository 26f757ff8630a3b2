/* Garbage collection in two steps: mark what no manifest needs (trash/<digest>), sweep it after the
 * grace period if it is still unneeded. Never sweeps while a lease younger than the grace period
 * exists; never marks an object younger than grace. docs/format-store.md, "Garbage collection".
 */
#ifndef GRANARY_STORE_GC_H
#define GRANARY_STORE_GC_H

#include "store/store.h"

struct gc_options {
    int64_t grace_s;    /* default 14 days */
    unsigned keep_last; /* 0: keep every tag; else remove all but the newest N build tags of an
                           image (latest stays) */
    bool dry_run;
};

struct gc_result {
    uint64_t images, objects, kept, marked, unmarked, swept, tags_removed;
    uint64_t swept_bytes, marked_bytes;
    uint64_t live_leases;
};

GR_MUST_CHECK int gc_run(struct store *s, const struct gc_options *options, struct gc_result *out);

#endif
