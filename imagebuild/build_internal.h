/* State of a running build, shared by build.c (the order of steps), build_parent.c (the parent or checkpoint),
 * build_publish.c (the last step) and build_step.c (progress and lease). Private to these four files. Only the thread
 * that called build_run uses it.
 */
#ifndef GRANARY_IMAGEBUILD_BUILD_INTERNAL_H
#define GRANARY_IMAGEBUILD_BUILD_INTERNAL_H

#include "imagebuild/build.h"
#include "imagebuild/checkpoint.h"
#include "imagebuild/content/content_writer.h"
#include "imagebuild/ingest.h"
#include "imagebuild/rebuild/parent.h"
#include "imagebuild/sink/upload.h"
#include "imagebuild/tar/known_shards.h"
#include "repository/lease.h"

/* One run of build_run. build_release (build.c) frees all members it owns. */
struct build {
    struct source *source;
    struct store *store;
    const struct image_ref *ref;
    struct build_options options; /* with defaults filled in */
    struct build_result *result;
    struct build_progress progress;
    const char *phase;             /* current phase, for build_same_step */
    uint64_t reported_ms;          /* time of the last progress call */
    struct lease_handle *lease;    /* NULL in a dry run */
    bool resumed;                  /* `parent` is the checkpoint of an earlier run of this build */
    struct checkpoint *checkpoint; /* NULL: this build writes no checkpoints */
    struct parent *parent;         /* NULL: no parent, or nothing of it can stay */
    struct nodes *planned;         /* nodes still to be read; NULL once they are */
    struct upload *upload;
    struct sink *sink;
    struct fs *fs;
    struct known_shards *known;           /* shards of the parent, if the source streams; NULL: none */
    bool streams;                         /* file data comes with the listing and is written while listing */
    struct ingest_result ingested;        /* its nodes become `planned` */
    struct content_writer_result written; /* including the final nodes */
};

/* ---- build_step.c: called between any two pieces of work ---- */

/* Report progress of `phase` and renew the lease. -ECANCELED: the caller of build_run asked to stop. */
GR_MUST_CHECK int build_step(struct build *b, const char *phase);
/* Do a step of the current phase: a callback for modules that work for a long time. build: the struct build. */
GR_MUST_CHECK int build_same_step(void *build);

/* ---- build_parent.c: the image or checkpoint to build upon; build.c calls these in this order ---- */

/* Find the parent, if there is one, and check its index and packs. Settles the chunk size. */
GR_MUST_CHECK int build_parent_find(struct build *b);
/* For a source that streams, before it is listed: tell it which shards the parent has. With options that make this
 * uncertain the parent is dropped: its catalog records neither device numbers nor names that were left out. */
GR_MUST_CHECK int build_parent_know_shards(struct build *b);
/* Take back what build_parent_know_shards told the source, because the filesystem cannot keep the parent's data. */
GR_MUST_CHECK int build_parent_forget_shards(struct build *b);
/* Decide which of the listed files stay where the parent or the checkpoint has them, and which compaction moves. */
GR_MUST_CHECK int build_parent_plan(struct build *b);
/* Return whether this build erases the parent's dead bytes (--scrub). */
bool build_parent_erases(const struct build *b);
/* Rewrite the parent's chunks that hold dead bytes, if build_parent_erases. */
GR_MUST_CHECK int build_parent_scrub(struct build *b);
/* Start to write checkpoints, if this build writes any. */
GR_MUST_CHECK int build_parent_open_checkpoint(struct build *b);
/* Before publishing: make sure that what the image takes over from the parent or checkpoint is still in the store. */
GR_MUST_CHECK int build_parent_hold(struct build *b);
/* After publishing: remove this build's checkpoint. */
void build_parent_forget_checkpoint(struct build *b);

/* ---- build_publish.c ---- */

/* Put the manifest, the unique tag and the requested tag, and fill in the result's counts of objects. */
GR_MUST_CHECK int build_publish(struct build *b);

#endif
