/* Put immutable objects into a store, with a bounded number of puts in flight.
 *
 * Objects are handed over whole and named by their SHA-256. An object that the store has already (repository_look) is
 * not sent again but remembered, so that all of them can be checked once more before an image that relies on them is
 * published. The first error stops everything: every later call returns it. One thread uses an upload; upload_counts
 * may be called from any.
 */
#ifndef GRANARY_IMAGEBUILD_SINK_UPLOAD_H
#define GRANARY_IMAGEBUILD_SINK_UPLOAD_H

#include <stdbool.h>

#include "base/bytes.h"
#include "base/digest.h"
#include "base/step.h"
#include "format/object.h"
#include "store/store.h"

struct upload;

struct upload_config {
    struct store *store; /* the caller's */
    unsigned threads;    /* concurrent puts, at least 1 */
    size_t memory;    /* bytes handed over and not yet stored, or kept for the next packs; one object may exceed it */
    struct step step; /* called by upload_put, upload_flush and upload_check_present, every second while they wait */
};

/* Numbers of objects that reached the store or were found in it. */
struct upload_counts {
    uint64_t packs_new, packs_reused; /* new: sent; reused: the store had them */
    uint64_t objects_new;             /* sent, of any kind */
    uint64_t objects_healed;          /* part of objects_new: the store had a damaged one */
    uint64_t bytes;                   /* sent */
};

/* -ENOMEM; -EAGAIN with a sentence: threads cannot be started. */
GR_MUST_CHECK int upload_new(const struct upload_config *config, struct upload **out);
/* Drop jobs that have not begun, and wait for the puts in flight. NULL is allowed. */
void upload_free(struct upload *u);

/* Queue an object to be stored under `kind` and its name, its SHA-256. Waits while the budget is used up. Takes over
 * the content of *bytes and leaves it empty; for packs, with the memory of a pack already stored, because the kernel
 * takes long to provide 32 MiB. On failure *bytes stays as it is. -ENOMEM; the result of step; the first error of a
 * put. */
GR_MUST_CHECK int upload_put(struct upload *u, enum object_kind kind, struct bytes *bytes, const struct digest *name);

/* From now on send packs even if the store seems to have them: looking up does not find damage in the middle of one. */
void upload_send_packs(struct upload *u);

/* Note an object of `len` bytes that the store has and the image needs, though it is not put: it counts as one that was
 * there before. -ENOMEM. */
GR_MUST_CHECK int upload_rely(struct upload *u, enum object_kind kind, const struct digest *name, size_t len);

/* Call the caller's step, between any two pieces of long work that puts nothing. */
GR_MUST_CHECK int upload_step(struct upload *u);

/* Wait until everything handed over is in the store. The result of step, or the first error of a put. */
GR_MUST_CHECK int upload_flush(struct upload *u);

/* After a flush: look up every object that was there before, or with `all` also those that this build put. Then take
 * gc's marks off all of them: what the build put first may be older than the grace period by now. -EAGAIN, naming the
 * object: one is gone (a garbage collection took it) or has another length; the build can simply be run again. Others
 * come from step and the store. */
GR_MUST_CHECK int upload_check_present(struct upload *u, bool all);

/* Return the counts so far. Any thread. */
struct upload_counts upload_counts(struct upload *u);

#endif
