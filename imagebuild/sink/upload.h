/* Putting immutable objects into a store with a bounded number of puts in flight.
 *
 * Objects are handed over whole and named by their SHA-256. What the store has already (repository_look) is not
 * sent again but remembered, so that all of it can be checked once more before an image that relies on it is published.
 * The first error stops everything: every later call returns it.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_UPLOAD_H
#define GRANARY_IMAGEBUILD_SINK_UPLOAD_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "format/object.h"
#include "store/store.h"

struct upload;

struct upload_config {
    struct store *store; /* the caller's */
    unsigned threads;    /* concurrent puts, at least 1 */
    size_t memory;       /* bytes of objects handed over and not yet stored; one object may exceed it by itself */
    /* Called by upload_put, upload_flush and upload_check_present, about every second while they wait; non-zero ends
     * them with that value. May be NULL. */
    int (*step)(void *arg);
    void *step_arg;
};

struct upload_counts {
    uint64_t packs_new, packs_reused;
    uint64_t objects_new;    /* of any kind */
    uint64_t objects_healed; /* of those: there was one of that name, which was damaged */
    uint64_t bytes;          /* sent */
};

GR_MUST_CHECK int upload_new(const struct upload_config *config, struct upload **out);
/* Drops what has not begun, waits for the puts in flight. NULL is allowed. */
void upload_free(struct upload *u);

/* Store body under kind and its SHA-256 name, some time. Waits for room. Takes body's bytes unless it fails: it is left
 * empty, of packs with the memory of one that was stored, since the kernel takes long to give 32 MiB. One thread. */
GR_MUST_CHECK int upload_put(struct upload *u, enum object_kind kind, struct bytes *bytes, const struct digest *name);

/* The caller's step (struct upload_config), between any two pieces of long work that puts nothing. */
GR_MUST_CHECK int upload_step(struct upload *u);

/* Wait until everything handed over is in the store. */
GR_MUST_CHECK int upload_flush(struct upload *u);

/* After a flush: look again at every object that was there already, or at all of them (what this build put too).
 * -EAGAIN naming the first that is gone by now (a garbage collection took it), or has another length: the build can
 * simply be run again. Then gc's marks are taken off those that were there already. */
GR_MUST_CHECK int upload_check_present(struct upload *u, bool all);

/* Any thread. */
struct upload_counts upload_counts(struct upload *u);

#endif
